"""`leadrope flow run --detach`: executions of the background process, and what becomes of them when it dies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GATED = """# Detached

## Steps

### first

- type: shell
- command: echo one >> first.log; echo one

### long

- type: shell
- command: touch long.began; until test -e go; do sleep 0.05; done; echo two

### last

- type: workflow
- workflow: ./inner.flow.md
- inputs: {text: "${long.stdout}"}

## Outputs

### said

- source: ${last.said}
"""
INNER = """# Inside

## Inputs

### text

## Steps

### say

- type: shell
- command: echo inner ${text}

## Outputs

### said

- source: ${say.stdout}
"""


def write(desk: Any, text: str = GATED, name: str = "test.flow.md") -> str:
    (desk.project / name).write_text(text)
    return name


async def detached(desk: Any, *words: str, **environ: str) -> str:
    ended = await desk.leadrope("flow", "run", "test.flow.md", "--detach", *words, **environ)
    assert ended.code == 0, ended.err
    execution: str = ended.out.strip()
    assert f"leadrope flow logs -f {execution[:8]}" in ended.err
    return execution


async def row(desk: Any, execution: str) -> dict[str, Any]:
    lines = (await desk.leadrope("flow", "history", "-o", "json")).out.splitlines()
    return next(told for line in lines if (told := json.loads(line))["execution"]["id"] == execution)


async def reach(desk: Any, execution: str, *states: str) -> dict[str, Any]:
    """Looks, as a person would, until it is in one of these states."""
    for _ in range(600):
        found = await row(desk, execution)
        if (found["execution"].get("outcome") or found["execution"]["state"]) in states:
            return found
    raise AssertionError(f"it is still {found}")


async def events(desk: Any, execution: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in (await desk.leadrope("events", execution)).out.splitlines()]
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    return [one["event"] for one in told]


async def test_a_detached_execution_runs_without_its_terminal_and_is_followed(desk: Any, background: Any) -> None:
    write(desk)
    write(desk, INNER, "inner.flow.md")
    execution = await detached(desk)
    async with desk.at_terminal("flow", "logs", "-f", execution[:8]) as terminal:
        await terminal.reads("Detached · 3 steps", "✓ first", "⋯ long (shell)")
        assert "owner background-" in (await desk.leadrope("flow", "history")).out
        (desk.project / "go").touch()
        await terminal.reads("✓ long", "✓ last/say", "✓ last", "succeeded")
        assert await terminal.ends() == 0
    told = await events(desk, execution)
    assert [one["type"] for one in told][:2] == ["execution.queued", "execution.started"]
    assert told[-1]["outputs"] == {"said": "inner two"}
    assert (await row(desk, execution))["execution"].get("owner") is None


@pytest.mark.parametrize("how", ["kill", "term"])
async def test_an_execution_goes_on_after_its_owner_by_the_texts_it_began_with(
    desk: Any, background: Any, how: str
) -> None:
    """Whoever looks starts the next owner. Files that were changed or deleted meanwhile mean nothing to it."""
    write(desk)
    write(desk, INNER, "inner.flow.md")
    execution = await detached(desk)
    await background.until((desk.project / "long.began").exists)
    await background.end(how)
    (desk.project / "long.began").unlink()
    write(desk, GATED.replace("echo two", "echo changed"))
    (desk.project / "inner.flow.md").unlink()
    (desk.project / "go").touch()
    assert (await reach(desk, execution, "succeeded", "failed"))["execution"]["outcome"] == "succeeded"
    assert (desk.project / "first.log").read_text() == "one\n"
    told = await events(desk, execution)
    assert told[-1]["outputs"] == {"said": "inner two"}
    types = [one["type"] for one in told]
    assert (types.count("execution.started"), types.count("execution.resumed")) == (2, 1), "its own and the inner one"
    queued = [one.get("reason", "") for one in told if one["type"] == "execution.queued"]
    assert queued == ["", "its owner died" if how == "kill" else "its owner was told to end"]
    ended = [one["step"] for one in told if one["type"] == "step.ended"]
    assert ended == ["first", "long", "say", "last"]


async def test_an_execution_that_cannot_be_continued_says_why_and_waits(desk: Any, background: Any) -> None:
    """A secret of the terminal is gone with the process; one of leadrope's own .env is found again."""
    home = Path(desk.environ["LEADROPE_HOME"])
    (home / ".env").write_text((home / ".env").read_text() + "KEPT=a-value-that-is-kept\n")
    text = """## Inputs

### token

### api_key

## Steps

### long

- type: shell
- command: touch long.began; until test -e go; do sleep 0.05; done; echo ${api_key} | wc -c
"""
    write(desk, text)
    ended = await desk.leadrope(
        "flow", "run", "test.flow.md", "--detach", "token=only-here-and-secret", "api_key=a-value-that-is-kept"
    )
    lost = ended.out.strip()
    assert "cannot recover this execution" in ended.err
    assert "token" in ended.err
    assert "api_key" not in ended.err
    await background.until((desk.project / "long.began").exists)
    await background.end("kill")
    (desk.project / "go").touch()
    await desk.leadrope("flow", "history")
    await background.until(lambda: not background.owners())
    found = await row(desk, lost)
    assert found["execution"]["state"] == "queued"
    assert "it needs its input token, and secrets are not stored; start it anew" in found["note"]
    for file in home.rglob("*"):
        assert not file.is_file() or b"only-here-and-secret" not in file.read_bytes()

    kept = await detached(desk, "token=a-value-that-is-kept", "api_key=a-value-that-is-kept")
    assert (await reach(desk, kept, "succeeded"))["execution"]["outcome"] == "succeeded"


