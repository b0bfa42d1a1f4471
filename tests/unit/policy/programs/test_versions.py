"""`--version` of every program that a table knows: a read, unless the project decides what runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.policy.programs import catalog, file_tools, interpreters, read_tables, toolchains, wrappers
from leadrope.policy.shell.words import names
from leadrope.runtime.gate.machine_facts import MachineFacts

MODES: tuple[Mode, ...] = get_args(Mode)
# Programs of the tables whose `--version` stays a question, by the reason.
ASKED = {
    "the shell's own": ". builtin command coproc eval exec source time trap",
    "its words name what it deletes": "rm rmdir shred truncate",
    "it loads code of the project, or a release that the project names": """pytest py.test pylint flake8 rspec rubocop
        phpunit jest vitest mocha stylelint vue-tsc lint-imports poetry bundle pipenv pdm hatch dotenv ts-node tsx""",
    "it acts on any word, on some systems": """killall pkill yes reboot shutdown poweroff halt mkfs wipefs reset
        unlink sync clear stty chattr lsattr fuser busybox parallel su runuser doas""",
    "it takes another word for it, or has none": """go gofmt ip scp sftp host dig nslookup ping w last tty logname
        ifconfig mdfind pbpaste
        rename sponge 7z dos2unix unix2dos locale findmnt whereis pidof xzcat bzcat zstdcat gunzip bunzip2
        unxz unzstd pxz ash csh tcsh ksh93 mksh rbash yash""",
}
PROJECT = {
    "rust-toolchain.toml": ("cargo --version", "rustc -V", "cargo version"),
    "rust-toolchain": ("cargo --version",),
    "go.mod": ("go version",),
    "go.work": ("go version",),
    "package.json": ("yarn --version", "pnpm -v"),
    ".yarnrc.yml": ("yarn --version",),
    ".npmrc": ("pnpm --version",),
}


def known() -> set[str]:
    """Every name in the tables."""
    found = {*catalog._INERT, *catalog._RUNNERS, *catalog._WRITERS, *toolchains._SPECIAL, *toolchains._GUARDS}
    found |= {*toolchains._GUARDED_RUNNERS, *toolchains._SUBCOMMANDS, *interpreters._INTERPRETERS, *interpreters._AWKS}
    found |= {*wrappers._SHELLS, *wrappers._SPECIAL, *(name.split()[0] for name in wrappers._WRAPPERS)} | {
        "python3",
        "sed",
    }
    found |= {"python3", "sed"}
    return found | {*file_tools._GUNZIPS, *file_tools._TOOLS, *read_tables.GRAMMARS, *read_tables.ANY_WORDS}


def word(command: str, facts: Facts, workspace: str = "/ws", mode: Mode = "plan") -> str:
    call = ToolCall(id="t", name="Bash", input={"command": command})
    return decide(Policy(mode=mode, workspace=(workspace,)), call, facts, resolve=os.path.realpath).word


def test_every_known_program_is_a_read_or_has_a_reason() -> None:
    facts = Facts(has_above=lambda _folder, _files: False, which=lambda name: f"/usr/bin/{name}", git_is_plain=True)
    asked = {name for name in known() if word(f"{name} --version", facts) != "allow"}
    reasons = set().union(*(names(group) for group in ASKED.values()))
    assert asked == reasons


@pytest.mark.parametrize(("file", "command"), [(file, line) for file, lines in PROJECT.items() for line in lines])
def test_a_file_that_chooses_the_program_makes_it_a_question(tmp_path: Path, file: str, command: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / command.split(maxsplit=1)[0]
    program.write_text("")
    program.chmod(0o755)
    ws = tmp_path / "above" / "ws"
    (ws / "sub").mkdir(parents=True)
    facts = MachineFacts(workspace=(str(ws),), env={"PATH": str(program.parent)}).at_hand(Facts())
    assert {word(command, facts, str(ws), mode) for mode in MODES} == {"allow"}
    for folder, line in ((ws, command), (ws.parent, command), (ws / "sub", f"cd sub && {command}")):
        (folder / file).symlink_to("nowhere")
        assert word(line, facts, str(ws)) == "deny"
        (folder / file).unlink()
    assert word(f"cd sub && {command}", facts, str(ws)) == "allow"
    assert word(f"cd {ws}/$X && {command}", facts, str(ws)) == "deny"


@pytest.mark.parametrize(
    "place",
    [".asdf/shims/jq", ".local/share/mise/shims/jq", ".pyenv/shims/jq", ".volta/bin/jq", "lib/corepack/dist/jq"],
)
def test_what_a_version_manager_starts_is_a_question(tmp_path: Path, place: str) -> None:
    """Also where a link on PATH leads there: `.tool-versions` may name a folder of the workspace."""
    ws, shim, path = tmp_path / "ws", tmp_path / place, tmp_path / "bin"
    for folder in (ws, shim.parent, path):
        folder.mkdir(parents=True)
    shim.write_text("")
    shim.chmod(0o755)
    (path / "jq").symlink_to(shim)
    for folder in (shim.parent, path):
        facts = MachineFacts(workspace=(str(ws),), env={"PATH": str(folder)}).at_hand(Facts())
        assert word("jq --version", facts, str(ws)) == word("jq . a.json", facts, str(ws)) == "deny"


def test_where_nobody_looked_there_may_be_such_a_file() -> None:
    assert word("cargo --version", Facts(which=lambda name: f"/usr/bin/{name}")) == "deny"
