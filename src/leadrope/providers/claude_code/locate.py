"""Finds the Claude Code program and checks its version; independent of runs.

`--version` and `auth status` are the only commands started here. Neither is an agent: no prompt, no model, no tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from leadrope import errors, spelling
from leadrope.core import installation
from leadrope.process import reachable
from leadrope.providers.base import Availability
from leadrope.regex import regex

SETTING = "LEADROPE_CLAUDE_BIN"
MODEL_URL = "https://api.anthropic.com"
"""The model's address that the program uses by default."""

MINIMUM = (2, 1, 0)
BELOW = (3, 0, 0)
TESTED = ("2.1.325",)
"""Versions whose gate was tested. Others in the supported range are expected to work, but were not tested."""

# A cold start takes about 2 s on a small machine, and 16 concurrent starts took 10 s. A much lower limit would report a
# busy machine as broken; a much higher one would make `doctor` hang on a program that waits for input.
ANSWER_TIMEOUT_S = 20.0
_ANSWER_BYTES = 64 * 1024
_VERSION = regex(r"\s*v?(\d+)\.(\d+)\.(\d+)")


class CliCheck(msgspec.Struct, frozen=True, kw_only=True):
    path: str | None = None
    version: str | None = None
    reason: str | None = None
    """Why the program cannot be used; None if it can."""
    supported: bool = False
    tested: bool = False
    """False for a supported but untested version: warn, and check its gate before its first use."""


class AuthStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The program's report on its own login."""

    logged_in: bool = False
    method: str = ""
    """As the program names it: `claude.ai`, `oauth_token`, `api_key`."""
    reason: str | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: str
    stderr: str


class _StatusReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    logged_in: bool = False
    auth_method: str = ""


def install_hint() -> str:
    """Return how to install the program, with a command that fits the way leadrope itself was installed."""
    bundle = installation.command_for("claude")
    return f"Install it with `npm install -g @anthropic-ai/claude-code`, or with `{bundle}`."


def bundled() -> Path | None:
    """Find the program inside an installed `claude_agent_sdk`, without importing that package (0.8 s of CPU)."""
    try:
        spec = importlib.util.find_spec("claude_agent_sdk")
    except (ImportError, ValueError):
        return None
    name = "claude.exe" if sys.platform == "win32" else "claude"
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder, "_bundled", name)
        if _is_program(path):
            return path
    return None


def find_binary(
    setting: str | None, environ: Mapping[str, str], *, find_bundled: Callable[[], Path | None] = bundled
) -> str:
    """Return the absolute path of the program: as configured, else `claude` on PATH, else the bundled one.

    A configured path that does not exist is an error: falling back would run another program than the one requested.
    """
    if setting:
        return _explicit(setting, spelling.option("binary"), environ, field="binary")
    if environ.get(SETTING):
        return _explicit(environ[SETTING], SETTING, environ)
    found = _on_path("claude", environ)
    if found:
        return found
    inside = find_bundled()
    if inside:
        return str(inside)
    raise errors.CliNotFound("the claude program was not found, neither on PATH nor in Python", hint=install_hint())


async def check_cli(
    binary: str | None = None, environ: Mapping[str, str] | None = None, *, timeout_s: float = ANSWER_TIMEOUT_S
) -> CliCheck:
    """Ask the program for its version, in a scratch home that is removed again. Never raises; says the reason.

    check = await check_cli()
    print(check.version or check.reason)
    """
    environ = os.environ if environ is None else environ
    try:
        path = find_binary(binary, environ)
    except errors.CliNotFound as error:
        return CliCheck(reason=str(error))
    try:
        answer = await _ask(path, ["--version"], _bare_env(environ), timeout_s=timeout_s)
    except TimeoutError:
        return CliCheck(path=path, reason=f"{path} --version gave no answer within {timeout_s:g} s")
    except (OSError, ValueError) as error:
        return CliCheck(path=path, reason=f"{path} cannot be started: {error}")
    return judge(path, answer.exit_code, answer.stdout, answer.stderr)


def judge(path: str, exit_code: int, stdout: str, stderr: str) -> CliCheck:
    """Interpret the output of `--version`."""
    match = _VERSION.match(stdout)
    if exit_code != 0 or match is None:
        said = (stderr.strip() or stdout.strip() or "nothing")[:200]
        return CliCheck(path=path, reason=f"{path} --version ended with code {exit_code} and said: {said}")
    number = (int(match[1]), int(match[2]), int(match[3]))
    version = ".".join(map(str, number))
    if not MINIMUM <= number < BELOW:
        low, high = ".".join(map(str, MINIMUM)), ".".join(map(str, BELOW))
        return CliCheck(
            path=path,
            version=version,
            reason=f"{path} is version {version}; leadrope works with {low} up to, not including, {high}",
        )
    return CliCheck(path=path, version=version, supported=True, tested=version in TESTED)


