"""What the gate looks up about the machine before it judges a call: programs, git's settings, folders, host names."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from leadrope.confined import ScannedName, names
from leadrope.core.tools import ToolCall
from leadrope.net import addresses, url_secrets
from leadrope.policy import hosts, paths
from leadrope.policy.call_analysis import SHELL_TOOLS, Facts
from leadrope.regex import regex
from leadrope.runtime.sandboxing import git_guards

RESOLVE_S = 5.0
MOST_ENTRIES = 20_000
"""So many files of a folder are looked through before it counts as one that may hold anything."""
_STARS = regex(r"[*?\[]")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")

GitIsPlain = Callable[[str], Awaitable[bool]]


class MachineFacts:
    """The machine as the agent of one attempt finds it."""

    def __init__(
        self,
        *,
        workspace: Sequence[str],
        env: Mapping[str, str] | None = None,
        sandbox_env: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        resolver: addresses.Resolver | None = None,
        git_is_plain: GitIsPlain | None = None,
    ) -> None:
        """`env` is the agent's own environment, `sandbox_env` what its sandbox adds, which names no program.

        `secrets` are texts that no web address may hold.
        """
        self._workspace = tuple(workspace)
        self._env = {**(env or {}), **(sandbox_env or {})}
        self._variables = frozenset(env or {})
        self._secrets = tuple(secrets)
        self._resolver = resolver
        self._git_is_plain = git_is_plain or functools.partial(git_guards.is_plain, env=self._env)
        # A proxy resolves names itself, and may be the only one who can.
        self._has_proxy = any(self._env.get(name) for name in _PROXIES)

    def at_hand(self, facts: Facts) -> Facts:
        """With what can be looked up when it is asked for."""
        return msgspec.structs.replace(
            facts,
            which=self.which,
            finds=self.finds,
            expands=self.expands,
            has_above=self.has_above,
            variables=self._variables,
            holds_secret=self.holds_secret if self._secrets else None,
        )

    def takes_time(self, call: ToolCall) -> bool:
        """Is there something about this call that has to be waited for?"""
        return self._host_of(call) is not None or bool(self._git_folders(call))

    async def looked_up(self, call: ToolCall, facts: Facts) -> Facts:
        """With what has to be waited for. A look-up that fails counts against the call."""
        facts = self.at_hand(facts)
        if (host := self._host_of(call)) is not None:
            facts = msgspec.structs.replace(facts, not_public=await self._why_not_public(host))
        if folders := self._git_folders(call):
            plain = [await self._git_is_plain(folder) for folder in folders]
            facts = msgspec.structs.replace(facts, git_is_plain=all(plain))
        return facts

    def which(self, name: str) -> str | None:
        """Where the agent's shell would find a program; None also where that depends on the folder it is in."""
        path = self._env.get("PATH", "")
        if not all(map(os.path.isabs, path.split(os.pathsep))):
            return None
        return shutil.which(name, path=path)

    def finds(self, folder: str, entries: Sequence[str]) -> str | None:
        """The first path at or below `folder` that one of the patterns matches; the folder itself where it is too large
        to look through. Links are not followed, but one that leads to such a path counts as one.
        """
        ground = paths.Ground(self._workspace, home=self._env.get("HOME") or paths.user_home())
        globs = [paths.glob(entry, floating=True) for entry in entries]
        left = MOST_ENTRIES
        waiting = [folder]
        while waiting:
            try:
                found = names(waiting.pop(), most=left + 1, follows=left == MOST_ENTRIES)
            except OSError:
                continue  # a file, or what cannot be read by the agent either
            left -= len(found)
            if left < 0:
                return folder
            for entry in found:
                if any(_meets(glob, entry, ground) for glob in globs):
                    return entry.path
                if entry.is_folder:
                    waiting.append(entry.path)
        return None

    def expands(self, pattern: str) -> list[str] | None:
        """The paths that a pattern of the shell's names; None where there is too much to look through."""
        left = MOST_ENTRIES
        found = ["/"]
        for name in [part for part in pattern.split("/") if part]:
            if not _STARS.search(name):
                found = [f"{folder.rstrip('/')}/{name}" for folder in found]
                continue
            matching: list[str] = []
            for folder in found:
                try:
                    entries = names(folder, most=left + 1, follows=True)  # as the shell does
                except OSError:
                    continue  # a file, or what cannot be read by the agent either
                left -= len(entries)
                if left < 0:
                    return None
                matching += [entry.path for entry in entries if name == "**" or fnmatch.fnmatchcase(entry.name, name)]
            found = matching
        return found

    def has_above(self, folder: str, files: Sequence[str]) -> bool:
        """Links and folders of such a name count as well, and so does what cannot be looked at."""
        for place in (Path(folder), *Path(folder).parents):
            for name in files:
                try:
                    os.lstat(place / name)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError:
                    return True
                return True
        return False

    def holds_secret(self, text: str) -> bool:
        return url_secrets.holds_secret(text, self._secrets)

    def _host_of(self, call: ToolCall) -> str | None:
        """The name that has to be resolved."""
        if call.name != "WebFetch" or self._has_proxy:
            return None
        host = hosts.host_of(call.input.get("url"))
        return host if host is not None and addresses.why_not_public(host) is None else None

    async def _why_not_public(self, host: str) -> str:
        found = await addresses.resolve_public(host, 443, resolver=self._resolver, timeout_s=RESOLVE_S)
        return found.reason if isinstance(found, addresses.NotPublic) else ""

    def _git_folders(self, call: ToolCall) -> tuple[str, ...]:
        """Where a command that only reads would use git."""
        command = call.input.get("command")
        if call.name not in SHELL_TOOLS or not isinstance(command, str) or "git" not in command:
            return ()
        from leadrope.policy.programs import read_only  # noqa: PLC0415  # the shell's parser, only where there is a command
        from leadrope.policy.shell import reader  # noqa: PLC0415  # the shell's parser, only where there is a command

        needed = read_only.reads_only(reader.read(command))
        if needed is None or not needed.uses_git:
            return ()
        start = Path(self._workspace[0], call.cwd or "")
        home = self._env.get("HOME") or paths.user_home()
        return tuple(str(Path(start, re.sub(r"\A~(?=/|\Z)", home, folder or ""))) for folder in needed.git_folders)


def _meets(glob: paths.Glob, entry: ScannedName, ground: paths.Ground) -> bool:
    if glob.matches(entry.path, ground):
        return True
    if not entry.is_link:
        return False
    target = paths.resolved(entry.path)
    return glob.overlaps(target, ground, below=True)
