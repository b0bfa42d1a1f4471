"""The provider: finds the program, the credential and the session's folder, and plans a start. Starts no agent."""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import attachments, connections, home
from leadrope.core.events import Notice
from leadrope.core.models import TIERS, resolve_model
from leadrope.core.request import RunRequest
from leadrope.process import environment
from leadrope.process.sandbox import command_domain
from leadrope.providers import base
from leadrope.providers.claude_code import credentials, instructions, locate
from leadrope.providers.claude_code.launch import plan_launch
from leadrope.providers.claude_code.session import ClaudeSession

TRANSCRIPTS = "projects"
MODEL_URL = locate.MODEL_URL
OVERHEAD_TOKENS = 21_000
"""A first request of CLI 2.1.325 has 85 kB beside the prompt."""
SOUND_BYTES = 64 * 1024 * 1024
"""Read limit for a transcript when checking that it contains a message. The first prompt is among its first lines."""
FORKED_BYTES = 4 * 1024 * 1024 * 1024
"""Copy limit for a session's transcripts, including its subagents'; the largest known are some hundred MiB."""
DIAGNOSIS_S = 5.0
"""For asking a failed program's version: the user already has its error."""
_MOST_NAMED = 5


class ClaudeCode:
    id = "claude-code"
    label = "Claude"
    requires_api_key = False
    capabilities = base.Capabilities(
        tools=True,
        mcp=True,
        functions=True,
        approvals=True,
        questions=True,
        structured_output=True,
        sessions=True,
        images=True,
        partial_text=True,
    )

    async def is_available(self, environ: Mapping[str, str] | None = None) -> base.Availability:
        return locate.availability(await locate.check_cli(environ=environ))

    async def why_unusable(self, launch: base.Launch, environ: Mapping[str, str]) -> str | None:
        found = await locate.check_cli(launch.argv[0], environ, timeout_s=DIAGNOSIS_S)
        return locate.why_unsupported(found)

    async def prepare(self, request: RunRequest, place: base.StartContext, *, attempt: int) -> base.Launch:
        # Before the program is asked about its login: an invalid request must start nothing at all.
        environment.check_variables(request.variables, request.secret_variables)
        attached = attachments.of_request(request)
        environ = place.environ
        user_home = Path(environ.get("HOME") or Path.home())
        binary = locate.find_binary(request.binary, environ)
        credential = await credentials.resolve(
            place.ambient,
            user_home,
            now=time.time(),
            own_login=lambda: locate.auth_status(binary, environ, home=user_home),
            given=request.credential,
            given_kind=request.credential_kind,
            billing=request.billing,
            settings=place.settings,
        )
        used = credential.used()
        secrets = [credential.secret.reveal()] if credential.secret else []
        request, credential = await _behind_broker(request, credential, place)
        if credential.secret:
            secrets.append(credential.secret.reveal())
        filled = connections.fill(request.connections, environ)
        request = msgspec.structs.replace(request, connections=filled.servers)
        session_id = None if request.resume and not request.fork else request.session_id or str(uuid.uuid4())
        is_own_login = credential.kind == "own_login"
        dropped: list[str] = []
        config_dir = (
            None if is_own_login else config_folder(request, place, session_id, attempt=attempt, notices=dropped)
        )
        told = instructions.read(Path(request.cwd or "."), user_home, environ) if request.instructions else None
        model = resolve_model(request.model, request.purpose, {**TIERS, **place.config.models})
        domain = _domain(request, place)
        plan = plan_launch(
            request,
            binary=binary,
            model=model,
            session_id=session_id,
            run_id=place.run_id,
            run_dir=place.run_dir,
            launch_dir=place.launch_dir,
            config_dir=config_dir,
            credential=credential,
            environ=environ,
            is_root=place.is_root,
            default_home=user_home,
            instructions_text=told.text if told else "",
            forward_env=place.config.forward_env,
            is_trusted=place.is_trusted,
            shell=shutil.which("bash", path="/bin:/usr/bin"),
            domain=domain,
            own_servers=place.own_servers,
        )
        notices = (*credential.notices, *dropped, *(told.notices if told else ()))
        return base.Launch(
            argv=plan.argv,
            env=plan.env,
            cwd=request.cwd or ".",
            session_id=session_id or request.resume,
            model=model,
            files=plan.files,
            folders=tuple(map(str, plan.folders)),
            stderr_pipes=plan.stderr_pipes,
            config_dir=str(config_dir) if config_dir else None,
            own_login=own_login(plan.env) if config_dir is None else (),
            credential=used,
            secrets=(*filled.secrets, *secrets),
            instructions=tuple(told.files) if told else (),
            notices=(*(Notice(level="warning", code="setup", message=text) for text in notices), *_not_apart(domain)),
            key_sources=credentials.expected_key_source(credential),
            # The program refreshes its own login after the first 401; a forwarded credential does not change.
            patience_401=2 if is_own_login else 1,
            attachments=attached,
            shown=(domain.folder,) if domain.folder else (),
            commands_apart=bool(domain.shell),
            own_servers=place.own_servers,
            model_url=request.base_url or MODEL_URL,
            overhead_tokens=OVERHEAD_TOKENS,
        )

    def session(self, request: RunRequest, launch: base.Launch) -> ClaudeSession:
        return ClaudeSession(request, launch.attachments, launch.own_servers)

    def tidy(self, launch: base.Launch) -> None:
        """Remove everything but the transcripts from the private folder; the rest is caches and snapshots."""
        if launch.config_dir is None:
            return
        with contextlib.suppress(OSError, errors.UnsafeFile), Folder.open(launch.config_dir, follows=False) as folder:
            for entry in folder.entries(most=1_000_000):
                if entry.name != TRANSCRIPTS or entry.kind != "folder":
                    with contextlib.suppress(OSError):
                        folder.remove(entry.name)


