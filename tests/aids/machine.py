"""A user's machine after a day of work with agents, made by the commands that a user types, for each kind of user.

    root          root works in a workspace of its own
    user          somebody without any rights does
    root for user root works in a workspace that belongs to somebody else; agents become that user

What the day has left (runs, sessions, a worktree, checkpoints) is kept as a template: each trial begins with a copy at
the very same path.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from door_workflows import MCP_SERVER, written
from doors import Door, Place
from hostile_folders import CANARY, CASES
from http_sink import HttpSink
from leadrope.rehearsal import ModelServer, write_executable
from mail_sink import MailSink

Identity = Literal["root", "user", "root for user"]
NOBODY = 65534
REPOSITORY = Path(__file__).parents[2]
SESSION = "5e55105e-0000-4000-8000-00000000000a"
OTHER = "5e55105e-0000-4000-8000-00000000000b"
LIMIT_S = 60.0
"""A hang, on a machine that has other things to do as well."""
CLOCKS = ("--start-secs", "20", "--timeout-secs", "20", "--attempts", "1")
"""An agent that reads a pipe itself, or waits for a git that does, is ended by a clock of its run, also in a retry."""
PATH = "/usr/local/bin:/usr/bin:/bin"
GIVEN = frozenset(
    {
        *("notes.txt", "schema.json", "servers.json", "rules.toml", "rows.json", "inputs.json"),
        *("subagents.json", "sandbox.json"),
    }
)
"""Files of the workspace that are in its folder `given` as well."""
LOOKED_THROUGH = ("ws", "home", "tmp")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HOOK = {"type": "command", "command": "tools/hook.sh"}
EDIT = "echo changed >> one.txt; echo new > new.txt; echo more > sub/two.txt; echo x > ignored.log; mkdir -p inner"
COMMIT = """echo changed >> three.txt; echo new > made.txt; echo more > sub/four.txt; mkdir -p inner; echo x > inner/x
git add -A; git commit -q -m theirs"""


def _swaps(case: str) -> bool:
    return next(known for known in CASES if known.name == case).swaps


class Machine:
    def __init__(self, identity: Identity, claude: str, shown_to_all: Callable[..., list[str]]) -> None:
        self.identity = identity
        self._claude = claude
        self._shown = shown_to_all
        self.folder = Path(tempfile.mkdtemp(prefix="leadrope-doors-"))
        self.site, self.template = self.folder / "site", self.folder / "template"
        self.ws, self.home, self.tmp = (self.site / name for name in LOOKED_THROUGH)
        self.names: dict[str, str] = {}
        self._mail = MailSink()
        self._web = HttpSink()
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        bash = [{"tool": {"name": "Bash", "input": {"command": text, "description": "x"}}} for text in (EDIT, COMMIT)]
        turns = [bash[0], {"text": "edited"}, bash[1], {"text": "committed"}, {"text": "again", "repeat": 100_000}]
        self._model = ModelServer.in_thread(turns, strict=False)
        self._url = self._model.__enter__().url
        self._mail.__enter__()
        self._web.__enter__()
        try:
            self._furnish()
            self._work()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.communicate()  # the end of its input is the end of it
        self._model.__exit__(None, None, None)
        self._mail.__exit__(None, None, None)
        self._web.__exit__(None, None, None)
        subprocess.run(["chmod", "-R", "u+rwx", str(self.folder)], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- the day before --------------------------------------------------------------------------------------------

    def _furnish(self) -> None:
        for folder in (self.ws / "sub", self.home / "leadrope", self.tmp):
            folder.mkdir(parents=True)
        for name in (
            *("given/more", "page", "flows", "workflows", "tools", ".claude/agents", ".github/workflows", ".husky"),
            *("sub/page", "flows/texts"),
        ):
            (self.ws / name).mkdir(parents=True)
        (self.home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.com\n[safe]\ndirectory = *\n")
        self._configure()
        for name, text in self._files().items():
            (self.ws / name).write_text(text)
            if name in GIVEN:
                (self.ws / "given" / name).write_text(text)
        for path in (self.ws / "image.png", self.ws / "given" / "image.png"):
            path.write_bytes(PNG)
        for name, text in written(http_port=self._web.port).items():
            (self.ws / "flows" / f"{name}.flow.md").write_text(text)
        (self.ws / "flows/texts/run.sh").write_text("echo done\n")
        (self.ws / "flows/texts/run.py").write_text("result = 1\n")
        shutil.copy(self.ws / "flows" / "read-file.flow.md", self.ws / "workflows" / "a.flow.md")
        end = [{"text": "done"}, {"result": True}, {"await_eof": True}]
        start: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
        write_executable(self.site / "agent", {"steps": [*start, *end]})
        (self.ws / "tools" / "hook.sh").chmod(0o755)
        if self.identity != "root":
            self._give(self.folder if self.identity == "user" else self.ws)
        self.folder.chmod(0o755)

    def _configure(self) -> None:
        """The user's own files: a key, a mail server, a connection, a saved agent."""
        settings = {
            "ANTHROPIC_API_KEY": "sk-ant-rehearsal-0000000000000000",
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(self._mail.port),
            "SMTP_FROM": "me@example.com",
        }
        server = self.home / "server.py"
        server.write_text(MCP_SERVER)
        shared = f"""
[service]
idle_s = 0.1

[connections.own]
command = {json.dumps(shutil.which("python3", path=PATH))}
args = [{json.dumps(str(server))}]

[agents.kept]
model = "haiku"
"""
        for name, text in (("config", shared), ("steps", f'{shared}\n[run]\nbase_url = "{self._url}"\n')):
            (self.home / f"{name}.toml").write_text(text)
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self.home / "leadrope" / ".env").write_text("".join(lines))

    def _files(self) -> dict[str, str]:
        return {
            "one.txt": "".join(f"line {number}\n" for number in range(20)),
            "sub/two.txt": "two\n",
            "three.txt": "three\n",
            "sub/four.txt": "four\n",
            ".gitignore": "*.log\n",
            "CLAUDE.md": "Keep the tests green.\n",
            "leadrope.toml": '[run]\nmodel = "haiku"\n',
            ".mcp.json": '{"mcpServers": {}}',
            ".claude/settings.json": json.dumps({"hooks": {"Stop": [{"hooks": [HOOK]}]}}),
            "tools/hook.sh": "#!/bin/sh\n",
            "notes.txt": "Notes.\n",
            "schema.json": '{"type": "object", "properties": {}}',
            "servers.json": '{"mcpServers": {}}',
            "rules.toml": '[policy]\nblocked_commands = ["evil"]\n',
            "rows.json": '[{"a": 1}]',
            "inputs.json": '{"text": "x"}',
            "subagents.json": '{"helper": {"description": "helps", "prompt": "Help."}}',
            "sandbox.json": '{"enabled": false}',
            "given/more/CLAUDE.md": "More.\n",
            "given/more/x.txt": "x\n",
            ".claude/agents/theirs.md": "---\nname: theirs\ndescription: x\n---\nHelp.\n",
        }

    def _work(self) -> None:
        """Two runs, one of them in a worktree; what they leave is exported, and then everything is kept."""
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
            self._machine("git", *words)
        sandbox = "workspace" if self.identity == "root for user" else "off"
        agent = ("--mode", "full", "--sandbox", sandbox, "--base-url", self._url, *CLOCKS, "-o", "json")
        first = self._told("run", "edit", "--session-id", SESSION, *agent)
        second = self._told("run", "commit", "--session-id", OTHER, "-w", *agent)
        tree = next((self.home / "leadrope" / "worktrees").glob("*/*/made.txt")).parent
        native = next((self.home / "leadrope" / "sessions" / SESSION / "config" / "projects").glob("*/*.jsonl"))
        self.names = {
            "ws": str(self.ws),
            "tree": str(tree),
            "agent": str(self.site / "agent"),
            "run": json.loads(first)["run_id"],
            "tree_run": json.loads(second)["run_id"],
            "id": SESSION,
            "session": str(native.parents[3]),
            "project": native.parent.name,
            "steps_config": str(self.home / "steps.toml"),
            "copying": self._waiting("ask"),
            "deletion": self._waiting("delete-file"),
        }
        given = self.ws / "given"
        given.joinpath("native.jsonl").write_bytes(native.read_bytes())
        given.joinpath("events.jsonl").write_text(self._told("runs", "export", self.names["run"]))
        given.joinpath("session.jsonl").write_text(self._told("sessions", "export", OTHER))
        self._told("sessions", "delete", OTHER)
        if self.identity != "root":
            self._give(given)
        subprocess.run(["cp", "-a", str(self.site), str(self.template)], check=True)

    def _waiting(self, name: str) -> str:
        """An execution that waits for a person."""
        args = ("flow", "run", str(self.ws / "flows" / f"{name}.flow.md"), "-o", "json")
        answer = self._asked(args=args, env=self._env({}))
        assert answer["code"] == 4, answer
        return str(json.loads(answer["out"])["execution_id"])

    def _give(self, folder: Path) -> None:
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)

    def _told(self, *args: str) -> str:
        answer = self._asked(args=args, env=self._env({}))
        assert answer["code"] == 0, (args, answer)
        return str(answer["out"])

    def _machine(self, *command: str) -> None:
        answer = self._asked(command=command, env=self._env({}))
        assert answer["code"] == 0, (command, answer)

    # -- the trials -------------------------------------------------------------------------------------------------

    def tried(self, door: Door, place: Place | None = None, case: str | None = None) -> dict[str, Any]:
        """What came of the command, on a machine where an agent has left this case in this place."""
        args = [self._named(word) for word in door.args]
        self._mail.letters.clear()
        self._web.bodies.clear()
        if door.has_agent:
            args += ["--base-url", self._url, "--mode", "dontAsk", *CLOCKS]
            if case is not None and _swaps(case):
                # Of what is exchanged while it works, an agent without a sandbox follows every link itself.
                args += ["--sandbox", "workspace"]
        answer = self._asked(
            args=args,
            has_terminal=door.has_terminal,
            is_background=door.is_background,
            env=self._env({name: self._named(value) for name, value in door.env.items()}),
            template=str(self.template),
            site=str(self.site),
            case=case,
            spot=self._named(place.path) if place else "",
            root=self._named(place.root) if place else "",
            kind=place.kind if place else "",
            searched=LOOKED_THROUGH,
        )
        if not answer["has_secret_inside"] and self._mail.holds(CANARY):
            answer["leaks"].append("a mail")
        if not answer["has_secret_inside"] and self._web.holds(CANARY):
            answer["leaks"].append("an upload")
        return answer

    def _named(self, word: str) -> str:
        return word.format(**self.names) if "{" in word else word

    def _env(self, more: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": PATH,
            "HOME": str(self.home),
            "LEADROPE_HOME": str(self.home / "leadrope"),
            "LEADROPE_CONFIG": str(self.home / "config.toml"),
            "TMPDIR": str(self.tmp),
            "LANG": "C.UTF-8",
            "LEADROPE_CLAUDE_BIN": self._claude,
        } | more

    def _asked(self, **job: Any) -> dict[str, Any]:
        if self._server is None:
            self._server = self._started()
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"cwd": str(self.ws), "limit_s": LIMIT_S, **job}) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        assert "broken" not in answer, answer["broken"]
        return answer

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name("door_server.py"))]
        if self.identity == "user" and os.geteuid() == 0:
            prefix = Path(os.path.realpath(sys.executable)).parents[1]
            show = self._shown(prefix, REPOSITORY)
            drop = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all")
            command = ["bwrap", "--dev-bind", "/", "/", *show, "--chdir", "/", "--", *drop, "--", *command]
        env = {"PATH": PATH, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            command,
            env=env | {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.tmp)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
