"""Every example of the README is run as it stands, with the rehearsal model behind it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope.core import config
from leadrope.rehearsal import ModelServer
from leadrope.runs import leases

SHOWN = {"leadrope run": "Here you are.", "leadrope policy": "rm -rf"}
README = Path(__file__).parents[2] / "README.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The commands of each console block; those of one block build on each other."""
    return [[line[2:] for line in block.splitlines() if line.startswith("$ ")] for block in blocks("console")]


@pytest.fixture
def machine(stage: Any) -> Any:
    """A user's machine: a setup token in leadrope's own settings, a config that points at the rehearsal model."""
    home = Path(stage.environ["LEADROPE_HOME"])
    home.mkdir()
    (home / ".env").write_text("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-rehearsal-0000000000\n")
    (stage.ws / "task.md").write_text("Look around.\n")
    stage.environ["PATH"] = f"{Path(sys.executable).parent}:{stage.environ['PATH']}"
    return stage


def configure(machine: Any, model: Any, settings: str = "") -> None:
    folder = Path(machine.environ["HOME"], ".config", "leadrope")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f'[run]\nbase_url = "{model.url}"\n{settings}')


def run(machine: Any, argv: list[str], model: Any, settings: str = "") -> str:
    configure(machine, model, settings)
    done = subprocess.run(
        argv, cwd=machine.ws, env=machine.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PLAIN = [lines for lines in commands() if "--detach" not in lines[0] and "leadrope flow" not in lines[0]]


@pytest.mark.parametrize("lines", PLAIN, ids=lambda lines: lines[0][:40])
def test_console(machine: Any, lines: list[str]) -> None:
    runs = sum("leadrope run" in line for line in lines)
    with ModelServer.in_thread([{"text": "Here you are.", "repeat": runs}] if runs else []) as model:
        for line in lines:
            shown = run(machine, ["bash", "-c", line], model)
            assert next(word for part, word in SHOWN.items() if part in line) in shown


def test_a_detached_run_from_its_start_to_its_changes(machine: Any) -> None:
    """The block on runs, in its order, with the run's own id in place of the example's."""
    (lines,) = [lines for lines in commands() if "--detach" in lines[0]]
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=machine.ws, check=True)
    call = {"name": "Bash", "input": {"command": "touch upgraded.txt", "description": "upgrade"}}
    with ModelServer.in_thread([{"tool": call}, {"text": "Upgraded."}]) as model:
        settings = "\n[service]\nidle_s = 1\n"
        run_id = run(machine, ["bash", "-c", lines[0]], model, settings).strip()
        home = Path(machine.environ["LEADROPE_HOME"])
        try:
            until(lambda: "approval" in run(machine, ["leadrope", "approvals", "list"], model, settings))
            shown = {
                " ".join(line.split()[1:3]): run(
                    machine, ["bash", "-c", line.replace("3fa9", run_id[:8])], model, settings
                )
                for line in lines[1:]
            }
        finally:
            until(lambda: is_free(home / "background" / "owner.lock"))
    assert "upgrade the dependencies" in shown["runs list"]
    assert "Upgraded." in shown["runs logs"]
    assert "upgraded.txt" in shown["runs diff"]
    assert (machine.ws / "upgraded.txt").exists()


def test_a_workflow_from_its_check_to_its_report(machine: Any) -> None:
    """The block on workflows, in its order, with the approval that was printed in place of the example's."""
    (lines,) = [lines for lines in commands() if "leadrope flow" in lines[0]]
    (text,) = blocks("markdown")
    (machine.ws / "todo.flow.md").write_text(text)
    (machine.ws / "store.py").write_text("# TODO: it loses data\n")
    shown: list[str] = []
    with ModelServer.in_thread([{"text": "The one in store.py: it loses data."}]) as model:
        configure(machine, model, "[service]\nidle_s = 1\n")
        for line in lines:
            asked = re.search(r"approvals approve ([0-9a-f]{12}-step-1) ", shown[-1]) if shown else None
            words = re.sub(r"approve \S+", f"approve {asked[1]}", line) if asked else line
            done = subprocess.run(
                ["bash", "-c", words],
                cwd=machine.ws,
                env=machine.environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            shown.append(done.stdout + done.stderr)
            assert done.returncode == (4 if "flow run" in line else 0), shown[-1]
        assert "it loses data" in str(model.requests[0].body["messages"])
    assert "ok: 3 steps" in shown[0]
    assert "✓ choose" in shown[1]
    assert "ask waits for a person: The one in store.py" in shown[1]
    assert "continues in the background" in shown[2]
    assert "✓ ask" in shown[3]
    assert "outcome: succeeded" in shown[4]
    until(lambda: is_free(Path(machine.environ["LEADROPE_HOME"]) / "background" / "owner.lock"))


def until(look: Any) -> None:
    give_up = time.monotonic() + 60
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def is_free(lock: Path) -> bool:
    with leases.Exclusive(lock) as free:
        return free


@pytest.mark.parametrize("code", blocks("python"), ids=["run_sync", "events", "rehearsal"])
def test_python(machine: Any, code: str) -> None:
    """The model's address comes from the user's settings; the last example brings its own."""
    show = {"name": "Bash", "input": {"command": "ls", "description": "look"}}
    answers = [{"tool": show, "optional": True}, {"text": "All done.", "repeat": 2}]
    with ModelServer.in_thread(answers, strict=False) as model:
        run(machine, [sys.executable, "-c", code], model)
        if "leadrope.rehearsal" in code:  # somebody's tests do not fill their lists
            for words in (("sessions", "list"), ("runs", "list")):
                assert run(machine, ["leadrope", *words, "-o", "json"], model) == ""


def test_the_page_on_runs(machine: Any) -> None:
    text = (README.parent / "docs" / "runs.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (settings,) = [block for block in found if "[budgets]" in block]
    assert all(config.parse(block) for block in found)
    with ModelServer.in_thread([{"text": "Hello."}]) as model:
        shown = run(machine, [sys.executable, "-c", code], model, settings)
    assert shown.splitlines()[-2] == "succeeded"


def test_exit_codes_and_modes_are_those_of_the_program() -> None:
    from leadrope.core.request import Mode
    from leadrope.policy.decide import MODES

    text = README.read_text()
    for mode in MODES:
        assert f"| `{mode}` |" in text
    assert set(MODES) == set(Mode.__args__)  # type: ignore[attr-defined]  # a Literal's members
