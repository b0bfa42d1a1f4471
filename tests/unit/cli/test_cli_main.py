"""The entry point: cheap to ask for help, and honest about what went wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest

from leadrope.cli import main as entry
from leadrope.version import __version__

# What a call that only asks must not pay for.
HEAVY = ("msgspec", "yaml", "asyncio", "json", "logging", "leadrope.core", "leadrope.runtime", "leadrope.providers")


def _imported(*args: str) -> set[str]:
    script = f"import sys; from leadrope.cli.main import main; main({list(args)!r}); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("args", [["--version"], ["--help"], []])
def test_no_heavy_module_is_imported_to_answer(args: list[str]) -> None:
    imported = _imported(*args)
    assert "leadrope.cli.main" in imported
    assert not [name for name in imported if name in HEAVY or name.startswith(("leadrope.runtime", "msgspec"))]


def test_the_version_is_told_without_click() -> None:
    assert "click" not in _imported("--version")


def test_version_and_help_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out == f"leadrope {__version__}\n"
    assert entry.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in entry.COMMANDS)


def test_version_and_help_are_commands_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, flags in (
        (["version"], ["--version"]),
        (["help"], ["--help"]),
        (["help", "runs", "list"], ["runs", "list", "--help"]),
    ):
        assert entry.main(words) == 0
        shown = capsys.readouterr().out
        assert entry.main(flags) == 0
        assert shown == capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["run", "a", "b"], 'put it in quotes: leadrope run "a b"'),
        (["run", "x", "--max-turns", "many"], "'many' is not a valid integer"),
        (["run", "x", "--no-such-flag"], "No such option"),
        (["run", "x", "--output", "xml"], "'xml' is not one of"),
        (["run"], "there is no prompt"),
        (["run", "caf\udce9"], "the argument b'caf\\xe9' is not UTF-8 text"),
    ],
)
def test_wrong_usage_is_2_with_a_reason(args: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(args) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


def test_every_command_can_be_imported_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in entry.COMMANDS:
        assert entry.main([name, "--help"]) == 0
        assert "Usage: leadrope" in capsys.readouterr().out
