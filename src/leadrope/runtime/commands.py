"""Commands that no agent asked for: judged by the same gate, in the same sandbox, ended by the same guardian.

    async with Commands(Path("/ws"), policies=({"blocked_commands": ["curl"]},)) as commands:
        call = ToolCall(id="1", name="Bash", input={"command": "git status"})
        if commands.judge(call, is_own=True, has_person=False).word == "allow":
            done = await commands.shell("git status")

One pool serves them all; it is opened for the first command, and again when it was lost. Whoever calls `run` has asked
`judge` before: nothing here looks at a command twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import events
from leadrope.core import home as homes
from leadrope.core.request import RunRequest
from leadrope.core.request_parts import extra_dirs
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, Verdict, decide
from leadrope.policy.resolve import SHIPPED, EffectivePolicy
from leadrope.process import environment as environments
from leadrope.process import process_tree, reaper
from leadrope.process.command_pool import client, plain_commands
from leadrope.process.command_pool.command import LIMIT_BYTES, Finished, OnOutput
from leadrope.process.command_pool.failures import NotStarted, PoolGone
from leadrope.process.sandbox import programs
from leadrope.process.sandbox.values import Sight
from leadrope.providers import base
from leadrope.runtime import prepare
from leadrope.runtime.rundir import RunDir
from leadrope.runtime.sandboxing import access as accesses
from leadrope.runtime.sandboxing import sandboxing
from leadrope.runtime.sandboxing.access import Access
from leadrope.runtime.sandboxing.lost_files import SCRATCH, LostFiles, read_traces
from leadrope.runtime.sandboxing.sandboxed_process import Notify, SandboxedProcess

if TYPE_CHECKING:
    from leadrope.runtime.broker.proxy import HostProxy, RefusedHost

SPARE_SCRIPT_CHARS = 32_000
"""A longer one is handed over as a file, by the way that takes files."""
SYSTEM_PATH = "/bin:/usr/bin:/usr/local/bin"
"""Where bash is looked for: commands are judged as the system's bash reads them."""


LOOK_S = 10.0
"""For a list of the sandbox's own files."""
ALLOWED_S = 0.5
"""How long equal commands are allowed after one was; then the next is judged again."""
MOST_ALLOWED = 64
OTHER_POOLS = 3
"""How often a command that was never started gets another pool."""


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """Why code gave nothing."""

    kind: str
    """`bad_input`, `code_failed` or `bad_result`."""
    message: str
    detail: str = ""
    """The traceback, with the lines of the code itself."""


class Computed(Finished, frozen=True, kw_only=True):
    """Code that has ended: a JSON value, or why there is none."""

    value: Any = None
    next: str | None = None
    """What the code has set the variable `next` to, if it has."""
    error: Raised | None = None


class _Order(NamedTuple):
    body: dict[str, Any]
    cwd: Path | None
    env: Mapping[str, str]
    stdin: bytes
    timeout_s: float | None
    limit_bytes: int
    on_output: OnOutput | None


