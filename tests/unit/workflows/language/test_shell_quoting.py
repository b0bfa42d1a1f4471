"""Values in scripts: each place of a template has its quoting, and a real bash gives back exactly the value."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope.workflows.language import shell_quoting
from leadrope.workflows.language.shell_quoting import Unquotable, filled, refused

BASH = shutil.which("bash") or "bash"


def put(source: str, value: Any = "v") -> str:
    return filled(source, lambda _: value)


@pytest.mark.parametrize(
    ("source", "value", "wanted"),
    [
        ("echo ${x}", "a b", "echo 'a b'"),
        ("echo ${x}", "it's", "echo 'it'\\''s'"),
        ("echo ${x}", "", "echo ''"),
        ("echo ${x}", None, "echo ''"),
        ("echo ${x}", [1, "a"], "echo '[1, \"a\"]'"),
        ("echo ${x}", True, "echo 'true'"),
        ("echo ${x}", 5, "echo 5"),
        ("echo ${x}>f", 2, "echo '2'>f"),
        ("for i in {1..${n}}; do :; done", 3, "for i in {1..3}; do :; done"),
        ("${x} a", "if", "'if' a"),
        ("a=${x}", "$(id)", "a='$(id)'"),
        ('echo "<${x}>"', 'a"$`\\', 'echo "<a\\"\\$\\`\\\\>"'),
        ("echo '<${x}>'", "it's", "echo '<it'\\''s>'"),
        ("echo $'<${x}>'", "it's\\", "echo $'<it\\'s\\\\>'"),
        ("echo a # ${x}\nls", "b\nrm x", "echo a # b rm x\nls"),
        ("echo a#${x}", "b c", "echo a#'b c'"),
        ("echo $# ${x}", "b", "echo $# 'b'"),
        ("cat <<EOF\n${x}\nEOF\n", "$a\\`", "cat <<EOF\n\\$a\\\\\\`\nEOF\n"),
        ("cat <<'EOF'\n${x}\nEOF\n", "$a\\`'", "cat <<'EOF'\n$a\\`'\nEOF\n"),
        ("cat <<A; cat <<'B'\n${x}\nA\n${x}\nB\necho ${x}", "$", "cat <<A; cat <<'B'\n\\$\nA\n$\nB\necho '$'"),
        ("cat <<<${x}", "a b", "cat <<<'a b'"),
        ('echo "$(grep ${x} f)"', "a b", "echo \"$(grep 'a b' f)\""),
        ('echo "$(grep "${x}" f) ${x}"', '"', 'echo "$(grep "\\"" f) \\""'),
        ("echo $(( ${x} + 1 ))", 4, "echo $(( 4 + 1 ))"),
        ("echo $((3-${x}))", -4, "echo $((3-(-4)))"),
        ("(( i = ${x} ))", 4, "(( i = 4 ))"),
        ("a[${x}]=1", 4, "a[4]=1"),
        ("[[ ${x} -gt 3 ]] && echo ${x}", 4, "[[ 4 -gt 3 ]] && echo 4"),
        ("[[ ${x} == a ]]", "b c", "[[ 'b c' == a ]]"),
        ("bash -c 'echo \"$1\"' bash ${x}", "$(id)", "bash -c 'echo \"$1\"' bash '$(id)'"),
        ("a=(${x} b); (cd d && ls ${x})", "c d", "a=('c d' b); (cd d && ls 'c d')"),
        ("case ${x} in a) echo ${x};; esac", "b c", "case 'b c' in a) echo 'b c';; esac"),
        ("echo a \\\n  ${x}", "b c", "echo a \\\n  'b c'"),
        ("echo $${HOME} ${x}", "b", "echo ${HOME} 'b'"),
        ('echo "$${HOME:-"a b"} ${x}"', "$", 'echo "${HOME:-"a b"} \\$"'),
        ("diff <(sort ${x}) b", "a b", "diff <(sort 'a b') b"),
        ("echo $HOME$${x}", "b", "echo $HOME${x}"),
        ("no template", "", "no template"),
    ],
)
def test_each_place_has_its_quoting(source: str, value: Any, wanted: str) -> None:
    assert put(source, value) == wanted


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("echo `ls ${x}`", "a", "`...`"),
        ('eval "${x}"', "a", "eval"),
        ("eval 'a ${x}'", "a", "eval"),
        ("let ${x}", "a", "let"),
        ('bash -c "ls ${x}"', "a", "another shell"),
        ("/bin/sh -ec 'ls ${x}'", "a", "another shell"),
        ("echo $${HOME:-${x}}", "a", "own ${...}"),
        ("echo $${HOME:-'${x}'}", "a", "own ${...}"),
        ("echo $(( ${x} ))", "a[$(id)]", "whole number"),
        ("(( ${x} ))", "a[$(id)]", "whole number"),
        ("a[${x}]=1", "$(id)", "whole number"),
        ("[[ ${x} -eq 1 ]]", "a[$(id)]", "whole number"),
        ("[[ 1 -eq 1 && '${x}' -eq 1 ]]", "a[$(id)]", "whole number"),
        ("test -v ${x}", "a[$(id)]", "variable"),
        ("echo \\${x}", "a", "backslash"),
        ('echo "\\${x}"', "a", "backslash"),
        ("cat <<EOF\n\\${x}\nEOF\n", "a", "backslash"),
        ("cat <<EOF\n${x}\nEOF\n", "a\nEOF\nid", "ends the here-document"),
        ("cat <<EOF\nE${x}F\nEOF\n", "O", "ends the here-document"),
        ("cat <<-EOF\n${x}\nEOF\n", "a\n\tEOF\nid", "tabs"),
        ("cat <<${x}\na\n", "E", "ends a here-document"),
        ("cat <<EOF\n$(ls ${x})\nEOF\n", "a", "here-document"),
        ('echo "$(case a in a) echo;; esac) ${x}"', "a", "case"),
        ("echo ${x}", "a\0b", "NUL"),
        ("((echo a); (echo ${x}))", "b", "(("),
        ('echo "$\\\n(ls ${x})"', "a", "continued"),
        ("echo $(a=(b ${x}); echo c)", "a", "array"),
        ("cat <(a=(b '${x}'); echo c)", "a", "array"),
    ],
)
def test_what_cannot_be_data_is_refused_by_name(source: str, value: Any, why: str) -> None:
    with pytest.raises(Unquotable) as caught:
        put(source, value)
    assert "${x}" in caught.value.message
    assert why in caught.value.message
    assert "`env`" in str(caught.value)


def test_what_no_value_could_mend_is_known_before_anything_runs() -> None:
    assert [name for name, _ in refused("eval ${a}; echo ${b} `${c}`; echo $(( ${d} ))")] == ["${a}", "${c}"]
    assert refused("${whole}") == ()
    assert refused("echo ${broken") == ()


def test_a_script_that_is_one_template_is_told_apart() -> None:
    assert shell_quoting.is_whole(" ${a.b ?? c}\n")
    assert not shell_quoting.is_whole("${a} b")
    assert not shell_quoting.is_whole("$${a}")


PLACES = {
    "a word": "printf '%s\\0' ${x}",
    "between text": "v=p${x}s; v=$${v#p}; printf '%s\\0' \"$${v%s}\"",
    "an assignment": "v=${x}; printf '%s\\0' \"$v\"",
    "an array": "v=(a ${x}); printf '%s\\0' \"$${v[1]}\"",
    "double quotes": "printf '%s\\0' \"${x}\"",
    "single quotes": "printf '%s\\0' '${x}'",
    "ansi quotes": "printf '%s\\0' $'${x}'",
    "a substitution": "v=$(printf '%s.' ${x}); printf '%s\\0' \"$${v%.}\"",
    "a substitution in quotes": 'v="$(printf \'%s.\' "${x}")"; printf \'%s\\0\' "$${v%.}"',
    "two deep": "v=\"$(printf '%s' \"$(printf '%s.' '${x}')\")\"; printf '%s\\0' \"$${v%.}\"",
    "a subshell": "(cd / && printf '%s\\0' ${x})",
    "a here-string": "IFS= read -rd '' v <<<${x}; printf '%s\\0' \"$${v%?}\"",
    "a here-document": "IFS= read -rd '' v <<END_OF_IT\n${x}\nEND_OF_IT\nprintf '%s\\0' \"$${v%?}\"",
    "a quoted here-document": "IFS= read -rd '' v <<'END_OF_IT'\n${x}\nEND_OF_IT\nprintf '%s\\0' \"$${v%?}\"",
    "behind a comment": "# it's \"$(${x}\nprintf '%s\\0' ${x}",
    "a case": "case ${x} in *) printf '%s\\0' ${x} ;; esac",
    "a test": '[[ ${x} == "${x}" ]] && printf \'%s\\0\' "${x}"',
    "a loop": "for v in ${x}; do printf '%s\\0' \"$v\"; done",
    "a function's argument": "f() { printf '%s\\0' \"$1\"; }; f ${x}",
    "an argument of another bash": 'bash -c \'printf "%s\\0" "$1"\' bash ${x}',
    "a continued line": "printf \\\n '%s\\0' \\\n ${x}",
}
NASTY = [
    *(
        "",
        " ",
        "a b",
        "'",
        '"',
        "`id`",
        "$(id)",
        "${HOME}",
        "$HOME",
        "\\",
        "\\\\",
        "\\'",
        "*",
        "?",
        "[a]",
        "~",
        "-n",
        "--",
    ),
    *(
        "a\nb",
        "\n",
        "a\n\n",
        "\t",
        "!",
        "!!",
        "#",
        " # x",
        ";id",
        "|id",
        "&",
        "&& id",
        "> f",
        "< f",
        "()",
        "{a,b}",
        "\r",
    ),
    *(
        "é",
        "日本",
        "\x01",
        "\x7f",
        "'; id #",
        '"; id #',
        "$'\\n'",
        "%s",
        "\\0",
        "\\x41",
        "EOF",
        "END_OF_I",
        "if",
        "A=1",
        "12",
    ),
]


def values(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    pieces = [*NASTY, "a", "b", "'", '"', "$", "\\", "`", "\n", "{", "}", "(", ")"]
    return [*NASTY, *("".join(chance.choices(pieces, k=chance.randint(1, 8))) for _ in range(count))]


@pytest.mark.parametrize("place", PLACES)
def test_a_real_bash_gives_back_exactly_the_value(place: str, fault_count: int) -> None:
    wanted, script = [], []
    for value in values(list(PLACES).index(place), 8 * fault_count):
        script.append(put(PLACES[place], value))
        wanted.append(value)
    done = subprocess.run([BASH], input="\n".join(script).encode(), capture_output=True, check=False)
    found = done.stdout.decode().split("\0")[:-1]
    assert found == wanted, done.stderr.decode()[:400]
    assert done.stderr == b""


class Scripts:
    """Random scripts that bash can read, with templates wherever something may stand."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def one_of(self, *choices: Any) -> str:
        found = self.chance.choice(choices)
        return str(found() if callable(found) else found)

    def word(self, depth: int) -> str:
        flat = ("${x}", "t", "${x}t", "$v", "'a #${x}'", "$'a\\'${x}'", "`echo a`", "$((1+(2)))", "$${v:-'a}'}")
        if depth <= 0:
            return self.one_of(*flat)
        return self.one_of(
            *flat,
            lambda: '"' + self.quoted(depth - 1) + self.quoted(depth - 1) + '"',
            lambda: f"$({self.script(depth - 1)})",
            lambda: f"<({self.script(depth - 1)})",
        )

    def quoted(self, depth: int) -> str:
        inner = f"$({self.script(depth)})" if depth > 0 else "q"
        return self.one_of("${x}", "it's ", "# ", '\\"', "\\\\", inner, '$${v:-"a}"}', "\n", "$((1))", "<<EOF\n")

    def command(self, depth: int) -> str:
        word = self.word
        return self.one_of(
            lambda: f"echo {word(depth)} {word(depth)}",
            lambda: f"v={word(depth)}",
            lambda: f"({self.script(depth - 1)})" if depth > 0 else ":",
            lambda: f"for i in {word(depth)}; do {self.command(depth - 1)}; done" if depth > 0 else ":",
            lambda: f"case {word(depth)} in (a) echo {word(depth)};; *) echo {word(depth)};; esac",
            "cat <<EOF\nit's ${x} $v\nEOF\n:",
            "cat <<'EOF'\n\"`$( ${x}\nEOF\n:",
            lambda: f"[[ {word(depth)} == {word(depth)} ]]",
            ": # it's \" $( ` ${x}\n:",
            lambda: f"echo a \\\n {word(depth)}",
            lambda: f"a=({word(depth)} {word(depth)})",
        )

    def script(self, depth: int) -> str:
        between = self.one_of("; ", "\n", " && ", " | ")
        return between.join(self.command(depth) for _ in range(self.chance.randint(1, 2))) + self.one_of("", "\n", " ")


ATTACKS = [
    *(";canary;", "$(canary)", "`canary`", "'$(canary)'", '"$(canary)"', "\ncanary\n", "x\ncanary\n", "'\ncanary\n'"),
    *("a[$(canary)]", "EOF\ncanary\n", "\nEOF\ncanary\n", ");canary;", "}canary", ";;esac;canary", "';canary;'"),
    *("\\';canary;'", "'\n;canary\n#", "$(canary", "&&canary", "))\ncanary\n((", "a'\"`$(canary)\\\"'`"),
]


@pytest.mark.fault
def test_no_value_runs_in_any_script(tmp_path: Path, fault_count: int) -> None:
    scripts = Scripts(11)
    canary = tmp_path / "canary"
    ran = 0
    for number in range(30 * fault_count):
        source = scripts.script(3)
        attack = ATTACKS[number % len(ATTACKS)]
        try:
            text = put(source, attack)
        except Unquotable:
            continue
        ran += 1
        before = f"canary() {{ echo ran >>{canary}; }}; PATH=/usr/bin:/bin\n"
        subprocess.run([BASH, "-c", before + text], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert not canary.exists(), (source, attack, text)
    assert ran > 10 * fault_count
