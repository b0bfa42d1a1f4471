"""Git in a real box: it works there, and what the user's own git runs later is not the agent's to change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope.process.sandbox import availability, git_config_copy, git_folders


async def repository(room: Any, *, is_worktree: bool) -> Path:
    """The workspace is it, or a worktree of it; with a remote of the user's. Its git folder."""
    main, remote = room.folder / "main" if is_worktree else room.ws, room.folder / "remote.git"
    owner = room.ws.stat().st_uid
    await room.git(
        ("init", "-q", "--bare", str(remote)),
        ("init", "-q", "-b", "main", str(main)),
        ("-C", str(main), "commit", "-q", "--allow-empty", "-m", "zero"),
        ("-C", str(main), "remote", "add", "origin", str(remote)),
    )
    if is_worktree:
        room.ws.rmdir()
        await room.git(("-C", str(main), "worktree", "add", "-q", str(room.ws)))
    for folder in (main, room.ws, remote) if owner != os.geteuid() else ():
        room.give(folder, owner)
    return Path(main, ".git")


async def test_git_works_in_a_worktree_but_its_repository_keeps_its_hooks(room: Any) -> None:
    git = await repository(room, is_worktree=True)
    script = f"""
    echo x > f && git add f && git commit -qm one && git log --format=%s | head -1
    echo x > {git}/hooks/post-commit || echo no
    ls -A {git.parent}
    """
    done = await room.play(script)
    assert done.out.split() == ["one", "no", ".git"], done


SET = """
set -e
git config user.name B
git remote add fork https://example.org/fork.git
git push -q -u origin HEAD:refs/heads/pushed
git branch -m named
git checkout -q -b tracks --track origin/pushed
git config core.fsmonitor false
git init -q
git config --list --local | grep -cE '^(user.name=B|remote.fork.url=|branch.(named|tracks).remote=origin|core.fsm)'
"""


@pytest.mark.parametrize("is_worktree", [True, False], ids=["worktree", "plain"])
async def test_settings_can_be_changed_and_the_users_own_file_is_not(room: Any, is_worktree: bool) -> None:
    """Also while the agent is at work: an editor or a prompt calls git in there every second."""
    git = await repository(room, is_worktree=is_worktree)
    before = (git / "config").read_bytes()
    done = await room.play(f"{SET}cat {git}/config > seen", writable=(str(room.folder / "remote.git"),))
    assert (done.out, done.code) == ("5", 0), done
    assert (git / "config").read_bytes() == before
    assert not (git / "config").is_symlink()
    (view,) = (view for view in room.box.sight.views if view.path == str(git / "config"))
    assert git_config_copy.changed(view) == (room.ws / "seen").read_bytes()


async def test_each_box_begins_with_the_users_settings(room: Any) -> None:
    await repository(room, is_worktree=False)
    first = await room.play("git config user.name B && git config user.name")
    second = await room.play("git config user.name; git config remote.origin.url | grep -c remote")
    assert (first.out, second.out) == ("B", "A\n1")
    assert git_config_copy.changed(room.box.sight.views[0]) is None


async def test_where_links_cannot_be_mounted_the_settings_are_read_only(room: Any) -> None:
    """One that is not there stands for a system that refuses: the box is built all the same, and stays shut."""
    git = await repository(room, is_worktree=False)
    before = (git / "config").read_bytes()
    script = "git config user.name B || echo no; echo x >> .git/config || echo no; git status -s && git log --format=%s"
    done = await room.play(script, altered=lambda word: "/no/such/link" if word.endswith("/link") else word)
    assert (done.out.split(), done.code) == (["no", "no", "zero"], 0), done
    assert (git / "config").read_bytes() == before


NESTED = "bwrap --ro-bind / / --unshare-pid --dev /dev --bind {ws} {ws} git log --format=%s"


@pytest.mark.skipif(os.geteuid() == 0, reason="root's boxes have no sandbox inside; run as a user by test_sandbox")
async def test_a_sandbox_inside_can_be_built_around_them(room: Any) -> None:
    """It wants to make every mount read-only, and would follow the link to a place that is none."""
    await repository(room, is_worktree=False)
    done = await room.play(NESTED.format(ws=room.ws))
    assert done.out == "zero", done


LEFT: dict[str, Callable[[Path], object]] = {
    "a link": lambda copy: copy.symlink_to("/etc/passwd"),
    "a folder": lambda copy: copy.mkdir(),
    "a pipe": os.mkfifo,
    "nothing": lambda _: None,
    "too much": lambda copy: copy.write_bytes(b"#" * (git_config_copy.MOST_BYTES + 1)),
}


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_in_place_of_a_copy_is_not_followed(tmp_path: Path, left: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "config").write_text("[user]\nname = A\n")
    (view,) = git_config_copy.make([str(tmp_path / "config")], str(tmp_path / "run"))
    copy = Path(view.link).with_name("config")
    copy.unlink()
    LEFT[left](copy)
    with pytest.raises(git_config_copy.Unreadable):
        git_config_copy.changed(view)
    copy.parent.rename(tmp_path / "elsewhere")
    copy.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(git_config_copy.Unreadable):
        git_config_copy.changed(view)


