"""What a run needs of its box, and what the machine has for it: values only, no rule and no look at the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from leadrope.process.sandbox.git_config_copy import View

Level = Literal["workspace", "read-only", "off"]
Network = Literal["host", "model-only"]

MODEL_SOCKET = "/run/leadrope/model.sock"
PROXY_SOCKET = "/run/leadrope/proxy.sock"
"""Where the box has the sockets of its supervisor; any other name below /run/leadrope may be used too."""

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
    # Where the same browsers keep their data when they were installed as a snap or by flatpak.
    *("snap/firefox", "snap/chromium", "snap/brave", "snap/thunderbird", ".var/app"),
    *(".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".lesshst"),
    *(".claude", ".claude.json", ".codex", ".gemini", ".config/leadrope", ".local/share/leadrope"),
)
"""Below a home: hidden also where the home itself is the workspace, or part of it."""

LOGIN_VARIABLES = ("CLAUDE_CONFIG_DIR",)
"""By which a user says that such a folder, with a login in it, is elsewhere."""

GIT_IDENTITY = (".gitconfig", ".config/git")

BASE = frozenset({"/", "/home", "/opt", "/run", "/tmp", "/var", "/var/tmp"})  # noqa: S108  # names, not files
BASE |= {"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr"}
"""The box has its own of these; none of them can be a workspace."""

INSTALL_HINT = "Install the packages bubblewrap, socat and util-linux."


class SandboxUser(msgspec.Struct, frozen=True, kw_only=True):
    uid: int
    gid: int


class Socket(msgspec.Struct, frozen=True, kw_only=True):
    """A unix socket of the supervisor, and its name in the box: the only way out of `model-only`."""

    outside: str
    inside: str = MODEL_SOCKET


class Forward(msgspec.Struct, frozen=True, kw_only=True):
    """Makes a socket in the box reachable as 127.0.0.1:port in there, for programs that know no unix sockets."""

    port: int
    socket: str = PROXY_SOCKET


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """0 leaves a limit as it is."""

    processes: int = 2048
    """Counted per user: over all processes of that user where leadrope runs as root. Not enforced for uid 0."""
    open_files: int = 4096
    file_size: int = 16 << 30
    """In bytes: for a command that writes without end, before the disk is full. It ends the writer without a word, and
    counts for the agent's own transcript too; hence far above what ordinary work writes."""


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a run needs of its box. All paths are absolute."""

    level: Level = "workspace"
    workspace: str
    run_dir: str
    """The run's private folder, with its TMPDIR; writable."""
    home: str
    """Hidden: an empty one that vanishes stands in its place."""
    binary: str
    path: str = "/usr/local/bin:/usr/bin:/bin"
    """The child's PATH: the toolchains that it names below a hidden place stay visible, read-only."""
    config_dir: str | None = None
    """The agent's private folder; writable."""
    login: tuple[str, ...] = ()
    """The agent's own login in the user's home, where that is used; writable."""
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    """Of the writable and readable ones: places with keys, which would be hidden if the user had not named them."""
    programs: tuple[str, ...] = ()
    """What the agent will start beside commands (its servers), by name or path: they and what they are made of stay
    visible, read-only."""
    named: tuple[str, ...] = ()
    """Arguments and values that the user wrote; the existing paths among them stay visible, read-only."""
    kept: tuple[str, ...] = ()
    """Inside of what is writable, and read-only all the same; nor can a folder above them be moved away."""
    guarded: tuple[str, ...] = ()
    """As `kept`, but the supervisor may open them for one call that a person has approved (`guards`)."""
    blocked: tuple[str, ...] = ()
    """Real paths that cannot be read or written in the sandbox, whatever shows the folder around them."""
    repositories: tuple[str, ...] = ()
    """Folders inside the workspace with a git folder of their own, which is treated as the workspace's is."""
    hidden: tuple[str, ...] = ()
    """leadrope's own folders: absent, but for the config dir, the run dir or a workspace inside of them."""
    masked: tuple[str, ...] = ()
    """Programs, by name or path, that cannot be started under any name they have."""
    must_mask: bool = True
    """A program that shares its file with the system's shell is an error; else it alone stays as it is."""
    network: Network = "host"
    sockets: tuple[Socket, ...] = ()
    forwards: tuple[Forward, ...] = ()
    limits: ProcessLimits = ProcessLimits()


