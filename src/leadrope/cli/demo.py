"""`leadrope demo`: the real agent on a small task, with a script on loopback as its model. Leaves nothing behind."""

from __future__ import annotations

import asyncio
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import click
import msgspec

from leadrope.cli import live
from leadrope.cli.exits import INTERRUPTED, exit_code
from leadrope.cli.render import Renderer
from leadrope.cli.screen import Screen
from leadrope.confined import read_named
from leadrope.core.config import Config
from leadrope.core.events import ApprovalRequested, QuestionRequested
from leadrope.core.redaction import Secret
from leadrope.core.request import Limits, RunRequest
from leadrope.core.result import RunResult
from leadrope.providers.claude_code.locate import find_binary
from leadrope.rehearsal.model import ModelServer
from leadrope.runtime.approvals import Answer, Approver, DenyAll, QuestionAnswer

PROMPT = "add() in calc.py gives wrong answers. Correct it and run the tests."
FILES = {
    "calc.py": 'def add(a: int, b: int) -> int:\n    """The sum of both."""\n    return a - b\n',
    "test_calc.py": (
        "import unittest\n\nfrom calc import add\n\n\nclass AddTest(unittest.TestCase):\n"
        "    def test_adds(self) -> None:\n        self.assertEqual(add(2, 3), 5)\n"
    ),
}
_OPENING = (
    "This is a real Claude Code process, supervised by leadrope.",
    "Its model is a script on 127.0.0.1: no account, no cost, and nothing leaves this machine.",
    "Mode `edit`: it may read and edit in its folder; a command is held until you say yes.",
)
# Never a real one: the model it is shown to is our own script.
_KEY = Secret("sk-ant-rehearsal-0000000000")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A scratch place on this machine: the agent's home and the repository it works in."""

    repository: Path
    environ: Mapping[str, str]


class Fixed:
    """The same answer to every request, given on the command line."""

    def __init__(self, flag: str, *, approved: bool) -> None:
        self._flag = flag
        self._approved = approved

    async def approve(self, asked: ApprovalRequested) -> Answer:
        return Answer(
            approved=self._approved, by=self._flag, reason="" if self._approved else f"denied by {self._flag}"
        )

    async def answer(self, asked: QuestionRequested) -> QuestionAnswer:
        return QuestionAnswer(answered=False, by=self._flag, reason="the demo answers no questions")


@click.command("demo", short_help="Watch a real agent work on a lead rope; no account needed.")
@click.option("--yes/--no", "answer", default=None, help="Answer the agent's request in advance; for scripts.")
def command(answer: bool | None) -> int:
    """Watch a real agent work on a lead rope.

    Claude Code corrects a small program in a scratch repository. Its model is a script on this machine: no account, no
    network, no cost. It reads, it edits, and it is held before it runs a command: you say yes or no.
    """
    screen = Screen.of_process()
    binary = find_binary(None, os.environ)
    try:
        with scene() as place:
            return asyncio.run(_play(place, binary, answer, screen))
    except asyncio.CancelledError:
        return INTERRUPTED


@contextmanager
def scene() -> Iterator[Scene]:
    """A repository with a bug, and an environment with nothing of the user's in it. Both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="leadrope-demo-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve()
        repository = root / "calculator"
        (root / "home").mkdir()
        (root / "tmp").mkdir()
        repository.mkdir()
        for name, text in FILES.items():
            (repository / name).write_text(text)
        environ = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TERM") if name in os.environ} | {
            "HOME": str(root / "home"),
            "TMPDIR": str(root / "tmp"),
            "LEADROPE_HOME": str(root / "leadrope"),
            "XDG_CONFIG_HOME": str(root / "home" / ".config"),
        }
        _make_repository(repository, environ)
        yield Scene(repository=repository, environ=environ)


def _make_repository(folder: Path, environ: Mapping[str, str]) -> None:
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        return  # the task does not need it
    who = ["-c", "user.name=leadrope demo", "-c", "user.email=demo@localhost"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "A calculator"]):
        subprocess.run([git, *words], cwd=folder, env=dict(environ), check=True, capture_output=True, timeout=30)


async def _play(place: Scene, binary: str, answer: bool | None, screen: Screen) -> int:
    style = screen.style
    for line in _OPENING:
        screen.line(style.dim(line))
    screen.line()
    screen.line(style.bold(f"> {PROMPT}"))
    with (
        resources.as_file(resources.files("leadrope.rehearsal") / "demo.yaml") as script,
        live.logs(screen, os.environ),
        _approver(screen, answer) as approver,
    ):
        nobody = isinstance(approver, DenyAll)
        async with ModelServer(script, variables={"cwd": str(place.repository)}, strict=False) as model:
            request = RunRequest(
                prompt=PROMPT,
                cwd=str(place.repository),
                mode="edit",
                binary=binary,
                base_url=model.url,
                credential=_KEY,
                credential_kind="api_key",
                instructions=False,
                persist_session=False,
                attempts=1,
                api_retries=0,
                limits=Limits(idle_s=120),
            )
            result = await live.drive(
                request,
                show=Renderer(screen, rehearsal=True, resumable=False).show,
                screen=screen,
                approver=approver,
                environ=place.environ,
                config=Config(),
            )
    _closing(screen, place, result, nobody=nobody)
    return exit_code(result)


@contextmanager
def _approver(screen: Screen, answer: bool | None) -> Iterator[Approver]:
    if answer is not None:
        yield Fixed("--yes" if answer else "--no", approved=answer)
        return
    with live.person(screen) as someone:
        yield someone


def _closing(screen: Screen, place: Scene, result: RunResult, *, nobody: bool) -> None:
    style = screen.style
    screen.line()
    changes = _diff(place.repository)
    screen.line(style.bold("What changed:" if changes else "Nothing was changed."))
    for line in changes:
        paint = style.good if line.startswith("+") else style.bad if line.startswith("-") else style.dim
        screen.line(f"  {paint(line)}")
    screen.line()
    name = _as_called()
    if nobody and result.denials:
        screen.line(f"Nobody could be asked here, so the command was denied. `{name} demo --yes` approves it.")
    elif result.denials:
        screen.line(f"The command was denied and did not run. `{name} demo --yes` shows the other ending.")
    screen.line(style.bold("What to try next:"))
    hints = {
        f"{name} doctor": "is everything there for a real run?",
        f'{name} run "explain this folder" --mode plan': "a run that can only read",
        f"{name} run --help": "all that a run can be told",
    }
    width = max(map(len, hints)) + 2
    for what, why in hints.items():
        screen.line(f"  {what:<{width}}{style.dim(why)}")


def _as_called() -> str:
    """What a person can type: after `make run` the program is not on PATH."""
    if shutil.which("leadrope") or Path(sys.argv[0]).name != "leadrope":
        return "leadrope"
    return os.path.relpath(sys.argv[0])


def _diff(repository: Path) -> list[str]:
    found: list[str] = []
    for name, before in FILES.items():
        path = repository / name
        after = read_named(path, workspaces=(repository,)).decode(errors="replace") if path.exists() else ""
        found += difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=1
        )
    return found
