"""What a run needs from its sandbox, and what the machine offers for it, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from leadrope.process.sandbox.git_config_copy import View

Level = Literal["workspace", "read-only", "off"]
Network = Literal["host", "model-only"]

MODEL_SOCKET = "/run/leadrope/model.sock"
PROXY_SOCKET = "/run/leadrope/proxy.sock"
"""Where the sandbox has the sockets of its supervisor; other names below /run/leadrope may also be used."""

SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".vault-token"),
    *(
        ".netrc",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
        ".pgpass",
        ".my.cnf",
        ".git-credentials",
        ".config/git/credentials",
    ),
    *(
        ".config/gh",
        ".config/glab-cli",
        ".config/hub",
        ".config/gcloud",
        ".config/op",
        ".config/sops",
        ".config/rclone",
    ),
    *(
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".gem/credentials",
        ".terraform.d",
        ".config/pypoetry/auth.toml",
    ),
    *(
        ".boto",
        ".s3cfg",
        ".dockercfg",
        ".config/containers/auth.json",
        ".config/helm",
        ".config/doctl",
        ".config/heroku",
    ),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".config/google-chrome-beta", ".config/google-chrome-unstable", ".config/mozilla", ".librewolf", ".zen"),
    *(".config/microsoft-edge", ".config/vivaldi", ".config/opera", ".local/share/keyrings", ".local/share/kwalletd"),
    # Where the same browsers keep their data if installed as a snap or by flatpak.
    *("snap/firefox", "snap/chromium", "snap/brave", "snap/thunderbird", ".var/app"),
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".lesshst"),
    *(".claude", ".claude.json", ".codex", ".gemini", ".config/leadrope", ".local/share/leadrope"),
)
"""Below a home: hidden even if the home itself is the workspace, or a part of it."""

LOGIN_VARIABLES = ("CLAUDE_CONFIG_DIR",)
"""Variables with which a user moves such a folder, which has a login in it, elsewhere."""

GIT_IDENTITY = (".gitconfig", ".config/git")

BASE = frozenset({"/", "/home", "/opt", "/run", "/tmp", "/var", "/var/tmp"})  # noqa: S108  # names, not files
BASE |= {"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"}
"""The sandbox has its own versions of these; none of them can be a workspace."""

INSTALL_HINT = "Install the packages bubblewrap, socat and util-linux."


class SandboxUser(msgspec.Struct, frozen=True, kw_only=True):
    uid: int
    gid: int


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """A Unix socket of the supervisor, and its name in the sandbox: the only way out of `model-only`."""

    outside: str
    inside: str = MODEL_SOCKET


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """Makes a socket reachable as 127.0.0.1:port in the sandbox, for programs that cannot use Unix sockets."""

    port: int
    socket: str = PROXY_SOCKET


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Resource limits of a sandboxed process; 0 leaves a limit unchanged."""

    processes: int = 2048
    """Counted per user: over all processes of that user if leadrope runs as root. Not enforced for uid 0."""
    open_files: int = 4096
    file_size: int = 16 << 30
    """In bytes; stops a command that writes without end before the disk is full. The writer is ended without a message,
    and the limit also applies to the agent's own transcript; hence far above what ordinary work writes."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a run needs from its sandbox. All paths are absolute."""

    level: Level = "workspace"
    workspace: str
    run_dir: str
    """The run's private folder, with its TMPDIR; writable."""
    home: str
    """Hidden: replaced by an empty temporary folder."""
    binary: str
    path: str = "/usr/local/bin:/usr/bin:/bin"
    """The child's PATH: its toolchains below a hidden place stay visible, read-only."""
    config_dir: str | None = None
    """The agent's private folder; writable."""
    login: tuple[str, ...] = ()
    """The agent's own login in the user's home, if it is used; writable."""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    """Folders of keys among the writable and readable ones, which would be hidden if the user had not named them."""
    programs: tuple[str, ...] = ()
    """Programs that the agent will start besides commands (its servers), by name or path: they and their dependencies
    stay visible, read-only."""
    named: tuple[str, ...] = ()
    """Arguments and values that the user wrote; the existing paths among them stay visible, read-only."""
    kept: tuple[str, ...] = ()
    """Read-only paths inside of writable folders; the folders above them cannot be moved away either."""
    guarded: tuple[str, ...] = ()
    """Like `kept`, but the supervisor may open them for one call that a person has approved (`guards`)."""
    blocked: tuple[str, ...] = ()
    """Real paths that cannot be read or written in the sandbox, whichever visible folder they are in."""
    repositories: tuple[str, ...] = ()
    """Folders inside the workspace with their own git folder, which is treated like the workspace's."""
    hidden: tuple[str, ...] = ()
    """leadrope's own folders: absent, except for a config dir, run dir or workspace inside of them."""
    masked: tuple[str, ...] = ()
    """Programs, by name or path, that cannot be started under any of their names."""
    must_mask: bool = True
    """Whether a program that shares its file with the system's shell is an error; otherwise it is not masked."""
    network: Network = "host"
    sockets: tuple[Socket, ...] = ()
    forwards: tuple[Forward, ...] = ()
    limits: ProcessLimits = ProcessLimits()


