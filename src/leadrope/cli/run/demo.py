"""`leadrope demo`: the real agent on a small task, with a script on loopback as its model.

The run is kept in the store like any other, with the label leadrope=demo; of its scratch folder nothing is left.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import values
from leadrope.cli.exits import INTERRUPTED, exit_code
from leadrope.cli.run import run_session_ui
from leadrope.cli.screen import table
from leadrope.cli.screen.render import Renderer
from leadrope.cli.screen.screen import Screen
from leadrope.confined import read_named, real_path
from leadrope.core import actors, home
from leadrope.core.config import Config
from leadrope.core.events import ApprovalRequested, QuestionRequested
from leadrope.core.request import Limits, RunRequest
from leadrope.core.result import RunResult
from leadrope.core.text import rehearsal_label
from leadrope.providers.claude_code.locate import find_binary
from leadrope.rehearsal.model import ModelServer
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Answer, Approver, DenyAll

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
    "Mode `edit`: it may read and edit in its folder; a command waits for your approval.",
)
LEAST_FREE = 8 * 1024 * 1024
"""Bytes on the disk of the store; a demo takes a fraction of one."""


class DemoScene(msgspec.Struct, frozen=True, kw_only=True):
    """A scratch place on this machine: the agent's home and the repository it works in."""

    repository: Path
    environ: Mapping[str, str]


class Fixed:
    """The same answer to every request, given on the command line."""

    def __init__(self, flag: str, *, approved: bool) -> None:
        self._flag = flag
        self._approved = approved

    async def approve(self, asked: ApprovalRequested) -> Answer:
        reason = "" if self._approved else f"denied by {self._flag}"
        return Answer(approved=self._approved, by=actors.system_user(), reason=reason)

    async def answer(self, asked: QuestionRequested) -> Answer:
        return Answer(approved=False, by=actors.system_user(), reason="the demo answers no questions")


@click.command("demo", short_help="Watch a real agent work on a lead rope; no account needed.")
@click.option("-y/", "--yes/--no", "answer", default=None, help="Answer the agent's request in advance; for scripts.")
@click.option("--open", "opens", is_flag=True, help="Write the page of the run and open it in your browser.")
def command(answer: bool | None, opens: bool) -> int:
    """Watch a real agent work on a lead rope.

    Claude Code corrects a small program in a scratch repository. Its model is a script on this machine: no account, no
    network, no cost. It reads, it edits, and it waits for you before it runs a command.

    The run is kept: `leadrope runs list` and `leadrope export` show it.
    """
    screen = Screen.of_process()
    binary = find_binary(None, os.environ)
    try:
        with scene() as place:
            code, run_id = asyncio.run(_play(place, binary, answer, screen))
    except asyncio.CancelledError:
        return INTERRUPTED
    if opens and run_id:
        _open_page(run_id, screen)
    return code


def _open_page(run_id: str, screen: Screen) -> None:
    from leadrope.cli.runs.runs import page_of  # noqa: PLC0415  # only --open needs it

    target = Path(f"demo-{run_id[:8]}.html").absolute()
    values.write_file("--open", str(target), page_of(run_id))
    screen.line(f"{target}")
    if click.launch(str(target)) != 0:
        screen.line("No browser could be started; open the file yourself.")


@contextmanager
def scene() -> Iterator[DemoScene]:
    """A repository with a bug, and an environment with nothing of the user's in it. Both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="leadrope-demo-", ignore_cleanup_errors=True) as folder:
        root = Path(real_path(folder))
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
        yield DemoScene(repository=repository, environ=environ)


def _make_repository(folder: Path, environ: Mapping[str, str]) -> None:
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        return  # the task does not need it
    who = ["-c", "user.name=leadrope demo", "-c", "user.email=demo@localhost"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "A calculator"]):
        subprocess.run([git, *words], cwd=folder, env=dict(environ), check=True, capture_output=True, timeout=30)


def _store_of(place: DemoScene) -> tuple[Mapping[str, str], str]:
    """Where the run is kept: the user's store, or a scratch one with the reason if that cannot be written."""
    mine = dict(os.environ)
    try:
        folder = home.ensure(home.leadrope_home(mine))
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        if shutil.disk_usage(folder).free < LEAST_FREE:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
    except (OSError, errors.LeadropeError) as error:
        return place.environ, f"This run is not kept: {error}"
    return mine, ""


