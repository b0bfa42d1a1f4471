"""Named SQL: every statement is there once, fits the schema, and finds its rows by an index where there may be many."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files

import aiosql
import msgspec
import pytest

from leadrope.runs.records import statements
from leadrope.runs.records.values import RunInfo
from leadrope.storage import database

NAMES = sorted(statements._all())


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as db:
        database.add_functions(db)
        for _, script in statements.migrations():
            for statement in database.split(script):
                db.execute(statement)
        yield db


def plan(db: sqlite3.Connection, name: str) -> list[str]:
    text = statements.sql(name)
    names = dict.fromkeys(re.findall(r":(\w+)", text), 1)
    return [row[3] for row in db.execute(f"explain query plan {text}", names or [1] * text.count("?"))]


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_fits_the_schema(db: sqlite3.Connection, name: str) -> None:
    plan(db, name)


@pytest.mark.parametrize("name", NAMES)
def test_no_statement_reads_every_run_or_event(db: sqlite3.Connection, name: str) -> None:
    """A queue that is asked after every change must not cost more with every run there ever was."""
    whole = [step for step in plan(db, name) if re.fullmatch(r"(SCAN|SEARCH) (runs|events|approvals|r|a|e)", step)]
    # A history that was asked for; the limit bounds what is shown, and people ask for it.
    assert not whole or name == "list_approvals"


def test_rows_are_read_by_position() -> None:
    for name in ("get_run", "list_runs"):
        columns = statements.sql(name).partition("from runs")[0].removeprefix("select ").split(",")
        assert [column.strip() for column in columns] == [field.name for field in msgspec.structs.fields(RunInfo)]


def test_a_file_of_statements() -> None:
    text = "-- About the file.\n\n-- name: one\nselect 1;\n\n-- name: two\n-- Why.\nselect\n  2;\n"
    assert statements.parse(text) == {"one": "select 1", "two": "-- Why.\nselect\n  2"}


def test_a_mark_behind_a_name_is_not_part_of_it() -> None:
    text = "-- name: one!\ndelete from x;\n-- name: two<!\ninsert into x values (1) returning n;\n-- name: three*!\nx;"
    assert list(statements.parse(text)) == ["one", "two", "three"]


@pytest.mark.parametrize("file", statements.FILES)
def test_the_files_are_aiosqls_and_it_reads_the_same_out_of_them(file: str) -> None:
    text = (files("leadrope.runs.records") / "sql" / file).read_text()
    theirs = aiosql.from_str(text, "sqlite3", mandatory_parameters=False)
    ours = statements.parse(text)
    assert {name for name in theirs.available_queries if not name.endswith("_cursor")} == set(ours)
    for name, statement in ours.items():
        without_comments = "\n".join(line for line in statement.splitlines() if not line.startswith("--"))
        assert getattr(theirs, name).sql.removesuffix(";") == without_comments


def test_a_name_is_written_once() -> None:
    with pytest.raises(ValueError, match="one is written twice"):
        statements.parse("-- name: one\nselect 1;\n-- name: one\nselect 2;\n")


def test_versions_count_from_one_without_a_gap() -> None:
    assert [number for number, _ in statements.migrations()] == list(range(1, len(statements.migrations()) + 1))


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("", 0),
        ("-- nothing\n", 0),
        ("select 1;\nselect 2;\n", 2),
        ("select ';';\n-- one; two\nselect\n  2;\n", 2),
        ("create trigger t after insert on runs begin\n  select 1;\n  select 2;\nend;\n", 1),
        ("select 1; -- why\n-- the end", 1),
    ],
)
def test_a_script_in_its_statements(script: str, count: int) -> None:
    assert len(database.split(script)) == count


def test_a_script_that_ends_within_a_statement_is_refused() -> None:
    with pytest.raises(ValueError, match="ends within a statement: select 2"):
        database.split("select 1;\nselect 2")