async def test_no_more_run_at_once_than_are_allowed_and_the_important_first(desk: Any, background: Any) -> None:
    config = desk.home / ".config/leadrope/config.toml"
    config.write_text(config.read_text() + "executions = 1\n")
    write(
        desk,
        "## Steps\n\n### long\n\n- type: shell\n- command: touch $$.began; until test -e go; do sleep 0.05; done\n",
    )
    first = await detached(desk)
    await background.until(lambda: bool(list(desk.project.glob("*.began"))))
    later = await detached(desk)
    urgent = await detached(desk, "--priority", "5")
    assert (await row(desk, later))["execution"]["state"] == "queued"
    assert "waiting for a free slot" in (await row(desk, later))["note"]
    assert len(list(desk.project.glob("*.began"))) == 1
    (desk.project / "go").touch()
    for execution in (first, later, urgent):
        await reach(desk, execution, "succeeded")
    started = {one: (await row(desk, one))["execution"]["started"] for one in (first, later, urgent)}
    assert sorted(started, key=lambda one: float(started[one])) == [first, urgent, later]


async def test_recovery_can_be_left_to_a_person(desk: Any, background: Any) -> None:
    config = desk.home / ".config/leadrope/config.toml"
    config.write_text(config.read_text() + 'recover = "fail"\n')
    write(desk)
    write(desk, INNER, "inner.flow.md")
    execution = await detached(desk)
    await background.until((desk.project / "long.began").exists)
    await background.end("kill")
    (desk.project / "go").touch()
    found = await row(desk, execution)
    assert found["execution"]["state"] == "interrupted"
    assert "its owner died; continue with: leadrope flow resume" in found["note"]
    resumed = await desk.leadrope("flow", "resume", execution[:8])
    assert (resumed.code, resumed.out) == (0, "inner two\n")


async def test_an_option_that_belongs_to_detach_is_refused_without_it(desk: Any) -> None:
    write(desk)
    write(desk, INNER, "inner.flow.md")
    ended = await desk.leadrope("flow", "run", "test.flow.md", "--priority", "3")
    assert ended.code == 2
    assert "--priority was given without --detach" in ended.err
    assert not (Path(desk.environ["LEADROPE_HOME"]) / "leadrope.db").exists()
