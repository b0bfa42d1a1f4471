"""Every shell example of README and docs is executed, line by line, with the rehearsal model behind the real CLI.

A placeholder (an id, an approval) is replaced by what the commands before it have made. What cannot be run is listed
below with the reason.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer
from leadrope.runs import leases
from shell_examples import ROOT, Example, examples, fences, indented

NOT_RUN = {
    "pip install '.[claude]'": "it fetches packages; `make test-wheel` runs it",
    "pipx install '.[claude]'": "it fetches packages; `make test-wheel` runs it",
    "uv tool install '.[claude]'": "it fetches packages; `make test-wheel` runs it",
    "pip install './leadrope[otel]'": "it would fetch packages",
}
EXIT_CODES = {
    "leadrope flow run todo.flow.md": 4,  # it waits for a person
    "leadrope trust --show": 1,  # they are not trusted yet
    "leadrope policy check rules.toml": 1,  # the rule is wrong, and that is what is shown
}
RUN_ID = re.compile(r"\b(?:3fa9|7f1f|ID|RUN)\b")
APPROVAL = re.compile(r"\bAPPROVAL\b|\b7bd2e01c94f3-step-1\b")
KEPT_RUN = re.compile(r"\b(?:7f1f|RUN|session\.jsonl|run\.jsonl|recording\.jsonl)\b|leadrope stats")
"""What is there only if an agent has worked here before."""
PROMPT = "> "

TOUCH = {"name": "Bash", "input": {"command": "touch upgraded.txt", "description": "upgrade"}}
FINDINGS = {"approved": True, "summary": "It is fine.", "findings": []}
TURNS: dict[str, list[dict[str, Any]]] = {
    'leadrope run "upgrade the dependencies" --worktree --detach': [{"tool": TOUCH}, {"text": "Upgraded."}],
    'leadrope run "fix the failing test" --worktree': [{"tool": TOUCH}, {"text": "Fixed."}],
    "leadrope flow run examples/review.flow.md base=main": [
        {"tool": {"name": "StructuredOutput", "input": FINDINGS}},
        {"text": "Done.", "optional": True},
    ],
}
"""What the model does, by the first command of an example; otherwise it only answers."""
REVIEWER = '\n[agents.reviewer]\nsystem_prompt = "Review."\nmode = "plan"\n'
SETTINGS = {
    'leadrope run "fix the failing test" --worktree': 'mode = "full"\n',
    'leadrope run "review the last commit" --agent reviewer': REVIEWER,
    "leadrope agents list                      # what can be used here, and what cannot, with the reason": REVIEWER,
}


PFLOW = """# Report

A report.

## Inputs

### topic

What it is about.

- type: string

## Steps

### write

Writes it.

