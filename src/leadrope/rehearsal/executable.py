"""Scripts of the stand-in agent: read, checked with the location of every mistake, and written as an executable file.

This runs in the test; `agent` runs in the process that is started and trusts what was checked here.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope.rehearsal import agent
from leadrope.rehearsal.script import BadScript, fill, placed, read_values

AgentSource = Path | str | Mapping[str, Any] | Sequence[Any]

Verbatim = str | dict[str, Any]
Whole = dict[str, Any] | Literal[True]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Initialize(_Part, frozen=True, kw_only=True):
    hooks_applied: bool = True
    hook_on_failure_supported: bool = True
    answer: dict[str, Any] = {}
    error: str | None = None


class _Tool(_Part, frozen=True, kw_only=True):
    tool: str
    id: str
    input: dict[str, Any] = {}


class _Call(_Tool, frozen=True, kw_only=True):
    result: str = ""
    is_error: bool = False
    touch: str | None = None
    gate: bool = True
    agent_id: str | None = None
    request_id: str | None = None
    ask_request_id: str | None = None


class _ToolResult(_Part, frozen=True, kw_only=True):
    id: str
    text: str = ""
    is_error: bool = False
    meta: Any = None


class _Flood(_Part, frozen=True, kw_only=True):
    lines: int
    size: int | tuple[int, int] = 1400


class _Play(_Part, frozen=True, kw_only=True):
    file: str
    interactive: bool = False


class _Spawn(_Part, frozen=True, kw_only=True):
    kind: Literal["child", "setsid", "double_fork", "background"] = "child"
    argv: tuple[str, ...] = ("sleep", "3600")
    count: int = 1
    pid_file: str | None = None
    clear_env: bool = False
    ignore_sigterm: bool = False
    keep_pipes: bool = False


class _Hook(_Tool, frozen=True, kw_only=True):
    wait: bool = True
    agent_id: str | None = None
    request_id: str | None = None
    if_allowed: tuple[_Step, ...] = ()
    if_denied: tuple[_Step, ...] = ()


class _Ask(_Tool, frozen=True, kw_only=True):
    ask_request_id: str | None = None
    if_allowed: tuple[_Step, ...] = ()
    if_denied: tuple[_Step, ...] = ()


class _Repeat(_Part, frozen=True, kw_only=True):
    times: int
    steps: tuple[_Step, ...]


class _Step(_Part, frozen=True, kw_only=True):
    """One action of the agent; exactly one field is given."""

    line: Verbatim | msgspec.UnsetType = msgspec.UNSET
    lines: tuple[Verbatim, ...] | msgspec.UnsetType = msgspec.UNSET
    raw: Verbatim | msgspec.UnsetType = msgspec.UNSET
    stderr: Verbatim | msgspec.UnsetType = msgspec.UNSET
    flood: _Flood | msgspec.UnsetType = msgspec.UNSET
    play: _Play | msgspec.UnsetType = msgspec.UNSET
    initialize: _Initialize | Literal[True] | msgspec.UnsetType = msgspec.UNSET
    await_user: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    await_control: str | msgspec.UnsetType = msgspec.UNSET
    await_eof: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    await_file: str | msgspec.UnsetType = msgspec.UNSET
    init: Whole | msgspec.UnsetType = msgspec.UNSET
    text: str | msgspec.UnsetType = msgspec.UNSET
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    tool_use: _Tool | msgspec.UnsetType = msgspec.UNSET
    tool_result: _ToolResult | msgspec.UnsetType = msgspec.UNSET
    result: Whole | msgspec.UnsetType = msgspec.UNSET
    hook: _Hook | msgspec.UnsetType = msgspec.UNSET
    ask: _Ask | msgspec.UnsetType = msgspec.UNSET
    call: _Call | msgspec.UnsetType = msgspec.UNSET
    calls: tuple[_Call, ...] | msgspec.UnsetType = msgspec.UNSET
    exit: int | msgspec.UnsetType = msgspec.UNSET
    die: int | msgspec.UnsetType = msgspec.UNSET
    ignore_sigterm: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    hang: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    pause_ms: float | msgspec.UnsetType = msgspec.UNSET
    close_stdout: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    close_stderr: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    touch: str | msgspec.UnsetType = msgspec.UNSET
    repeat: _Repeat | msgspec.UnsetType = msgspec.UNSET
    spawn: _Spawn | msgspec.UnsetType = msgspec.UNSET


class _Answer(_Part, frozen=True, kw_only=True):
    stdout: str = ""
    stderr: str = ""
    exit: int = 0


class _AgentScript(_Part, frozen=True, kw_only=True):
    steps: tuple[_Step, ...]
    version: str = "2.1.325 (Claude Code)"
    answers: dict[str, _Answer] = {}
    stdin_file: str | None = None
    start_file: str | None = None
    exit_when_input_closes: int = 0


def load_agent(source: AgentSource, *, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns an agent's script as plain values for `agent.run`; a bad script is refused with the location.

    A Path is a YAML (or JSON) file, a str is YAML text, a mapping is the script itself, a list is its steps.
    """
    data = read_values(source)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        data = {"steps": list(data)}
    if not isinstance(data, Mapping):
        raise BadScript("script", f"must be a mapping with `steps`, not {type(data).__name__}")
    plain: dict[str, Any] = fill(_without_bytes(data), variables or {})
    try:
        script = msgspec.convert(plain, _AgentScript)
    except msgspec.ValidationError as error:
        raise placed(error) from error
    _check_steps("steps", script.steps)
    return plain


