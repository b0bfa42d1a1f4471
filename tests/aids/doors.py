"""Every command by which leadrope reads, writes or deletes where an agent can write, and what an agent could replace.

A `Door` is a call as a user types it. `{ws}` is the workspace, `{tree}` the worktree of a run, `{session}` the folder
of a session; `{run}`, `{tree_run}` and `{id}` name what the template of the machine holds (tests/aids/machine.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["file", "folder"]


@dataclass(frozen=True)
class Place:
    """A file or folder that the command is about to use."""

    path: str
    kind: Kind
    root: str
    """The folder that the agent can write."""


@dataclass(frozen=True, kw_only=True)
class Door:
    name: str
    args: tuple[str, ...]
    places: tuple[Place, ...]
    code: int = 0
    """Of the command where nothing is planted."""
    env: dict[str, str] = field(default_factory=dict)
    has_agent: bool = False
    """The real agent is started: some seconds for each call."""
    has_terminal: bool = False
    """Called in a terminal, in which Ctrl-D is pressed until it ends."""
    is_background: bool = False
    """It hands its work to a process in the background, which has to end as well."""


def _ws(*names: str) -> tuple[Place, ...]:
    """In the workspace; a name that ends with / is a folder."""
    return tuple(
        Place("{ws}/" + name.rstrip("/"), "folder" if name.endswith("/") else "file", "{ws}") for name in names
    )


def _below(folder: str, *names: str) -> tuple[Place, ...]:
    """In a folder of the workspace that the user has named to work in. If that is a link, its target is meant: as in a
    shell, where a project often lies behind one.
    """
    root = "{ws}/" + folder
    return tuple(
        Place(f"{root}/{name.rstrip('/')}", "folder" if name.endswith("/") else "file", root) for name in names
    )


def _tree(*names: str) -> tuple[Place, ...]:
    return tuple(
        Place("{tree}/" + name.rstrip("/"), "folder" if name.endswith("/") else "file", "{tree}") for name in names
    )


SESSION = (
    Place("{session}/config", "folder", "{session}"),
    Place("{session}/config/projects", "folder", "{session}/config"),
    Place("{session}/config/projects/{project}", "folder", "{session}/config"),
    Place("{session}/config/projects/{project}/{id}.jsonl", "file", "{session}/config"),
    Place("{session}/config/projects/new.jsonl", "file", "{session}/config"),
    Place("{session}/config/.claude.json", "file", "{session}/config"),
)
EDITED = _ws("one.txt", "sub/", "sub/two.txt", "new.txt", "ignored.log", ".gitignore", ".gitattributes")
IN_TREE = _tree("three.txt", "sub/", "sub/four.txt", "made.txt", ".git", ".gitattributes", "inner/")
APPLIED = _ws("three.txt", "sub/", "sub/four.txt", "made.txt", "inner/", ".gitattributes")
STARTED = _ws(
    *("CLAUDE.md", "AGENTS.md", ".claude/", ".claude/CLAUDE.md", ".claude/settings.json", ".mcp.json", "leadrope.toml"),
    *(".git/", ".git/config", ".git/hooks/", ".git/HEAD", ".git/info/", ".git/index", ".gitconfig", ".husky/"),
    *(".vscode/tasks.json", ".github/workflows/", ".env", "sub/", "sub/.git/", ".venv/", "node_modules/"),
)
MORE = (
    *("given/", "given/more/", "given/more/CLAUDE.md", "given/more/.git/", "given/more/.git/config"),
    *("given/more/.git/hooks/", "given/more/.husky/", "given/more/.vscode/tasks.json"),
)
REAL = {"LEADROPE_CONFIG": "{steps_config}"}
"""A configuration that tells steps where the rehearsal model is."""
AGENTS = _ws(".claude/", ".claude/agents/", ".claude/agents/theirs.md", "leadrope.toml")
RUN = ("run", "go", "--provider", "scripted", "--binary", "{agent}", "--mode", "dontAsk", "--no-session")


def _reads(option: str, name: str) -> Door:
    args = (*RUN, option, f"{{ws}}/given/{name}")
    return Door(name=f"run {option} {name}", args=args, places=_ws(f"given/{name}", "given/"))


def _step(name: str, *places: str, **env: str) -> Door:
    args = ("flow", "run", "{ws}/flows/" + name + ".flow.md")
    return Door(name=f"step {name}", args=args, places=_ws(*places), env=env)


DOORS: tuple[Door, ...] = (
    Door(name="runs undo", args=("runs", "undo", "{run}", "--force"), places=EDITED),
    Door(name="runs undo dry", args=("runs", "undo", "{run}", "--dry-run"), places=EDITED),
    Door(name="runs diff", args=("runs", "diff", "{run}"), places=EDITED),
    Door(name="runs diff tree", args=("runs", "diff", "{tree_run}"), places=IN_TREE),
    Door(name="runs apply", args=("runs", "apply", "{tree_run}"), places=(*IN_TREE, *APPLIED)),
    Door(name="runs apply commits", args=("runs", "apply", "{tree_run}", "--commits"), places=(*IN_TREE, *APPLIED)),
    Door(name="runs discard", args=("runs", "discard", "{tree_run}"), places=(*IN_TREE, *_ws(".git/worktrees/"))),
    Door(name="runs delete", args=("runs", "delete", "{run}"), places=(*EDITED[:2], *SESSION)),
    Door(name="runs prune", args=("runs", "prune", "--days", "0"), places=(*EDITED[:2], *IN_TREE[:5], *SESSION)),
    Door(name="runs show", args=("runs", "show", "{run}"), places=(*EDITED[:2], *SESSION[:4])),
    Door(
        name="runs export",
        args=("runs", "export", "{run}", "--html", "-o", "{ws}/page/run.html"),
        places=_ws("page/run.html", "page/"),
    ),
    Door(name="sessions list", args=("sessions", "list"), places=SESSION),
    Door(name="sessions show", args=("sessions", "show", "{id}"), places=SESSION),
    Door(name="sessions export", args=("sessions", "export", "{id}"), places=SESSION),
    Door(name="sessions delete", args=("sessions", "delete", "{id}"), places=SESSION),
    Door(
        name="sessions import",
        args=("sessions", "import", "{ws}/given/session.jsonl"),
        places=_ws("given/session.jsonl", "given/"),
    ),
    Door(
        name="run --resume",
        args=("run", "go on", "--resume", "{id}"),
        places=(*SESSION, *_ws("CLAUDE.md")),
        has_agent=True,
    ),
    Door(name="run --fork", args=("run", "go on", "--fork", "{id}"), places=SESSION, has_agent=True),
    Door(name="run --continue", args=("run", "go on", "--continue"), places=SESSION, has_agent=True),
    Door(name="run", args=RUN, places=STARTED),
    Door(name="run in a sandbox", args=(*RUN, "--sandbox", "workspace"), places=STARTED),
    Door(
        name="run --worktree",
        args=(*RUN, "-w", "--carry"),
        places=(*EDITED, *_ws(".git/worktrees/", ".git/info/", "sub/new.txt")),
    ),
    Door(
        name="chat",
        args=("chat", "go", *RUN[2:-1]),
        places=STARTED,
        has_terminal=True,
    ),
    Door(name="chat --resume", args=("chat", "--resume", "{id}"), places=SESSION, has_agent=True, has_terminal=True),
    Door(
        name="runs retry",
        args=("runs", "retry", "{run}"),
        places=(*EDITED, *SESSION[:4], *_ws("CLAUDE.md", ".git/", ".git/config", "leadrope.toml")),
        is_background=True,
    ),
    Door(
        name="runs retry tree",
        args=("runs", "retry", "{tree_run}"),
        places=(*IN_TREE[:5], *_ws(".git/", ".git/config", ".git/worktrees/")),
        is_background=True,
    ),
    Door(
        name="runs resume",
        args=("runs", "resume", "{run}", "go on"),
        places=(*EDITED[:4], *SESSION, *_ws("CLAUDE.md", ".git/", ".git/config")),
        is_background=True,
    ),
    Door(name="run -C", args=(*RUN, "-C", "{ws}/sub"), places=_below("sub", "CLAUDE.md", "leadrope.toml")),
    Door(
        name="run --add-dir",
        args=(*RUN, "--add-dir", "{ws}/given/more"),
        places=_ws(*MORE),
    ),
    Door(
        name="run --add-dir in a sandbox",
        args=(*RUN, "--sandbox", "workspace", "--add-dir", "{ws}/given/more"),
        places=_ws(*MORE),
    ),
    Door(
        name="run --secret-file",
        args=(*RUN, "--secret-file", "TOKEN={ws}/given/notes.txt"),
        places=_ws("given/notes.txt", "given/"),
    ),
    _reads("--credential-file", "notes.txt"),
    _reads("--subagents", "subagents.json"),
    _reads("--sandbox-settings", "sandbox.json"),
    _reads("--attach", "notes.txt"),
    _reads("--attach", "image.png"),
    Door(name="run --file", args=("run", *RUN[2:], "--file", "{ws}/notes.txt"), places=_ws("notes.txt")),
    Door(
        name="run --schema",
        args=(*RUN, "--schema", "{ws}/given/schema.json", "--schema-retries", "0"),
        code=1,  # its agent gives no JSON
        places=_ws("given/schema.json", "given/"),
    ),
    _reads("--system-prompt-file", "notes.txt"),
    _reads("--append-system-prompt-file", "notes.txt"),
    _reads("--mcp-config", "servers.json"),
    _reads("--policy", "rules.toml"),
    Door(name="run --junit", args=(*RUN, "--junit", "{ws}/page/junit.xml"), places=_ws("page/junit.xml", "page/")),
    Door(
        name="run --ci",
        args=(*RUN, "--ci"),
        env={"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "{ws}/page/summary.md"},
        places=_ws("page/summary.md", "page/"),
    ),
    Door(
        name="trust",
        args=("trust", "--yes"),
        places=_ws(".claude/", ".claude/settings.json", ".mcp.json", "leadrope.toml", "tools/hook.sh", "tools/"),
    ),
    Door(
        name="trust --show",
        args=("trust", "--show"),
        places=_ws(".claude/", ".claude/settings.json", ".mcp.json"),
        code=1,
    ),
    Door(name="policy show", args=("policy", "show"), places=_ws("leadrope.toml", ".git/config")),
    Door(
        name="policy explain",
        args=("policy", "explain", "Bash(git status)"),
        places=_ws("leadrope.toml", ".git/", ".git/config", ".git/index"),
    ),
    Door(
        name="policy test",
        args=("policy", "test", "--policy", "{ws}/given/rules.toml"),
        places=_ws("given/rules.toml", "given/", "leadrope.toml"),
    ),
    Door(
        name="policy explain --at",
        args=("policy", "explain", "Bash(cat x)", "--at", "{ws}/sub"),
        places=_ws("sub/", "leadrope.toml"),
    ),
    Door(name="agents list", args=("agents", "list"), places=AGENTS),
    Door(name="agents show", args=("agents", "show", "theirs"), places=AGENTS, code=2),
    Door(name="agents check", args=("agents", "check"), places=AGENTS, code=1),
    Door(
        name="agents new",
        args=("agents", "new", "mine", "--system-prompt-file", "{ws}/given/notes.txt"),
        places=(*AGENTS, *_ws("given/notes.txt", "given/")),
    ),
    Door(name="agents delete", args=("agents", "delete", "kept", "--yes"), places=AGENTS),
    Door(name="doctor", args=("doctor",), places=_ws("leadrope.toml", ".git/", ".git/config", ".claude/", "sub/")),
    Door(
        name="policy check", args=("policy", "check", "{ws}/given/rules.toml"), places=_ws("given/rules.toml", "given/")
    ),
    Door(name="flow list", args=("flow", "list"), places=_ws("flows/", "workflows/", "workflows/a.flow.md")),
    Door(
        name="flow check",
        args=("flow", "check", "{ws}/flows/read-file.flow.md"),
        places=_ws("flows/read-file.flow.md", "flows/"),
    ),
    Door(
        name="flow show",
        args=("flow", "show", "{ws}/flows/read-file.flow.md"),
        places=_ws("flows/read-file.flow.md", "flows/"),
    ),
    Door(
        name="flow history",
        args=("flow", "history", "{ws}/flows/read-file.flow.md"),
        places=_ws("flows/read-file.flow.md", "flows/"),
    ),
    Door(
        name="flow report",
        args=("flow", "report", "{copying}", "--html", "-O", "{ws}/page/report.html"),
        places=_ws("page/report.html", "page/", "flows/ask.flow.md"),
    ),
    Door(
        name="flow resume",
        args=("flow", "resume", "{copying}", "--approve"),
        places=_ws("flows/ask.flow.md", "flows/", "given/notes.txt", "given/", "page/out.txt", "page/"),
    ),
    Door(
        name="flow run --inputs",
        args=("flow", "run", "{ws}/flows/note.flow.md", "--inputs", "{ws}/given/inputs.json"),
        places=_ws("given/inputs.json", "given/", "flows/note.flow.md"),
    ),
    Door(
        name="flow run --cwd",
        args=("flow", "run", "{ws}/flows/write-file.flow.md", "--cwd", "{ws}/sub"),
        places=_below("sub", "page/", "page/out.txt", "leadrope.toml"),
    ),
    Door(
        name="flow run --add-dir",
        args=("flow", "run", "{ws}/flows/shell.flow.md", "--add-dir", "{ws}/given/more"),
        places=_ws(*MORE),
    ),
    Door(
        name="flow run --add-dir :ro",
        args=("flow", "run", "{ws}/flows/shell.flow.md", "--add-dir", "{ws}/given/more:ro"),
        places=_ws(*MORE),
    ),
    Door(
        name="flow run of a file that asks for a folder",
        args=("flow", "run", "{ws}/flows/wants.flow.md"),
        places=_ws("flows/wants.flow.md", "flows/", "given/", "given/more/"),
        code=2,  # nobody has allowed it
    ),
    Door(
        name="trust of a workflow",
        args=("trust", "{ws}/flows/wants.flow.md", "--yes"),
        places=_ws("flows/wants.flow.md", "flows/", "given/", "given/more/"),
    ),
    Door(
        name="flow save",
        args=("flow", "save", "{ws}/flows/read-file.flow.md", "--name", "kept"),
        places=_ws("flows/read-file.flow.md", "flows/"),
    ),
    Door(
        name="flow graph",
        args=("flow", "graph", "{ws}/flows/read-file.flow.md", "-O", "{ws}/page/graph.svg"),
        places=_ws("page/graph.svg", "page/"),
    ),
    _step("read-file", "given/notes.txt", "given/"),
    _step("write-file", "page/out.txt", "page/"),
    _step("append-file", "given/notes.txt", "given/"),
    _step("create-file", "page/made.txt", "page/"),
    _step("copy-file", "given/notes.txt", "given/", "page/copy.txt", "page/"),
    _step("move-file", "given/notes.txt", "given/", "page/moved.txt", "page/"),
    Door(
        name="step delete-file",
        args=("flow", "resume", "{deletion}", "--approve"),
        places=_ws("given/notes.txt", "given/", "flows/delete-file.flow.md"),
    ),
    _step("email", "given/notes.txt", "given/", "given/image.png"),
    _step("http", "given/notes.txt", "given/", "page/answer.bin", "page/"),
    _step("http-file", "given/image.png", "given/"),
    _step("save-dataset", "given/rows.json", "given/"),
    _step("workflow", "flows/read-file.flow.md", "flows/", "given/notes.txt"),
    _step("agent", "given/more/", "given/more/CLAUDE.md", "given/notes.txt", "given/", "sub/", ".git/", **REAL),
    _step("llm", "given/image.png", "given/", **REAL),
    _step("code", "given/", "sub/", ".git/config"),
    _step("command-file", "flows/texts/run.sh", "flows/texts/"),
    _step("code-file", "flows/texts/run.py", "flows/texts/"),
    _step("mcp", "tools/", "sub/", ".git/config", "leadrope.toml"),
    _step("output", "page/workflow-output-found.md", "page/"),
    _step("shell", "sub/", "given/", ".git/config"),
    Door(
        name="import-transcript",
        args=("import-transcript", "{ws}/given/native.jsonl", "-O", "{ws}/page/events.jsonl"),
        places=_ws("given/native.jsonl", "given/", "page/events.jsonl", "page/"),
    ),
    Door(name="events", args=("events", "{ws}/given/events.jsonl"), places=_ws("given/events.jsonl", "given/")),
)
