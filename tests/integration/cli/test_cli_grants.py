"""Grants as a user gives and ends them: at the question, from another terminal, by flag and by config."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

DONE = {"text": "Done."}


def bash(line: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": line, "description": "try"}}}


@pytest.fixture
def project(desk: Any) -> Path:
    """With a Makefile whose targets leave a line each in `made`."""
    folder: Path = desk.project
    (folder / "Makefile").write_text("test:\n\t@echo test $(WHAT) >> made\nlint:\n\t@echo lint >> made\n")
    return folder


def made(project: Path) -> list[str]:
    path = project / "made"
    return path.read_text().splitlines() if path.exists() else []


async def one_run(desk: Any) -> str:
    """The id of the only run of this machine."""
    listed = await desk.leadrope("runs", "list", "-o", "json")
    (row,) = listed.out.splitlines()
    return str(json.loads(row)["id"])


async def waiting(desk: Any) -> dict[str, Any]:
    """The next question that is open, seen from another terminal."""
    async with asyncio.timeout(60):
        while not (found := (await desk.leadrope("approvals", "list", "-o", "json")).out):
            pass
    return dict(json.loads(found.splitlines()[0]))


QUESTION = '[p]attern: any "make test …" in this run · [n]o · [e]dit: '


async def test_a_pattern_at_the_question_holds_for_its_run_and_is_listed(desk: Any, project: Path) -> None:
    turns = [bash("make test"), bash("make test WHAT=2"), bash("make lint"), DONE]
    async with desk.playing(turns, "run", "go") as terminal:
        await terminal.reads(QUESTION)
        await terminal.asks("p\n", "Bash(make test *) is allowed until this run ends")
        # The second call is covered and not asked about; the third is another target.
        await terminal.reads("? Bash wants to run:", "make lint", "Allow?")
        assert made(project) == ["test", "test 2"]
        shown = await desk.leadrope("runs", "show", await one_run(desk))
        assert re.search(r"^granted +Bash\(make test \*\) by \S+ at \d\d:\d\d:\d\d$", shown.out, re.MULTILINE)
        await terminal.asks("n\n", "Why?")
        terminal.types("\n")
        assert await terminal.ends() == 0
    assert made(project) == ["test", "test 2"]
    run = await one_run(desk)
    (grant,) = json.loads((await desk.leadrope("runs", "show", run, "-o", "json")).out)["grants"]
    assert (grant["pattern"], grant["state"], grant["attempt"]) == ("Bash(make test *)", "ended", 1)
    assert "; ended" in (await desk.leadrope("runs", "show", run)).out


async def test_a_grant_is_revoked_from_another_terminal(desk: Any, project: Path) -> None:
    turns = [bash("make test"), bash("make lint"), bash("make test WHAT=2"), DONE]
    async with desk.playing(turns, "run", "go") as terminal:
        await terminal.reads(QUESTION)
        terminal.types("p\n")
        await terminal.reads("make lint", "Allow?")
        run = await one_run(desk)
        wrong = await desk.leadrope("runs", "revoke", run[:8], "Bash(npm test *)")
        assert (wrong.code, "Bash(make test *)" in wrong.err) == (2, True)
        ended = await desk.leadrope("runs", "revoke", run[:8], "Bash(make test *)")
        assert (ended.code, ended.out) == (0, f"{run[:8]}: Bash(make test *) is revoked\n")
        (grant,) = json.loads((await desk.leadrope("runs", "show", run, "-o", "json")).out)["grants"]
        assert (grant["state"], bool(grant["revoked_by"])) == ("revoked", True)
        await terminal.asks("y\n", "Bash(make test *) is no longer granted", "make test WHAT=2", "Allow?")
        assert made(project) == ["test", "lint"]
        await terminal.asks("n\n", "Why?")
        terminal.types("\n")
        assert await terminal.ends() == 0
    assert made(project) == ["test", "lint"]
    late = await desk.leadrope("runs", "revoke", run, "Bash(make test *)")
    assert late.code != 0
    assert "has ended, and its grants with it" in late.err


async def test_an_exact_call_is_listed_and_revoked_from_another_terminal(desk: Any, project: Path) -> None:
    turns = [bash("make test"), bash("make test"), bash("make lint"), bash("make test"), DONE]
    async with desk.playing(turns, "run", "go") as terminal:
        await terminal.reads(QUESTION)
        await terminal.asks("a\n", "exactly this call is allowed until this run ends")
        # The same call is not asked about again; another one is.
        await terminal.reads("? Bash wants to run:", "make lint", "Allow?")
        assert made(project) == ["test", "test"]
        run = await one_run(desk)
        (grant,) = json.loads((await desk.leadrope("runs", "show", run, "-o", "json")).out)["grants"]
        name = grant["pattern"]
        assert re.fullmatch("call:[0-9a-f]{12}", name)
        assert (grant["state"], grant["call"]["input"]["command"]) == ("active", "make test")
        shown = (await desk.leadrope("runs", "show", run)).out
        assert re.search(rf"^granted +{name} Bash make test by \S+ at \d\d:\d\d:\d\d$", shown, re.MULTILINE)
        wrong = await desk.leadrope("runs", "revoke", run, "call:000000000000")
        assert (wrong.code, name in wrong.err) == (2, True)
        ended = await desk.leadrope("runs", "revoke", run[:8], name)
        assert (ended.code, ended.out) == (0, f"{run[:8]}: {name} is revoked\n")
        assert f"{name} Bash make test" in (await desk.leadrope("runs", "show", run)).out
        await terminal.asks("y\n", f"{name} is no longer granted", "make test", "Allow?")
        assert made(project) == ["test", "test", "lint"]
        await terminal.asks("n\n", "Why?")
        terminal.types("\n")
        assert await terminal.ends() == 0
    assert made(project) == ["test", "test", "lint"]
    (grant,) = json.loads((await desk.leadrope("runs", "show", run, "-o", "json")).out)["grants"]
    assert (grant["state"], bool(grant["revoked_by"])) == ("revoked", True)


async def test_a_detached_run_is_granted_a_pattern_and_loses_it_from_this_terminal(
    desk: Any, playing: Any, project: Path
) -> None:
    turns = [bash("make test"), bash("make lint"), bash("make test WHAT=2"), DONE]
    async with playing(*turns) as model:
        started = await desk.leadrope("run", "go", "--detach", "--base-url", model.url)
        run = started.out.strip()
        first = await waiting(desk)
        assert first["asked"]["pattern"] == "Bash(make test *)"
        shown = await desk.leadrope("approvals", "show", first["id"])
        assert "`--pattern` allows Bash(make test *) for the rest of the run" in shown.out
        assert re.match(rf"{first['id']}  tool_call  pending for \d+s · waits until it is answered\n", shown.out)
        assert "read as:\n    runs make test\n" in shown.out
        approved = await desk.leadrope("approvals", "approve", first["id"], "--pattern")
        assert approved.out == f"{first['id']} approved; Bash(make test *) is allowed until run {run[:8]} ends\n"
        second = await waiting(desk)
        assert second["asked"]["call"]["input"]["command"] == "make lint"
        assert (await desk.leadrope("runs", "revoke", run, "--all")).out == f"{run[:8]}: Bash(make test *) is revoked\n"
        assert (await desk.leadrope("runs", "revoke", run, "--all")).err == f"{run[:8]} has no grants\n"
        await desk.leadrope("approvals", "approve", second["id"])
        third = await waiting(desk)
        assert third["asked"]["call"]["input"]["command"] == "make test WHAT=2"
        await desk.leadrope("approvals", "deny", third["id"])
        assert (await desk.leadrope("runs", "logs", "-f", run)).code == 0
    assert made(project) == ["test", "lint"]


async def test_a_grant_passes_to_no_later_run(desk: Any, playing: Any, project: Path) -> None:
    """Neither the session that is resumed, nor its fork, nor a retry has it."""
    again = [bash("make test WHAT=2"), DONE]
    async with playing(bash("make test"), DONE, *again, *again, *again) as model:
        async with desk.at_terminal("run", "go", "--base-url", model.url) as terminal:
            await terminal.reads(QUESTION)
            terminal.types("p\n")
            assert await terminal.ends() == 0
        run = await one_run(desk)
        session = json.loads((await desk.leadrope("runs", "show", run, "-o", "json")).out)["run"]["session_id"]
        for flags in (("--resume", session), ("--fork", session)):
            later = await desk.leadrope("run", "again", *flags, "--base-url", model.url)
            assert "1 call denied" in later.err, later.err
        retried = (await desk.leadrope("runs", "retry", run)).out.strip()
        asked = await waiting(desk)
        assert asked["run"] == retried
        await desk.leadrope("approvals", "deny", asked["id"])
        await desk.leadrope("runs", "logs", "-f", retried)
    assert made(project) == ["test"]


@pytest.mark.parametrize(
    "line", ["rm -f made", "make test && make lint", "gradle test", "python3 -c 'print(1)'", 'eval "make test"']
)
async def test_no_pattern_is_offered_for_what_is_risky_or_not_read_cleanly(desk: Any, project: Path, line: str) -> None:
    async with desk.playing([bash(line), DONE], "run", "go") as terminal:
        await terminal.reads("Allow? [y]es · [a]lways this exact call · [n]o · [e]dit: ")
        await terminal.asks("p\n", "Please type y, a, n or e.", "Allow?")
        await terminal.asks("n\n", "Why?")
        terminal.types("\n")
        assert await terminal.ends() == 3
    assert made(project) == []


# -- grants that are written down ---------------------------------------------------------------------------------


@pytest.fixture
def gradle(desk: Any) -> Path:
    """A program that is in none of leadrope's tables. It leaves its words in `made`."""
    program: Path = desk.home / "bin" / "gradle"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho gradle "$@" >> made\n')
    program.chmod(0o755)
    desk.environ["PATH"] = f"{program.parent}:{desk.environ['PATH']}"
    return program


