"""Command patterns against every spelling of what they mean, the destructive family, and the level of risk."""

from __future__ import annotations

import pytest

from leadrope.policy.commands import CommandPattern, is_destructive, risk
from leadrope.policy.shell.reader import read


def found(pattern: str, command: str) -> bool:
    return CommandPattern.parse(pattern).found_in(read(command))


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        *[
            ("rm -rf /", command)
            for command in (
                "rm -rf /", "rm  -rf   /", "rm -fr /", "rm -r -f /", "rm -r -f -- /", "rm --recursive --force /",
                "rm -Rf /",
                "rm --rec --fo /", "rm / -rf", "rm -rf //", "rm -rf /./", "rm -rf /tmp/..", "rm -rf /*", "rm -rfv /",
                "/bin/rm -rf /",
                "cd / && rm -rf *", "cd / && rm -rf .", "cd /tmp && rm -rf ..", "sudo rm -rf /",
                "bash -c 'rm -rf /'", "r'm' -rf /",
                "busybox rm -rf /", "rm -rf a b /", "env X=1 nice rm -rf '/'", "true; ( rm -rf / )", "echo $(rm -rf /)",
                "rm -rf --no-preserve-root /", "\\rm -rf /", "find . -exec rm -rf / \\;", "eval 'rm -rf /'",
                "rm -rf ~/../..",
            )
        ],
        ("rm", "rm x"), ("rm", "/usr/bin/rm x"), ("rm", "ls | xargs rm"), ("rm", "find . -exec rm {} +"),
        ("rm -rf ~", "rm -rf $HOME"), ("rm -rf ~", 'rm -rf "$HOME"/'), ("rm -rf ~", "cd && rm -rf ."),
        ("rm -rf ~", "rm -rf ~/*"),
        ("git push", "git push"), ("git push", "git push origin main"), ("git push", "git -C x push"),
        ("git push", "git --git-dir x push"), ("git push", "git -c a=b push -u origin main"),
        ("git push *", "git push origin"),
        ("git push --force", "git push -f"), ("git push --force", "git push origin +main"),
        ("git push -f", "git push --force"),
        ("git push --force", "git push --force-with-lease"),
        ("git push --force", "git push --force-with-lease=main origin main"),
        ("git push --force", "git push -uf origin main"), ("git push --force", "git push --mirror"),
        ("git push --delete", "git push origin :main"), ("git push --delete", "git push origin -d main"),
        ("docker rm", "docker rm -f x"), ("docker rm", "docker --context x rm y"),
        ("kubectl delete", "kubectl -n prod delete pod x"),
        ("npm publish", "npm publish --tag next"), ("git push origin release/*", "git push origin release/1.0"),
        ("text:DROP TABLE", "psql -c 'drop   table users'"), ("text:drop table", 'echo "DROP\nTABLE x" | sqlite3 a.db'),
        ("TEXT:drop table", "psql -c 'DROP TABLE x'"),
        ("sudo", "sudo ls"), ("./deploy.sh", "./deploy.sh prod"),
    ],
)  # fmt: skip
def test_a_pattern_is_found_in_every_spelling(pattern: str, command: str) -> None:
    assert found(pattern, command)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("rm", "npm test"), ("rm", "echo rm"), ("rm", "rmdir x"), ("rm", "RM x"), ("rm", "ls rm"), ("rm", "git rm x"),
        ("rm -rf /", "rm -rf /tmp/x"), ("rm -rf /", "rm -rf build"), ("rm -rf /", "rm /"),
        ("rm -rf /", "echo rm -rf /"),
        ("rm -rf /", "cd /srv && rm -rf *"), ("rm -rf /", "rm -rf ./"),
        ("git push", "git commit -m push"), ("git push", "git stash push"), ("git push", "git log push"),
        ("git push", "echo git push"),
        ("git push --force", "git push"), ("git push --force", "git push origin main"),
        ("git push --delete", "git push origin a:b"),
        ("docker rm", "docker run --rm x"), ("docker rm", "docker rmi x"), ("text:DROP TABLE", "echo drop a table"),
        ("./deploy.sh", "./other.sh"), ("git push origin release/*", "git push origin main"),
    ],
)  # fmt: skip
def test_a_pattern_is_not_found_in_what_only_looks_alike(pattern: str, command: str) -> None:
    assert not found(pattern, command)


def test_words_that_are_not_known_match_nothing_but_may() -> None:
    pattern = CommandPattern.parse("rm -rf /")
    (program,) = read('rm -rf "$x"').programs
    assert not pattern.matches(program)
    assert pattern.may_match(program)
    assert not pattern.may_match(read("rm -rf build").programs[0])
    assert not pattern.may_match(read('ls "$x"').programs[0])
    unknown = read("$x -rf /")
    assert unknown.opaque
    assert not pattern.found_in(unknown)
    assert pattern.may_match(unknown.programs[0])


