"""What is said about a command that the sandbox kept from something: the thing, the sandbox, and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope.process.sandbox.values import Sight
from leadrope.workflows.tools.sandbox_limits import EndedCommand, Limit, Surroundings, limits


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of a user, with keys and notes."""
    folder = tmp_path / "home"
    for name in (".ssh", ".config/gh", "notes", "ws"):
        (folder / name).mkdir(parents=True)
    for name in ("plain.txt", "notes/a.txt", ".config/gh/hosts.yml", ".npmrc"):
        (folder / name).write_text("x")
    return folder


def found(home: Path, text: str, said: str = "", *, has_failed: bool = True, **more: Any) -> list[tuple[str, str]]:
    places: dict[str, Any] = {str(home): "private", "/tmp": "private", str(home / "ws"): "rw", "/usr": "ro"}
    places |= more.pop("places", {})
    around = Surroundings(
        sight=Sight(places=places, home=str(home), workspace=str(home / "ws"), network=more.pop("network", "host")),
        environ=more.pop("environ", {}),
        passed_on=more.pop("passed_on", {}),
    )
    told: tuple[Limit, ...] = limits(EndedCommand(text=text, said=said, has_failed=has_failed, **more), around)
    return [(one.kind, one.message) for one in told]


@pytest.mark.parametrize(
    ("text", "said", "kind", "way"),
    [
        ("cat ~/plain.txt", "cat: {home}/plain.txt: No such file or directory", "hidden", "--add-dir ~/plain.txt:ro"),
        ("./x.sh", "x.sh: {home}/notes/a.txt: No such file or directory", "hidden", "--add-dir ~/notes:ro"),
        ("python x.py", "[Errno 2] No such file or directory: '{home}/notes'", "hidden", "--add-dir ~/notes:ro"),
        ("./x.sh", "touch: cannot touch '/usr/x': Read-only file system", "refused", "--sandbox off"),
        (
            "./x.sh",
            "touch: cannot touch '{home}/notes/b': Permission denied",
            "refused",
            "run it with --add-dir ~/notes",
        ),
        ("git push", "git@host: Permission denied (publickey).", "login", "--add-dir ~/.ssh:ro"),
        ("gh pr list", "To get started with GitHub CLI, please run:  gh auth login", "login", "~/.config/gh:ro"),
        ("npm publish", "npm error code ENEEDAUTH", "login", "--add-dir ~/.npmrc:ro"),
    ],
)
def test_a_refusal_is_told_with_the_way_out(home: Path, text: str, said: str, kind: str, way: str) -> None:
    ((told, message),) = found(home, text, said.format(home=home))
    assert told == kind
    assert "the sandbox" in message
    assert way in message


def test_a_variable_that_commands_do_not_get_is_named(home: Path) -> None:
    said = "please run:  gh auth login"
    ((_, message),) = found(home, "gh x", said, environ={"GH_TOKEN": "x"})
    assert "--add-dir ~/.config/gh:ro or --secret GH_TOKEN" in message
    ((_, message),) = found(home, "gh x", said, environ={"GH_TOKEN": "x"}, passed_on={"GH_TOKEN": "x"})
    assert "--secret" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cat missing", "cat: missing: No such file or directory"),
        ("cat ~/missing", "cat: {home}/missing: No such file or directory"),
        ("cat ws/x", "cat: {home}/ws/x: Permission denied"),
        ("aws s3 ls", "Unable to locate credentials"),  # the user has none
        ("echo", ""),
        ("make", "make: *** No rule to make target 'x'.  Stop."),
        ("touch ~/.cache/x", ""),
    ],
)
def test_what_has_another_reason_is_not_told(home: Path, text: str, said: str) -> None:
    assert found(home, text, said.format(home=home)) == []


def test_a_file_that_the_command_names_and_does_not_see_is_told_whatever_it_made_of_it(home: Path) -> None:
    ((kind, message),) = found(home, "cat ~/plain.txt 2>/dev/null || echo none", has_failed=False)
    assert (kind, "hides ~/plain.txt" in message) == ("hidden", True)
    assert found(home, "cat ~/plain.txt", has_failed=False, places={str(home / "plain.txt"): "ro"}) == []


def test_a_file_that_is_lost_is_told_once(home: Path) -> None:
    lost = (str(home / "notes/new.txt"), str(home / "notes/other.txt"))
    ((kind, message),) = found(home, "cp x ~/notes", has_failed=False, lost=lost)
    assert kind == "lost"
    assert (
        "~/notes/new.txt and 1 more will be lost when the workflow ends: the sandbox gives commands a home" in message
    )
    assert "--add-dir ~/notes" in message
    ((_, message),) = found(home, "cp x /tmp/kept", has_failed=False, lost=("/tmp/kept",))
    assert "a /tmp of their own" in message
    assert "--sandbox off" in message


def test_a_host_that_was_not_reached_is_told_with_the_rule(home: Path) -> None:
    ((kind, message),) = found(home, "curl x", has_failed=False, refused_hosts=("example.com",))
    assert (kind, "network.allowed_hosts" in message) == ("network", True)
    told = found(
        home, "curl https://example.com", "curl: (6) Could not resolve host: example.com", network="model-only"
    )
    assert [kind for kind, _ in told] == ["network"]


def test_a_command_that_complains_a_thousand_times_is_told_a_few(home: Path) -> None:
    for number in range(50):
        (home / f"{number}.txt").write_text("x")
    said = "\n".join(f"cat: {home}/{number}.txt: No such file or directory" for number in range(50))
    assert len(found(home, "cat", said)) <= 4