LINES = ["gradle test", "gradle test --info", "gradle build", "gradle test && git push", "rm -rf /"]


@pytest.mark.parametrize(
    ("flags", "config", "ran"),
    [
        (("--allow", "Bash(gradle test *)", "--allow", "Bash(git *)"), "", LINES[:2]),
        ((), '[run]\nallow = ["Bash(gradle test *)"]\n', LINES[:2]),
        (("--tools", "Bash(gradle test)"), "", LINES[:1]),
        ((), "", []),
    ],
    ids=["--allow", "config", "--tools", "none"],
)
async def test_a_grant_opens_its_pattern_and_never_a_block_or_an_approval_rule(
    desk: Any, playing: Any, gradle: Path, flags: tuple[str, ...], config: str, ran: list[str]
) -> None:
    path = desk.home / ".config" / "leadrope" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(config)
    # A repository cannot grant anything to itself.
    (desk.project / "leadrope.toml").write_text('[run]\nallow = ["Bash(gradle *)"]\n')
    async with playing(*map(bash, LINES), DONE) as model:
        ended = await desk.leadrope("run", "go", "--sandbox", "off", *flags, "--base-url", model.url)
    assert made(desk.project) == ran, ended.err
    assert f"{len(LINES) - len(ran)} calls denied" in ended.err
    assert "run.allow is ignored: a project's own file cannot set it" in ended.err
    if "--tools" in flags:
        assert "`--info` in `gradle test --info` is not covered by Bash(gradle test)" in ended.err