class Commands:
    """All commands of one workspace under one policy."""

    def __init__(
        self,
        cwd: Path,
        *,
        policy: Mapping[str, Any] | None = None,
        policies: tuple[dict[str, Any], ...] = (),
        environ: Mapping[str, str] | None = None,
        config: configs.Config | None = None,
        home: Path | None = None,
        tag: str | None = None,
        access: Access | None = None,
    ) -> None:
        """`policy` and each of `policies` are layers of the run's own; they can only tighten what the others say.

        `access`: what they may use besides the workspace.
        """
        self.cwd = cwd
        self._notices: list[events.Notice] = []
        self._on_notice: Notify | None = None
        self._given = (*((dict(policy),) if policy else ()), *policies)
        self._environ = dict(os.environ if environ is None else environ)
        self._config = config
        self._home = home
        self._tag = tag or secrets.token_hex(16)
        self._access = access or Access()
        self._opening = asyncio.Lock()
        self._place: _Place | None = None
        self._warming: asyncio.Task[client.CommandPool] | None = None
        self._spare: client.SpareShell | None = None
        self._spare_in: tuple[int, int] | None = None
        self._has_run_plain = False
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self._proxy: HostProxy | None = None
        self._at_work: dict[object, _Order] = {}
        """Commands that run, or whose files are being looked for."""
        self._lost: LostFiles | None = None
        self._refused_hosts: list[str] = []
        self._allowed: dict[tuple[str, str | None, bool, bool], tuple[float, Verdict]] = {}
        """Commands that were allowed, and until when equal ones are."""

    async def __aenter__(self) -> Self:
        """Reads the rules of all layers and learns whether there can be a sandbox. Starts no command."""
        home = self._home = self._home or homes.leadrope_home(self._environ)
        config = self._config = self._config or configs.load(self._environ)
        # What a repository wishes for its agents (servers, a model) is none of a command's business.
        writable = tuple(str(folder) for folder in self._access.folders if not folder.is_read_only)
        request = RunRequest(
            prompt="commands",
            cwd=str(self.cwd),
            policies=self._given,
            extra_dirs=writable,
            sandbox=self._access.sandbox,
        )
        ready = prepare.complete(request, config, self._environ, home)
        self._request = msgspec.structs.replace(ready.request, connections={})
        self.cwd = Path(self._request.cwd or ".")
        self.rules: EffectivePolicy = ready.rules
        for notice in ready.notices:
            if notice.code == "project_ignored":
                self._notify(notice)
        self._sandbox = SandboxedProcess(self._request, self.rules, home=homes.ensure(home), notify=self._notify)
        await self._sandbox.grant()
        if self._sandbox.hosts:
            self._proxy_dir = RunDir()
            self._proxy = await self._sandbox.open_proxy(self._proxy_dir.path / "proxy.sock", self._refused)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends what still runs, and returns when nothing is left."""
        await self.begin_closing()

    def begin_closing(self) -> asyncio.Task[None]:
        """The last command has ended: the processes of the pool end while something else is being finished."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="closing a pool")
        return self._closing

    async def _close(self) -> None:
        if self._warming is not None:
            await asyncio.wait((self._warming,))
        self._is_closed = True
        async with self._opening:
            await self._leave()
            proxy, self._proxy = self._proxy, None
            if proxy is not None:
                await proxy.__aexit__(None, None, None)
                self._proxy_dir.remove()

    def _refused(self, refused: RefusedHost) -> None:
        self._refused_hosts.append(refused.host)

    def _notify(self, notice: events.Notice) -> None:
        if self._on_notice is None:
            self._notices.append(notice)
        else:
            self._on_notice(notice)

    def tell_notices(self, on_notice: Notify) -> None:
        """`on_notice` gets what the user should know about the sandbox: all until now, and what comes."""
        self._on_notice, before, self._notices = on_notice, self._notices, []
        for notice in before:
            on_notice(notice)

    # -- the gate ------------------------------------------------------------------------------------------------------

    @property
    def is_sandboxed(self) -> bool:
        """Commands run in a sandbox. (They are planned at the first question.)"""
        return process_tree.has_guardian() and bool(self._planned().built.level)

    @property
    def sight(self) -> Sight | None:
        """What the sandbox shows of the machine; None where there is none."""
        return self._planned().built.sight if self.is_sandboxed else None

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment of every command."""
        return self._env

    def take_refused_hosts(self) -> tuple[str, ...]:
        """Hosts that commands wanted to reach and the sandbox did not let them, since the last call."""
        found, self._refused_hosts = self._refused_hosts, []
        return tuple(dict.fromkeys(found))

    def judge(self, call: ToolCall, *, is_own: bool, has_person: bool) -> Verdict:
        """What the rules of all layers say. `is_own`: the text stands so in a file that the user started himself.

        Equal commands of a batch that start within a moment share one verdict, where the sandbox itself masks what the
        policy blocks: that moment is shorter than many a command waits between its verdict and its start.
        """
        is_command = call.name == "Bash"
        is_held = is_command and self.is_sandboxed and self._planned().built.holds
        text = call.input.get("command")
        if not is_held or len(call.input) != 1 or not isinstance(text, str):
            return self._judged(call, is_own=is_own, has_person=has_person, is_held=is_held)
        key, now = (text, call.cwd, is_own, has_person), time.monotonic()
        if (known := self._allowed.get(key)) is not None and now < known[0]:
            return known[1]
        verdict = self._judged(call, is_own=is_own, has_person=has_person, is_held=True)
        if verdict.word == "allow":
            if len(self._allowed) >= MOST_ALLOWED:
                self._allowed.clear()
            self._allowed[key] = (now + ALLOWED_S, verdict)
        return verdict

    def _judged(self, call: ToolCall, *, is_own: bool, has_person: bool, is_held: bool) -> Verdict:
        policy = self._policy
        is_command = call.name == "Bash"
        facts = Facts(
            person=has_person,
            sandboxed=is_held,
            home=self._user_home,
            is_own=is_own,
            # Only `http` steps make such calls: they know which private hosts their author named (allow_private).
            is_request=call.name == "WebFetch",
        )
        verdict = decide(policy, call, facts)
        # What the sandbox hides is looked up only where it could change something: that lists all programs.
        if verdict.word == "allow" or not (is_own and is_command and self.masks_all_blocked):
            return verdict
        return decide(policy, call, msgspec.structs.replace(facts, is_masked=True))

    @functools.cached_property
    def _policy(self) -> Policy:
        read_only = tuple(folder.path for folder in self._access.folders if folder.is_read_only)
        if read_only and self.is_sandboxed:
            read_only = ()  # the sandbox knows better than a look at the command which file is written
        workspace = (str(self.cwd), *extra_dirs.writable(self._request.extra_dirs))
        return Policy(mode="full", workspace=workspace, read_only=read_only, rules=self.rules)

    @functools.cached_property
    def _user_home(self) -> str:
        return str(homes.user_home(self._environ))

    @functools.cached_property
    def masks_all_blocked(self) -> bool:
        """Whatever is blocked cannot be started in here, in whatever words.

        The sandbox masks programs. What else the shipped policy blocks destroys disks and the system, which are not
        in it.
        Any other block (`git push`, a path) holds only where a command can be read.
        """
        rules = self.rules
        said_by_others = [
            entry
            for rule, entries in (
                ("blocked_commands", set(rules.blocked_commands) - set(rules.blocked_programs)),
                ("blocked_paths", () if self._planned().built.holds else rules.blocked_paths),
                ("disallowed_tools", [entry for entry in rules.disallowed_tools if entry.startswith("Bash(")]),
            )
            for entry in entries
            if rules.layer_of(rule, entry) != SHIPPED
        ]
        if said_by_others or not self.is_sandboxed:
            return False
        try:
            programs.files_of(tuple(sorted(rules.blocked_programs)), self._env["PATH"], must=True)
        except programs.Cannot:
            return False
        return True

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        limit_bytes: int = LIMIT_BYTES,
        on_output: OnOutput | None = None,
    ) -> Finished:
        """A program with its arguments, no shell in between; ended whole when it is timed out or this is cancelled."""
        body = {"argv": _words(argv)}
        return await self._do(_Order(body, cwd, env or {}, stdin, timeout_s, limit_bytes, on_output))

    async def shell(
        self,
        script: str,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float | None = None,
        limit_bytes: int = LIMIT_BYTES,
        on_output: OnOutput | None = None,
    ) -> Finished:
        """A text of any length, read by bash."""
        bash = self._env.get("SHELL")
        if bash is None:
            raise errors.CliNotFound("bash is not installed", hint="Install bash, or give the command as a list.")
        _words([script])
        body: dict[str, Any] = {"argv": [bash], "script": script}
        words = plain_commands.words_of(script)
        if words is not None and not plain_commands.is_read_by_bash((*self._env, *(env or {}))):
            body["plain"] = words
        return await self._do(_Order(body, cwd, env or {}, stdin, timeout_s, limit_bytes, on_output))

    async def code(
        self,
        source: str,
        inputs: Mapping[str, Any],
        *,
        python: str | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        limit_bytes: int = LIMIT_BYTES,
        on_output: OnOutput | None = None,
    ) -> Computed:
        """A function's body in Python: `inputs` are its variables, `result` or what it returns is the value.

        It runs in a fork of the pool, with the packages of leadrope's own environment, or in the interpreter `python`.
        """
        letter = {"source": source, "inputs": dict(inputs)}
        body: dict[str, Any] = {"code": letter}
        if python is not None:
            body = {"argv": [*_words([python]), "-I"], "letter": json.dumps(letter).encode()}
        done = await self._do(_Order(body, cwd, env or {}, b"", timeout_s, limit_bytes, on_output))
        return _computed(done)

    async def _do(self, order: _Order) -> Finished:
        environments.check_variables(order.env)
        for _ in range(OTHER_POOLS):
            try:
                return await self._in_pool(order)
            except PoolGone:
                continue  # it waited for its turn, and another command has killed the pool meanwhile
        return await self._in_pool(order)

    async def _in_pool(self, order: _Order) -> Finished:
        pool = await self._pool()
        async with pool.places:
            pool.catch_up()
            if pool.is_lost:  # before anything is planned for another
                raise PoolGone("the process that runs commands has ended")
            began_ns, me = time.time_ns(), object()
            self._at_work[me] = order
            try:
                done = await self._begun(pool, order)
                if not done.has_traces:
                    return done
                others = [_text_of(other) for key, other in self._at_work.items() if key is not me]
                return msgspec.structs.replace(done, lost=await self._lost_by(pool, order, began_ns, others))
            finally:
                del self._at_work[me]

    async def _begun(self, pool: client.CommandPool, order: _Order) -> Finished:
        # Taken after the wait: a shell for each that waits would be as many processes as if none waited.
        # Beside others it would save nothing: the processors are busy, and a shell that has waited forks once more.
        spare = self._take_spare(pool) if len(self._at_work) == 1 and self._is_plain(order) else None
        if spare is not None:
            done = await spare.run(
                order.body["script"],
                timeout_s=order.timeout_s,
                limit_bytes=order.limit_bytes,
                on_output=order.on_output,
            )
            if done is not None:
                return done
        return await pool.run(
            self._whole(order),
            stdin=order.stdin,
            timeout_s=order.timeout_s,
            limit_bytes=order.limit_bytes,
            on_output=order.on_output,
        )

    async def _lost_by(
        self, pool: client.CommandPool, order: _Order, began_ns: int, others: Sequence[str]
    ) -> tuple[str, ...]:
        """What it wrote into the sandbox's own folders. Looked at in there, and only where something appeared."""
        if self._lost is None:
            self._lost = LostFiles(self._env["HOME"])
        look = {"look": self._watched(), "cwd": "/", "env": {}, "limit": LIMIT_BYTES}
        try:
            found = await pool.run(look, timeout_s=LOOK_S)
        except errors.LeadropeError:
            return ()  # the sandbox has ended: whoever runs the next command in it is told
        traces = read_traces(found.stdout)
        return self._lost.of(_text_of(order), traces, since_ns=began_ns, others=others)

    def _watched(self) -> list[str]:
        """Folders of the sandbox that vanish with it."""
        sight = self._planned().built.sight
        return [path for path in (self._env["HOME"], *SCRATCH) if sight.places and sight.of(path) == "private"]

    def _whole(self, order: _Order) -> dict[str, Any]:
        place = self._planned()
        own = {"TMPDIR": str(place.tmp), **place.built.env, reaper.TAG: self._tag}
        return {
            **order.body,
            "cwd": str(order.cwd or self.cwd),
            "env": {**self._env, **order.env, **own},
            "limit": order.limit_bytes,
            "watched": self._watched(),
        }

    def _is_plain(self, order: _Order) -> bool:
        """A script in the workspace, with nothing that another would not have as well."""
        script = order.body.get("script")
        if script is None or "plain" in order.body:  # which needs no shell
            return False
        is_short = len(script) <= SPARE_SCRIPT_CHARS
        return is_short and not order.env and not order.stdin and order.cwd in (None, self.cwd)

    def _take_spare(self, pool: client.CommandPool) -> client.SpareShell | None:
        """A shell that was started while the command before ran; from the second command on one waits for the next."""
        found, self._spare = self._spare, None
        # A command may have put another folder in the place of the workspace: the shell would wait in the old one.
        folder, was_in = _identity(self.cwd), self._spare_in
        if found is not None and not (found.is_good and folder == was_in):
            found.drop()
            found = None
        if self._has_run_plain:
            argv = {"argv": [self._env["SHELL"]]}
            self._spare_in = folder
            try:
                self._spare = pool.spare(self._whole(_Order(argv, None, {}, b"", None, LIMIT_BYTES, None)))
            except NotStarted:
                pass  # the next command is started for its script alone; whether this one can be, it tells itself
            except BaseException:
                if found is not None:
                    found.drop()
                raise
        self._has_run_plain = True
        return found

    @functools.cached_property
    def _env(self) -> dict[str, str]:
        """What an agent would see of the user's environment, without its credential and its settings."""
        assert self._config is not None  # noqa: S101  # set by __aenter__
        forwarded = self._config.forward_env
        env = environments.passed_on(self._environ, forwarded, default_home=homes.user_home(self._environ))
        if bash := shutil.which("bash", path=SYSTEM_PATH):
            env["SHELL"] = bash
        assert self._home is not None  # noqa: S101  # the same
        return {**env, **accesses.command_variables(self._access, self._environ, self._home)}

    # -- the pool ------------------------------------------------------------------------------------------------------

    async def warm(self) -> None:
        """Begin to open the pool for a command that is about to be judged; returns while its processes start.

        What goes wrong is told to the command that needs it, which tries again.
        """
        if self._warming is None and self._place is None:
            self._warming = asyncio.create_task(self._pool(), name="a pool")
            self._warming.add_done_callback(_looked_at)
            await asyncio.sleep(0)

    async def _pool(self) -> client.CommandPool:
        if not process_tree.has_guardian():
            raise errors.SpawnFailed(
                "commands of workflows need Linux and a Python that is not frozen",
                hint="Run the workflow on Linux, in WSL or in a container.",
            )
        async with self._opening:
            if self._is_closed:
                raise PoolGone("these commands were closed")
            place = self._place
            if place is not None and place.pool is not None and place.pool.is_lost:
                await self._leave()
            place = self._planned()
            if place.pool is None:
                place.pool = await self._open(place)
            return place.pool

    async def _open(self, place: _Place) -> client.CommandPool:
        try:
            child = await self._sandbox.start(tag=self._tag, spool_dir=place.run_dir.path)
            try:
                return await place.door.open(child)
            except BaseException:
                await child.end(stop_s=0)
                raise
        except BaseException:
            self._place = None
            place.remove()
            raise

    async def _leave(self) -> None:
        place, self._place = self._place, None
        self._allowed.clear()  # the next sandbox may hold less
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.drop()  # its descriptors; it ends with its pool
        if place is None:
            return
        try:
            if place.pool is not None:
                await place.pool.close()
                await self._sandbox.settle()
        finally:
            place.remove()

    def _planned(self) -> _Place:
        """Everything up to the start: the sandbox is known from here on."""
        if self._place is None:
            self._place = self._plan()
        return self._place

    def _plan(self) -> _Place:
        assert self._config is not None and self._home is not None  # noqa: S101, PT018  # set by __aenter__
        run_dir, door = RunDir(), None
        try:
            tmp, pool, private = (run_dir.agent / name for name in ("tmp", "pool", "config"))
            for folder in (tmp, pool, private):
                folder.mkdir(mode=0o700)
            script = client.install_scripts(pool)
            door = client.PoolListener(pool)
            launch = base.Launch(
                argv=(sys.executable, "-IS", "-Xutf8", str(script), str(pool)),
                env={**self._env, "TMPDIR": str(tmp)},
                cwd=str(self.cwd),
                session_id=None,
                model="",
                config_dir=str(private),
                shown=tuple(folder.path for folder in self._access.folders if folder.is_read_only),
                opened=tuple(folder.path for folder in self._access.folders if folder.is_key),
            )
            where = base.StartContext(
                run_id=self._tag,
                environ=self._environ,
                ambient=self._environ,
                settings={},
                home=self._home,
                run_dir=run_dir.agent,
                launch_dir=run_dir.path,  # unused: no provider plans this start
                config=self._config,
            )
            proxy = self._proxy.socket_path if self._proxy is not None else None
            sockets = sandboxing.Sockets(proxy=proxy)
            built = self._sandbox.build(self._request, launch, where, sockets, self._targets(launch, where))
        except BaseException:
            if door is not None:
                door.close()
            run_dir.remove()
            raise
        return _Place(run_dir=run_dir, tmp=tmp, door=door, launch=launch, built=built)

    def _targets(self, launch: base.Launch, where: base.StartContext) -> sandboxing.Targets | None:
        """What is blocked is looked for in read-only folders as well."""
        if not launch.shown or self._sandbox.granted.level is None:
            return None
        shown = (extra_dirs.spell(path, is_read_only=True) for path in launch.shown)
        searched = msgspec.structs.replace(self._request, extra_dirs=(*self._request.extra_dirs, *shown))
        return self._sandbox.search(searched, where)