PLANTS = {
    "a hook": "echo x > {git}/hooks/post-commit",
    "another folder of hooks": "mv {git}/hooks {git}/h",
    "another file of settings": "echo x > {git}/new && mv -f {git}/new {git}/config",
    "no settings": "rm -f {git}/config",
    "an uncovered file of settings": "umount {git}/config || unshare -Urm umount {git}/config",
    "a setting of another worktree": "echo x >> {git}/worktrees/other/config.worktree",
    "another worktree's repository": "echo /x > {git}/worktrees/other/commondir",
    "another folder of worktrees": "mv {git}/worktrees {git}/w",
    "another folder of a worktree": "mv {git}/worktrees/other {git}/worktrees/o",
    "a module's hook": "echo x > {git}/modules/libs/mod/hooks/post-commit",
    "a nested module's hook": "echo x > {git}/modules/libs/mod/modules/inner/hooks/post-commit",
    "another folder of modules": "mv {git}/modules {git}/m",
    "another module": "mv {git}/modules/libs/mod {git}/modules/libs/m",
    "another folder for the module": "mv {git}/modules/libs {git}/modules/l",
    "another git folder": "mv .git .g",
}
"""None of these works in a box."""

COPIES = {
    "a setting": "git config core.fsmonitor /bin/evil",
    "a setting by hand": "echo '[a]' >> {git}/config",
    "a worktree's setting": "git config --worktree core.fsmonitor /bin/evil",
    "a setting of the main worktree": "echo '[a]' >> {git}/config.worktree",
    "a module's setting": "echo '[a]' >> {git}/modules/libs/mod/config",
    "a nested module's setting": "echo '[a]' >> {git}/modules/libs/mod/modules/inner/config",
}
"""These do, and change nothing outside of it."""


def settings_of(main: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (main / ".git").rglob("config*") if path.is_file()}


@pytest.mark.parametrize("is_worktree", [True, False], ids=["worktree", "plain"])
async def test_what_git_runs_later_cannot_be_planted(room: Any, is_worktree: bool) -> None:
    """All of it in one box; a commit still works there."""
    main = room.folder / "main" if is_worktree else room.ws
    inner, mod, other = (room.folder / name for name in ("inner", "mod", "other"))
    owner = room.ws.stat().st_uid
    empty = ("commit", "-q", "--allow-empty", "-m", "zero")
    await room.git(
        *(command for path in (inner, mod, main) for command in (("init", "-q", str(path)), ("-C", str(path), *empty))),
        ("-C", str(mod), "submodule", "--quiet", "add", str(inner), "inner"),
        ("-C", str(mod), "commit", "-qm", "one"),
        ("-C", str(main), "submodule", "--quiet", "add", str(mod), "libs/mod"),
        ("-C", str(main), "submodule", "--quiet", "update", "--init", "--recursive"),
        ("-C", str(main), "commit", "-qm", "one"),
        ("-C", str(main), "config", "extensions.worktreeConfig", "true"),
        ("-C", str(main), "worktree", "add", "-q", str(other)),
    )
    if is_worktree:
        room.ws.rmdir()
        await room.git(("-C", str(main), "worktree", "add", "-q", str(room.ws)))
    shutil.rmtree(main / ".git" / "hooks")
    assert not (main / ".git" / "config.worktree").exists()
    for folder in (main, room.ws) if owner != os.geteuid() else ():
        room.give(folder, owner)
    git = str(main / ".git")
    script = "echo x > f && git add f && git commit -qm two && git switch -qc topic && git log --format=%s | head -1\n"
    script += "\n".join(f"( {plant.format(git=git)} ) && echo 'PLANTED {name}'" for name, plant in PLANTS.items())
    script += "\n" + "\n".join(f"( {plant.format(git=git)} ) || echo 'FAILED {name}'" for name, plant in COPIES.items())
    plantable = availability.prepare(room.spec()).sight.plantable
    before = settings_of(main)
    done = await room.play(f"{script}\n echo {room.ws} > {git}/commondir")
    assert done.out == "two", done
    now = availability.prepare(room.spec()).sight.plantable
    assert f"{git}/commondir" not in now, "what was there before is not taken away"
    assert list(git_folders.disarm(plantable)) == [(f"{git}/commondir", "")]
    await room.git(("-C", str(room.ws), "status"), ("-C", str(main), "status"), ("-C", str(other), "status"))
    assert not list((main / ".git" / "hooks").iterdir())
    assert settings_of(main) == before
    assert (main / ".git" / "config.worktree").read_text() == ""
    for made in (main / ".git" / "hooks", main / ".git" / "config.worktree"):
        assert made.stat().st_uid == owner


@pytest.mark.parametrize("is_worktree", [True, False], ids=["worktree", "plain"])
async def test_settings_that_would_count_later_are_put_aside(room: Any, is_worktree: bool) -> None:
    """Where worktrees have no settings of their own yet, git reads such a file as soon as they are to have them."""
    git = await repository(room, is_worktree=is_worktree)
    own = git / "worktrees" / room.ws.name if is_worktree else git
    done = await room.play(f"echo '[core]' > {own}/config.worktree; git status -s; echo over")
    assert done.out == "over", done
    assert list(git_folders.disarm(room.box.sight.plantable)) == [(f"{own}/config.worktree", "")]
    assert not (own / "config.worktree").exists()
    assert (own / "config.worktree.planted").exists()


async def test_a_forged_git_file_opens_nothing(room: Any) -> None:
    for text in (f"gitdir: {room.elsewhere}", f"gitdir: {room.ws}/worktrees/x"):
        fake = room.ws / "worktrees" / "x"
        fake.mkdir(parents=True, exist_ok=True)
        (fake / "gitdir").write_text(f"{room.ws}/.git")
        (fake / "commondir").write_text(str(room.elsewhere))
        (room.ws / ".git").write_text(text)
        done = await room.play(f"ls {room.elsewhere} && echo ESCAPED; echo over")
        assert done.out == "over", done