Seen = Literal["rw", "ro", "hidden", "private"]
"""How a box has a path: writable, read-only, not at all, or as something of its own that vanishes."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a box shows of the machine, for whoever must understand what was said in there."""

    places: Mapping[str, Seen] = {}
    """Each decides about what lies below it, up to the next one; the rest of the machine is hidden."""
    home: str = ""
    workspace: str = ""
    network: Network = "host"
    plantable: tuple[str, ...] = ()
    """To be looked for when the agent has ended."""
    views: tuple[View, ...] = ()
    """Files of which the agent has a copy; what it changed there is judged when it has ended."""
    own_settings: tuple[View, ...] = ()
    """Copies of the user's git settings that vanish with the run."""
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
    """Something of the machine: the name it goes by, and what it really is once links are followed."""

    name: str
    real: str
    is_dir: bool = True


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """Packages that were fetched before: to be seen, and written to in a layer that vanishes with the run."""

    place: MachinePath
    is_extra: bool = False
    """Without such a layer it is better not to be seen: its program does not work with what it cannot write."""
    layer: str = ""
    """The folder of what is written; empty: there is none."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What `look` has found: everything that `plan` needs to know and must not look up."""

    bwrap: str = "/usr/bin/bwrap"
    prlimit: str = "/usr/bin/prlimit"
    setpriv: str | None = "/usr/bin/setpriv"
    socat: str | None = "/usr/bin/socat"
    user: SandboxUser = SandboxUser(uid=1000, gid=1000)
    """Who the agent will be."""
    drops_root: bool = False
    """leadrope is root, and becomes `user` inside of the box."""
    links: Mapping[str, str] = {}
    """/bin -> usr/bin and its like."""
    system: tuple[str, ...] = ("/usr", "/etc")
    """Folders of the system that are there and are no links."""
    etc_hidden: tuple[MachinePath, ...] = ()
    proc_read_only: tuple[str, ...] = ()
    proc_hidden: tuple[MachinePath, ...] = ()
    resolv: str | None = None
    """Where /etc/resolv.conf leads, if that is outside of /etc."""
    places: Mapping[str, MachinePath] = {}
    """Every path that the sandbox names and that exists."""
    identity: tuple[MachinePath, ...] = ()
    toolchains: tuple[MachinePath, ...] = ()
    caches: tuple[Cache, ...] = ()
    agent: tuple[MachinePath, ...] = ()
    """The binary, and what it is made of."""
    git: tuple[str, ...] = ()
    """Git folders, also those outside of the workspace, and folders that must stay in their places."""
    protected: tuple[str, ...] = ()
    """Inside of writable places, but run by the user's own programs later: git hooks, leadrope's own Python."""
    settings: tuple[str, ...] = ()
    """Of the protected files those that may have a private copy in the box."""
    views: tuple[View, ...] = ()
    copies: Mapping[str, View] = {}
    """Files in the home that are replaced by a link to a copy, which vanishes with whatever was written to it."""
    guarded: tuple[MachinePath, ...] = ()
    blocked: tuple[MachinePath, ...] = ()
    """By their real names."""
    plantable: tuple[str, ...] = ()
    """Of the same kind, but not there yet: what is there after the run was put there by the agent."""
    secrets: tuple[MachinePath, ...] = ()
    unshown: tuple[str, ...] = ()
    """Named by the user's settings, and hidden all the same."""
    masks: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()
    """Files of blocked programs that stay as they are: they are the system's shell too."""
    most_open_files: int | None = None
    most_processes: int | None = None
    """The hard limits; nobody can go above them."""
    processes: int = 0
    """How many the user has already, where they count against the limit."""
