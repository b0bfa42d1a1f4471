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


def _ws(*names: str) -> tuple[Place, ...]:
    """In the workspace; a name that ends with / is a folder."""
    return tuple(
        Place("{ws}/" + name.rstrip("/"), "folder" if name.endswith("/") else "file", "{ws}") for name in names
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
RUN = ("run", "go", "--provider", "scripted", "--binary", "{agent}", "--mode", "dontAsk", "--no-session")


def _reads(option: str, name: str) -> Door:
    args = (*RUN, option, f"{{ws}}/given/{name}")
    return Door(name=f"run {option} {name}", args=args, places=_ws(f"given/{name}", "given/"))


def _step(name: str, *places: str) -> Door:
    return Door(name=f"step {name}", args=("flow", "run", "{ws}/flows/" + name + ".flow.md"), places=_ws(*places))


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
    Door(name="run in a sandbox", args=(*RUN, "--walls", "workspace"), places=STARTED),
    Door(
        name="run --worktree",
        args=(*RUN, "-w", "--carry"),
        places=(*EDITED, *_ws(".git/worktrees/", ".git/info/", "sub/new.txt")),
    ),
    _reads("--attach", "notes.txt"),
    _reads("--attach", "image.png"),
    Door(name="run --file", args=("run", *RUN[2:], "--file", "{ws}/notes.txt"), places=_ws("notes.txt")),
    Door(
        name="run --schema",
        args=(*RUN, "--schema", "{ws}/given/schema.json", "--schema-retries", "0"),
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
        name="policy check", args=("policy", "check", "{ws}/given/rules.toml"), places=_ws("given/rules.toml", "given/")
    ),
    Door(name="flow list", args=("flow", "list"), places=_ws("flows/", "workflows/", "workflows/a.flow.md")),
    Door(
        name="flow check",
        args=("flow", "check", "{ws}/flows/read-file.flow.md"),
        places=_ws("flows/read-file.flow.md", "flows/"),
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
    _step("output", "page/workflow-output-found.md", "page/"),
    _step("shell", "sub/", "given/", ".git/config"),
    Door(
        name="import-transcript",
        args=("import-transcript", "{ws}/given/native.jsonl", "-o", "{ws}/page/events.jsonl"),
        places=_ws("given/native.jsonl", "given/", "page/events.jsonl", "page/"),
    ),
    Door(name="events", args=("events", "{ws}/given/events.jsonl"), places=_ws("given/events.jsonl", "given/")),
)