def own_login(env: Mapping[str, str]) -> tuple[str, ...]:
    """Where the program keeps its login: in the user's own folder, or where he has put that."""
    elsewhere = env.get("CLAUDE_CONFIG_DIR")
    return (elsewhere,) if elsewhere else (f"{env['HOME']}/.claude", f"{env['HOME']}/.claude.json")


def _domain(request: RunRequest, place: base.StartContext) -> command_domain.Domain:
    found = command_domain.look(place.blocked_programs)
    if (request.agent_sandbox or {}).get("enabled") and found.version < command_domain.SCOPES_SINCE:
        # If mounts are not allowed, the agent cannot build it. It would have its own process table, without the agent.
        return msgspec.structs.replace(found, missing="the agent's own sandbox does not work in such a domain here")
    return command_domain.install(place.home, place.blocked_programs)


def _not_apart(domain: command_domain.Domain) -> Iterator[Notice]:
    if domain.missing:
        told = f"commands are not kept apart from the agent that runs them: {domain.missing}"
        yield Notice(level="info", code="commands_not_apart", message=told)


def config_folder(
    request: RunRequest, place: base.StartContext, session_id: str | None, *, attempt: int, notices: list[str]
) -> Path:
    """Return the program's private folder. It is kept with the session, because a resume reads its transcript."""
    if not request.persist_session:
        return place.launch_dir / "config"
    sessions = home.sessions_dir(place.home)
    old = _to_resume(sessions, request.resume) if request.resume is not None else None
    if old is not None and session_id is None:
        notices += _without_links(old)
        return old
    new = sessions / str(session_id) / "config"
    if new.exists():
        if attempt == 1:
            raise errors.BadValue("session_id", f"{session_id} is in use", hint="Resume it, or choose another.")
        # A session id can be used only once; nobody would resume what the failed attempt left.
        with Folder.open(new.parent, follows=False) as session:
            session.remove(new.name)
    if old is not None:
        notices += _copy(old, home.ensure(new))
    return new


