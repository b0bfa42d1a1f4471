"""The one grammar of tool patterns: what each form covers, what it touches, and which ones are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.tools import KNOWN_TOOLS, ToolCall
from leadrope.policy import hosts, paths, patterns
from leadrope.policy.call_analysis import Look

GROUND = paths.Ground(("/ws",), home="/home/me", resolve=os.path.normpath)


def look(name: str, **input_: Any) -> Look:
    return Look(ToolCall(id="t", name=name, input=input_), GROUND)


def bash(command: str) -> Look:
    return look("Bash", command=command)


@pytest.mark.parametrize(
    ("pattern", "command", "touches", "admits"),
    [
        ("Bash", "anything at all", "yes", True),
        ("Bash(*)", 'eval "$X"', "yes", True),
        ("Bash(git push *)", "git push", "yes", True),
        ("Bash(git push *)", "git push origin main", "yes", True),
        ("Bash(git push *)", "git  push", "yes", True),
        ("Bash(git push *)", "git pushx", "no", False),
        ("Bash(git push *)", "git stash push", "no", False),
        ("Bash(git push)", "git push", "yes", True),
        ("Bash(git push)", "git push origin", "no", False),
        ("Bash(npm run test:?*)", "npm run test:unit", "yes", True),
        ("Bash(npm run test:?*)", "npm run deploy", "no", False),
        ("Bash(git commit -m 'a b')", "git commit -m 'a b'", "yes", True),
        ("Bash(git push *)", "ls && git push", "yes", False),
        ("Bash(git push *)", "echo $(git push)", "yes", False),
        ("Bash(git push *)", "sudo git push", "yes", False),
        ("Bash(git push *)", "bash -c 'git push'", "yes", False),
        ("Bash(git push *)", "git push > log.txt", "yes", False),
        ("Bash(git push *)", "git push 2> /dev/null", "yes", True),
        ("Bash(git push *)", "/usr/bin/git push", "yes", False),
        ("Bash(git push *)", "./git push", "yes", False),
        ("Bash(git push *)", "git $WORD", "maybe", False),
        ("Bash(git push *)", "git push $BRANCH", "yes", False),
        ("Bash(ls)", "ls $X", "maybe", False),
        ("Bash(text:drop table)", "psql -c 'DROP   TABLE users'", "yes", False),
        ("Bash(text:drop table)", "psql -c 'select 1'", "no", False),
        ("Write", "ls", "no", False),
    ],
)
def test_a_command_pattern(pattern: str, command: str, touches: str, admits: bool) -> None:
    parsed = patterns.parse(pattern)
    assert parsed.touches(bash(command)) == touches
    assert parsed.admits(bash(command)) is admits


def test_a_rule_for_bash_holds_for_every_tool_with_a_line_for_bash() -> None:
    assert patterns.parse("Bash(git push *)").touches(look("Monitor", command="git push")) == "yes"
    assert patterns.parse("Bash").touches(look("Monitor", command="ls")) == "yes"
    assert not patterns.parse("Bash").admits(look("Monitor", command="ls"))


def test_a_line_is_admitted_when_each_of_its_programs_is() -> None:
    entries = ("Bash(git *)", "Bash(ls)", "Read")
    assert patterns.admitted(entries, bash("git status && ls"))
    assert not patterns.admitted(entries, bash("git status && ls -l"))
    assert not patterns.admitted(entries, bash('git status; eval "$X"'))
    assert not patterns.admitted(entries, bash(""))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("Write(src/**)", "/ws/src/a/b.py", True),
        ("Write(src/**)", "src/a.py", True),
        ("Write(src/**)", "/ws/srcs/a.py", False),
        ("Write(src/**)", "/ws/lib/src/a.py", False),
        ("Write(src/**)", "/ws/src/../etc/a.py", False),
        ("Write(src/*)", "/ws/src/a.py", True),
        ("Write(src/*)", "/ws/src/a/b.py", False),
        ("Write(**/*.py)", "/ws/a.py", True),
        ("Write(**/*.py)", "/ws/x/y/a.py", True),
        ("Write(*.py)", "/ws/x/a.py", False),
        ("Write(./a.py)", "/ws/a.py", True),
        ("Write(a.py)", "/elsewhere/a.py", False),
        ("Write(a.py)", "/ws/A.py", False),
        ("Write(docs/)", "/ws/docs/x/y", True),
        ("Write(a?.txt)", "/ws/ab.txt", True),
        ("Write(a[!b].txt)", "/ws/ab.txt", False),
        ("Write(a[bc].txt)", "/ws/ab.txt", True),
        ("Write(a.b)", "/ws/axb", False),
        ("Write(/etc/**)", "/etc/hosts", True),
        ("Write(/**)", "/anything", True),
        ("Write(~/.ssh/**)", "/home/me/.ssh/id", True),
        ("Write(~/.ssh/**)", "~/.ssh/id", True),
        ("Read(src/**)", "/ws/src/a.py", False),
    ],
)
def test_a_path_pattern(pattern: str, path: str, matches: bool) -> None:
    parsed = patterns.parse(pattern)
    assert (parsed.touches(look("Write", file_path=path)) == "yes") is matches
    assert parsed.admits(look("Write", file_path=path)) is matches


def test_a_link_is_touched_by_either_spelling_and_admitted_only_by_both(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src/out").symlink_to("/etc")
    here = paths.Ground((str(workspace),), home="/home/me")
    seen = Look(ToolCall(id="t", name="Write", input={"file_path": "src/out/hosts"}), here)
    assert patterns.parse("Write(src/**)").touches(seen) == "yes"
    assert patterns.parse("Write(/etc/**)").touches(seen) == "yes"
    assert not patterns.parse("Write(src/**)").admits(seen)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        (".git/", "/ws/.git/hooks/x", True),
        (".git/", "/ws/.git", True),
        (".git/", "/ws/sub/.git/config", True),
        (".git/", "/other/.git/config", True),
        (".git/", "/ws/.GIT/config", True),
        (".git/", "/ws/.github/x", False),
        (".git/", "/ws/a.git/x", False),
        ("*.pem", "/ws/deep/er/key.pem", True),
        (".github/workflows/", "/ws/.github/workflows/ci.yml", True),
        (".github/workflows/", "/ws/sub/.github/workflows/ci.yml", False),
        (".github/workflows/", "/other/.github/workflows/ci.yml", True),
        ("leadrope.toml", "/ws/sub/leadrope.toml", True),
        ("/etc/", "/etc/passwd", True),
    ],
)
def test_entries_of_path_lists_float(pattern: str, path: str, matches: bool) -> None:
    assert paths.glob(pattern, floating=True).matches(path, GROUND) is matches


def test_a_workspace_inside_of_a_protected_folder_is_not_protected_itself() -> None:
    ground = paths.Ground(("/home/me/.claude/worktrees/x",), home="/home/me", resolve=os.path.normpath)
    glob = paths.glob(".claude/", floating=True)
    assert not glob.matches("/home/me/.claude/worktrees/x/a.py", ground)
    assert glob.matches("/home/me/.claude/worktrees/x/.claude/settings.json", ground)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.com/x", "example.com"),
        ("http://example.com.:8080/", "example.com"),
        ("https://example.com@evil.test/", "evil.test"),
        ("https://[::1]/", "::1"),
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://127.1/", None),
        ("http://0x7f000001/", None),
        ("http://example.com\\@evil.test/", None),
        ("http://exa mple.com/", None),
        ("http://exam\tple.com/", None),
        ("http://exämple.com/", None),
        ("http://example.com:99999/", None),
        ("ftp://example.com/", None),
        ("example.com", None),
        ("", None),
        (None, None),
    ],
)
def test_the_host_of_an_address(url: object, host: str | None) -> None:
    assert hosts.host_of(url) == host


@pytest.mark.parametrize(
    ("pattern", "url", "touches", "admits"),
    [
        ("WebFetch(domain:example.com)", "https://example.com/a", "yes", True),
        ("WebFetch(domain:example.com)", "https://a.example.com/", "yes", False),
        ("WebFetch(domain:*.example.com)", "https://a.example.com/", "yes", True),
        ("WebFetch(domain:*.example.com)", "https://example.com/", "no", False),
        ("WebFetch(domain:example.com)", "https://notexample.com/", "no", False),
        ("WebFetch(domain:example.com)", "http://127.1/", "yes", False),
        ("WebFetch", "anything", "yes", True),
    ],
)
def test_a_host_pattern(pattern: str, url: str, touches: str, admits: bool) -> None:
    parsed = patterns.parse(pattern)
    assert parsed.touches(look("WebFetch", url=url)) == touches
    assert parsed.admits(look("WebFetch", url=url)) is admits


@pytest.mark.parametrize(
    ("pattern", "tool", "matches"),
    [
        ("mcp__github", "mcp__github__get_issue", True),
        ("mcp__github__*", "mcp__github__get_issue", True),
        ("mcp__github__get_*", "mcp__github__get_issue", True),
        ("mcp__github__get_*", "mcp__github__delete", False),
        ("mcp__github", "mcp__githubx__get", False),
        ("mcp__*", "mcp__any__thing", True),
        ("mcp__github__get_issue", "mcp__github__get_issue", True),
        ("mcp__github__get_issue", "mcp__github__get_issues", False),
        ("mcp__github__get_issue", "mcp__a__mcp__github__get_issue", False),
        ("Agent", "Task", True),
        ("Task", "Agent", True),
        ("SomethingNew", "SomethingNew", True),
    ],
)
def test_a_pattern_of_names(pattern: str, tool: str, matches: bool) -> None:
    parsed = patterns.parse(pattern)
    assert (parsed.touches(look(tool)) == "yes") is matches
    assert parsed.admits(look(tool)) is matches


@pytest.mark.parametrize(
    ("pattern", "told", "suggested"),
    [
        ("", "is not a tool pattern", "Bash(git push *)"),
        ("bash", "there is no tool 'bash'", "Did you mean Bash?"),
        ("Bsh(git *)", "there is no tool 'Bsh'", "Did you mean Bash(git *)?"),
        ("rm -rf", "is not a tool pattern", "Bash(git push *)"),
        ("rm", "is not a tool pattern", "Bash(git push *)"),
        ("Bash()", "the parentheses are empty", "Write Bash for"),
        ("Bash( )", "the parentheses are empty", "Write Bash for"),
        ("Bash(git", "is not a tool pattern", "Close the parenthesis."),
        ("Bash(git) x", "is not a tool pattern", "Bash(git push *)"),
        ("Bash(git:*)", "`:*` is not supported here", "Write Bash(git *)."),
        ("Bash(ls | sh)", "each program of a line is compared on its own", "one pattern per program"),
        ("Bash(ls; rm)", "each program of a line is compared on its own", "one pattern per program"),
        ("Bash(src/**)", "a path stands where a program belongs", "Bash(git push *)"),
        ("Bash(* push)", "names no program", "program first"),
        ("Bash(echo 'x)", "is not readable", "Close the quote."),
        ("Bash(text: )", "text: is empty", "Bash(text:DROP TABLE)"),
        ("Agent(src/**)", "Agent takes no parentheses", "Write Agent."),
        ("SomethingNew(x)", "takes no parentheses", "Write SomethingNew."),
        ("WebFetch(example.com)", "is limited by a host", "Write WebFetch(domain:example.com)."),
        ("WebFetch(https://example.com/a)", "is limited by a host", "Write WebFetch(domain:example.com)."),
        ("WebFetch(domain:https://example.com)", "is an address, not a host", "Write example.com."),
        ("WebFetch(domain:example.com:443)", "names a port", "Write example.com;"),
        ("WebFetch(domain:)", "is not a host", "example.com"),
        ("Write(domain:example.com)", "takes a path", "Write Write(src/**)."),
        ("Write(../x)", "can never match", "from / or ~/ on"),
        ("Write(a//b)", "can never match", "Write a/b."),
        ("Write(a\\b)", "holds a backslash", "a/b"),
        ("Write(!a)", "cannot be turned around", "List what is meant."),
        ("Write(~you/a)", "another user's home", "~/"),
        ("mcp__", "is not an MCP tool", "mcp__SERVER__TOOL"),
        ("mcp__github(x)", "takes no parentheses", "Write mcp__github, or mcp__github__*."),
    ],
)
def test_a_pattern_that_cannot_match_is_refused_with_a_suggestion(pattern: str, told: str, suggested: str) -> None:
    with pytest.raises(errors.BadValue) as refused:
        patterns.parse(pattern)
    assert told in refused.value.message
    assert suggested in (refused.value.hint or "")


def test_every_known_tool_can_be_named() -> None:
    assert [name for name in KNOWN_TOOLS if not patterns.is_tool_pattern(name)] == []


@pytest.mark.parametrize(
    ("entry", "is_tool"),
    [
        ("rm", False),
        ("git push", False),
        ("text:DROP TABLE", False),
        ("Rscript", False),
        ("Bash", True),
        ("Bash(rm *)", True),
        ("Bsh(rm *)", True),
        ("mcp__a", True),
        ("docker rm", False),
    ],
)
def test_a_mixed_list_tells_tools_from_commands(entry: str, is_tool: bool) -> None:
    assert patterns.is_tool_pattern(entry) is is_tool


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("Write(a/**/b/**/c.py)", "a/b/c.py", True),
        ("Write(a/**/b/**/c.py)", "a/x/b/y/z/c.py", True),
        ("Write(a/**/b/**/c.py)", "a/b/x/b/c.py", True),
        ("Write(a/**/b/**/c.py)", "a/c.py", False),
        ("Write(**/b/*/d)", "a/b/b/c/d", True),
        ("Write(**/b/*/d)", "a/b/c/e/d", False),
        ("Write(**/b/c/**/d)", "b/b/c/d", True),
        ("Write(*a*b*c)", "xaxbxc", True),
        ("Write(*a*b*c)", "xbxaxc", False),
        ("Write(*ab*ab)", "abab", True),
        ("Write(*ab*ab)", "ab", False),
        ("Write(**/**/x)", "x", True),
    ],
)
def test_stars(pattern: str, path: str, matches: bool) -> None:
    assert patterns.parse(pattern).admits(look("Write", file_path=path)) is matches


def test_a_pattern_with_many_stars_stays_cheap() -> None:
    """A stranger's file may hold it, and a stranger's call may name the path."""
    glob = paths.glob("**/" * 20 + "*a" * 20 + "b/**/" + "x/**/" * 10 + "end", floating=True)
    assert not glob.matches("/ws/" + "a" * 200 + "/x" * 1800, GROUND)
    assert look("Write", file_path="a/" * 5000).paths == ()
