"""`shell`: one command in the workspace, as a script for bash or as a list of words. Rules are decided elsewhere.

Template values are data: in a script each is quoted for its position (`shell_quoting`), in a list each is one word.
Only a script that consists of a single template is the value itself.
"""

from __future__ import annotations

import base64
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core.tools import ToolCall
from leadrope.workflows.language import shell_quoting, templates
from leadrope.workflows.steps.base import Caution, Kind, StepConfig, StepContext, StepDone, StepFailed, brief

if TYPE_CHECKING:
    from leadrope.process.command_pool.command import Finished

MIB = 1024 * 1024
DEFAULT_BYTES, MOST_BYTES = 10 * MIB, 100 * MIB
_NOT_TEXT = "not_text"
_SHOWN = 400
"""Characters of stderr in a message; the outputs have all of it."""

Scalar = str | int | float | bool | None


class Shell(StepConfig, frozen=True, kw_only=True):
    command: Annotated[
        str | list[Scalar],
        Meta(description="A script for bash, or a list of a program and its words, which no shell reads."),
    ]
    command_file: Annotated[str | None, Meta(description="A file beside the workflow that holds the script.")] = None
    stdin: Annotated[Any, Meta(description="What the command reads: a text as it is, any other value as JSON.")] = None
    cwd: Annotated[str, Meta(description="A folder inside the workspace; left out, the workspace itself.")] = ""
    env: Annotated[dict[str, Scalar], Meta(description="Further variables of the command.")] = msgspec.field(
        default_factory=dict
    )
    ignore_errors: Annotated[bool, Meta(description="An exit code other than 0 is a success too.")] = False
    strip_newlines: Annotated[
        Literal["one", "all", "none"], Meta(description="Newlines that are cut from the end of stdout.")
    ] = "one"
    binary_as: Annotated[
        Literal["replaced", "base64"],
        Meta(description="What becomes of output that is not UTF-8: replaced characters with a warning, or base64."),
    ] = "replaced"
    max_output_bytes: Annotated[
        int, Meta(ge=1, le=MOST_BYTES, description="Kept of stdout, and of stderr; the rest is dropped.")
    ] = DEFAULT_BYTES


