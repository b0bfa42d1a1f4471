"""Records out of text, and cells as types: each form beside what it gives; no text takes long."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope import errors
from leadrope.runs.page.markdown import markdown
from leadrope.workflows.tools import columns, tables
from leadrope.workflows.tools.columns import Column
from leadrope.workflows.views import markdown_html

MARKDOWN = """Here is what I found:

| Name | **Price** | Note |
|:-----|----------:|------|
| `Nut` | 1,200.50 | a \\| b |
| Bolt | 3 |
| Screw | x | y | z |

Done.
"""


def test_a_markdown_table_is_read_with_its_odd_rows() -> None:
    (found,) = tables.markdown_tables(MARKDOWN)
    assert found.columns == ("Name", "Price", "Note")
    assert found.rows == [
        {"Name": "Nut", "Price": "1,200.50", "Note": "a | b"},
        {"Name": "Bolt", "Price": "3", "Note": ""},
        {"Name": "Screw", "Price": "x", "Note": "y"},
    ]
    assert found.ragged == 2


@pytest.mark.parametrize(
    ("text", "how", "rows"),
    [
        ("a,b\n1,2\n3,4\n", "csv", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ('a;b\n1;"x;y"\n', "csv", [{"a": "1", "b": "x;y"}]),
        ('a,b\n1,"x\ny"\n', "csv", [{"a": "1", "b": "x\ny"}]),
        ("a\tb\n1\t2\n", "tsv", [{"a": "1", "b": "2"}]),
        ("```csv\na,b\n1,2\n```\n", "csv", [{"a": "1", "b": "2"}]),
        ("\ufeffa,b\r\n1,2\r\n", "csv", [{"a": "1", "b": "2"}]),
        ("| a |\n|---|\n| 1 |\n", "markdown", [{"a": "1"}]),
        ("a | a\n--|--\n1 | 2\n", "markdown", [{"a": "1", "a_2": "2"}]),
        ("Name: Nut\nPrice: 3\n", "pairs", [{"Name": "Nut", "Price": "3"}]),
        ("- **Name**: Nut\n- **Price:** 3\n", "pairs", [{"Name": "Nut", "Price": "3"}]),
        ("name: a\nn: 1\n\nname: b\nn: 2\n", "pairs", [{"name": "a", "n": "1"}, {"name": "b", "n": "2"}]),
        ("name: a\nname: b\n", "pairs", [{"name": "a"}, {"name": "b"}]),
        ("a: 1\n\nb: 2\n", "pairs", [{"a": "1", "b": "2"}]),
        ("name: a\n---\nname: b\n", "pairs", [{"name": "a"}, {"name": "b"}]),
        ("KEY=value\nOTHER=1\n", "pairs", [{"KEY": "value", "OTHER": "1"}]),
        ("url: http://x/y?a=b\n", "pairs", [{"url": "http://x/y?a=b"}]),
    ],
)
def test_each_form_of_records(text: str, how: str, rows: list[dict[str, Any]]) -> None:
    found = tables.candidates(text)[0]
    assert (found.how, found.rows) == (how, rows)


@pytest.mark.parametrize("text", ["", "Just a sentence.", "One, two.\nThree, four, five.\n", "|", "---", "a\n|-|\n"])
def test_prose_holds_no_records(text: str) -> None:
    assert tables.candidates(text) == []


def test_a_table_is_written_so_that_it_can_be_read_again() -> None:
    rows = [{"a": "x | y", "b": 1, "c": None}, {"a": "line\nbreak \\", "b": [1, "ä"], "c": True}]
    text = tables.to_markdown(["a", "b", "c"], rows)
    assert text == '| a | b | c |\n| --- | --- | --- |\n| x \\| y | 1 |  |\n| line break \\\\ | [1, "ä"] | true |\n'
    assert tables.markdown_tables(text)[0].rows == [
        {"a": "x | y", "b": "1", "c": ""},
        {"a": "line break \\", "b": '[1, "ä"]', "c": "true"},
    ]


CELLS = [
    ("string", "x", "x"),
    ("string", 3, "3"),
    ("string", True, "true"),
    ("string", ["a"], '["a"]'),
    ("string", None, None),
    ("integer", "3", 3),
    ("integer", " 1,200 ", 1200),
    ("integer", "+3", 3),
    ("integer", 3.0, 3),
    ("integer", "3.0", 3),
    ("integer", "3.5", msgspec.UNSET),
    ("integer", 3.5, msgspec.UNSET),
    ("integer", True, msgspec.UNSET),
    ("integer", "12,34", msgspec.UNSET),
    ("integer", "9007199254740993", 9007199254740993),
    ("integer", "n/a", None),
    ("integer", "", None),
    ("number", "1,200.50", 1200.5),
    ("number", "$3", msgspec.UNSET),
    ("number", "1e400", msgspec.UNSET),
    ("number", [1], msgspec.UNSET),
    ("boolean", "Yes", True),
    ("boolean", "✗", False),
    ("boolean", 1, True),
    ("boolean", 0, False),
    ("boolean", 2, msgspec.UNSET),
    ("boolean", "maybe", msgspec.UNSET),
    ("date", "2024-01-31", "2024-01-31"),
    ("date", "2024/1/3", "2024-01-03"),
    ("date", "2024-01-31T23:59:00Z", "2024-01-31"),
    ("date", "31.01.2024", "2024-01-31"),
    ("date", "31 Jan 2024", "2024-01-31"),
    ("date", "January 31st, 2024", "2024-01-31"),
    ("date", "3/4/2024", msgspec.UNSET),
    ("date", "2024-02-30", msgspec.UNSET),
    ("date", 20240131, msgspec.UNSET),
    ("date", "—", None),
]


@pytest.mark.parametrize(("kind", "value", "expected"), CELLS)
def test_a_cell_as_its_type(kind: str, value: Any, expected: Any) -> None:
    found = columns.as_type(kind, value)
    assert found is expected or (found == expected and type(found) is type(expected))


def test_columns_in_all_their_forms() -> None:
    whole = (Column(name="title", required=True), Column(name="unit price", type="number"))
    assert columns.columns_of(["title!", "unit price: float"]) == whole
    assert columns.columns_of({"title": "string!", "unit price": "number"}) == whole
    assert columns.columns_of(list(whole)) == whole
    for bad, told in (
        (["a: numbr"], "Did you mean number"),
        (["a", "A"], "twice"),
        (["!"], "cannot be the name"),
        ({"a": "list"}, "Types are"),
    ):
        with pytest.raises(errors.BadValue, match=told):
            columns.columns_of(bad)


def test_rows_that_do_not_fit_are_counted_and_told() -> None:
    found = columns.typed(
        columns.columns_of(["title!", "price: number"]),
        [{"Title": "a", "PRICE": "3"}, {"title": "b", "price": "x"}, {"price": 1}, {"title": "", "price": 1}],
    )
    assert found.rows == [{"title": "a", "price": 3}, {"title": "b", "price": None}]
    assert (found.left_out, found.bad_cells) == (2, 1)
    assert [(one.row, one.column, one.message) for one in found.mistakes] == [
        (2, "price", "'x' is no number"),
        (3, "title", "is missing, and required"),
        (4, "title", "is missing, and required"),
    ]


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab1 |-:=,;\t\n\\`*_#>[]()!<&\"'", max_size=200))
def test_any_text_is_read_and_shown_without_a_fault(text: str) -> None:
    for one in tables.candidates(text):
        assert all(set(row) <= set(one.columns) for row in one.rows)
        again = tables.markdown_tables(tables.to_markdown(one.columns, one.rows))
        assert not again or len(again[0].rows) == len(one.rows)
    shown = markdown_html.page(text, text)
    body = shown.partition("<main>")[2]
    assert "<script" not in body
    assert "<a " not in body or 'href="http' in body or 'href="mailto' in body


def test_the_longest_texts_take_little_more_than_their_length() -> None:
    """Each would take minutes with one look back too many; the bound is generous for a busy machine."""
    began = time.process_time()
    units = (
        "|",
        "| - ",
        " ",
        "a: ",
        "a,",
        "\t",
        "```\n",
        "- ",
        "\\",
        "**",
        "_",
        "# ",
        "[a](",
        "*a ",
        "> ",
        "-|\n|",
        '"',
    )
    for unit in units:
        text = unit * (200_000 // len(unit)) + "x"
        tables.candidates(text)
        tables.candidates(f"a,b\n{text}\n{text}")
        markdown(text)
        markdown(f"# a{text}")
    assert time.process_time() - began < 30
