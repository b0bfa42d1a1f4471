"""Nothing is lost in the sandbox, or missed, without a word: the step tells what, why, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def write(desk: Any, *steps: str, name: str = "test.flow.md") -> str:
    """Steps side by side; each is its lines."""
    text = "\n".join(f"### s{number}\n\n- after: []\n{step}\n" for number, step in enumerate(steps))
    (desk.project / name).write_text(f"# T\n\n## Steps\n\n{text}")
    return name


def shell(command: str) -> str:
    return f"- type: shell\n\n```shell command\n{command}\n```\n"


def code(text: str) -> str:
    return f"- type: code\n\n```python code\n{text}\n```\n"


async def told(desk: Any, *steps: str, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    ended = await desk.leadrope("flow", "run", write(desk, *steps), "-o", "json", *options)
    found: list[dict[str, Any]] = json.loads(ended.out)["steps"]
    return found


def furnish(desk: Any) -> None:
    (desk.home / "notes").mkdir()
    for name in ("notes/a.txt", "plain.txt"):
        (desk.home / name).write_text("outside\n")


@pytest.mark.parametrize(
    ("step", "path"),
    [
        (shell("echo kept > ~/kept.txt"), "~/kept.txt"),
        (shell("mkdir -p ~/out && echo kept > ~/out/kept.txt"), "~/out/kept.txt"),
        (shell("echo kept > /tmp/leadrope-test-kept.txt"), "/tmp/leadrope-test-kept.txt"),
        (shell("echo 'alias x=y' >> ~/.bashrc"), "~/.bashrc"),
        (code("from pathlib import Path\nresult = Path('~/kept.txt').expanduser().write_text('kept')"), "~/kept.txt"),
        ("- type: shell\n- command: [cp, test.flow.md, /tmp/leadrope-test-copy]\n", "/tmp/leadrope-test-copy"),
    ],
)
async def test_a_file_that_vanishes_is_a_warning_of_its_step(desk: Any, step: str, path: str) -> None:
    (found,) = await told(desk, step)
    assert found["state"] == "degraded"
    (warning,) = found["warnings"]
    assert warning["kind"] == "sandbox_lost"
    assert f"{path} will be lost when the workflow ends: the sandbox" in warning["message"]
    assert "--add-dir" in warning["message"]
    assert "--sandbox off" in warning["message"]
    shown = await desk.leadrope("flow", "run", "test.flow.md")
    assert path in shown.err
    assert (await desk.leadrope("flow", "run", "test.flow.md", "--strict")).code == 1


async def test_what_the_warning_says_helps(desk: Any) -> None:
    (desk.home / "out").mkdir()
    step = shell("echo kept > ~/out/kept.txt")
    (found,) = await told(desk, step)
    assert "--add-dir ~/out" in found["error"]["hint"]
    for options in (("--add-dir", str(desk.home / "out")), ("--sandbox", "off")):
        (found,) = await told(desk, step, options=options)
        assert (found["state"], found["warnings"]) == ("succeeded", [])
        assert (desk.home / "out/kept.txt").read_text() == "kept\n"
        (desk.home / "out/kept.txt").unlink()


@pytest.mark.parametrize(
    ("step", "way"),
    [
        (shell("cat ~/plain.txt"), "the sandbox hides ~/plain.txt from commands; run it with --add-dir ~/plain.txt:ro"),
        (shell("cat ~/notes/a.txt"), "run it with --add-dir ~/notes:ro"),
        (shell("mkdir ../beside"), "the sandbox did not let the command write"),
        (shell("echo x > /etc/leadrope-test"), "the sandbox did not let the command write /etc/leadrope-test"),
        (code("from pathlib import Path\nresult = Path('~/plain.txt').expanduser().read_text()"), "~/plain.txt:ro"),
    ],
)
async def test_a_step_that_fails_at_the_sandbox_says_so(desk: Any, step: str, way: str) -> None:
    furnish(desk)
    (found,) = await told(desk, step)
    assert found["state"] == "failed"
    assert way.lower() in found["error"]["hint"].lower()


async def test_a_file_that_is_hidden_is_told_although_the_command_found_a_way(desk: Any) -> None:
    furnish(desk)
    step = shell("cat ~/plain.txt 2>/dev/null || echo default")
    (found,) = await told(desk, step)
    assert [one["kind"] for one in found["warnings"]] == ["sandbox_hidden"]
    (found,) = await told(desk, step, options=("--add-dir", f"{desk.home}/plain.txt"))
    assert (found["state"], found["warnings"]) == ("succeeded", [])


TOOL = """import os, tempfile
for name in ("~/.cache/a", "~/.npm/b", "~/.config/tool", "~/.local/share/tool", "~/go/pkg/mod", "/tmp/tool-1234"):
    os.makedirs(os.path.expanduser(name))
    open(os.path.expanduser(name) + "/x", "w").close()
