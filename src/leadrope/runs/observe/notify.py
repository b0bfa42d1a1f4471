"""Notifies a person that a run waits for an answer: terminal bell, desktop command, webhook. Decides nothing.

All settings come from `[notify]` in the user's own config.toml, never from a project: otherwise the author of a
repository could choose where news of your work is sent, and which program is started.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tomllib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Self, TextIO

import msgspec

from leadrope import errors
from leadrope.core import home
from leadrope.core.events import ApprovalRequested, QuestionRequested, Recorded
from leadrope.core.execution_events import ExecutionRecord, StepAsked
from leadrope.core.secrets.redacted_json import clean_value
from leadrope.core.secrets.redaction import Redactor, Secret
from leadrope.core.tools import ToolCall
from leadrope.runs import settings as configured
from leadrope.runs.observe import webhook
from leadrope.runtime.terminal_text import clean, describe, one_line

SECRET_VARIABLE = "LEADROPE_WEBHOOK_SECRET"  # noqa: S105  # its name, not its value
PLACEHOLDERS = ("{title}", "{body}")
COMMAND_S = 10.0
"""A desktop command that takes longer is killed, so that a hanging notification daemon does not pile up processes."""
WAITING = 64
"""Maximum pending notifications; further ones are dropped. Somebody who does not answer 64 needs no 65th."""
# What a desktop command needs to find its desktop; nothing that could contain a credential.
_FORWARDED = (
    *("PATH", "HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
    *("XDG_RUNTIME_DIR", "XDG_SESSION_TYPE", "DBUS_SESSION_BUS_ADDRESS", "SYSTEMROOT"),
)
# For these programs an argument can be code.
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "cmd", "powershell", "pwsh", "osascript", "eval")

log = logging.getLogger("leadrope.notify")


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    bell: bool = False
    command: tuple[str, ...] = ()
    webhook: webhook.WebhookTarget | None = None

    @property
    def is_silent(self) -> bool:
        return not (self.bell or self.command or self.webhook)


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification, and the body of a webhook."""

    type: Literal["approval.needed", "question.asked", "step.asked"]
    run_id: str = ""
    execution_id: str = ""
    """Instead of a run: the workflow execution whose step asks."""
    step: str = ""
    asked_id: str
    title: str
    body: str
    tool: str = ""
    risk: str = ""
    reason: str = ""
    time: float
    expires_s: float = 0.0
    cwd: str = ""
    labels: dict[str, str] = {}


def load(environ: Mapping[str, str]) -> NotifySettings:
    """Return the settings of the user's own config; the defaults if there is none."""
    path = home.config_file(environ)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("notify", {})
    except FileNotFoundError:
        return NotifySettings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.BadConfig(f"{path} cannot be read: {error}") from None
    known = {**home.load_env(home.leadrope_home(environ)), **environ}
    return settings(table, known, source=str(path))


def settings(table: Any, environ: Mapping[str, str], *, source: str = "config.toml") -> NotifySettings:
    """Validate `[notify]`; the webhook's secret comes from the environment or LEADROPE_HOME/.env."""
    given = configured.table(("notify",), table, configured.NotifyTable, source)
    _check_command(given.command, source)
    target = None
    if given.webhook:
        secret = environ.get(SECRET_VARIABLE, "")
        if not secret:
            hint = f"Put {SECRET_VARIABLE} into the .env file of LEADROPE_HOME."
            raise configured.refused(source, ("notify", "webhook"), "has no secret to sign with", hint)
        if not 0 < given.webhook_timeout_s <= 60:
            raise configured.refused(source, ("notify", "webhook_timeout_s"), "is out of range", "Use 1 to 60 seconds.")
        if not 1 <= given.webhook_tries <= 10:
            raise configured.refused(source, ("notify", "webhook_tries"), "is out of range", "Use 1 to 10.")
        target = webhook.WebhookTarget(
            url=given.webhook,
            secret=Secret(secret),
            timeout_s=given.webhook_timeout_s,
            tries=given.webhook_tries,
        )
        try:
            webhook.check(target)
        except errors.BadConfig as error:
            raise configured.refused(
                source, ("notify", "webhook"), f"cannot be used: {error.message}", error.hint
            ) from None
    return NotifySettings(bell=given.bell, command=given.command, webhook=target)


def _check_command(command: Sequence[str], source: str) -> None:
    at = ("notify", "command")
    for word in command:
        if any(name in word for name in PLACEHOLDERS) and word not in PLACEHOLDERS:
            hint = 'A placeholder is a word of its own: ["notify-send", "{title}", "{body}"].'
            raise configured.refused(source, at, f"has a placeholder among other text: {word!r}", hint)
    if not command:
        return
    program = os.path.basename(command[0].replace("\\", "/")).lower().removesuffix(".exe")  # noqa: PTH119  # a word
    if program in _SHELLS and any(word in PLACEHOLDERS for word in command):
        hint = "Name the program itself, or a script file of yours that takes the two as its arguments."
        raise configured.refused(source, at, f"would let {program} take what an agent wrote for a program", hint)