async def test_policy_allow_writes_the_users_config_and_nothing_else_of_it(desk: Any, gradle: Path) -> None:
    path = desk.home / ".config" / "leadrope" / "config.toml"
    path.parent.mkdir(parents=True)
    text = '# mine\n\n[run]  # defaults\nmodel = "opus" # daily\n\n[profiles.x]\nmodel="haiku"\n'
    path.write_text(text)
    path.chmod(0o640)
    before = await desk.leadrope("policy", "explain", "Bash(gradle test)")
    assert before.out.startswith("verdict  ask\n")
    written = await desk.leadrope("policy", "allow", "Bash(gradle test *)")
    assert (written.code, written.out) == (0, f"{path} allows Bash(gradle test *).\n")
    line = 'allow = ["Bash(gradle test *)"]\n'
    assert path.read_text() == text.replace("# daily\n", f"# daily\n{line}")
    assert path.stat().st_mode & 0o777 == 0o640
    after = await desk.leadrope("policy", "explain", "Bash(gradle test --info)")
    assert after.out.startswith("verdict  allow\nrule     allow\n")
    assert (await desk.leadrope("policy", "allow")).out == "Bash(gradle test *)\n"
    again = await desk.leadrope("policy", "allow", "Bash(gradle test *)")
    assert (again.code, "already allows" in again.out) == (0, True)
    for nonsense in ("gradle test", "Bash(gradle test", "bash(x)", "Bash(a; b)", ""):
        assert (await desk.leadrope("policy", "allow", nonsense)).code == 2
    await desk.leadrope("policy", "allow", "--remove", "Bash(gradle test *)")
    assert "gradle" not in path.read_text()


async def test_explain_tries_a_grant_before_it_is_written(desk: Any) -> None:
    tried = await desk.leadrope("policy", "explain", "Bash(make test)", "--allow", "Bash(make *)")
    assert tried.out.startswith("verdict  allow\nrule     allow\n")
    pushed = await desk.leadrope("policy", "explain", "Bash(git push)", "--allow", "Bash(git *)")
    assert pushed.out.startswith("verdict  ask\nrule     require_approval\n")