def why_unsupported(check: CliCheck) -> str | None:
    """Describe a version that is out of range in one sentence; None for any other."""
    if check.supported or check.version is None:
        return None
    number = tuple(map(int, check.version.split(".")))
    low, high = ".".join(map(str, MINIMUM)), ".".join(map(str, BELOW))
    if number < MINIMUM:
        return f"Claude Code {check.version} ({check.path}) is too old; {low} or newer is needed"
    return f"Claude Code {check.version} ({check.path}) is too new; leadrope works with versions below {high}"


def availability(check: CliCheck) -> Availability:
    if not check.supported:
        return Availability(available=False, reason=check.reason or "", version=check.version or "")
    told = "" if check.tested else f"version {check.version} is untested; its gate is tried before its first use"
    return Availability(available=True, reason=told, version=check.version or "")


async def auth_status(
    binary: str, environ: Mapping[str, str], *, home: Path, timeout_s: float = ANSWER_TIMEOUT_S
) -> AuthStatus:
    """Ask the program whether it is logged in by itself, in the user's own home and without any credential of ours.

    Never raises; a program that cannot tell counts as not logged in, and `reason` says why.
    """
    env = _bare_env(environ) | {"HOME": str(home)}
    # Without USER the macOS key chain entry is not found; the others are HOME's names on Windows.
    for name in ("USER", "CLAUDE_CONFIG_DIR", "USERPROFILE", "APPDATA", "LOCALAPPDATA"):
        if environ.get(name):
            env[name] = environ[name]
    try:
        answer = await _ask(binary, ["auth", "status"], env, timeout_s=timeout_s, own_home=True)
        reply = msgspec.json.decode(answer.stdout, type=_StatusReply)
    except TimeoutError:
        return AuthStatus(reason=f"{binary} auth status gave no answer within {timeout_s:g} s")
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        return AuthStatus(reason=f"{binary} auth status: {error}")
    return AuthStatus(logged_in=reply.logged_in and answer.exit_code == 0, method=reply.auth_method)


def _explicit(setting: str, source: str, environ: Mapping[str, str], *, field: str | None = None) -> str:
    if os.sep not in setting and (os.altsep is None or os.altsep not in setting):
        found = _on_path(setting, environ)
        if found:
            return found
        raise errors.CliNotFound(
            f"{source}: no program {setting!r} is on PATH", hint=f"Correct {source}. {install_hint()}", field=field
        )
    home = environ.get("HOME", "")
    path = Path(home + setting[1:] if home and setting.startswith("~/") else setting).absolute()
    if _is_program(path):
        return str(path)
    what = "is not an executable file" if reachable.exists(path) else "does not exist"
    raise errors.CliNotFound(f"{source}: {path} {what}", hint=f"Correct {source}. {install_hint()}", field=field)


def _on_path(name: str, environ: Mapping[str, str]) -> str | None:
    # An entry like `.` would let the working directory, possibly a stranger's repository, choose the program.
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    return shutil.which(name, path=os.pathsep.join(folders)) if folders else None


def _is_program(path: Path) -> bool:
    return reachable.is_file(path) and os.access(path, os.X_OK)


def _bare_env(environ: Mapping[str, str]) -> dict[str, str]:
    kept = ("PATH", "LANG", "SystemRoot", "SYSTEMROOT", "ComSpec", "COMSPEC")
    return {name: environ[name] for name in kept if environ.get(name)} | {
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


async def _ask(
    binary: str, args: Sequence[str], env: Mapping[str, str], *, timeout_s: float, own_home: bool = False
) -> _Answer:
    """Run one short command to its end. Output goes to files, so that a grandchild that holds a pipe open cannot block
    us.
    """
    with tempfile.TemporaryDirectory(prefix="leadrope-ask-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        child_env = dict(env) | {"TMPDIR": scratch}
        if not own_home:
            child_env |= {"HOME": scratch, "CLAUDE_CONFIG_DIR": str(folder / "config")}
        # Unnamed: what the program puts into its folder cannot replace them.
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = await asyncio.create_subprocess_exec(
                binary,
                *args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=child_env,
                cwd=scratch,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(timeout_s):
                    exit_code = await process.wait()
            finally:
                if process.returncode is None:
                    _kill_group(process)
                    await asyncio.shield(process.wait())
            return _Answer(exit_code=exit_code, stdout=_head(stdout), stderr=_head(stderr))


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def _head(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_ANSWER_BYTES).decode(errors="replace")
