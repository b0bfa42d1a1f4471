"""Which scripts are one program with its words, and which only bash can read."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from leadrope.process.command_pool import plain_commands

SIGNS = '$ ` \\ " * ? [a] {a,b} ~ ~x ! ^ & | ; < > ( ) #a =~ a;b a&b $(a)'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("/bin/true", ["/bin/true"]),
        (" git status \n", ["git", "status"]),
        ("ls\t-la  'a b'", ["ls", "-la", "a b"]),
        ("./x --key=a,b:c@d%e+f_1", ["./x", "--key=a,b:c@d%e+f_1"]),
        ("x '' 'a\nb' c'd e'f", ["x", "", "a\nb", "cd ef"]),
        ("x '$HOME' '`a`' '*' '~' 'é'", ["x", "$HOME", "`a`", "*", "~", "é"]),
        ("x true if", ["x", "true", "if"]),
        ("7z a", ["7z", "a"]),
    ],
)
def test_a_program_with_its_words(script: str, words: list[str]) -> None:
    assert plain_commands.words_of(script) == words


@pytest.mark.parametrize(
    "script",
    [
        "",
        " \n",
        "true",
        "time x",
        ". x",
        ": x",
        "a=1 b",
        "a=1",
        "'ls' x",
        "-x",
        "%1",
        "x\ny",
        "x\n\ny",
        "x # comment",
        "x 'open",
        "x 'a\0b'",
        "x é",
        *(f"x {sign}" for sign in SIGNS.split()),
    ],
)
def test_what_only_bash_can_read(script: str) -> None:
    assert plain_commands.words_of(script) is None


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_no_word_of_this_bash_is_taken_for_a_program() -> None:
    listed = subprocess.run(["bash", "-c", "compgen -bk"], capture_output=True, text=True, check=True).stdout.split()
    assert "read" in listed
    assert [word for word in listed if plain_commands.words_of(f"{word} x") is not None] == []


def test_variables_that_bash_acts_on() -> None:
    assert not plain_commands.is_read_by_bash(["PATH", "HOME", "LANG", "SHELL", "MY_PWD", "EDITOR"])
    for name in ("BASH_ENV", "BASH_FUNC_ls%%", "SHELLOPTS", "PWD", "OLDPWD", "SHLVL", "_", "IFS"):
        assert plain_commands.is_read_by_bash(["PATH", name]), name
