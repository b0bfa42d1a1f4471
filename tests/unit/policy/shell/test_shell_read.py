"""Which programs a command line is read to start, with which words, through what, and where; and what stays opaque."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from leadrope.policy.commands import risk
from leadrope.policy.shell.reader import Program, read


def programs(command: str) -> list[str]:
    reading = read(command)
    assert reading.opaque == (), command
    return [" ".join(word if word is not None else "?" for word in program.words) for program in reading.programs]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls", ["ls"]),
        ("ls -la; pwd && date || true", ["ls -la", "pwd", "date", "true"]),
        ("cat a | sort | uniq -c", ["cat a", "sort", "uniq -c"]),
        ("e'v'i\"l\"", ["evil"]),
        (r"e\vil", ["evil"]),
        (r"$'\x65vil'", ["evil"]),
        ("echo 'a b' \"c $x\" d\\ e *.py", ["echo a b ? d e *.py"]),
        ("echo $(date)", ["echo ?", "date"]),
        ('echo "${x:-$(date)}"', ["echo ?", "date"]),
        ("cat <(date) > out.txt", ["cat ?", "date"]),
        ("cat <<EOF\n$(date)\nEOF", ["cat", "date"]),
        ("cat <<'EOF'\n$(date)\nEOF", ["cat"]),
        ("cat <<EOF | sort && pwd\nx\nEOF", ["cat", "sort", "pwd"]),
        ("if ls; then pwd; elif date; then id; else who; fi", ["ls", "pwd", "date", "id", "who"]),
        ('for f in *; do wc "$f"; done', ["wc ?"]),
        ('while read -r x; do echo "$x"; done < f', ["read -r x", "echo ?"]),
        ("case $x in a) ls;; *) pwd;; esac", ["ls", "pwd"]),
        ("greet() { echo hi; }; greet", ["echo hi", "greet"]),
        ("(cd a; ls)", ["cd a", "ls"]),
        ("! grep -q x f", ["grep -q x f"]),
        ("> out.txt ls -la", ["ls -la"]),
        ("ls > out.txt -la", ["ls -la"]),
        ("X=1 Y=2 ls", ["ls"]),
        ("bash -c 'ls; pwd'", ["bash -c ls; pwd", "ls", "pwd"]),
        ("sh -c \"sh -c 'ls'\"", ["sh -c sh -c 'ls'", "sh -c ls", "ls"]),
        ("trap 'rm -f x' EXIT; ls", ["trap rm -f x EXIT", "rm -f x", "ls"]),
        ("python -m pytest -q", ["python -m pytest -q", "pytest -q"]),
        ("ls \\\n  -la", ["ls -la"]),
        ("# nothing", []),
        ("", []),
    ],
)
def test_programs(command: str, expected: list[str]) -> None:
    assert programs(command) == expected


@pytest.mark.parametrize(
    ("command", "inner", "wrappers"),
    [
        ("env A=1 nice -n 5 timeout 3 evil", ("evil",), ("env", "nice", "timeout")),
        ("sudo -u root rm x", ("rm", "x"), ("sudo",)),
        ("nohup evil", ("evil",), ("nohup",)),
        ("command exec evil", ("evil",), ("command", "exec")),
        ("time -p evil", ("evil",), ("time",)),
        ("busybox rm x", ("rm", "x"), ("busybox",)),
        ("find . -name '*.o' -exec rm {} +", ("rm", None), ("find",)),
        ("ls | xargs -n1 rm -f", ("rm", "-f", None), ("xargs",)),
        ("ls | xargs -I{} mv {} old.txt", ("mv", None, "old.txt"), ("xargs",)),
        ("/usr/bin/env /bin/rm x", ("/bin/rm", "x"), ("env",)),
        ("npx tsc --noEmit", ("tsc", "--noEmit"), ("npx",)),
        ("uv run pytest", ("pytest",), ("uv",)),
    ],
)
def test_wrappers(command: str, inner: tuple[str | None, ...], wrappers: tuple[str, ...]) -> None:
    reading = read(command)
    assert reading.opaque == ()
    assert reading.programs[-1] == Program(inner, wrappers)


@pytest.mark.parametrize(
    ("command", "cwd"),
    [
        ("ls", None),
        ("cd /srv; ls", "/srv"),
        ("cd a && cd b && ls", "a/b"),
        ("cd /a/../b; ls", "/b"),
        ("cd; ls", "~"),
        ("cd $x; ls", "?"),
        ("cd -; ls", "?"),
        ("(cd /a); ls", None),
        ("if true; then cd /a; fi; ls", "?"),
        ("cd /a | true; ls", None),
        ("cd $HOME/x; ls", "~/x"),
    ],
)
def test_where_a_program_runs(command: str, cwd: str | None) -> None:
    assert read(command).programs[-1].cwd == cwd


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("$x", "name is not known"),
        ("ev*", "name is not known"),
        ("eval ls", "eval"),
        ("source x.sh", "source"),
        (". x.sh", "source"),
        ("curl -s x | sh", "reads from its input"),
        ('bash -c "$x"', "not known"),
        ("awk 'BEGIN { system(\"x\") }'", "awk"),
        ("sed '1e ls' f", "sed"),
        ("if then", "cannot be read"),
        ("ls \x07", "control"),
        ("ls \u202e", "invisible"),
        ("ls \ud800", "Unicode"),
        ("ev\\\nil", "continues inside a word"),
        ("x" * 20_001, "20 kB"),
        ("true;" * 201, "200 commands"),
        ("a|" * 2001, "2,000 signs"),
        ("function a " * 201, "2,000 signs"),
        ("( " * 200 + "ls" + " )" * 200, "deeply"),
        ("ls() { pwd; }", "another program"),
        ("alias ls=rm", "alias"),
        ("PATH=. ls", "PATH"),
        ("LD_PRELOAD=x ls", "LD_PRELOAD"),
        ("x='a[$(ls)]'; echo $((x))", "arithmetic"),
        ("test -v 'a[$(ls)]'", "test"),
        ("echo ${x@P}", "expansion"),
        ("echo ${!x}", "expansion"),
        ("git -c core.pager=x log", "git"),
        ("git rebase -x ls", "git"),
        ("tar cf x --to-command=ls y", "tar"),
        ("make SHELL=ls", "make"),
        ("npm exec ls", "npm"),
        ("env -S 'ls -la'", "env"),
        ("find . $x ls", "find"),
        ("sort --compress-prog ls", "sort"),
        ("cp a /usr/local/bin/ls", "where programs are started from"),
        ("sh -c '[[ a || ls ]]'", "only bash"),
        ("zsh -c ls", "grammar is not known"),
        ("ssh host ls", "ssh"),
        ("cat <<A <<B\nx\nA\ny\nB", "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_opaque_with_its_reason(command: str, reason: str) -> None:
    opaque = read(command).opaque
    assert any(reason in why for why in opaque), opaque


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("bash x.sh", "content is not known"),
        ("python -c 'print(1)'", "python"),
        ("python", "reads from its input"),
        ("FOO=bar make", "FOO"),
        ("frobnicate rm", "not known here"),
        ("ls | frobnicate", "what it is given"),
        ("git x", "alias"),
        ("echo x > a.py; python a.py", "after files"),
        ('cp "$a" "$b"; ls', "place that is not known"),
        ("gradle test", "gradle is not known here"),
        ("terraform plan -out x", "terraform"),
        ("julia x.jl", "julia"),
        ("node -e 'x()'", "node"),
        ("deno eval 'x()'", "deno"),
        ("deno repl --eval 'x()'", "deno"),
        ("deno run -A https://example.com/x.ts", "deno"),
        ("deno run npm:cowsay", "deno"),
        ("deno jupyter", "deno"),
        ("bun x cowsay", "bun"),
        ("bun exec 'rm x'", "bun"),
        ("bun repl", "bun"),
        ("python3 - <<EOF\nprint(1)\nEOF", "python"),
        ("bash run.sh", "content is not known"),
        ("curl -s x | python3", "reads from its input"),
        ("pip --frobnicate install x", "pip"),
        ("git lfs pull", "git lfs"),
        ("npm frobnicate", "npm frobnicate"),
    ],
)  # fmt: skip
def test_a_program_that_is_named_but_not_known_leaves_the_list_of_programs_complete(command: str, reason: str) -> None:
    reading = read(command)
    assert reading.opaque == ()
    assert any(reason in why for why in reading.unknown), reading.unknown
    assert not reading.is_clean


@pytest.mark.parametrize(
    "command",
    [
        *("deno test", "deno task build", "deno run x.ts", "deno run -A --allow-net=a.org src/x.ts y", "deno x.js"),
        *("bun test", "bun install", "bun run build", "bun run test:unit", "bun src/x.ts", "bun run src/x.tsx"),
    ],
)
def test_a_script_of_the_project_is_known(command: str) -> None:
    assert read(command).is_clean


@pytest.mark.parametrize("code", [*range(9), *range(0xB, 0x20), *range(0x7F, 0xA0)])
def test_no_control_character_is_read(code: int) -> None:
    assert read(f"ls {chr(code)}a").opaque == ("control or invisible characters",)


@pytest.mark.parametrize(
    "char",
    "\u00ad\u034f\u061c\u180b\u180e\u200b\u200d\u200e\u2028\u202a\u202e\u2060\u2066\u3164\ufeff\U000e0041\U000e0101",
)
def test_no_invisible_character_is_read(char: str) -> None:
    assert read(f"ls a{char}b").opaque == ("control or invisible characters",)


def test_opaque_readings_still_name_what_is_seen() -> None:
    assert ("rm", "-rf", "/") in [program.words for program in read("eval 'rm -rf /'").programs]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls > a.txt 2>&1", ("a.txt",)),
        ("ls >> a 2>/dev/null", ("a",)),
        ("cd sub && ls > a.txt", ("sub/a.txt",)),
        ("ls > $x", ("?",)),
        ("ls | tee a b", ("a", "b")),
        ("cp a b", ("b", "b/a")),
        ("dd if=a of=/dev/sda", ("/dev/sda",)),
        ("sed -i s/a/b/ f", ("f",)),
        ("ls < a", ()),
    ],
)
def test_writes(command: str, expected: tuple[str, ...]) -> None:
    assert read(command).writes == expected


def test_the_parser_is_loaded_with_the_first_command_only() -> None:
    code = (
        "import sys; from leadrope.policy import commands; from leadrope.policy.shell import reader;"
        "assert 'tree_sitter' not in sys.modules; reader.read('ls'); assert 'tree_sitter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "text",
    ["(" * 20_000, "$(" * 10_000, "a;" * 10_000, "a|" * 9_999 + "a", ">a " * 6_000, "a && " * 3_999 + "a",
     "{a," * 6_000, "[[ a ]] &&" * 1_900 + " a",
     "`" * 20_000, "<<a " * 5_000, '"$(' * 6_000, "x=" * 10_000, "! " * 9_999 + "a",
     "a|" * 9_999, ")" * 19_999, "$[" * 9_999, "a=(" * 6_000, "function a " * 1_800, "a | #\n" * 3_000, "x" * 19_999,
     "a() { a" * 2_000, "x" * 1_000_000, "/" * 19_999, "rm " + "*/" * 9_000],
)  # fmt: skip
def test_no_text_keeps_the_reader_for_long(text: str) -> None:
    """A gate that can be held up by a text is a gate that can be taken down by one."""
    began = time.perf_counter()
    risk(read(text))
    assert time.perf_counter() - began < 2


def test_a_typical_command_is_read_in_a_millisecond() -> None:
    """The bound is ten times wider than the target, for machines under load; bench/ gives the figures."""
    took = []
    for place in range(50):
        began = time.perf_counter()
        read(f"cd src && git status --short | head -{place} && pytest -q tests/test_{place}.py 2>&1 | tail -20")
        took.append(time.perf_counter() - began)
    assert sorted(took)[25] < 0.01


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("true;" * 200, ""),
        ("true;" * 201, "over 200 commands"),
        ("ls " + "a" * 19_997, ""),
        ("ls " + "a" * 19_998, "over 20 kB"),
        ("echo '" + "$" * 2_000 + "'", ""),
        ("echo '" + "$" * 2_001 + "'", "over 2,000 signs of the shell"),
        ("echo '" + "|" * 1_000 + "(" * 1_001 + "'", "over 2,000 signs of the shell"),
        ("cat <<E\nx\nE\n" * 50, ""),
        ("cat <<E\nx\nE\n" * 51, "over 50 here-documents"),
        ("cat <<<x\n" * 51, "over 50 here-documents"),
        ("( " * 59 + "ls" + " )" * 59, ""),
        ("( " * 60 + "ls" + " )" * 60, "nested too deeply"),
        ("echo $(" * 59 + "ls" + ")" * 59, ""),
        ("echo $(" * 60 + "ls" + ")" * 60, "nested too deeply"),
    ],
    ids=[
        *("200 commands", "201 commands", "20,000 bytes", "20,001 bytes", "2,000 signs", "2,001 signs", "mixed signs"),
        *("50 here-documents", "51 here-documents", "51 here-strings"),
        *("59 levels", "60 levels", "59 substitutions", "60 substitutions"),
    ],
)
def test_limits_are_stated(text: str, reason: str) -> None:
    found = read(text)
    assert found.opaque == ((reason,) if reason else ())
    assert found.is_clean == (not reason)
