"""Which sed and awk texts can start a program."""

from __future__ import annotations

import pytest

from leadrope.policy.programs.awk import judge_awk
from leadrope.policy.programs.sed import judge_sed


@pytest.mark.parametrize(
    "script",
    [
        "p", "1,20p", "$d", "/x/d", "s/a/b/", "s/a/b/g", "s|a|b|gi", "s/a\\/b/c/2p", "/a/,/b/{s/x/y/;p}", "1!G;h;$!d",
        ":a;N;$!ba;s/\\n/ /g", "y/abc/xyz/", "5q", "/^#/d;/^$/d", "1i\\\ntext", "$a end", "\\,x,d", "2~3p",
        "/x/I,+2d", "# e",
        "s/e/e/", "n;d", "", "3,$!d", "s/[a-z]*/X/",
    ],
)  # fmt: skip
def test_plain_sed(script: str) -> None:
    assert judge_sed(script).opaque == ""


@pytest.mark.parametrize(
    "script",
    [
        "e", "1e ls", "s/a/b/e", "s/a/b/ge", "s/a/b/;e ls", "/x/e", "1{e ls\n}", "w f", "s/a/b/w f", "r f", "1!e ls",
        "s,a,b,e",
        "sxaxbxe", "s/a/b", "$!{p;e\n}", "y/a/b/e", "p e", "1,2e", "/a/,/b/e ls", "s/[/]/b/e", "\\xaxe", "W f",
        "R f", "M",
    ],
)  # fmt: skip
def test_sed_that_may_start_or_write(script: str) -> None:
    assert judge_sed(script).opaque


@pytest.mark.parametrize(
    "text",
    [
        "{print $1}", 'NR > 1 && $3 != "" || $2', "BEGIN { x = 1 } END { print x }", "length > 80", "/a|b/",
        '{print "a|b"}', "# system()\n{print}", "$1 ~ /x\\/y/ {print}", "{n = $1 / $2 / 3; print n}",
        "{print (a > b)}", '{print "x" > "/dev/stderr"}', "{if ($1 > 2) print; else print $3}",
        '{print "system(x)"}', "{a[$1]++} END {for (k in a) print k, a[k]}", "{print length($0) / 2}", "{close(f)}",
    ],
)  # fmt: skip
def test_plain_awk(text: str) -> None:
    judged = judge_awk(text)
    assert (judged.opaque, judged.writes) == ("", False)


@pytest.mark.parametrize(
    "text",
    [
        'BEGIN{system("x")}', '{print | "x"}', '{"x" | getline}', "{@f()}", '{print |& "x"}', "{a||| b}",
        'BEGIN{x=1system("x")}', 'BEGIN{x=1.5system("x")}', 'BEGIN{x=0xasystem("x")}', 'BEGIN{"x"|getline y}',
        '@load "x"', '@include "x"', '{a/system("x")/b}', '{print /"/; system("x"); "/"}', '{x++ /"/; system("x") "/"}',
        '/[/]/; system("x") /"/', '{print "a\\"; system("x")}', '{while ((getline line < "f") > 0) n++}',
        '{print "a', "/a", '{print $1/"2"/system("x")}', '{x = 1e2system("x")}', '{f = "system"; @f("x")}',
    ],
)  # fmt: skip
def test_awk_that_may_start(text: str) -> None:
    assert judge_awk(text).opaque


@pytest.mark.parametrize("text", ['{print > "f"}', '{print "a;b",\n$1 >> $2}', '{printf("x") > f}'])
def test_awk_that_writes(text: str) -> None:
    assert judge_awk(text).writes
