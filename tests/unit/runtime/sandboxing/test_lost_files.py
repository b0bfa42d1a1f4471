"""Which files of the sandbox's own home and /tmp somebody would miss, as a table."""

from __future__ import annotations

import pytest

from leadrope.runtime.sandboxing.lost_files import SLACK_NS, LostFiles, NamedPath, Trace, named_in, read_traces

HOME = "/home/u"
START = 10 * SLACK_NS


def trace(path: str, at: int = START, *, is_folder: bool = False) -> Trace:
    return Trace(path, is_folder, at)


@pytest.mark.parametrize(
    ("text", "path", "is_missed"),
    [
        # A plain file in the home is somebody's work, whoever wrote it.
        ("make report", "/home/u/report.txt", True),
        ("make report", "/home/u/out/deep/report.txt", True),
        # Below a name with a dot, and in caches, programs keep what they like.
        ("npm test", "/home/u/.npm/_cacache/x", False),
        ("go build", "/home/u/go/pkg/mod/x", False),
        ("tool", "/home/u/.config/tool/state.json", False),
        ("tool", "/home/u/.tool-history", False),
        # Unless the command itself names it; a cache never counts.
        ("echo x >> ~/.bashrc", "/home/u/.bashrc", True),
        ('cp a "$HOME/.config/app/a"', "/home/u/.config/app/a", True),
        ("cp a ${HOME}/.config/app/", "/home/u/.config/app/a", True),
        ("cp a /home/u/.config/app", "/home/u/.config/app/a", True),
        ("ls ~/.cache/pip; pip install x", "/home/u/.cache/pip/x", False),
        # In /tmp only what is named.
        ("echo x > /tmp/kept.txt", "/tmp/kept.txt", True),
        ("echo x >'/tmp/kept.txt'", "/tmp/kept.txt", True),
        ("tee /tmp/report-$(date +%F).txt", "/tmp/report-2025-01-01.txt", True),
        ("mkdir -p /tmp/out && cp *.txt /tmp/out", "/tmp/out/a.txt", True),
        ("echo x > /var/tmp/kept", "/var/tmp/kept", True),
        ("pip install x", "/tmp/pip-build-1234/x", False),
        ("node x.js", "/tmp/node-compile-cache/x", False),
        ("cat /tmp/other", "/tmp/other2", False),
        ("ls /tmp/", "/tmp/x", False),
        ("cat ./tmp/x", "/tmp/x", False),
        ("cat a/tmp/x", "/tmp/x", False),
    ],
)
def test_what_is_missed(text: str, path: str, is_missed: bool) -> None:
    found = LostFiles(HOME).of(text, [trace(path)], since_ns=START)
    assert found == ((path,) if is_missed else ())


def test_each_file_is_told_once_and_to_the_command_that_wrote_it() -> None:
    lost = LostFiles(HOME)
    before = trace("/home/u/before", START - 2 * SLACK_NS)
    late = trace("/home/u/late", START - SLACK_NS)  # the kernel's clock for files is coarse
    assert lost.of("a", [before, late], since_ns=START) == ("/home/u/late",)
    assert lost.of("a", [before, late], since_ns=START) == ()


def test_beside_others_only_what_a_command_names_is_its_own() -> None:
    lost = LostFiles(HOME)
    traces = [trace("/home/u/a"), trace("/home/u/b")]
    assert lost.of("echo > ~/a", traces, since_ns=START, others=["sleep 1"]) == ("/home/u/a",)
    assert lost.of("sleep 1", traces, since_ns=START) == ("/home/u/b",)


def test_a_folder_is_told_where_nothing_is_in_it() -> None:
    traces = [trace("/home/u/d", is_folder=True), trace("/home/u/d/x"), trace("/home/u/e", is_folder=True)]
    assert LostFiles(HOME).of("a", traces, since_ns=START) == ("/home/u/d/x", "/home/u/e")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cat ~/a.txt", [NamedPath("/home/u/a.txt", True)]),
        ("cat ~/a/../b", [NamedPath("/home/u/b", True)]),
        ("cat ~/a*", [NamedPath("/home/u/a", False)]),
        ('x="$HOME/a b"', [NamedPath("/home/u/a", True)]),
        ("cd ~", []),
        ("cd ~/", []),
        ("git diff HEAD~/x", []),
        ("cat ~other/a", []),
        ("cat /home/user/a", []),
    ],
)
def test_the_paths_that_a_text_names(text: str, found: list[NamedPath]) -> None:
    assert list(named_in(text, HOME)) == found


def test_a_listing_that_makes_no_sense_is_dropped() -> None:
    listing = b"f 5 /tmp/a\0d 6 /tmp/b c\0x 1 /tmp/x\0f y /tmp/y\0f 1 tmp/z\0f\0\xff\xfe\0f 7 /tmp/\xff\0"
    assert read_traces(listing) == [
        Trace("/tmp/a", False, 5),
        Trace("/tmp/b c", True, 6),
        Trace("/tmp/\udcff", False, 7),
    ]