open("/tmp/tool.lock", "w").close()
tempfile.mkdtemp()
"""
USUAL = (
    shell("python3 tool.py"),
    shell("mkdir -p ~/.cache/tool && touch ~/.cache/tool/x"),
    shell("x=$(mktemp); echo a > $x; cat $x; mktemp -d > /dev/null"),
    shell("x=/tmp/leadrope-test; echo x > $x; cat $x; python3 -c 'import os; os.unlink(\"/tmp/leadrope-test\")'"),
    shell("cat <<END\n$(seq 20000)\nEND"),
    shell("cat missing.txt ~/missing.txt 2>&1 || true"),
    shell("grep -r 'No such file or directory' . || true"),
    shell("git init -q . && git status --short > /dev/null"),
    code("import tempfile\nresult = tempfile.mkdtemp()"),
)


async def test_what_programs_leave_by_themselves_is_no_alarm(desk: Any) -> None:
    (desk.project / "tool.py").write_text(TOOL)
    for step in USUAL:
        for found in await told(desk, step):
            assert (found["state"], found["warnings"]) == ("succeeded", []), step


async def test_a_file_in_tmp_that_another_step_uses_is_no_alarm(desk: Any) -> None:
    """All commands of an execution have the same /tmp."""
    one = shell("echo passed on > /tmp/leadrope-test-scratch")
    two = shell("cat /tmp/leadrope-test-scratch").replace("- type", "- after: [s0]\n- type")
    name = write(desk, one, two)
    text = (desk.project / name).read_text().replace("### s1\n\n- after: []\n", "### s1\n\n")
    (desk.project / name).write_text(text)
    ended = await desk.leadrope("flow", "run", name, "-o", "json")
    result = json.loads(ended.out)
    assert (result["outcome"], result["last"]["result"]) == ("succeeded", "passed on"), ended.err
    assert [step["warnings"] for step in result["steps"]] == [[], []]


async def test_beside_other_steps_a_file_is_told_by_the_step_that_names_it(desk: Any) -> None:
    waits = "while ! test -e go; do sleep 0.01; done"
    steps = await told(
        desk, shell(f"{waits}; true"), shell("echo a > ~/a.txt; touch go"), shell(f"{waits}; echo b > ~/b.txt")
    )
    told_by = {step["id"]: [one["message"].split()[0] for one in step["warnings"]] for step in steps}
    assert told_by == {"s0": [], "s1": ["~/a.txt"], "s2": ["~/b.txt"]}


async def test_the_report_has_the_warning(desk: Any) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, shell("echo kept > ~/kept.txt")), "-o", "json")
    report = await desk.leadrope("flow", "report", json.loads(ended.out)["execution_id"])
    assert "will be lost when the workflow ends" in report.out


async def test_without_a_sandbox_nothing_is_told(desk: Any) -> None:
    furnish(desk)
    steps = await told(
        desk,
        shell("echo kept > ~/kept.txt"),
        shell("cat ~/plain.txt; cat ~/missing || true"),
        options=("--sandbox", "off"),
    )
    assert [step["warnings"] for step in steps] == [[], []]
    assert (desk.home / "kept.txt").exists()


PLANTS = "mkdir -p .husky; echo true > .husky/pre-commit"


async def test_a_protected_file_that_a_program_creates_is_reported(desk: Any) -> None:
    """What does not exist cannot be read-only, so the execution says what its commands have created."""
    (desk.project / "plant.sh").write_text(PLANTS)
    name = write(desk, shell("bash plant.sh && echo done"))
    ended = await desk.leadrope("flow", "run", name, "-o", "json")
    result = json.loads(ended.out)
    (notice,) = result["notices"]
    assert (result["outcome"], notice["kind"]) == ("succeeded", "protected_made")
    assert f"{desk.project}/.husky" in notice["message"]
    report = await desk.leadrope("flow", "report", result["execution_id"])
    assert "warning: commands created protected paths" in report.out
    for options in ((), ("--quiet",)):
        shutil.rmtree(desk.project / ".husky")
        assert "! commands created protected paths" in (await desk.leadrope("flow", "run", name, *options)).err
    shutil.rmtree(desk.project / ".husky")
    execution_id = (await desk.leadrope("flow", "run", name, "--detach")).out.strip()
    logs = await desk.leadrope("flow", "logs", "-f", execution_id)
    assert "! commands created protected paths" in logs.out + logs.err