def _without_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _without_bytes(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_bytes(item) for item in value]
    return value


def _check_steps(place: str, steps: Sequence[_Step]) -> None:
    for index, step in enumerate(steps):
        here = f"{place}[{index}]"
        given = [name for name in _Step.__struct_fields__ if getattr(step, name) is not msgspec.UNSET]
        if len(given) != 1:
            raise BadScript(here, f"a step does exactly one thing; this one has {', '.join(given) or 'none'}")
        match getattr(step, given[0]):
            case _Hook(if_allowed=allowed, if_denied=denied) | _Ask(if_allowed=allowed, if_denied=denied):
                _check_steps(f"{here}.{given[0]}.if_allowed", allowed)
                _check_steps(f"{here}.{given[0]}.if_denied", denied)
            case _Repeat(steps=inner):
                _check_steps(f"{here}.repeat.steps", inner)
            case _Spawn(argv=()):
                raise BadScript(f"{here}.spawn.argv", "is empty")
            case _Flood(lines=lines, size=size):
                low, high = (size, size) if isinstance(size, int) else size
                if lines < 1 or low < 1 or high < low:
                    raise BadScript(f"{here}.flood", "needs one line or more, and a size or [smallest, largest]")


# The kernel reads 256 bytes of a first line, older kernels 128.
_LONGEST_SHEBANG = 120


def write_executable(path: Path | str, script: AgentSource, *, variables: Mapping[str, str] | None = None) -> Path:
    """Writes an executable that plays the script and can be used as the `claude` binary.

    claude = write_executable(tmp_path / "claude", [{"text": "Hello."}, {"result": True}])
    """
    values = load_agent(script, variables=variables)
    # -I -S: no site-packages and no user settings, which halves the start-up time.
    first = f"#!{sys.executable} -IS\n"
    if len(first) > _LONGEST_SHEBANG or " " in sys.executable:
        # sh reads this as a command, and Python as a string.
        quoted = sys.executable.replace("'", "'\"'\"'")
        first = f"#!/bin/sh\n'''exec' '{quoted}' -IS \"$0\" \"$@\"\n' '''\n"
    target = Path(path)
    target.write_text(
        f"{first}import json, sys, types\n"
        # Only the folder as a package: leadrope itself would load everything that its `__init__` imports.
        "sys.modules['stand_in'] = package = types.ModuleType('stand_in')\n"
        f"package.__path__ = [{str(Path(agent.__file__).parent)!r}]\n"
        "from stand_in import agent\n"
        f"agent.run(json.loads({json.dumps(values, ensure_ascii=True)!r}), sys.argv[1:])\n",
        encoding="utf-8",
    )
    target.chmod(0o755)
    return target
