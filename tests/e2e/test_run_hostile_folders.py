"""Agents that leave traps where they can write: what the supervisor does next touches nothing of the user's."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors, events
from leadrope.runtime.sessions.files import Sessions

NOBODY = 65534
ROOT = os.geteuid() == 0
KEY = "-----BEGIN PRIVATE KEY----- of the user"
RC = "alias ll='ls -l'\n"
LONG = "keep the tests green\n" * 2000
"""More than an argument may hold: the instructions become a launch file."""

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


@pytest.fixture(params=["own", "another's"] if ROOT else ["own"])
def site(request: pytest.FixtureRequest, stage: Any) -> Iterator[Any]:
    """A user with keys and settings; where root works, once more with a workspace of another user."""
    (stage.home / ".ssh").mkdir()
    (stage.home / ".ssh" / "id_rsa").write_text(KEY)
    (stage.home / ".bashrc").write_text(RC)
    Path(stage.environ["LEADROPE_HOME"]).mkdir()
    (stage.home / "leadrope" / ".env").write_text(f"SOME_NAME={KEY.rsplit(maxsplit=1)[-1]}\n")
    if request.param == "another's":
        os.chown(stage.ws, NOBODY, NOBODY)
    yield stage
    assert (stage.home / ".bashrc").read_text() == RC
    assert (stage.home / ".ssh" / "id_rsa").read_text() == KEY
    assert sorted(path.name for path in stage.home.iterdir()) == [".bashrc", ".ssh", "leadrope"]


def traps(stage: Any) -> str:
    """Links to the user's files under every name that a start writes, wherever one can be made; then the agent dies."""
    names = "append-system-prompt.txt system-prompt.txt mcp.json settings.json agents.json model.sock proxy.sock config"
    return f"""
    own=$(dirname $TMPDIR)
    for folder in $own $(dirname $own) $(dirname $own)/launch-*; do
      for name in {names}; do
        rm -rf $folder/$name; ln -s {stage.home}/.bashrc $folder/$name
      done
    done
    rm -rf $TMPDIR; ln -s {stage.home}/.ssh $TMPDIR
    ls -d $(dirname $own)/launch-* > {stage.ws}/seen
    for file in $(dirname $own)/launch-*/*; do echo evil > $file && echo written >> {stage.ws}/seen; done
    kill -9 $PPID
    """


async def test_the_second_start_writes_through_no_planted_link(site: Any) -> None:
    (site.ws / "CLAUDE.md").write_text(LONG)
    script = [bash(traps(site)), bash(f"cp $(dirname $(dirname $TMPDIR))/launch-*/* {site.ws}/"), {"text": "done"}]
    played = await site.play(script, mode="full", approver=lambda _: True, sandbox="workspace", attempts=2)
    assert played.result.outcome == "succeeded", played.result
    assert len(played.of(events.SessionStarted)) == 2
    seen = (site.ws / "seen").read_text()
    assert "launch-" in seen, "the agent sees the folder of its start"
    assert "written" not in seen
    assert "keep the tests green" in (site.ws / "append-system-prompt.txt").read_text()


async def test_the_second_start_mounts_nothing_in_the_place_of_a_socket(site: Any) -> None:
    plant = traps(site).replace("/.bashrc", "/.ssh/id_rsa")
    look = f"cat /run/leadrope/* $(dirname $TMPDIR)/* > {site.ws}/got 2>/dev/null; echo looked >> {site.ws}/got"
    script = [bash(plant), bash(look), {"text": "done"}]
    played = await site.play(script, mode="full", approver=lambda _: True, network="model-only", attempts=2)
    assert played.result.outcome == "succeeded", played.result
    assert (site.ws / "got").read_text() == "looked\n"


async def planted(site: Any, command: str) -> str:
    """A session whose agent has run the command; its id."""
    script = [bash(command), {"text": "planted"}]
    played = await site.play(script, mode="full", approver=lambda _: True, sandbox="workspace", strict=False)
    session = played.result.session_id
    assert session is not None
    return str(session)


async def test_a_fork_does_not_get_what_links_lead_to(site: Any) -> None:
    session = await planted(
        site,
        f"""cd $CLAUDE_CONFIG_DIR/projects
        ln -s {site.home}/.ssh leak; ln -s {site.home}/leadrope/.env leak.jsonl; mkfifo pipe; echo kept > kept""",
    )
    look = f"cd $CLAUDE_CONFIG_DIR/projects; ls > {site.ws}/names; cat leak/id_rsa leak.jsonl > {site.ws}/got; true"
    played = await site.play(
        [bash(look), {"text": "done"}],
        mode="full",
        approver=lambda _: True,
        sandbox="workspace",
        resume=session,
        fork=True,
    )
    assert played.result.outcome == "succeeded", played.result
    assert (site.ws / "got").read_text() == ""
    names = (site.ws / "names").read_text().split()
    assert "kept" in names
    assert not {"leak", "leak.jsonl", "pipe"} & set(names)
    told = " ".join(notice.message for notice in played.of(events.Notice))
    for name in ("projects/leak is a link", "projects/leak.jsonl is a link", "projects/pipe is a pipe"):
        assert name in told


