"""Private copies in a box: what the plan says by itself is shut, and is opened only by what was really done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope.process.sandbox import git_config_mount, git_folders
from leadrope.process.sandbox.command_line import plan
from leadrope.process.sandbox.git_config_copy import View
from leadrope.process.sandbox.toolchains import caches
from leadrope.process.sandbox.values import Cache, Machine, MachinePath, Sandbox

HOME = "/home/u"
CONFIG = f"{HOME}/project/.git/config"
RUN = "/tmp/leadrope-run-1"  # a name
SPEC = Sandbox(workspace=f"{HOME}/project", run_dir=RUN, home=HOME, binary="/usr/bin/agent")
VIEW = View(path=CONFIG, run_dir=RUN, folder="git-1", was=b"")
OWN = View(path=f"{HOME}/.gitconfig", run_dir=RUN, folder="git-2", was=b"")
SHOWN = Cache(place=MachinePath(name=f"{HOME}/.cargo/registry", real=f"{HOME}/.cargo/registry"), layer=f"{RUN}/cache-1")
EXTRA = Cache(place=MachinePath(name=f"{HOME}/.npm/x", real=f"{HOME}/.npm/x"), is_extra=True, layer=f"{RUN}/cache-2")
MACHINE = Machine(protected=(CONFIG,), views=(VIEW,), caches=(SHOWN, EXTRA), copies={f"{HOME}/.gitconfig": OWN})

LINK = ["link", f"{RUN}/git-1/link", CONFIG]
LAYERS = [
    ["layer", "shown", SHOWN.place.real, f"{RUN}/cache-1/upper", f"{RUN}/cache-1/work"],
    ["layer", "extra", EXTRA.place.real, f"{RUN}/cache-2/upper", f"{RUN}/cache-2/work"],
]


def box() -> tuple[list[str], list[str]]:
    """The orders for the guardian, and bubblewrap's command line."""
    script, *words = plan(SPEC, MACHINE)
    assert script == git_config_mount.__file__
    end = words.index("--")
    return words[:end], words[end + 1 :]


def how(command: list[str], path: str) -> str | None:
    """The mount whose source is this path."""
    options = [command[i] for i, word in enumerate(command[:-1]) if word.endswith("bind") and command[i + 1] == path]
    return options[0] if options else None


def test_the_plan_alone_leaves_everything_read_only() -> None:
    orders, command = box()
    assert orders == [*LINK, *LAYERS[0], *LAYERS[1]]
    assert {how(command, path) for path in (CONFIG, SHOWN.place.real, EXTRA.place.real)} == {"--ro-bind"}
    at = command.index(OWN.copy)
    assert command[at - 1 : at + 2] == ["--symlink", OWN.copy, f"{HOME}/.gitconfig"]
    assert command[command.index(f"{RUN}/cache-1") - 1] == "--tmpfs", "a layer is the kernel's own business"


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ([LINK, *LAYERS], (None, "--bind", "--bind")),
        ([LINK], (None, "--ro-bind", None)),
        (LAYERS, ("--ro-bind", "--bind", "--bind")),
        ([], ("--ro-bind", "--ro-bind", None)),
    ],
)
def test_what_was_done_is_opened_and_nothing_else(
    done: list[list[str]], expected: tuple[str | None, str | None, str | None]
) -> None:
    _, command = box()
    command += ["agent", "--ro-bind", CONFIG, "x"]  # the agent's own words are none of bubblewrap's
    after = git_config_mount.command_after(command, [LINK, *LAYERS], done)
    end = after.index("--")
    assert tuple(how(after[:end], path) for path in (CONFIG, SHOWN.place.real, EXTRA.place.real)) == expected
    assert after[end:] == command[command.index("--") :]
    assert how(after, SPEC.workspace) == "--bind"


def test_signs_in_names_are_escaped() -> None:
    assert git_config_mount.escaped(r"/a,b:c\d") == r"/a\,b\:c\\d"


def test_a_read_only_sandbox_has_no_copies() -> None:
    alone = Sandbox(level="read-only", workspace=SPEC.workspace, run_dir=RUN, home=HOME, binary="/usr/bin/agent")
    assert plan(alone, Machine(protected=(CONFIG,)))[0] == "/usr/bin/bwrap"


def test_only_caches_of_the_user_outside_of_the_workspace_count(tmp_path: Path) -> None:
    for name in (".cargo/registry", ".cache/pip", ".cache/browser", ".npm/_cacache", "go/pkg/mod"):
        (tmp_path / name).mkdir(parents=True)
    mine = os.geteuid()
    shown = [MachinePath(name=str(tmp_path / "go/pkg"), real=str(tmp_path / "go/pkg"))]
    found = list(caches(str(tmp_path), shown, uid=mine, writable=[str(tmp_path / ".npm")]))
    assert {Path(cache.place.name).name: cache.is_extra for cache in found} == {
        "registry": True,
        "pip": True,
        "mod": False,
    }
    assert list(caches(str(tmp_path), shown, uid=mine + 1, writable=[])) == []


def test_settings_that_are_a_link_have_no_copy(tmp_path: Path) -> None:
    """A tool that keeps its settings elsewhere: what lies there is not ours to replace."""
    git = tmp_path / ".git"
    for name in ("objects", "refs", "hooks"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").touch()
    (tmp_path / "real").touch()
    (git / "config").symlink_to(tmp_path / "real")
    assert git_folders.git_settings(str(git)) == ()
    (git / "config").unlink()
    (git / "config").touch()
    assert git_folders.git_settings(str(git)) == (str(git / "config"),)