class _Place:
    """Where the pool is, or will be."""

    def __init__(
        self, *, run_dir: RunDir, tmp: Path, door: client.PoolListener, launch: base.Launch, built: sandboxing.Built
    ) -> None:
        self.run_dir = run_dir
        self.tmp = tmp
        self.door = door
        self.launch = launch
        self.built = built
        self.pool: client.CommandPool | None = None

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.door.close()
        self.run_dir.remove()


def _computed(done: Finished) -> Computed:
    fields = {name: getattr(done, name) for name in Finished.__struct_fields__}
    if done.timed_out:
        return Computed(**fields, error=Raised(kind="timed_out", message="it was ended after its time"))
    try:
        told = msgspec.json.decode(done.answer, type=_Answer)
    except msgspec.MsgspecError:
        # No answer, or one that it wrote itself: it was ended in the middle.
        message = f"the code ended with exit code {done.exit_code} before it gave a result"
        return Computed(**fields, error=Raised(kind="code_failed", message=message))
    return Computed(**fields, value=told.value, next=told.next, error=told.error)


class _Answer(msgspec.Struct, frozen=True):
    value: Any = None
    next: str | None = None
    error: Raised | None = None


def _text_of(order: _Order) -> str:
    """What the author has written: a script, a program with its words, or code."""
    body = order.body
    if "script" in body:
        return str(body["script"])
    if "letter" in body:
        return str(json.loads(body["letter"])["source"])
    return str(body["code"]["source"]) if "code" in body else " ".join(body["argv"])


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _words(argv: Sequence[str]) -> list[str]:
    words = [str(word) for word in argv]
    if not words or not words[0]:
        raise errors.BadValue("command", "it names no program", hint="Give at least one word.")
    for word in words:
        if "\0" in word:
            raise errors.BadValue("command", f"{word[:40]!r} holds a NUL character, which no argument can")
    return words


def _looked_at(task: asyncio.Task[client.CommandPool]) -> None:
    """So that asyncio does not report a failure as forgotten."""
    if not task.cancelled():
        task.exception()
