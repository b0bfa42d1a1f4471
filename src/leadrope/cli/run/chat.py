"""`leadrope chat`: a conversation at the terminal. Turns, approvals, questions and interrupts; decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags, hangup, options, origins, values
from leadrope.cli.exits import INTERRUPTED
from leadrope.cli.run import resuming, run_session_ui
from leadrope.cli.run.run import secret_files, with_config
from leadrope.cli.screen import table
from leadrope.cli.screen.live_lines import LiveLines
from leadrope.cli.screen.render import Renderer, money
from leadrope.cli.screen.screen import Screen
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import normal_mode
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.masking import Masking, without_known
from leadrope.runs.service import Service
from leadrope.runtime.agents import config_values
from leadrope.runtime.conversation import Conversation, open_conversation
from leadrope.runtime.sessions.files import Sessions
from leadrope.runtime.terminal_text import clean

LABEL = "> "

_HELP = """Talk with an agent, turn by turn, under supervision.

The process is kept between turns. Calls that no rule decides, and questions of the agent, are asked here. Alt-Enter, or
a backslash before Enter, begins a new line. Esc or Ctrl-C interrupts a turn, a second Ctrl-C ends it; Ctrl-D, or Ctrl-C
twice at an empty line, leaves. PROMPT is the first message.
"""
_EPILOG = """\b
Examples:
  leadrope chat
  leadrope chat "why does test_login fail?" --mode plan
  leadrope chat --continue
  leadrope chat --resume 7f1f9d3e

Inside, /help lists the commands.
"""
_COMMANDS = """/help           this
/cost           what it has cost so far
/model [NAME]   the model; with a name, another one from the next turn on
/mode [MODE]    what the agent may do; with a mode, another one from the next turn on
/session        the id of this session
/exit           leave; Ctrl-D does the same
//…             a text that begins with a slash

