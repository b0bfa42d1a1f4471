"""Do git's settings in a folder name a program that reading would start? Asks git itself, and starts nothing else."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

TIMEOUT_S = 2.0
"""An include that is a FIFO would make git wait for ever."""
_MOST_BYTES = 1_000_000

# What `git status`, `diff`, `log`, `show`, `blame` and their like can be told to start, whoever wrote it.
_STARTERS = re.compile(
    r"core\.fsmonitor|core\.hookspath|diff\.external|diff\..+\.(?:command|textconv)|filter\..+|log\.showsignature"
    # A partial clone fetches what is missing, through ssh and helpers; a submodule has settings of its own.
    r"|remote\..+\.(?:promisor|uploadpack|vcs)|extensions\.(?:partialclone|worktreeconfig)|submodule\..+"
)
# The user's own pager is used on a terminal only, and his signing program on request. In a repository's settings
# neither has any business.
_LOCAL_STARTERS = re.compile(
    r"core\.(?:pager|sshcommand|gitproxy|alternaterefscommand)|pager\..+|gpg\..*program|alias\..+"
)
_OFF = frozenset(("false", "no", "off", "0", ""))
_HARMLESS = re.compile(r"GIT_(?:(?:AUTHOR|COMMITTER)_\w+|TERMINAL_PROMPT|OPTIONAL_LOCKS|EDITOR|SEQUENCE_EDITOR|PAGER)")


async def is_plain(cwd: str, env: Mapping[str, str]) -> bool:
    """True if no setting that git would use in this folder names a program; False also where that cannot be told.

    `env` is the environment that the command itself will have.
    """
    if any(name.startswith("GIT_") and not _HARMLESS.fullmatch(name) for name in env):
        return False
    return await asyncio.to_thread(_is_plain, cwd, env)


def _is_plain(cwd: str, env: Mapping[str, str]) -> bool:
    told = _git(cwd, env, "config", "--list", "--includes", "--show-scope", "-z")
    if told is None:
        return False
    for scope, name, value in _settings(told):
        if name == "core.fsmonitor" and value.lower() in _OFF:
            continue
        if _STARTERS.fullmatch(name) or (scope not in ("system", "global") and _LOCAL_STARTERS.fullmatch(name)):
            return False
    # `git status` brings the index up to date, and that has a hook.
    hook = _git(cwd, env, "rev-parse", "--git-path", "hooks/post-index-change")
    return hook is None or not Path(cwd, hook.decode("utf-8", "replace").removesuffix("\n")).exists()


def _settings(told: bytes) -> Iterator[tuple[str, str, str]]:
    parts = told.decode("utf-8", "replace").split("\0")
    for scope, setting in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = setting.partition("\n")
        yield scope, name.lower(), value


def _git(cwd: str, env: Mapping[str, str], *words: str) -> bytes | None:
    """What git says; None where it says nothing that could be used."""
    kept = {name: env[name] for name in ("PATH", "HOME", "XDG_CONFIG_HOME") if name in env}
    try:
        # The agent may work as another user, to whom the folder belongs.
        done = subprocess.run(  # git by name, no shell, our own words
            ("git", "-c", "safe.directory=*", *words),  # found as the agent's shell finds it
            cwd=cwd,
            env={**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and len(done.stdout) <= _MOST_BYTES else None