def word_of(
    recorded: Recorded, redactor: Redactor, *, cwd: str = "", labels: Mapping[str, str] | None = None
) -> Notification | None:
    """Return the notification for an event that asks a person something; None for all others."""
    event = recorded.event
    match event:
        case ApprovalRequested():
            # Redacted first: if cut first, half a key would remain.
            call = ToolCall(id="", name=event.call.name, input=clean_value(event.call.input, redactor.clean))
            tool = one_line(clean(redactor.clean(event.call.name)), 60)
            # Our own words come first, so that an agent's text cannot begin with a dash and be taken for an option.
            body = f"Run {recorded.run_id[:12]}: {tool} {describe(call, cwd=cwd, width=300)}"
            return Notification(
                type="approval.needed",
                run_id=recorded.run_id,
                asked_id=event.approval_id,
                title="leadrope: approval needed",
                body=body,
                tool=tool,
                risk=event.risk,
                reason=one_line(clean(redactor.clean(event.reason)), 300),
                time=recorded.time,
                expires_s=event.expires_s,
                cwd=redactor.clean(cwd),
                labels=_labels(labels, redactor),
            )
        case QuestionRequested():
            asked = event.plan if event.kind == "plan" else " / ".join(item.question for item in event.questions)
            title = "leadrope: a plan waits" if event.kind == "plan" else "leadrope: a question"
            return Notification(
                type="question.asked",
                run_id=recorded.run_id,
                asked_id=event.question_id,
                title=title,
                body=f"Run {recorded.run_id[:12]}: {one_line(clean(redactor.clean(asked)), 300)}",
                time=recorded.time,
                expires_s=event.expires_s,
                cwd=redactor.clean(cwd),
                labels=_labels(labels, redactor),
            )
        case _:
            return None


def word_of_step(
    record: ExecutionRecord, redactor: Redactor, *, cwd: str = "", labels: Mapping[str, str] | None = None
) -> Notification | None:
    """Return the notification for a workflow event whose step asks a person; None for all others."""
    event = record.event
    if not isinstance(event, StepAsked) or event.run_id:
        return None  # an agent's run notifies by itself
    asked = one_line(clean(redactor.clean(event.detail or event.title)), 300)
    return Notification(
        type="step.asked",
        execution_id=record.execution_id,
        step=event.step,
        asked_id=event.approval_id,
        title="leadrope: a workflow waits",
        body=f"Execution {record.execution_id[:12]}, step {event.step}: {asked}",
        reason=one_line(clean(redactor.clean(event.reason)), 300),
        time=record.time,
        cwd=redactor.clean(cwd),
        labels=_labels(labels, redactor),
    )


def _labels(labels: Mapping[str, str] | None, redactor: Redactor) -> dict[str, str]:
    return {redactor.clean(key): redactor.clean(value) for key, value in (labels or {}).items()}


class Notifier:
    """Sends notifications in the background: `async with Notifier(settings) as notifier: notifier.tell(word)`.

    `tell` never waits and never raises.
    """

    def __init__(
        self,
        settings: NotifySettings,
        *,
        environ: Mapping[str, str] | None = None,
        terminal: TextIO | None = None,
        grace_s: float = 5.0,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._environ = {name: value for name, value in (environ or {}).items() if name in _FORWARDED}
        self._terminal = terminal
        self._grace_s = grace_s
        self._pause = pause
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close(self._grace_s)

    async def close(self, grace_s: float) -> None:
        """Wait up to `grace_s` for pending notifications, then cancel them."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            log.warning("%d notifications were not sent in time", len(late))
            await asyncio.wait(late)

    def tell(self, word: Notification) -> None:
        if self._settings.bell:
            self._ring()
        work = []
        if self._settings.command:
            work.append(self._run(word))
        if self._settings.webhook is not None:
            work.append(self._post(self._settings.webhook, word))
        for step in work:
            if len(self._tasks) >= WAITING:
                log.warning(
                    "too many notifications are on their way; one of %s is left out", word.run_id or word.execution_id
                )
                step.close()
                continue
            task = asyncio.get_running_loop().create_task(step)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _ring(self) -> None:
        if self._terminal is None or not self._terminal.isatty():
            return
        try:
            self._terminal.write("\a")
            self._terminal.flush()
        except OSError as error:
            log.info("the terminal's bell cannot be rung: %s", error)

    async def _run(self, word: Notification) -> None:
        given = {"{title}": word.title, "{body}": word.body}
        argv = [given.get(part, part) for part in self._settings.command]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            log.warning("the notification command %s cannot be started: %s", argv[0], error)
            return
        try:
            async with asyncio.timeout(COMMAND_S):
                code = await process.wait()
            if code:
                log.warning("the notification command %s ended with %d", argv[0], code)
        except TimeoutError:
            log.warning("the notification command %s took too long", argv[0])
        finally:
            if process.returncode is None:
                process.kill()
                await asyncio.shield(process.wait())

    async def _post(self, target: webhook.WebhookTarget, word: Notification) -> None:
        done = await webhook.send(target, msgspec.json.encode(word), delivery_id=str(uuid.uuid4()), pause=self._pause)
        if not done.ok:
            log.warning("the webhook was not taken after %d tries: %s", done.tries, done.detail)