async def test_an_export_holds_nothing_that_links_lead_to(site: Any) -> None:
    session = await planted(
        site,
        f"""cd $CLAUDE_CONFIG_DIR/projects
        ln -s {site.home}/.ssh/id_rsa x.jsonl; ln -s {site.home}/.ssh folder; mkfifo pipe.jsonl; mkdir d.jsonl""",
    )
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "leadrope.cli.main", "sessions", "export", session),
        env={**site.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await done.communicate()
    assert done.returncode == 0, err.decode()
    assert KEY.encode() not in out
    assert b"planted" in out, "what was said is exported"
    assert b"x.jsonl" in err


async def test_a_pipe_in_the_place_of_a_transcript_does_not_hold_a_resume(site: Any) -> None:
    # The agent is stopped meanwhile: it would write its transcript anew between the two commands.
    command = """until find $CLAUDE_CONFIG_DIR/projects -name '*.jsonl' | grep -q .; do sleep 0.05; done
    kill -STOP $PPID
    for file in $(find $CLAUDE_CONFIG_DIR/projects -name '*.jsonl'); do rm $file; mkfifo $file; done
    kill -9 $PPID"""
    session = await planted(site, command)
    async with asyncio.timeout(120):
        played = await site.play([{"text": "again"}], prompt="go on", resume=session, sandbox="workspace")
    assert (played.result.outcome, played.result.text) == ("succeeded", "again"), played.result
    assert "session_rebuilt" in [notice.code for notice in played.of(events.Notice)]
    if not ROOT:
        return
    Sessions.of(site.environ).delete(session)
    with pytest.raises(errors.BadValue):
        Sessions.of(site.environ).find(session)


def places_that_are_mounted(stage: Any) -> str:
    """Links to the user's files wherever the next sandbox mounts something of the workspace on itself."""
    ssh = f"{stage.home}/.ssh"
    return f"""
    cd {stage.ws}
    git init -q 2>/dev/null
    for repo in sub sub/deeper; do
      mkdir -p $repo/.git/objects $repo/.git/refs $repo/.git/worktrees/x; echo 'ref: refs/heads/main' > $repo/.git/HEAD
      ln -s {ssh} $repo/.git/hooks; ln -s {ssh}/id_rsa $repo/.git/config; ln -s {ssh} $repo/.git/modules
      ln -s {ssh}/id_rsa $repo/.git/commondir; ln -s {ssh}/id_rsa $repo/.git/worktrees/x/gitdir
    done
    mkdir other; echo 'gitdir: {stage.home}' > other/.git
    for name in .husky .vscode .devcontainer .github .circleci .cursor .claude hooks; do ln -s {ssh} $name; done
    for name in .mcp.json leadrope.toml lefthook.yml .envrc AGENTS.md CLAUDE.md .gitconfig .gitmodules; do
      ln -s {ssh}/id_rsa $name
    done
    mkdir -p .venv/bin .venv/lib/python3.11/site-packages; touch .venv/pyvenv.cfg
    ln -s {ssh}/id_rsa .venv/bin/python3; echo {ssh} > .venv/lib/python3.11/site-packages/x.pth
    ln -s {stage.home} home; mkfifo .gitignore pipe.pth
    git config core.hooksPath hooks; git config include.path ../.gitconfig; git config filter.x.clean ./home/.ssh/id_rsa
    rm -f leadrope.toml AGENTS.md CLAUDE.md; ls -A > planted
    """


async def test_the_next_sandbox_shows_nothing_that_links_lead_to(site: Any) -> None:
    await planted(site, places_that_are_mounted(site))
    assert ".husky" in (site.ws / "planted").read_text().split()
    look = f"""
    cd {site.ws}
    for name in .husky .vscode .github .claude .cursor hooks sub/.git/hooks sub/deeper/.git/modules home/.ssh; do
      echo evil > $name/authorized_keys; cat $name/id_rsa
    done >> got 2>/dev/null
    for name in .mcp.json lefthook.yml .envrc .gitconfig sub/.git/config .venv/bin/python3; do
      echo evil >> $name; cat $name
    done >> got 2>/dev/null
    find . -type f -not -name got -exec grep -l KEY {{}} + >> got
    echo looked >> got
    """
    environ = site.environ
    environ["PATH"] = f"{site.ws}/.venv/bin:{environ['PATH']}"
    async with asyncio.timeout(120):
        played = await site.play(
            [bash(look), {"text": "done"}], mode="full", approver=lambda _: True, sandbox="workspace"
        )
    assert played.result.outcome == "succeeded", played.result
    assert [line for line in (site.ws / "got").read_text().splitlines() if line != "evil"] == ["looked"]
    assert [path.name for path in (site.home / ".ssh").iterdir()] == ["id_rsa"]


@pytest.mark.skipif(not ROOT, reason="the tests above run as this user")
async def test_the_same_for_an_unprivileged_user(shown_to_all: Any) -> None:
    """In a mount namespace where that user can reach this Python."""
    with tempfile.TemporaryDirectory(prefix="lr-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        prefix = Path(os.path.realpath(sys.executable)).parents[1]
        show = shown_to_all(prefix, Path(__file__).parents[2])
        command = [
            *("bwrap", "--dev-bind", "/", "/", *show, "--chdir", str(Path(__file__).parents[2]), "--"),
            *("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "--"),
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"),
            *(f"--basetemp={folder}/pytest", __file__),
        ]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {name: os.environ[name] for name in ("PYTHONPATH", "CI") if name in os.environ}
        ran = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out, _ = await ran.communicate()
    assert ran.returncode == 0, out.decode()[-4000:]
    assert b"6 passed" in out