Alt-Enter, or \\ before Enter, begins a new line. Esc interrupts the agent."""
# What belongs to a single run: its one prompt and the form of its one result.
_OF_ONE_RUN = ("ci", "junit", "detach", "worktree", "branch", "carry", "checkpoint", "title", "priority")
_NOT_HERE = (
    "file",
    "attach",
    "output",
    "strict",
    "fail_on_denied",
    "schema",
    "schema_retries",
    "structured_retries",
    *_OF_ONE_RUN,
)
_FLAGS = tuple(flag for flag in options.FLAGS if flag.name not in _NOT_HERE)


@click.command(
    "chat",
    cls=options.GroupedCommand,
    params=[click.Argument(["prompt"], required=False), *_FLAGS],
    help=_HELP,
    epilog=_EPILOG,
    short_help="Talk with an agent, turn by turn.",
)
@flags.old_walls()
def command(prompt: str | None, **given: Any) -> int:
    environ = dict(os.environ)
    environ = {**home.load_env(home.leadrope_home(environ)), **environ}
    config = configs.load(environ)
    values.note_old_keys(config)
    config_values.check(config)
    options.one_session(given)
    named = resuming.session_named(given, environ)
    earlier = resuming.find(named, environ) if named is not None else None
    request = with_config({**options.overrides(given), "prompt": ""}, given, config, environ, named, earlier)
    if earlier is not None and earlier.worktree and not given["cwd"]:
        request = msgspec.structs.replace(request, cwd=earlier.worktree)
    screen = Screen.of_process(environ)
    try:
        place = {"secret_files": secret_files(given, earlier)}
        return asyncio.run(_chat(prompt, request, screen, config, environ, place, quiet=bool(given["quiet"])))
    except errors.LeadropeError as error:
        raise origins.named(error, given, config) from None
    except asyncio.CancelledError:
        return INTERRUPTED


async def _chat(
    prompt: str | None,
    request: RunRequest,
    screen: Screen,
    config: configs.Config,
    environ: Mapping[str, str],
    place: dict[str, Any],
    *,
    quiet: bool,
) -> int:
    with run_session_ui.logs(screen, environ), run_session_ui.at_prompt(screen) as (prompts, console):
        in_order = run_session_ui.AfterShown(console)
        if request.resume is not None:
            sessions = Sessions.of(environ)
            request, said = _known(sessions, request)
            prompts.history += said
        async with (
            Service(config=config) as service,
            open_conversation(
                request, approver=in_order, config=config, opener=partial(service.open, place=place)
            ) as conversation,
        ):
            console.clean = lambda text: conversation.redactor.only_known().clean(text)
            chat = _Chat(conversation, request, prompts, in_order, screen, quiet=quiet)
            main = asyncio.current_task()
            loop = asyncio.get_running_loop()
            ending = hangup.signals()
            for number in ending:
                loop.add_signal_handler(number, _leave, main)
            loop.add_signal_handler(signal.SIGINT, chat.pressed)
            try:
                return await chat.go(prompt)
            finally:
                for number in (signal.SIGINT, *ending):
                    loop.remove_signal_handler(number)
                chat.farewell()


def _leave(main: asyncio.Task[Any] | None) -> None:
    hangup.let_go()
    if main is not None:
        main.cancel()


def _known(sessions: Sessions, request: RunRequest) -> tuple[RunRequest, list[str]]:
    """What was typed in this session before can be recalled."""
    known = sessions.match(request.resume or "")
    if known is None:
        return request, []
    return request, [entry.text for entry in sessions.transcript(known) if entry.role == "user"]


class _Chat:
    def __init__(
        self,
        conversation: Conversation,
        request: RunRequest,
        prompts: Any,
        in_order: run_session_ui.AfterShown,
        screen: Screen,
        *,
        quiet: bool,
    ) -> None:
        self._conversation = conversation
        self._request = request
        self._chosen = ""
        """The model that /model has set."""
        self._model = request.model or ""
        self._mode: str = request.mode
        self._cwd = request.cwd or str(Path.cwd())
        self._prompts = prompts
        self._in_order = in_order
        self._screen = screen
        self._is_quiet = quiet
        self._renderer = Renderer(screen, quiet=quiet, folded=screen.can_redraw and not quiet)
        self._turn: asyncio.Task[None] | None = None
        self._interrupting: asyncio.Task[None] | None = None
        self._presses = 0

    def _greet(self) -> None:
        """One line: what this is, and the way out."""
        folder = table.cut_start(clean(self._cwd), max(16, self._screen.width // 2))
        parts = [self._model or "default model", f"mode {self._mode}", folder, "/help, Ctrl-D leaves"]
        for line in table.joined(parts, self._screen.width):
            self._screen.line(self._screen.style.dim(line))

    async def go(self, first: str | None) -> int:
        if not self._is_quiet:
            self._greet()
        text = first
        warned = False
        while True:
            if text is None:
                try:
                    text = await self._prompts.read(LABEL)
                except EOFError:
                    return 0
                except KeyboardInterrupt as pressed:
                    if warned and not str(pressed):
                        return 0
                    warned = not str(pressed)
                    if warned:
                        self._screen.line("press Ctrl-C again, or Ctrl-D, to leave")
                    continue
            warned = False
            said, text = text.strip(), None
            if not said:
                continue
            if said.startswith("/") and not said.startswith("//"):
                if await self._command(said) == "exit":
                    return 0
                continue
            await self._take_turn(said.removeprefix("/") if said.startswith("//") else said)

    # -- a turn -------------------------------------------------------------------------------------------------------

    async def _take_turn(self, text: str) -> None:
        self._presses = 0
        turn = asyncio.get_running_loop().create_task(self._said(text))
        self._turn = turn
        self._prompts.watch(self.pressed)
        self._renderer.begin_turn()
        try:
            with LiveLines(self._screen, self._renderer.live_lines, wanted=not self._is_quiet):
                await turn
        except asyncio.CancelledError:
            if not turn.cancelled() or self._presses < 2:
                turn.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await turn
                raise  # it was us who were told to end
            self._screen.line("interrupted.")
        except errors.LeadropeError as error:
            if self._conversation.starts == 0:
                raise  # nothing has begun: the words are those of any command
            self._screen.line(spelling.runnable(f"✗ {error.message}"))
            if error.hint:
                self._screen.line(spelling.runnable(f"  {error.hint}"))
        finally:
            self._turn = None
            self._prompts.stop_watching()
            if self._interrupting is not None:
                await asyncio.wait((self._interrupting,))
                self._interrupting = None

    async def _said(self, text: str) -> None:
        async with contextlib.aclosing(self._conversation.say(text)) as turn:
            async for recorded in self._masked(turn):
                if not isinstance(recorded.event, events.RunEnded):
                    self._renderer.show(recorded)
                self._in_order.shown(recorded.event)
                if isinstance(recorded.event, events.SessionStarted):
                    self._model, self._mode = recorded.event.model, recorded.event.mode
        if self._conversation.last is not None:
            last = without_known(self._conversation.last, self._conversation.redactor)
            self._renderer.show_turn(last, is_interrupted=self._presses > 0)

    async def _masked(self, turn: AsyncIterator[events.Recorded]) -> AsyncIterator[events.Recorded]:
        """As at `leadrope run`: what is known to be a secret is for no screen."""
        masking = Masking(self._known)
        async for recorded in turn:
            for cleaned in masking.of([recorded]):
                yield cleaned

    def _known(self) -> Redactor:
        return self._conversation.redactor.only_known()

    def pressed(self) -> None:
        """Ctrl-C or Esc while the agent works: the first interrupts, the second does not wait."""
        if self._screen.is_lent:
            return
        if self._turn is None:
            self._prompts.interrupt()
            return
        self._presses += 1
        if self._presses > 1:
            self._turn.cancel()
            return
        self._screen.line("interrupting; press Ctrl-C again to end the turn at once", now=True)
        self._interrupting = asyncio.get_running_loop().create_task(self._conversation.interrupt())

    # -- commands -----------------------------------------------------------------------------------------------------

    async def _command(self, said: str) -> str:
        name, _, value = said.partition(" ")
        value = value.strip()
        match name:
            case "/exit" | "/quit":
                return "exit"
            case "/help":
                self._screen.line(_COMMANDS)
            case "/cost":
                turns = self._conversation.turns
                spent = money(self._conversation.cost_usd)
                label = self._conversation.cost_label
                self._screen.line(f"{turns} turn{'' if turns == 1 else 's'} · {spent} ({label})")
            case "/session":
                self._screen.line(self._conversation.session_id or "it starts with your first prompt")
            case "/model":
                if value:
                    await self._conversation.change(model=value)
                    self._model = self._chosen = value
                self._screen.line(f"model: {self._model or 'the default'}")
            case "/mode":
                await self._change_mode(value)
            case _:
                self._screen.line(f"there is no command {name}; /help lists them")
        return ""

    async def _change_mode(self, value: str) -> None:
        if value:
            try:
                mode = normal_mode(value)
            except errors.BadValue as error:
                self._screen.line(spelling.runnable(f"{error.message}. {error.hint or ''}".strip()))
                return
            await self._conversation.change(mode=mode)
            self._mode = mode
        self._screen.line(f"mode: {self._mode}")

    def farewell(self) -> None:
        if self._conversation.starts and self._conversation.can_reopen:
            words = ["leadrope", "chat", "--resume", self._conversation.session_id or "", *self._settings()]
            self._screen.line(self._screen.style.dim(f"resume with: {shlex.join(words)}"))

    def _settings(self) -> list[str]:
        """The flags without which the session would continue in another way."""
        given, usual = self._request, RunRequest(prompt="")
        found = {"--mode": self._mode if self._mode != usual.mode else "", "--model": self._chosen or given.model or ""}
        found |= {
            "--billing": given.billing if given.billing != usual.billing else "",
            "--base-url": given.base_url or "",
        }
        return [word for flag, value in found.items() if value for word in (flag, value)]