async def _play(place: DemoScene, binary: str, answer: bool | None, screen: Screen) -> tuple[int, str]:
    style = screen.style
    environ, problem = _store_of(place)
    for line in (piece for told in _OPENING for piece in textwrap.wrap(told, screen.width)):
        screen.line(style.dim(line))
    screen.line()
    screen.line(style.bold(f"> {PROMPT}"))
    with (
        resources.as_file(resources.files("leadrope.rehearsal") / "demo.yaml") as script,
        run_session_ui.logs(screen, os.environ),
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
                credential=rehearsal_label.KEY,
                credential_kind="api_key",
                instructions=False,
                persist_session=False,
                labels={rehearsal_label.LABEL: rehearsal_label.DEMO},
                attempts=1,
                api_retries=0,
                limits=Limits(idle_s=120),
            )
            renderer = Renderer(screen, rehearsal=True, folded=screen.can_redraw)
            result = await run_session_ui.drive(
                request,
                show=renderer.show,
                doing=renderer.live_lines,
                screen=screen,
                approver=approver,
                environ=environ,
                run_environ=place.environ,
                config=Config(),
                ending=_keep_changes(place),
                title=f"Demo: {PROMPT}",
                place={"wanted": {"checkpoint": False}},
            )
    _closing(screen, place, result, nobody=nobody, problem=problem)
    # Saying no to everything is a way to see the demo, too.
    code = 0 if result.outcome == "denied" else exit_code(result)
    return code, "" if problem else result.run_id


def _keep_changes(place: DemoScene) -> run_session_ui.Ending:
    """For `runs diff`: the repository itself is gone in a moment."""

    async def keep(service: Service, run_id: str, result: RunResult, width: int) -> list[str]:
        if result.outcome == "stopped":
            return []
        changes = "\n".join([*_diff(place.repository), ""])
        await service.keep_changes(run_id, changes)
        return []

    return keep


@contextmanager
def _approver(screen: Screen, answer: bool | None) -> Iterator[Approver]:
    if answer is not None:
        yield Fixed("--yes" if answer else "--no", approved=answer)
        return
    with run_session_ui.person(screen, "use --yes") as someone:
        yield someone


def _closing(screen: Screen, place: DemoScene, result: RunResult, *, nobody: bool, problem: str) -> None:
    style = screen.style
    screen.line()
    changes = _diff(place.repository)
    screen.line(style.bold("What changed:" if changes else "Nothing was changed."))
    for line in changes:
        paint = style.good if line.startswith("+") else style.bad if line.startswith("-") else style.dim
        screen.line(f"  {paint(line)}")
    screen.line()
    name = spelling.program()
    if nobody and result.denials:
        screen.say(f"Nobody could be asked here, so the command was denied. `{name} demo --yes` approves it.")
    elif result.denials:
        screen.say(f"The command was denied and did not run. `{name} demo --yes` shows the other ending.")
    hints = {
        f"{name} runs show {result.run_id[:8]}": "this run, as it is kept",
        f"{name} export {result.run_id[:8]} --html -O demo.html": "the same as a page",
        f"{name} login": "log in to Claude, for real runs",
        f'{name} run "explain this folder" --mode plan': "a run that can only read",
        f"{name} doctor": "check that everything is ready",
    }
    if problem:
        screen.line(style.warn(problem))
        hints = dict(list(hints.items())[2:])
    screen.line(style.bold("What to try next:"))
    width = max(map(len, hints)) + 2
    is_narrow = width + max(map(len, hints.values())) + 2 > screen.width
    for what, why in hints.items():
        if is_narrow:
            screen.line(f"  {style.dim('# ' + why)}")
            for line in table.command_lines(what, screen.width - 2):
                screen.line(f"  {line}")
        else:
            screen.line(f"  {what:<{width}}{style.dim(why)}")


def _diff(repository: Path) -> list[str]:
    found: list[str] = []
    for name, before in FILES.items():
        path = repository / name
        after = read_named(path, workspaces=(repository,)).decode(errors="replace") if path.exists() else ""
        found += difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=1
        )
    return found