def _without_links(config: Path) -> list[str]:
    """Remove links that an earlier agent may have left: without a sandbox the program would follow them out of the
    folder.
    """
    removed: list[str] = []
    with Folder.open(config, follows=False) as folder:
        try:
            found = [*folder.entries(most=1_000_000), *folder.walk(TRANSCRIPTS, most=100_000)]
        except errors.UnsafeFile as error:
            raise errors.SessionLost(
                f"the agent's record of its session cannot be used: {error.message}", hint="Start a new session."
            ) from error
        for entry in found:
            if entry.kind not in ("file", "folder"):
                folder.remove(entry.path)
                removed.append(f"{config}/{entry.path} was a {entry.kind}; it was removed")
    more = len(removed) - _MOST_NAMED
    return [*removed[:_MOST_NAMED], *([f"{more} more entries of {config} were removed"] if more > 0 else [])]


def _copy(old: Path, new: Path) -> list[str]:
    """Copy a session's transcripts for its fork: only regular files, so that an agent's links lead nowhere."""
    with Folder.open(old, follows=False) as source, Folder.open(new, follows=False) as target:
        try:
            copied = source.copy_tree(TRANSCRIPTS, target, TRANSCRIPTS, most_bytes=FORKED_BYTES)
        except BaseException:
            with contextlib.suppress(OSError):
                target.remove(TRANSCRIPTS)
            raise
    kept_out = copied.dropped[:_MOST_NAMED]
    more = len(copied.dropped) - len(kept_out)
    return [
        *(f"{old}/{TRANSCRIPTS}/{entry.path} {entry.reason}; the fork does not get it" for entry in kept_out),
        *([f"{more} more entries of {old}/{TRANSCRIPTS} are not in the fork"] if more else []),
    ]


def _to_resume(sessions: Path, session_id: str) -> Path:
    """Return the folder that the program resumes from, if it can."""
    if not (sessions / session_id).is_dir():
        raise errors.BadValue(
            "resume",
            f"no session {session_id!r} is known in {sessions}",
            hint="Check the id, and LEADROPE_HOME; a run that was not persisted cannot be resumed.",
        )
    folder = sessions / session_id / "config"
    if not _is_sound(sessions / session_id, session_id):
        raise errors.SessionLost(
            f"the agent's record of session {session_id} is missing or broken, and leadrope has none of its own",
            hint="Start a new session.",
        )
    return folder


def _is_sound(session: Path, session_id: str) -> bool:
    """Return whether the transcript contains a message. The program itself would start silently with one it cannot
    read.
    """
    try:
        with Folder.open(session, follows=False) as opened, opened.folder(f"config/{TRANSCRIPTS}") as folder:
            names = [f"{entry.path}/{session_id}.jsonl" for entry in folder.entries() if entry.kind == "folder"]
            return any(_has_messages(folder, name) for name in names if folder.kind(name) == "file")
    except (OSError, errors.UnsafeFile):
        return False


def _has_messages(folder: Folder, name: str) -> bool:
    return any(map(_is_message, folder.lines(name, most=SOUND_BYTES)))


def _is_message(line: bytes) -> bool:
    try:
        return msgspec.json.decode(line, type=_Entry).type in ("user", "assistant")
    except msgspec.MsgspecError:
        return False


class _Entry(msgspec.Struct, frozen=True):
    type: str = ""


async def _behind_broker(
    request: RunRequest, credential: credentials.Credential, place: base.StartContext
) -> tuple[RunRequest, credentials.Credential]:
    """Put a broker in between: the agent gets a token of this run of the same kind as the credential."""
    wanted = credential.kind == "api_key" if request.broker is None else request.broker
    if not wanted or place.open_broker is None:
        return request, credential
    if credential.secret is None:
        raise errors.BadValue(
            "broker",
            "the agent's own login cannot be kept out of its reach",
            hint="Give a token (`leadrope setup-token`) or a key, or leave broker out.",
        )
    brokered = await place.open_broker(request.base_url or MODEL_URL, credential.secret, credential.kind)
    request = msgspec.structs.replace(request, base_url=brokered.url)
    return request, msgspec.structs.replace(credential, secret=brokered.token)