def fill(parameters: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve all templates, those inside a script as data. Unresolved names all that have no value."""
    given: dict[str, Any] = templates.resolve(parameters, scope)
    source = parameters.get("command")
    if isinstance(source, bool | int | float):
        given["command"] = templates.as_text(source)  # `- command: true` means the program
    if isinstance(source, str) and not shell_quoting.is_whole(source):
        given["command"] = shell_quoting.filled(
            source, lambda template: templates.as_text(templates.resolve(template, scope), scope)
        )
    return given


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield templates in a script that no value could fill."""
    source = parameters.get("command")
    if isinstance(source, str) and not shell_quoting.is_whole(source):
        for template, reason in shell_quoting.refused(source):
            yield "command", f"{template}: {reason}. {shell_quoting.ADVICE}"


async def run(config: Shell, context: StepContext) -> StepDone:
    command = (
        config.command if isinstance(config.command, str) else [templates.as_text(word) for word in config.command]
    )
    text = command if isinstance(command, str) else shlex.join(command)
    if not text.strip():
        raise StepFailed("the command is empty", kind="bad_input", hint="Look at the template that it comes from.")
    cwd = _folder(config.cwd, context.workspace)
    judged = judged_text(text, cwd, context.workspace)
    env = {name: templates.as_text(value) for name, value in config.env.items()}
    stdin = _input(config.stdin)
    call = ToolCall(id=str(context.key), name="Bash", input={"command": judged})
    allowed = (await context.permit(call, is_own=is_own(context.sources, judged))).input["command"]
    if allowed != judged:
        command, cwd = str(allowed), context.workspace
    context.say(brief(text, 80))
    started = time.monotonic()
    options: dict[str, Any] = {
        "cwd": cwd,
        "env": env,
        "stdin": stdin,
        "timeout_s": context.timeout_s,
        "limit_bytes": config.max_output_bytes,
    }
    try:
        if isinstance(command, str):
            done = await context.commands.shell(command, **options)
        else:
            done = await context.commands.run(command, **options)
    except errors.LeadropeError as error:
        raise failed_start(error, brief(text, 80)) from error
    duration_ms = round((time.monotonic() - started) * 1000)
    return _result(config, done, context, text, duration_ms)


def judged_text(text: str, cwd: Path, workspace: Path) -> str:
    """Return the script for the rules, which read it starting at the workspace; a different folder becomes a `cd`."""
    return text if cwd == workspace else f"cd {shlex.quote(str(cwd))}\n{text}"


def call_of(config: Shell, workspace: Path) -> str:
    """Return the command as it is shown to the rules."""
    command = config.command
    text = command if isinstance(command, str) else shlex.join(templates.as_text(word) for word in command)
    return judged_text(text, _folder(config.cwd, workspace), workspace)


def _result(config: Shell, done: Finished, context: StepContext, text: str, duration_ms: int) -> StepDone:
    name = brief(text, 80)
    outputs, warnings = told(done, config.max_output_bytes)
    if config.strip_newlines == "all":
        outputs["stdout"] = outputs["stdout"].rstrip("\n")
    elif config.strip_newlines == "none":
        outputs["stdout"] += "\n" if done.stdout.endswith(b"\n") else ""
    for stream, data in (("stdout", done.stdout), ("stderr", done.stderr)):
        is_binary = outputs[f"{stream}_is_binary"] = any(_is_about(one, stream) for one in warnings)
        if is_binary and config.binary_as == "base64":
            outputs[stream] = base64.b64encode(data).decode()
            warnings = tuple(one for one in warnings if not _is_about(one, stream))
    outputs |= {"exit_code": done.exit_code, "duration_ms": duration_ms}
    if done.timed_out:
        raise timed_out(name, context, outputs)
    has_failed = done.exit_code != 0 and not config.ignore_errors
    said = f"{outputs['stderr']}\n{outputs['stdout']}" if done.exit_code != 0 else outputs["stderr"]
    limits = limited(context, text, done, said, has_failed=done.exit_code != 0)
    if has_failed:
        raise StepFailed(
            f"`{name}` {_ending(done.exit_code)}" + _last_words(outputs["stderr"]),
            kind="command_failed",
            hint=sentences(limits) or _hint(done.exit_code),
            outputs=outputs,
        )
    return StepDone(outputs=outputs, warnings=(*warnings, *limits))


def limited(context: StepContext, text: str, done: Finished, said: str, *, has_failed: bool) -> tuple[Caution, ...]:
    """Describe what the sandbox blocked, or let the command write in vain; `said` is the output to search."""
    commands = context.commands
    hosts, sight = commands.take_refused_hosts(), commands.sight
    if sight is None or not (said or done.lost or hosts or "~" in text or "HOME" in text or sight.home in text):
        return ()
    from leadrope.workflows.tools import sandbox_limits  # noqa: PLC0415  # most commands say nothing

    lost = tuple(path for path in done.lost if not (_is_scratch(path) and context.is_named_elsewhere(path)))
    command = sandbox_limits.EndedCommand(text=text, said=said, has_failed=has_failed, lost=lost, refused_hosts=hosts)
    around = sandbox_limits.Surroundings(sight=sight, environ=context.environ, passed_on=commands.variables)
    return tuple(
        Caution(kind=f"sandbox_{limit.kind}", message=limit.message) for limit in sandbox_limits.limits(command, around)
    )


def _is_scratch(path: str) -> bool:
    """Return whether a path is in the scratch folders, which all commands of an execution share.

    A file there that another step names was written for that step.
    """
    return path.startswith(("/tmp/", "/var/tmp/"))  # noqa: S108  # names


def sentences(limits: tuple[Caution, ...]) -> str:
    """Format the limits as a hint; empty if there are none."""
    return " ".join(f"{one.message[0].upper()}{one.message[1:]}." for one in limits)


def _is_about(one: Caution, stream: str) -> bool:
    return one.kind == _NOT_TEXT and one.message.startswith(f"{stream} ")


def told(done: Finished, limit: int) -> tuple[dict[str, Any], tuple[Caution, ...]]:
    """Return a command's output as texts, with warnings about them.

    One newline at the end is removed: values are inserted into other texts, and the newline is a convention of
    programs, not part of what they say. ($(...) removes all of them, which would change a file that is passed on.)
    """
    outputs: dict[str, Any] = {"truncated": done.truncated, "leftovers": done.leftovers}
    warnings: list[Caution] = []
    for name, data in (("stdout", done.stdout), ("stderr", done.stderr)):
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if len(data) == limit and error.start > limit - 4 and error.reason == "unexpected end of data":
                text = data[: error.start].decode()  # the limit has cut a character in two
            else:
                text = data.decode(errors="replace")
                message = f"{name} is not UTF-8 text (first at byte {error.start}); what cannot be read became \ufffd"
                warnings.append(Caution(kind=_NOT_TEXT, message=message))
        outputs[name] = text.removesuffix("\n")
    if done.survivors:
        message = f"{done.survivors} processes of it could not be ended (uninterruptible, or of another user)"
        warnings.append(Caution(kind="survivors", message=message))
    if done.truncated:
        message = f"more than {limit} bytes came out; the rest was dropped (max_output_bytes)"
        warnings.append(Caution(kind="output_truncated", message=message))
    return outputs, tuple(warnings)


def timed_out(name: str, context: StepContext, outputs: Mapping[str, Any]) -> StepFailed:
    limit = context.timeout_s or 0.0
    return StepFailed(
        f"`{name}` was not done after {limit:g} s and was ended",
        kind="timed_out",
        hint="Raise its `timeout`, or do less in one step.",
        can_heal=True,
        outputs=outputs,
    )


def failed_start(error: errors.LeadropeError, name: str) -> StepFailed:
    from leadrope.process.command_pool.failures import CommandLost  # noqa: PLC0415  # the kind itself stays cheap to import

    kind = "bad_input" if isinstance(error, errors.RequestError) else error.kind
    return StepFailed(f"`{name}`: {error.message}", kind=kind, hint=error.hint, can_heal=isinstance(error, CommandLost))


def is_own(sources: Mapping[str, Any], text: str) -> bool:
    """Return whether the file itself says what is run: its values are only data, and it does not execute them."""
    command = sources.get("command")
    if isinstance(command, list):
        return not templates.references(command)
    if isinstance(command, bool | int | float):
        return True
    if not isinstance(command, str) or shell_quoting.is_whole(command):
        return False
    given = {name: sources[name] for name in ("stdin", "env") if name in sources}
    return not templates.references(given) or not _runs_data(text)


_TEXT_RUNNERS = frozenset({"eval", "source", ".", "trap", "exec", "command", "xargs", "env"})
_INTERPRETERS = (
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "ash",
    "python",
    "node",
    "perl",
    "ruby",
    "php",
    "lua",
    "deno",
    "bun",
)


def _runs_data(text: str) -> bool:
    """Return whether a command runs what it is given on stdin or in a variable: `bash`, `python -`, `eval "$X"`."""
    from leadrope.policy.shell import reader  # noqa: PLC0415  # its parser costs 30 ms, and most steps need none

    for program in reader.read(text).programs:
        name = (program.words[0] or "").rpartition("/")[2]
        words = program.words[1:]
        if not name or (name in _TEXT_RUNNERS and None in words):
            return True
        if name.rstrip("0123456789.") in _INTERPRETERS:
            scripts = [word for word in words if word is None or not word.startswith("-")]
            if not scripts or scripts[0] is None or "-" in words or "-s" in words:
                return True
    return False


def _folder(given: str, workspace: Path) -> Path:
    if not given:
        return workspace
    path = Path(real_path(workspace / given))
    if path != workspace and workspace not in path.parents:
        raise StepFailed(
            f"cwd {given!r} leads out of the workspace {workspace}, to {path}",
            kind="bad_input",
            hint="Name a folder inside of it; links are followed.",
        )
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise StepFailed(f"cwd {given!r} {what} ({path})", kind="bad_input", hint="Make it in a step before this one.")
    return path


def _input(value: Any) -> bytes:
    return templates.as_text(value).encode("utf-8", "surrogateescape")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _last_words(stderr: str) -> str:
    said = stderr.strip()
    if not said:
        return ""
    return ": " + (said if len(said) <= _SHOWN else "…" + said[-_SHOWN:])


def _hint(code: int) -> str | None:
    if code == 126:
        return "126: a program may not be executed, or the policy has masked it (blocked_commands)."
    if code == 127:
        return "127: a program was not found; in the sandbox only the system's and the PATH's programs are seen."
    return "If this exit code is not a failure, set `ignore_errors: true`, or `on-error` for a step that handles it."


_TEXT = {"type": "string"}

KIND = Kind(
    name="shell",
    summary="Run a script or a program in the workspace.",
    config=Shell,
    outputs={
        "stdout": _TEXT,
        "stderr": _TEXT,
        "stdout_is_binary": {"type": "boolean"},
        "stderr_is_binary": {"type": "boolean"},
        "exit_code": {"type": "integer"},
        "duration_ms": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "leftovers": {"type": "integer"},
    },
    run=run,
    ends_itself=True,
    has_commands=True,
    fill=fill,
    opens=("stdin",),
    mistakes=mistakes,
    secret_references=("env",),
)