Seen = Literal["rw", "ro", "hidden", "private"]
"""How a path appears in the sandbox: writable, read-only, absent, or replaced by something temporary."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox shows of the machine, for code that interprets what happened inside."""

    places: Mapping[str, Seen] = {}
    """Each entry applies to everything below it, up to the next entry; the rest of the machine is hidden."""
    home: str = ""
    workspace: str = ""
    network: Network = "host"
    plantable: tuple[str, ...] = ()
    """To be checked when the agent has ended."""
    views: tuple[View, ...] = ()
    """Files of which the agent has a copy; its changes are judged when it has ended."""
    own_settings: tuple[View, ...] = ()
    """Copies of the user's git settings that are discarded with the run."""
    guarded: frozenset[str] = frozenset()
    """Read-only places that can be opened for one approved call."""

    def of(self, path: str) -> Seen:
        while path not in self.places:
            above = path.rpartition("/")[0]
            if not above or above == path:
                return "hidden"
            path = above
        return self.places[path]


class MachinePath(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of the machine: the name used for it, and its real path with links resolved."""

    name: str
    real: str
    is_dir: bool = True


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """A cache of packages, shown and written to in a layer that is discarded with the run."""

    place: MachinePath
    is_extra: bool = False
    """Without a layer it is better hidden: its program does not work with a cache that it cannot write to."""
    layer: str = ""
    """The folder that holds what is written; empty if there is none."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `look`: everything that `plan` needs to know and must not look up."""

    bwrap: str = "/usr/bin/bwrap"
    prlimit: str = "/usr/bin/prlimit"
    setpriv: str | None = "/usr/bin/setpriv"
    socat: str | None = "/usr/bin/socat"
    user: SandboxUser = SandboxUser(uid=1000, gid=1000)
    """The user that the agent runs as."""
    drops_root: bool = False
    """leadrope runs as root, and becomes `user` inside of the sandbox."""
    links: Mapping[str, str] = {}
    """/bin -> usr/bin and the like."""
    system: tuple[str, ...] = ("/usr", "/etc")
    """System folders that exist and are not links."""
    etc_hidden: tuple[MachinePath, ...] = ()
    proc_read_only: tuple[str, ...] = ()
    proc_hidden: tuple[MachinePath, ...] = ()
    resolv: str | None = None
    """The target of /etc/resolv.conf, if it is outside of /etc."""
    places: Mapping[str, MachinePath] = {}
    """Every existing path that the sandbox names."""
    identity: tuple[MachinePath, ...] = ()
    toolchains: tuple[MachinePath, ...] = ()
    caches: tuple[Cache, ...] = ()
    agent: tuple[MachinePath, ...] = ()
    """The binary and its dependencies."""
    git: tuple[str, ...] = ()
    """Git folders, including those outside of the workspace, and folders that must not be moved."""
    protected: tuple[str, ...] = ()
    """Inside of writable places, but run by the user's own programs later: git hooks, leadrope's own Python."""
    settings: tuple[str, ...] = ()
    """The protected files that may have a private copy in the sandbox."""
    views: tuple[View, ...] = ()
    copies: Mapping[str, View] = {}
    """Files in the home that are replaced by a link to a copy, which is discarded with what was written to it."""
    guarded: tuple[MachinePath, ...] = ()
    blocked: tuple[MachinePath, ...] = ()
    """By their real paths."""
    plantable: tuple[str, ...] = ()
    """Of the same kind, but missing now: if they exist after the run, the agent created them."""
    secrets: tuple[MachinePath, ...] = ()
    unshown: tuple[str, ...] = ()
    """Paths that the user's settings name but that stay hidden."""
    masks: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()
    """Files of blocked programs that are not masked because they are also the system's shell."""
    most_open_files: int | None = None
    most_processes: int | None = None
    """The hard limits, which nobody can exceed."""
    processes: int = 0
    """How many processes the user already has, if they count against the limit."""
