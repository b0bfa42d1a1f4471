"""What a policy blocks or protects, behind the sandbox: programs that nobody can read do not get at it either."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors, events
from leadrope.process.sandbox import availability

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try", **more}}}


def write(path: Path, content: str) -> dict[str, Any]:
    return {"tool": {"name": "Write", "input": {"file_path": str(path), "content": content}}}


def read(path: Path) -> dict[str, Any]:
    return {"tool": {"name": "Read", "input": {"file_path": str(path)}}}


def make(path: Path, content: str = "as it was\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


async def test_an_approved_edit_of_a_protected_file_is_made_although_commands_cannot_make_it(stage: Any) -> None:
    ci, jenkins = make(stage.ws / ".github/workflows/ci.yml"), make(stage.ws / "Jenkinsfile")
    script = make(stage.ws / "gen.py", f"for p in ({str(ci)!r}, {str(jenkins)!r}, {str(ci) + '.new'!r}): open(p, 'w')")
    out = stage.ws / "out.txt"
    attempt = f"python3 {script} 2> {out}; python3 -c \"open('{jenkins}', 'a')\" 2>> {out}; mv .github moved 2>> {out}"
    played = await stage.play(
        [
            read(ci),
            write(ci, "approved\n"),
            read(jenkins),
            write(jenkins, "approved too\n"),
            bash(attempt),
            {"text": "done"},
        ],
        approver=lambda _: True,
    )
    assert played.result.outcome == "succeeded"
    assert (ci.read_text(), jenkins.read_text()) == ("approved\n", "approved too\n")
    assert out.read_text().count("Read-only file system") == 2
    assert "Device or resource busy" in out.read_text()
    assert not [n for n in played.of(events.Notice) if n.code in ("before_effect", "after_effect")]


async def test_an_approved_command_writes_to_a_protected_path_from_the_folder_it_is_in(stage: Any) -> None:
    ci = make(stage.ws / ".github/workflows/ci.yml")
    played = await stage.play(
        [bash("cd .github/workflows"), bash("echo approved > ci.yml"), {"text": "done"}], approver=lambda _: True
    )
    assert played.result.outcome == "succeeded"
    assert ci.read_text() == "approved\n"


SPELLINGS = {
    "plain": "cat config/prod/key",
    "input": "cat < config/prod/key",
    "glob": "cat config/pr?d/key",
    "variable": "X=config/prod/key; cat $X",
    "braces": "cat config/{prod,x}/key",
    "folder of a later call": "cd config; cat prod/key",
    "renamed": "mv config other; cat other/prod/key",
    "link": "ln -s config/prod here; cat here/key",
    "hard link": "ln config/prod/key mine; cat mine",
    "another name": "cat second",
    "through a link of the user's": "cat shortcut",
    "a program": "python3 -c \"print(open('config/prod/key').read())\"",
    "a wildcard of the policy": "cat deep/er/prod.key deep/er/../er/prod.key",
    "listing": "ls config/prod/ | tr a-z A-Z",
    "another process": "cat /proc/self/cwd/config/prod/key /proc/$$/root$PWD/config/prod/key",
}


@pytest.mark.parametrize("command", SPELLINGS.values(), ids=SPELLINGS.keys())
async def test_a_blocked_path_cannot_be_read_in_any_spelling(stage: Any, command: str) -> None:
    """Asked for or not: here everything is approved, and the sandbox alone stands in the way."""
    key = make(stage.ws / "config/prod/key", "TOPSECRET")
    make(stage.ws / "config/prod/topsecret")
    make(stage.ws / "deep/er/prod.key", "TOPSECRET")
    os.link(key, stage.ws / "second")
    (stage.ws / "shortcut").symlink_to("config/prod/key")
    out = stage.ws / "out.txt"
    hidden = make(stage.ws / "run.sh", f"cd {stage.ws}\n{command}\n")
    played = await stage.play(
        [bash(f"bash {hidden} > {out} 2>&1; echo ended >> {out}"), {"text": "done"}],
        approver=lambda _: True,
        mode="full",
        sandbox="workspace",
        policy={"blocked_paths": ["config/prod/", "**/prod.key"]},
    )
    assert played.result.outcome == "succeeded"
    assert "ended" in out.read_text()
    assert "TOPSECRET" not in out.read_text()
    assert key.read_text() == "TOPSECRET"
    assert not (stage.ws / "other").exists()


async def test_a_search_of_the_agents_own_finds_nothing_in_a_blocked_path(stage: Any) -> None:
    make(stage.ws / "config/prod/key", "TOPSECRET")
    grep = {"tool": {"name": "Grep", "input": {"pattern": "TOP", "path": str(stage.ws), "output_mode": "content"}}}
    played = await stage.play(
        [grep, {"text": "done", "expect": {"lacks": "TOPSECRET"}}],
        mode="plan",
        policy={"blocked_paths": ["config/prod/"]},
    )
    assert played.result.outcome == "succeeded"


@pytest.mark.parametrize("given", ["notes/", ""], ids=["itself", "a folder above"])
@pytest.mark.parametrize("rule", ["blocked_paths", "protected_paths"])
async def test_a_rule_holds_for_a_folder_that_was_added_as_a_whole(
    stage: Any, tmp_path: Path, rule: str, given: str
) -> None:
    """`--add-dir` names it, and the policy too: nothing in it is opened, also where its parent is not shown."""
    note = make(tmp_path / "shared/notes/note", "TOPSECRET")
    out = stage.ws / "out.txt"
    code = f"n = {str(note)!r}\nfor way in ((n, 'r'), (n, 'a'), (n + '.new', 'w')):\n    try: print(open(*way).read())"
    script = make(stage.ws / "try.py", f"{code}\n    except OSError as error: print(error.strerror)\n")
    played = await stage.play(
        [bash(f"python3 {script} > {out}"), {"text": "done"}],
        mode="full",
        sandbox="workspace",
        extra_dirs=[str(note.parent)],
        policy={rule: [f"{tmp_path}/shared/{given}"]},
    )
    assert played.result.outcome == "succeeded"
    blocked = ["Permission denied"] * 3
    assert out.read_text().splitlines() == (
        blocked if rule == "blocked_paths" else ["TOPSECRET", *["Read-only file system"] * 2]
    )
    assert [path.name for path in note.parent.iterdir()] == ["note"]


async def test_an_approved_edit_is_made_in_a_workspace_that_is_protected_as_a_whole(stage: Any) -> None:
    new, other = stage.ws / "new.txt", stage.ws / "other.txt"
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> bool:
        asked.append(request.call.name)
        return True

    played = await stage.play(
        [write(new, "approved\n"), bash(f"python3 -c \"open('{other}', 'w')\""), {"text": "done"}],
        approver=approve,
        mode="full",
        sandbox="workspace",
        policy={"protected_paths": [f"{stage.ws.parent}/"]},
    )
    assert played.result.outcome == "succeeded"
    assert asked == ["Write"]
    assert new.read_text() == "approved\n"
    assert not other.exists()


async def test_a_program_that_makes_a_protected_file_is_told(stage: Any) -> None:
    """What does not exist cannot be read-only; what a person approved is not told again."""
    make(stage.ws / "gen.py", "import os; os.makedirs('.circleci'); open('.circleci/config.yml', 'w').write('x')")
    played = await stage.play(
        [bash(f"python3 {stage.ws}/gen.py"), write(stage.ws / ".travis.yml", "approved\n"), {"text": "done"}],
        approver=lambda _: True,
    )
    assert played.result.outcome == "succeeded"
    told = [n.message for n in played.of(events.Notice) if n.code == "protected_made"]
    assert len(told) == 1
    assert str(stage.ws / ".circleci") in told[0]
    assert ".travis.yml" not in told[0]


# -- what git's settings name --------------------------------------------------------------------------------------


def git(ws: Path, *words: str, check: bool = True) -> None:
    """As the user calls it, outside."""
    env = {"PATH": os.environ["PATH"], "HOME": str(ws.parent / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=u", "-c", "user.email=u@example.com")
    subprocess.run(["git", "-C", str(ws), *names, *words], check=check, env=env, capture_output=True)


SETTINGS = {
    "hooks": (("core.hooksPath", ".husky"), ".husky/pre-commit", ("commit", "--allow-empty", "-m", "x")),
    "missing hooks": (
        ("core.hooksPath", ".hooks/deep"),
        ".hooks/deep/pre-commit",
        ("commit", "--allow-empty", "-m", "x"),
    ),
    "include": (("include.path", "../.gitconfig"), ".gitconfig", ("status",)),
    "filter": (("filter.c.clean", "./tools/clean.sh"), "tools/clean.sh", ("add", "a.c")),
    "alias": (("alias.go", "!sh tools/clean.sh"), "tools/clean.sh", ("go",)),
    "driver": (("diff.c.textconv", "tools/clean.sh"), "tools/clean.sh", ("diff", "HEAD")),
}


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("way", ["edit tool", "command"])
async def test_what_gits_settings_name_is_not_the_agents_to_write(stage: Any, kind: str, way: str) -> None:
    setting, target, later = SETTINGS[kind]
    ws, proof = stage.ws, stage.home / "ran"
    git(ws, "init", "-q")
    make(ws / "a.c")
    make(ws / ".gitattributes", "*.c filter=c diff=c\n")
    git(ws, "add", ".")
    git(ws, "commit", "-q", "-m", "first")
    if kind not in ("missing hooks", "include"):
        make(ws / target, "#!/bin/sh\ncat\n").chmod(0o755)
    git(ws, "config", *setting)
    make(ws / "a.c", "changed\n")
    evil = f"[core]\n\tfsmonitor = touch {proof}; false\n" if kind == "include" else f"#!/bin/sh\ntouch {proof}\ncat\n"
    if way == "edit tool":
        script = [read(ws / target), write(ws / target, evil), {"text": "done"}]
        played = await stage.play(script, mode="edit", strict=False)
        assert [d.decision for d in played.of(events.ToolDecided) if d.call.name == "Write"] == ["deny"]
    else:
        folder = os.path.dirname(target) or "."  # noqa: PTH120
        text = f"import os; os.makedirs({folder!r}, exist_ok=True); open({target!r}, 'w').write({evil!r})"
        hidden = make(ws / "x.py", f"{text}; os.chmod({target!r}, 0o755)")
        played = await stage.play([bash(f"python3 {hidden}"), {"text": "done"}], mode="edit", approver=lambda _: True)
    assert played.result.outcome in ("succeeded", "denied")
    git(ws, *later, check=False)
    assert not proof.exists()


async def test_a_missing_program_that_git_would_run_is_put_aside_when_the_agent_has_made_it(stage: Any) -> None:
    git(stage.ws, "init", "-q")
    git(stage.ws, "config", "filter.c.clean", "./tools/clean.sh")
    make(stage.ws / "x.py", "import os; os.mkdir('tools'); open('tools/clean.sh', 'w').write('evil')")
    played = await stage.play([bash(f"python3 {stage.ws}/x.py"), {"text": "done"}], approver=lambda _: True)
    assert played.result.outcome == "succeeded"
    assert not (stage.ws / "tools/clean.sh").exists()
    assert (stage.ws / "tools/clean.sh.planted").read_text() == "evil"
    assert [n.code for n in played.of(events.Notice) if n.code == "git_planted"]


# -- mode sandboxed ------------------------------------------------------------------------------------------------


async def test_mode_sandboxed_is_refused_where_there_is_no_sandbox(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.BadValue, match="mode sandboxed") as refused:
        await stage.play([], mode="sandboxed", sandbox="off")
    assert 'mode="edit"' in str(refused.value.hint)
    monkeypatch.setattr(
        availability,
        "_known",
        availability.SandboxAvailability(ok=False, reason="bwrap is not installed", hint="Install it."),
    )
    with pytest.raises(errors.SandboxUnavailable, match="bwrap is not installed") as missing:
        await stage.play([], mode="sandboxed")
    assert 'mode="edit"' in str(missing.value.hint)
    assert "Install it." in str(missing.value.hint)


async def test_mode_sandboxed_is_refused_where_the_sandbox_cannot_hold_a_rule(stage: Any) -> None:
    with pytest.raises(errors.SandboxUnavailable, match="mode sandboxed needs"):
        await stage.play([], mode="sandboxed", policy={"blocked_commands": ["sh"]})


async def test_mode_sandboxed_has_no_network_but_the_model_s(stage: Any) -> None:
    out = stage.ws / "out.txt"
    command = f"cat /proc/net/route > {out}; getent hosts example.com >> {out}; echo ended >> {out}"
    played = await stage.play([bash(command), {"text": "done"}], mode="sandboxed", approver=lambda _: True)
    assert played.result.outcome == "succeeded"
    assert out.read_text().splitlines()[1:] == ["ended"]
    assert played.one(events.SessionStarted).sandbox == "workspace"


async def test_a_layer_that_allows_mode_sandboxed_at_the_most_holds_a_run_in_mode_full_to_it(stage: Any) -> None:
    capped = {"permission_mode": "sandboxed"}
    with pytest.raises(errors.BadValue, match="mode sandboxed"):
        await stage.play([], mode="full", sandbox="off", policy=capped)
    outside = stage.home / "outside"
    command = bash("cat /proc/net/route > out.txt")
    played = await stage.play([command, write(outside, "x"), {"text": "done"}], mode="full", policy=capped)
    assert [d.decision for d in played.of(events.ToolDecided)] == ["allow", "deny"]
    assert len((stage.ws / "out.txt").read_text().splitlines()) == 1
    assert not outside.exists()


# -- the agent's own sandbox ---------------------------------------------------------------------------------------


async def test_a_command_that_would_leave_the_agents_sandbox_is_asked_for(stage: Any) -> None:
    outside = stage.home / "outside"
    played = await stage.play(
        [bash(f"touch {outside}", dangerouslyDisableSandbox=True), {"text": "done"}],
        mode="full",
        agent_sandbox={"enabled": True},
    )
    decided = played.of(events.ToolDecided)[0]
    assert (decided.decision, decided.rule) == ("deny", "agent_sandbox")
    assert not outside.exists()


async def test_a_command_in_the_agents_sandbox_cannot_leave_it_though_it_was_approved(stage: Any) -> None:
    outside = stage.home / "outside"
    played = await stage.play(
        [bash(f"touch {outside}; touch {stage.marker}", dangerouslyDisableSandbox=True), {"text": "done"}],
        approver=lambda _: True,
        agent_sandbox={"enabled": True},
    )
    assert played.result.outcome == "succeeded"
    assert stage.marker.exists()
    assert not outside.exists()


async def test_commands_in_the_agents_sandbox_need_no_question_where_its_user_says_so(stage: Any) -> None:
    victim, copy = make(stage.ws / "victim"), stage.ws / "copy"
    played = await stage.play(
        [bash(f"touch {stage.marker}"), bash(f"rm {victim}"), bash(f"cp {victim} {copy}"), {"text": "done"}],
        mode="default",
        agent_sandbox={"enabled": True, "autoAllowBashIfSandboxed": True},
        policy={"blocked_commands": ["cp"]},
    )
    assert stage.marker.exists()
    assert victim.exists()  # an approval rule, and nobody was there
    assert not copy.exists()  # a block
    assert [d.decision for d in played.of(events.ToolDecided)] == ["allow", "deny", "deny"]
