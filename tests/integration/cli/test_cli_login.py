"""`leadrope login` and `leadrope setup-token` start the agent program that a run would use, on the user's terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python}
import json, os, sys
print(json.dumps({{"args": sys.argv[1:], "home": os.environ["HOME"], "terminal": os.isatty(0)}}))
sys.exit(7)
"""


def agent(folder: Path) -> Path:
    path = folder / "claude"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("typed", "args"),
    [
        (["login"], ["auth", "login"]),
        (["login", "--console"], ["auth", "login", "--console"]),
        (["setup-token"], ["setup-token"]),
    ],
)
async def test_the_program_that_is_set_gets_the_terminal(
    desk: Any, tmp_path: Path, typed: list[str], args: list[str]
) -> None:
    async with desk.at_terminal(*typed, LEADROPE_CLAUDE_BIN=str(agent(tmp_path))) as terminal:
        assert await terminal.ends() == 7
    assert json.loads(terminal.seen) == {"args": args, "home": desk.environ["HOME"], "terminal": True}


async def test_the_program_that_the_config_names(desk: Any, tmp_path: Path) -> None:
    del desk.environ["LEADROPE_CLAUDE_BIN"]
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[run]\nbinary = "{agent(tmp_path)}"\n')
    ended = await desk.leadrope("login")
    assert (ended.code, json.loads(ended.out)["args"]) == (7, ["auth", "login"])


async def test_the_bundled_program_is_used_where_none_is_on_the_path(desk: Any, claude: str) -> None:
    del desk.environ["LEADROPE_CLAUDE_BIN"]
    ended = await desk.leadrope("login", "--help-of-an-option-that-it-does-not-have", PATH="/nonexistent")
    assert ended.code == 1
    assert "unknown option" in ended.err, claude


async def test_a_missing_program_is_told(desk: Any) -> None:
    ended = await desk.leadrope("login", LEADROPE_CLAUDE_BIN="/nonexistent/claude")
    assert ended.code == 1
    assert "/nonexistent/claude does not exist" in ended.err


async def test_a_run_without_a_login_names_the_command(desk: Any) -> None:
    del desk.environ["CLAUDE_CODE_OAUTH_TOKEN"]
    ended = await desk.leadrope("run", "explain this folder", "--mode", "plan")
    assert ended.code == 1
    assert "leadrope login" in ended.err
