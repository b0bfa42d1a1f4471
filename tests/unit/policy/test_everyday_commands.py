"""How often a person is asked on an ordinary day."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from everyday_commands import DATA, Share, lines, shares

MODES_BEFORE = ("plan", "default", "edit", "dontAsk", "full")
# Allowed in mode full without a sandbox before, and asked about now.
STRICTER = {
    'find . -name "*.pyc" -delete': "deleting is deleting, by whatever program",
    "git worktree add ../other main": "it writes outside of the workspace",
}
# Reported by people who were asked about them, or had them denied.
REPORTED = """
ls · pwd · cat README.md · git status · git diff · base64 a · xxd a | head · tar xzf a.tgz
unzip archive.zip · gunzip data.gz · zip -r out.zip src · wget https://example.com/a.tar.gz
javac Main.java · ninja -C build · mvn -q test · dotnet test · swift build · swift test · mix test · rake
composer install · tox -e py311 · just test · task build · pre-commit run --all-files · redis-cli ping
psql -c 'select 1' · sqlite3 x.db 'select 1' · aws s3 ls · terraform plan · docker build -t app .
docker run --rm app · docker compose up -d · export FOO=bar && npm test · bash run.sh
clang-format -i src/a.c · rm -f tmp.txt · gradle test · julia x.jl · R -e 'print(1)'
alembic upgrade head · mytool run · ./mytool run · ./gradlew test · bazel build //... · cmake -B build
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Share]:
    found = asyncio.run(shares(tmp_path_factory.mktemp("everyday")))
    return {(share.mode, share.sandboxed): share for share in found}


def test_the_table_is_wide() -> None:
    ecosystems = msgspec.yaml.decode((DATA / "ecosystems.yaml").read_bytes(), type=dict[str, dict[str, list[str]]])
    assert len(lines()) >= 300
    assert len([name for name, group in ecosystems.items() if len(group.get("works", ())) >= 5]) >= 10
    everyday = msgspec.yaml.decode((DATA / "everyday.yaml").read_bytes(), type=dict[str, list[str]])
    known = {line for group in everyday.values() for line in group}
    assert set(ecosystems["everyday"]["reads"]) <= known, "a line marked as reading is not in everyday.yaml"


def test_no_command_that_only_reads_is_asked_about_in_any_mode(found: dict[tuple[str, bool], Share]) -> None:
    assert {key: share.asked_reads for key, share in found.items() if share.asked_reads} == {}


@pytest.mark.parametrize(
    ("mode", "sandboxed", "most"),
    [
        ("edit", False, 60),
        ("edit", True, 60),
        ("sandboxed", True, 5),
        ("full", True, 5),
    ],
)
def test_a_person_is_asked_rarely(
    found: dict[tuple[str, bool], Share], mode: str, sandboxed: bool, most: float
) -> None:
    share = found[mode, sandboxed]
    assert share.percent <= most, share.asked


def test_without_a_sandbox_nothing_is_asked_about_that_was_not(found: dict[tuple[str, bool], Share]) -> None:
    """`table_before.json`: a sign (`+` allow, `?` ask, `-` deny) for each mode, without and with a sandbox, as the
    verdicts were before a sandbox carried any weight. It is never made anew.
    """
    before = msgspec.json.decode((DATA / "table_before.json").read_bytes(), type=dict[str, str])
    assert before.keys() == {line.command for line in lines()}
    for place, mode in enumerate(MODES_BEFORE):
        allowed = {line for line, signs in before.items() if signs[2 * place] == "+"}
        asked = set(found[mode, False].asked)
        assert allowed & asked == (set(STRICTER) if mode == "full" else set())
        assert len(asked) <= len(before) - len(allowed)


def test_what_was_reported_is_in_the_table() -> None:
    words = [line for row in REPORTED.split("\n") if row for line in row.split(" · ")]
    assert set(words) - {line.command for line in lines()} == set()
