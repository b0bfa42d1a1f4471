"""Lines that make a harmless program start or load code of the workspace, on the real CLI with nobody there to answer.

Each line would delete a file inside and one outside of the workspace. The last test approves the lines, to show that
they really do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope import events

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and os.environ.get("CI", "").lower() != "true", reason="no C compiler"
)

# Each line has its own files INSIDE and OUTSIDE, and a PROGRAM in the workspace that deletes them.
LINES = {
    "GCONV_PATH": "GCONV_PATH=. iconv -f EVIL -t UTF-8 a",
    "OPENSSL_CONF, openssl": "OPENSSL_CONF=./openssl.cnf openssl version",
    "OPENSSL_CONF, curl": "OPENSSL_CONF=./curl.cnf curl -s file:///dev/null",
    "MANOPT": "MANOPT='-C WS/man.conf' man -l page.1",
    "BAT_PAGER": "BAT_PAGER=./PROGRAM bat a",
    "MANPAGER for bat": "MANPAGER=./PROGRAM bat a",
    "mount": "mount --bind PROGRAM TOOLS/innocent; innocent a",
    "ldconfig": "ldconfig -C ld.cache -f ld.conf WS; innocent-too a",
    "doctest-glob": 'printf \'>>> import os; os.remove("INSIDE"); os.remove("OUTSIDE")\\n\' > one.md; '
    "python3 -m pytest -p no:cacheprovider --doctest-glob='one.m*' one.md",
    "doctest by pattern": 'printf \'>>> import os; os.remove("INSIDE"); os.remove("OUTSIDE")\\n\' > two.txt; '
    "python3 -m doctest two.tx?",
    "uv venv -p": "uv venv -p ./PROGRAM made",
    "uv venv --python=": "uv venv --python=./PROGRAM made",
    "uv run -p": "uv run -p ./PROGRAM a",
    "poetry env use": "poetry env use ./PROGRAM",
}

# V is a file that curl would write over.
CURL = {
    "--stderr": "curl -s -S --stderr V file:///no/such",
    "--trace": "curl -s --trace V file:///dev/null",
    "--trace-ascii": "curl -s --trace-ascii V file:///dev/null",
    "--libcurl": "curl -s --libcurl V file:///dev/null",
    "--dump-header": "curl -s --dump-header V file://WS/a",
    "--cookie-jar": "curl -s --cookie-jar V file:///dev/null",
    "-o": "curl -s -o V file://WS/a",
    "-so": "curl -soV file://WS/a",
    "--remote-name-all": "curl -s --output-dir .github/workflows --remote-name-all file://WS/other/N",
    "-O after cd": "cd .github/workflows && curl -s -O file://WS/other/N",
    "--config": "curl -s --config curlrc-N",
    "-K with an input": "printf 'url=file://WS/a\\noutput=V\\n' | curl -s -K -",
}
BOXED = frozenset({"doctest-glob", "doctest by pattern", "uv venv -p", "uv venv --python=", "poetry env use"})
"""Programs whose sandbox limits what they do. The others change what a name means, and are denied there too."""

SOURCE = """
#include <unistd.h>
__attribute__((constructor)) static void delete_both(void) { unlink(INSIDE); unlink(OUTSIDE); }
int gconv() { return 5; }
int gconv_init() { return 5; }
void gconv_end() { }
"""
STUBS = {
    # What the real one does with a pager, an interpreter or a mount.
    "bat": 'p=${BAT_PAGER:-${MANPAGER:-cat}}\nexec sh -c "$p" < "$1"\n',
    "uv": 'for w; do case $w in --python=*) exec "${w#--python=}" -c "";; esac\n'
    '[ "$last" = -p ] && exec "$w" -c ""; last=$w; done\n',
    "poetry": '[ "$1 $2" = "env use" ] && exec "$3" -c ""\n',
    "mount": 'cat "$2" > "$3"\n',
    "innocent": 'exec cat "$@"\n',
    "ldconfig": 'cat "$5/program-of-ldconfig" > "${0%/*}/innocent-too"\n',
    "innocent-too": 'exec cat "$@"\n',
}


class Trap:
    """A workspace of prepared files, and a folder of programs beside it."""

    def __init__(self, stage: Any) -> None:
        self.ws: Path = stage.ws
        self.tools: Path = stage.ws.parent / "tools"
        self.outside: Path = stage.ws.parent / "outside"
        self.tools.mkdir()
        self.outside.mkdir()
        for name, script in STUBS.items():
            _program(self.tools / name, script)
        stage.environ["PATH"] = f"{self.tools}:{stage.environ['PATH']}"
        (self.ws / "a").write_text("a\n")
        (self.ws / "page.1").write_text(".TH A 1\n.SH NAME\na \\- b\n")
        (self.ws / "gconv-modules").write_text("module EVIL// INTERNAL EVIL 1\n")
        self.victims = {name: (self.ws / f"in-{i}", self.outside / f"out-{i}") for i, name in enumerate(LINES)}
        for pair in self.victims.values():
            for victim in pair:
                victim.write_text("as it was\n")
        self._library("GCONV_PATH", "EVIL.so")
        for program in ("openssl", "curl"):
            library = self._library(f"OPENSSL_CONF, {program}", f"{program}.so")
            provider = f"openssl_conf = x\n[x]\nproviders = p\n[p]\ne = e\n[e]\nmodule = {library}\nactivate = 1\n"
            (self.ws / f"{program}.cnf").write_text(provider)
        pager = _program(self.ws / "program-of-man", self._deletes("MANOPT"))
        defined = "".join(f"DEFINE {name} {pager}\n" for name in ("nroff", "troff", "tbl", "preconv"))
        (self.ws / "man.conf").write_text(defined)
        _program(self.ws / "program-of-ldconfig", self._deletes("ldconfig"))

    def _deletes(self, name: str) -> str:
        inside, outside = self.victims[name]
        return f"rm -f {inside} {outside}\n"

    def _library(self, name: str, file: str) -> Path:
        inside, outside = self.victims[name]
        source = self.ws / "library.c"
        source.write_text(SOURCE)
        macros = [f'-DINSIDE="{inside}"', f'-DOUTSIDE="{outside}"']
        subprocess.run(["cc", "-shared", "-fPIC", *macros, "-o", str(self.ws / file), str(source)], check=True)
        return self.ws / file

    def call(self, name: str) -> dict[str, Any]:
        line = LINES[name]
        inside, outside = self.victims[name]
        program = _program(self.ws / f"program-{inside.name}", self._deletes(name))
        words = {
            "PROGRAM": program.name,
            "INSIDE": str(inside),
            "OUTSIDE": str(outside),
            "WS": str(self.ws),
            "TOOLS": str(self.tools),
        }
        for word, value in words.items():
            line = line.replace(word, value)
        return bash(line)

    def gone(self, place: int) -> set[str]:
        """Lines whose victim inside (0) or outside (1) of the workspace no longer exists."""
        return {name for name, pair in self.victims.items() if not pair[place].exists()}


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


def _program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


async def play(stage: Any, trap: Trap, **fields: Any) -> dict[str, events.ToolDecided]:
    script = [*map(trap.call, LINES), {"text": "done"}]
    played = await stage.play(script, mode="full", strict=False, **fields)
    assert played.result.outcome == outcome(played)
    return dict(zip(LINES, played.of(events.ToolDecided), strict=True))


def outcome(played: Any) -> str:
    """A run that was allowed nothing ends as denied."""
    return "succeeded" if any(one.decision == "allow" for one in played.of(events.ToolDecided)) else "denied"


@needs_compiler
async def test_no_line_runs_code_of_the_workspace_unasked(stage: Any) -> None:
    trap = Trap(stage)
    decided = await play(stage, trap, sandbox="off")
    assert trap.gone(0) == trap.gone(1) == set()
    assert {name for name, one in decided.items() if one.decision != "deny"} == set()
    assert {one.by for one in decided.values()} == {"nobody"}


@needs_compiler
@needs_bubblewrap
async def test_in_a_sandbox_nothing_outside_is_reached(stage: Any) -> None:
    """What a program may do there is what its sandbox allows; what changes the meaning of a name is denied."""
    trap = Trap(stage)
    decided = await play(stage, trap, sandbox="workspace")
    assert trap.gone(1) == set()
    assert trap.gone(0) <= BOXED
    assert {name for name, one in decided.items() if one.decision == "allow"} == BOXED


@needs_compiler
async def test_each_of_these_lines_does_delete_both_files_once_it_is_approved(stage: Any) -> None:
    """Without this the tests above would also pass with lines that do nothing."""
    trap = Trap(stage)
    decided = await play(stage, trap, sandbox="off", approver=lambda _: True)
    assert {one.decision for one in decided.values()} == {"allow"}
    assert trap.gone(0) == trap.gone(1) == set(LINES)


# -- what curl writes ------------------------------------------------------------------------------------------------


def workflows(ws: Path) -> dict[str, Path]:
    """A protected file for each option, and what the options need."""
    (ws / "other").mkdir()
    (ws / "a").write_text("new\n")
    found = {}
    for place, option in enumerate(CURL):
        name = f"{place}.yml"
        found[option] = ws / ".github" / "workflows" / name
        found[option].parent.mkdir(parents=True, exist_ok=True)
        found[option].write_text("as it was\n")
        (ws / "other" / name).write_text("new\n")
        (ws / f"curlrc-{name}").write_text(f"url = file://{ws}/a\noutput = {found[option]}\n")
    return found


@pytest.mark.parametrize(
    ("sandbox", "approved"), [pytest.param("workspace", False, marks=needs_bubblewrap), ("off", False), ("off", True)]
)
async def test_no_option_of_curl_writes_a_protected_file(stage: Any, sandbox: str, approved: bool) -> None:
    """Approved, every one of them writes: the lines do what they say."""
    ws: Path = stage.ws
    files = workflows(ws)
    lines = []
    for option, line in CURL.items():
        name = files[option].name
        words = line.replace("V", f".github/workflows/{name}").replace("N", name).replace("WS", str(ws))
        lines.append(bash(f"cd {ws}; {words}"))
    played = await stage.play(
        [*lines, {"text": "done"}],
        mode="full",
        sandbox=sandbox,
        strict=False,
        approver=(lambda _: True) if approved else None,
    )
    assert played.result.outcome == outcome(played)
    written = {option for option, file in files.items() if file.read_text() != "as it was\n"}
    decided = dict(zip(CURL, [one.decision for one in played.of(events.ToolDecided)], strict=True))
    if approved:
        assert set(decided.values()) == {"allow"}
        assert written == set(CURL)
    else:
        assert written == set()
        assert sandbox == "workspace" or set(decided.values()) == {"deny"}
