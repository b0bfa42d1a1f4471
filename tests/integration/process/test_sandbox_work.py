"""Ordinary work in a real box goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


WORK = {
    "git": "git init -q && echo x > f && git add f && git commit -qm one && git log --format=%an",
    "python": "python3 -c 'import ssl, sqlite3, tempfile; tempfile.TemporaryFile(); print(1+1)' | sed s/2/A/",
    "pipes and search": "mkdir d && echo A > d/f && grep -r A d | cut -d: -f2",
    "temporary files": "f=$(mktemp) && echo A > $f && cp $f /tmp/g && cp /tmp/g /var/tmp/h && cat /var/tmp/h",
    "caches in the home": "mkdir -p ~/.cache/x ~/.config/y && echo A > ~/.cache/x/f && cat ~/.cache/x/f",
    "shared memory": "echo A > /dev/shm/f && cat /dev/shm/f",
    "a terminal of its own": "python3 -c 'import pty, os; os.openpty(); print(\"A\")'",
    "names": "getent hosts localhost >/dev/null && id -un >/dev/null && echo A",
    "node": "if command -v node >/dev/null; then node -e 'console.log(\"A\")'; else echo A; fi",
}


@pytest.mark.parametrize("work", WORK)
async def test_work_goes_on(room: Any, work: str) -> None:
    done = await room.play(WORK[work])
    assert (done.out, done.code) == ("A", 0), done


async def test_pytest_runs_with_a_python_below_a_hidden_home(room: Any) -> None:
    """The interpreter of this very test: a venv, whose python may lie in a home that the box does not show."""
    (room.ws / "test_one.py").write_text("def test_one(): assert True\n")
    path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
    done = await room.play("python -m pytest -q -p no:cacheprovider | tail -1", path=path)
    assert "1 passed" in done.out, done


async def test_a_toolchain_below_the_home_is_there_and_read_only(room: Any) -> None:
    tool = room.home / "sdk" / "bin" / "hello"
    (room.home / "sdk" / "lib").mkdir(parents=True)
    tool.parent.mkdir()
    (room.home / "sdk" / "lib" / "text").write_text("hello")
    tool.write_text(f"#!/bin/sh\nexec cat {room.home}/sdk/lib/text\n")
    tool.chmod(0o755)
    done = await room.play(f"hello; echo x >> {tool} || echo no; ls -A ~", path=f"{tool.parent}:{SYSTEM_PATH}")
    assert done.out.replace("hello", "").split() == ["no", ".gitconfig", "sdk"], done


async def test_the_users_git_settings_can_be_changed_for_the_run(room: Any) -> None:
    """A user's file that is a link, as those who keep theirs in a repository have it, stays one."""
    (room.home / "dotfiles").mkdir()
    (room.home / ".gitconfig").rename(room.home / "dotfiles" / "gitconfig")
    (room.home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    before = (room.home / ".gitconfig").read_bytes()
    script = "git config --global user.name; git config --global user.name B && git config --global user.name"
    done = await room.play(f"{script}; git config --global --add safe.directory '*' && echo added")
    assert done.out.split() == ["A", "B", "added"], done
    assert (room.home / ".gitconfig").is_symlink()
    assert (room.home / ".gitconfig").read_bytes() == before
    assert room.box.sight.views == ()


# What cargo and go do when a project needs one package that was fetched before and one that was not.
FETCH = """
set -e
cat {cache}/old/lib
mkdir {cache}/new {cache}/old/built
echo fetched > {cache}/new/lib
echo changed > {cache}/old/lib
mv {cache}/old/lib {cache}/old/lib2
chmod 0555 {cache}/new
cat {cache}/new/lib {cache}/old/lib2
"""


@pytest.mark.parametrize("on_path", [".cargo/bin", "go/bin", ""])
@pytest.mark.parametrize("cache", [".cargo/registry", ".cargo/git", "go/pkg/mod", ".cache/pip", ".npm/_cacache"])
async def test_packages_fetched_before_are_there_and_new_ones_can_be_fetched(
    room: Any, cache: str, on_path: str
) -> None:
    """And the user's own cache is as it was: the next build outside takes nothing that an agent has put there."""
    folder = room.home / cache
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "lib").write_text("before\n")
    (room.home / ".cargo" / "credentials.toml").parent.mkdir(exist_ok=True)
    (room.home / ".cargo" / "credentials.toml").write_text("PRIVATE")
    (room.home / ".npm" / "_logs").mkdir(parents=True)
    (room.home / on_path).mkdir(parents=True, exist_ok=True)
    room.give(room.home, room.ws.stat().st_uid)
    path = f"{room.home}/{on_path}:{SYSTEM_PATH}" if on_path else SYSTEM_PATH
    done = await room.play(
        FETCH.format(cache=f"~/{cache}") + "cat ~/.cargo/cred* 2>/dev/null; ls ~/.npm $TMPDIR/../cache-*", path=path
    )
    assert done.out.split()[:3] == ["before", "fetched", "changed"], done
    assert not {"PRIVATE", "_logs", "upper"} & set(done.out.split())
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["old", "old/lib"]
    assert (folder / "old" / "lib").read_text() == "before\n"


async def test_a_cache_that_can_have_no_layer_is_read_only_or_empty(room: Any) -> None:
    """What a program on the PATH is made of stays to be seen; a cache beside begins empty, and can be written."""
    for name in (".cargo/registry", ".npm/_cacache", ".cargo/bin"):
        (room.home / name).mkdir(parents=True)
        (room.home / name / "old").write_text("before\n")
    room.give(room.home, room.ws.stat().st_uid)
    script = """
    cat ~/.cargo/registry/old; touch ~/.cargo/registry/new || echo no
    cat ~/.npm/_cacache/old || mkdir -p ~/.npm/_cacache && touch ~/.npm/_cacache/new && echo yes
    """
    done = await room.play(
        script,
        path=f"{room.home}/.cargo/bin:{SYSTEM_PATH}",
        altered=lambda word: "/no/such/folder" if word.endswith("/upper") else word,
    )
    assert done.out.split() == ["before", "no", "yes"], done