- type: shell
- command: echo "all about ${topic}"
"""


class Machine:
    """A user's machine: a project under git, the files that the examples name, a home with a credential."""

    def __init__(self, stage: Any, example: Example, url: str) -> None:
        self.ws, self.environ = stage.ws, stage.environ
        self.home = Path(stage.environ["LEADROPE_HOME"])
        self.approval = ""
        self._is_answered = False
        self.home.mkdir()
        (self.home / ".env").write_text("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-rehearsal-0000000000\n")
        config = Path(self.environ["HOME"], ".config", "leadrope", "config.toml")
        config.parent.mkdir(parents=True)
        settings = SETTINGS.get(example.commands[0], "")
        config.write_text(f'[run]\nbase_url = "{url}"\n{settings}\n[service]\nidle_s = 1\n')
        self.environ |= {
            "PATH": f"{Path(sys.executable).parent}:{self.environ['PATH']}",
            "DATABASE_URL": "postgres://app:opensesame@db/app",
            "REGION": "eu",
            "DEPLOY_TOKEN": "opensesame-to-deploy",
        }
        self._project()

    def _project(self) -> None:
        (execution,) = [fence for fence in fences() if fence.document == "README.md" and fence.info == "markdown"]
        (answers,) = [fence for fence in fences() if fence.info == "yaml answers.yaml"]
        files = {
            "task.md": "Look around.\n",
            ".claude/settings.json": '{"env": {"COLOUR": "blue"}}\n',
            "reviewer.md": "You review changes.\n",
            "store.py": "# TODO: it loses data\n",
            "dsn.txt": "postgres://app:opensesame@db/app\n",
            "rules.toml": '[policy]\n# what no agent may do\ndisallowed_tools = ["Bash(git:*)"]\n',
            "night.json": '{"command": "true"}\n',
            "report.pflow.md": PFLOW,
            "todo.flow.md": "\n".join(execution.body) + "\n",
            "answers.yaml": "\n".join(answers.body) + "\n",
            "publish.flow.md": "### publish\n\n- type: shell\n- command: ls ~; echo $DEPLOY_TOKEN\n",
        }
        for name in ("site", "notes", ".ssh", ".config/gh"):
            Path(self.environ["HOME"], name).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.ws / name).parent.mkdir(exist_ok=True)
            (self.ws / name).write_text(text)
        shutil.copytree(ROOT / "examples", self.ws / "examples")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run([*git, *words], cwd=self.ws, check=True)
        (self.ws / "store.py").write_text("# TODO: it loses data\ntotal = 1\n")

    def run(self, line: str, *, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.ws,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == code, (line, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert "opensesame" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    def chat(self, line: str) -> str:
        """At a terminal of its own, left at the first prompt."""
        master, slave = pty.openpty()
        seen = ""
        with subprocess.Popen(
            ["setsid", "--ctty", "--wait", "bash", "-c", line],
            cwd=self.ws,
            env=self.environ | {"TERM": "xterm", "NO_COLOR": "1"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        ) as child:
            os.close(slave)
            has_left = False
            give_up = time.monotonic() + 60
            while select.select([master], [], [], max(0, give_up - time.monotonic()))[0]:
                try:
                    seen += os.read(master, 65536).decode(errors="replace")
                except OSError:  # the last process has closed its end
                    break
                if not has_left and PROMPT in seen:
                    os.write(master, b"/exit\n")
                    has_left = True
            if time.monotonic() >= give_up:
                child.kill()
            os.close(master)
        assert child.returncode == 0, seen
        return seen

    # -- what an example takes for granted ---------------------------------------------------------------------------

    def kept_run(self) -> None:
        """A run of before, what it printed, and what the agent itself kept of it."""
        self.run("leadrope run 'look around' --label team=blue -o stream-json > run.jsonl")
        shutil.copy(self.ws / "run.jsonl", self.ws / "session.jsonl")
        (record,) = self.home.glob("sessions/*/config/projects/*/*.jsonl")
        shutil.copy(record, self.ws / "recording.jsonl")

    def filled(self, line: str) -> str:
        """The line with the ids of this machine."""
        if RUN_ID.search(line):
            kind = "flow history" if line.startswith("leadrope flow ") else "runs list"
            newest = json.loads(self.run(f"leadrope {kind} -o json").splitlines()[0])
            run_id = newest.get("execution", newest)["id"]
            if line.startswith("leadrope approvals"):
                until(lambda: self.run("leadrope approvals list -o json"))
            line = RUN_ID.sub(run_id[:8], line)
        if APPROVAL.search(line):
            answers = " approve " in line or " deny " in line or "--approve" in line
            if not self.approval or (answers and self._is_answered):
                self.approval = approval_of(self.run("leadrope flow run todo.flow.md", code=4))
            self._is_answered = answers
            line = APPROVAL.sub(self.approval, line)
        return line

    def execute(self, example: Example) -> str:
        shown = ""
        for line in example.commands:
            if line.partition(" #")[0].strip() in NOT_RUN:
                continue
            if line == "leadrope approvals list" and "--detach" in example.commands[0]:
                until(lambda: self.run("leadrope approvals list -o json"))
            code = EXIT_CODES.get(line.partition(" #")[0].strip(), 0)
            filled = self.filled(line)
            printed = self.chat(filled) if line.startswith("leadrope chat") else self.run(filled, code=code)
            if line == "leadrope flow run todo.flow.md":
                self.approval = approval_of(printed)
            shown += printed
        return shown


def approval_of(shown: str) -> str:
    found = re.search(r"approvals approve ([0-9a-f]{12}-step-1) ", shown)
    assert found is not None, shown
    return found[1]


def until(holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up, "the state never came"
        time.sleep(0.1)


def is_free(lock: Path) -> bool:
    with leases.Exclusive(lock) as free:
        return free


@pytest.fixture
def machine(stage: Any, request: pytest.FixtureRequest) -> Iterator[Machine]:
    example: Example = request.param
    turns = [*TURNS.get(example.commands[0], []), {"text": "Here you are.", "repeat": "forever", "optional": True}]
    with ModelServer.in_thread(turns, strict=False) as model:
        made = Machine(stage, example, model.url)
        yield made
        if (made.home / "background").exists():
            until(lambda: is_free(made.home / "background" / "owner.lock"))


EXAMPLES = examples()


@pytest.mark.parametrize(
    ("machine", "example"), [(one, one) for one in EXAMPLES], ids=lambda one: one.name, indirect=["machine"]
)
def test_a_shell_example_works_as_it_stands(machine: Machine, example: Example) -> None:
    if KEPT_RUN.search("\n".join(example.commands)):
        machine.kept_run()
    shown = " ".join(machine.execute(example).split())
    for line in example.shown:
        assert " ".join(line.split()) in shown, shown


def test_the_lists_name_commands_that_the_documents_have() -> None:
    lines = {line.partition(" #")[0].strip() for example in EXAMPLES for line in example.commands}
    assert set(NOT_RUN) <= lines
    assert set(EXIT_CODES) <= lines
    assert {*TURNS, *SETTINGS} <= {example.commands[0] for example in EXAMPLES}


def test_no_example_hides_in_a_block_without_a_language() -> None:
    hidden = [
        f"{fence.document}:{fence.line}"
        for fence in fences()
        if not fence.info and any(line.startswith(("leadrope ", "$ ")) for line in fence.body)
    ]
    hidden += [
        f"{document}:{line}"
        for document, line, text in indented()
        if text.startswith(("leadrope ", "$ ", "import ", "from ")) or re.match(r"\[[\w.]+\]$", text)
    ]
    assert hidden == []


def test_fences_in_lists_are_seen() -> None:
    deep = [fence for fence in fences() if (ROOT / fence.document).read_text().splitlines()[fence.line - 1][0] == " "]
    assert deep, "the documents have one at least"
    assert all(fence.body[0] == fence.body[0].lstrip() for fence in deep)