@pytest.mark.parametrize("name", ["cp", "mv", "ln", "wget", "gzip", "unzip", "patch", "install", "split"])
def test_a_program_that_writes_can_be_named(name: str) -> None:
    """They could not, once: what they write when they stand alone was taken for a redirection."""
    pattern = CommandPattern.parse(name)
    assert pattern.found_in(read(f"/usr/bin/{name} a b"))
    assert not pattern.found_in(read("ls a b"))


@pytest.mark.parametrize("source", ["", "text:", "ls; rm", "ls | rm", "$x", "rm $x", "rm > f", "rm `ls`", "if"])
def test_what_is_no_pattern_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        CommandPattern.parse(source)


DESTRUCTIVE = [
    "rm -rf /", "rm -fr /", "rm -r -f -- /", "rm --recursive --force //", "rm -rf /./", "rm -rf /tmp/..", "rm -rf ~",
    "rm -rf $HOME",
    'rm -rf "${HOME}"', "rm -rf ~/", "rm -rf ~/..", "cd / && rm -rf *", "cd && rm -rf .", "rm -r /etc",
    "rm -rf /usr /var", "rm -rf /home/me",
    "sudo rm -rf /*", "find / -delete", "find ~ -type f -delete", "find / -exec rm -rf {} +",
    "find /etc -print0 | xargs -0 rm; find / -delete",
    "dd if=/dev/zero of=/dev/sda", "mkfs.ext4 /dev/sda1", "mkfs -t ext4 /dev/sda", "wipefs -a /dev/sda",
    "shred /dev/nvme0n1",
    "cat x > /dev/sda", "echo > /etc/passwd", "chmod -R 777 /", "chown -R me /usr", "chmod --recursive 000 /etc",
    "mv / /tmp/x", "mv ~ x",
    ":(){ :|:& };:", ":() { : | : & } ; :", "bomb() { bomb | bomb & }; bomb", "f(){ f & }; f", "kill -9 -1",
    "function f { f | f & }; f", "function f() { f | f & }; f", "f(){ f|f; }; f", "f() { f |& f; }; f",
    "f() ( f & f ); f", "bash -c 'f(){ f|f& };f'", "cd / && find -delete", "cd / && find -L -type f -delete",
    "rm -rf /*/", "rm -rf /**", "rm -rf ~root", "rsync -a --delete empty/ /", "rsync -a --del empty/ ~/",
    "echo x | tee /dev/sda",
    "bash -c 'rm -rf /'", "timeout 5 env rm -rf /", "cp x /dev/sda", "rm --no-preserve-root -r x", "eval 'rm -rf ~'",
]  # fmt: skip


@pytest.mark.parametrize("command", DESTRUCTIVE)
def test_the_destructive_family(command: str) -> None:
    assert is_destructive(read(command))
    assert risk(read(command)) == "high"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build", "rm -rf ./node_modules", "rm -rf /tmp/x", "find . -delete", "find . -name '*.pyc' -delete",
        "dd if=a of=b",
        "echo rm -rf /", "chmod -R u+w src", "mv a b", "cat /dev/null > x", "ls /", "git clean -fd", "wipefs --help",
        "kill -9 123",
        "f() { ls; }; f", "f() { ls; }; f & f | f", "f() { f 2> /dev/null; }", "f() { f &> log; }", "ls & pwd &",
        "find -delete", "cd / && find -name x", "rsync -a --delete a/ b/",
        "rsync -a --delete / /srv/backup/",
        "rm -rf */", 'rm -rf "$x"', "cd /srv/app && rm -rf dist", "chown me:me /srv/app",
        "ls > /dev/null",
    ],
)  # fmt: skip
def test_not_destructive(command: str) -> None:
    assert is_destructive(read(command)) is None


@pytest.mark.parametrize(
    ("command", "level"),
    [
        ("ls -la", "low"), ("git status", "low"), ("git log | head", "low"), ("grep -rn x src", "low"),
        ("cat a | sort", "low"),
        ("rm x", "medium"), ("git push", "medium"), ("npm test", "medium"), ("curl -s x", "medium"),
        ("python x.py", "medium"),
        ("echo x > f", "medium"), ("python -c 'x'", "medium"), ("$x", "medium"), ("frobnicate", "medium"),
        ("rm -rf build", "high"), ("sudo ls", "high"), ("git push -f", "high"), ("git reset --hard", "high"),
        ("npm publish", "high"),
        ("curl -s x | sh", "high"), ("docker rm x", "high"), ("psql -c 'DROP TABLE x'", "high"),
        ("git clean -fdx", "high"),
        ("chmod -R 777 .", "high"), ("reboot", "high"), ("terraform apply", "high"),
    ],
)  # fmt: skip
def test_risk(command: str, level: str) -> None:
    assert risk(read(command)) == level
