"""The step structure: objects, rows and tables out of texts of every kind, and by a model that reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope.core.request import RunRequest
from leadrope.workflows.steps.base import StepDone, StepFailed
from scripted_doors import asked_of
from step_place import Here, do, refused

PARTS = [{"name": "Nut", "price": 1.5, "stock": 3}, {"name": "Bolt", "price": 2, "stock": None}]
COLUMNS = ["name!", "price: number", "stock: integer"]
TABLE = """Sure! Here is the table:

| Name | Price | Stock | Note |
|------|-------|-------|------|
| Nut  | 1.5   | 3     | x    |
| Bolt | 2     | n/a   | y    |
"""


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        '[{"name": "Nut", "price": "1.5", "stock": "3"}, {"Name": "Bolt", "PRICE": 2, "stock": null}]',
        'Here:\n```json\n{"items": [{"name": "Nut", "price": 1.5, "stock": 3.0}, {"name": "Bolt", "price": "2"}]}\n```',
        'I found [1] that {"items": [{"name": "Nut", "price": 1.5, "stock": 3}, {"name": "Bolt", "price": 2}]} is so.',
        "name,price,stock\nNut,1.5,3\nBolt,2,\n",
        "name\tprice\tstock\nNut\t1.5\t3\nBolt\t2\t-\n",
        "Name: Nut\nPrice: 1.5\nStock: 3\n\nName: Bolt\nPrice: 2\n",
        [["name", "price", "stock"], ["Nut", "1.5", 3], ["Bolt", 2, None]],
        [["Nut", "1.5", 3], ["Bolt", 2, None]],
        [{"name": "Nut", "price": "1.5", "stock": "3", "more": 1}, {"name": "Bolt", "price": 2}],
    ],
)
async def test_the_same_rows_out_of_every_form(here: Here, text: Any) -> None:
    done = await do(here, "structure", text=text, columns=COLUMNS)
    assert done.outputs["data"] == PARTS
    assert (done.outputs["rows"], done.outputs["columns"], done.outputs["errors"]) == (
        2,
        ["name", "price", "stock"],
        [],
    )
    assert done.outputs["markdown"] == (
        "| name | price | stock |\n| --- | --- | --- |\n| Nut | 1.5 | 3 |\n| Bolt | 2 |  |\n"
    )
    assert done.warnings == ()


async def test_the_three_formats(here: Here) -> None:
    table = await do(here, "structure", text=TABLE, columns=COLUMNS, format="table")
    assert table.outputs["data"] == table.outputs["markdown"]
    one = await do(here, "structure", text='{"a": {"b": [1]}, "c": "x"}', format="object")
    assert (one.outputs["data"], one.outputs["rows"]) == ({"a": {"b": [1]}, "c": "x"}, 1)
    first = await do(here, "structure", text=TABLE, columns=COLUMNS, format="object")
    assert first.outputs["data"] == PARTS[0]
    assert [one.kind for one in first.warnings] == ["structure.more_rows"]
    fields = await do(
        here,
        "structure",
        text="| Field | Value |\n|-|-|\n| Name | Nut |\n| Price | 3 |\n",
        columns=COLUMNS,
        format="object",
    )
    assert fields.outputs["data"] == {"name": "Nut", "price": 3, "stock": None}


async def test_without_columns_everything_is_taken_as_it_is(here: Here) -> None:
    done = await do(here, "structure", text=TABLE)
    assert done.outputs["columns"] == ["Name", "Price", "Stock", "Note"]
    assert done.outputs["data"][1] == {"Name": "Bolt", "Price": "2", "Stock": "n/a", "Note": "y"}
    assert (await do(here, "structure", text='["a", "b"]')).outputs["data"] == [{"value": "a"}, {"value": "b"}]
    assert (await do(here, "structure", text='["a"]', columns=["tag"])).outputs["data"] == [{"tag": "a"}]


async def test_rows_that_do_not_fit_make_the_step_degraded_and_not_failed(here: Here) -> None:
    text = "name,price\nNut,1.5\nBolt,cheap\n,3\n"
    done = await do(here, "structure", text=text, columns=COLUMNS)
    assert done.outputs["data"] == [
        {"name": "Nut", "price": 1.5, "stock": None},
        {"name": "Bolt", "price": None, "stock": None},
    ]
    assert [(one.kind, one.message.partition(";")[0]) for one in done.warnings] == [
        ("structure.rows_left_out", "1 of 3 rows are left out, because a required value is missing"),
        ("structure.bad_values", "1 value is not of the column's type and became null"),
    ]
    assert done.outputs["errors"] == [
        {"row": 2, "column": "price", "message": "'cheap' is no number"},
        {"row": 3, "column": "name", "message": "is missing, and required"},
    ]
    ragged = await do(here, "structure", text="| name |\n|--|\n| a | b |\n")
    assert [one.kind for one in ragged.warnings] == ["structure.ragged_rows"]


async def test_the_cause_that_is_told_is_one_of_the_rows_it_speaks_of(here: Here) -> None:
    done = await do(here, "structure", text="name,price\nNut,cheap\n,3\nBolt,1\n", columns=COLUMNS)
    assert [one.message.partition("; ")[2] for one in done.warnings] == [
        "row 2, name is missing, and required",
        "row 1, price 'cheap' is no number",
    ]
    done = await do(here, "structure", text="name,price\n,3\nBolt,cheap\n", columns=COLUMNS)
    assert [one.message.partition("; ")[2] for one in done.warnings] == [
        "row 1, name is missing, and required",
        "row 2, price 'cheap' is no number",
    ]
    error = await refused(here, "structure", text="price,name\ncheap,\n", columns=["price: number", "name!"])
    assert error.message == "none of the 1 rows is whole: row 1, name is missing, and required"
    # Of more mistakes than are listed, the one that matters may be none of them.
    many = "name,price\n" + "Nut,cheap\n" * 100 + ",3\n"
    told = (await do(here, "structure", text=many, columns=COLUMNS)).warnings[0].message
    assert told == "1 of 101 rows are left out, because a required value is missing"


async def test_a_very_long_table_is_cut_and_told(here: Here) -> None:
    text = "n,m\n" + "".join(f"{number},x\n" for number in range(20_001))
    done = await do(here, "structure", text=text)
    assert done.outputs["rows"] == 20_000
    assert [one.kind for one in done.warnings] == ["structure.too_many_rows"]


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"text": "There is nothing here. Really: nothing."}, "no_structure", "no JSON, table"),
        ({"text": "a footnote [1] and [2]"}, "no_structure", "no JSON, table"),
        ({"text": "  \n"}, "no_structure", "is empty"),
        ({"text": None}, "no_structure", "is empty"),
        ({"text": "3"}, "no_structure", "no JSON, table"),
        ({"text": 3}, "no_structure", "holds no objects"),
        ({"text": "{}"}, "no_structure", "no JSON, table"),
        ({"text": "[]"}, "no_structure", "no JSON, table"),
        ({"text": TABLE, "columns": ["prize", "weight"]}, "no_structure", "did you mean Price?"),
        ({"text": "name,price\n,1\n,2\n", "columns": COLUMNS}, "no_structure", "none of the 2 rows is whole"),
        ({"text": TABLE, "columns": ["price: numbr"]}, "bad_input", "unknown type 'numbr'"),
        ({"text": TABLE, "columns": ["a", "A"]}, "bad_input", "twice"),
    ],
)
async def test_what_holds_no_structure_is_told(here: Here, given: dict[str, Any], kind: str, told: str) -> None:
    found = await refused(here, "structure", **given)
    assert (found.kind, told in found.message, bool(found.hint)) == (kind, True, True), str(found)


async def test_an_empty_text_names_the_template_that_gave_nothing(here: Here) -> None:
    found = await refused(here, "structure", {"review": {"result": ""}}, text="${review.result}")
    assert "${review.result} gave nothing" in found.message


# -- ai ---------------------------------------------------------------------------------------------------------------


async def read_by(here: Here, folder: Path, result: dict[str, Any], **given: Any) -> tuple[StepDone, RunRequest]:
    return await asked_of(here, folder, result, "structure", mode="ai", **given)


async def test_a_model_reads_without_tools_and_its_answer_is_put_right(here: Here, tmp_path: Path) -> None:
    usage = {"input_tokens": 100, "output_tokens": 20}
    answer = {"rows": [{"name": "Nut", "price": 1.5, "stock": 3}, {"name": "Bolt", "price": 2, "stock": None}]}
    text = "We have three nuts at 1.5 and some bolts at 2."
    done, request = await read_by(
        here,
        tmp_path,
        {"structured_output": answer, "usage": usage, "total_cost_usd": 0.25},
        text=text,
        columns=COLUMNS,
    )
    assert done.outputs["data"] == PARTS
    assert done.cost_usd == pytest.approx(0.25)
    assert done.tokens == 120
    assert done.run_id
    assert (request.tools, request.mode, request.model, request.instructions) == ((), "dontAsk", "haiku", False)
    assert set(request.disallowed_tools) >= {"Read", "WebFetch", "WebSearch"}
    assert text in request.prompt
    assert "- name (string, required)" in request.prompt
    assert request.output_schema is not None
    assert request.output_schema["properties"]["rows"]["items"]["properties"]["price"] == {"type": ["number", "null"]}


async def test_an_answer_in_the_models_own_words_is_still_searched(here: Here, tmp_path: Path) -> None:
    done, _ = await read_by(here, tmp_path, {"result": TABLE}, text="x", columns=COLUMNS)
    assert done.outputs["data"] == PARTS
    assert done.warnings
    assert all(one.kind for one in done.warnings)


async def test_the_users_configuration_holds_and_gives_the_model_no_tools(here: Here, tmp_path: Path) -> None:
    (tmp_path / ".config/leadrope").mkdir(parents=True)
    (tmp_path / ".config/leadrope/config.toml").write_text(
        '[run]\nbase_url = "http://127.0.0.1:9"\nconnections = ["docs"]\nappend_system_prompt = "Be brief."\n'
        'tools = ["Bash"]\n[connections.docs]\ncommand = "docs-server"\n'
    )
    _, request = await read_by(here, tmp_path, {"structured_output": {"rows": [{"name": "Nut"}]}}, text="a nut")
    assert request.base_url == "http://127.0.0.1:9"
    assert (request.tools, request.connections, request.append_system_prompt) == ((), {}, None)


async def test_an_object_by_a_model(here: Here, tmp_path: Path) -> None:
    answer = {"name": "Nut", "price": 1.5, "stock": None}
    done, _ = await read_by(
        here, tmp_path, {"structured_output": answer}, text="a nut at 1.5", columns=COLUMNS, format="object"
    )
    assert done.outputs["data"] == answer


async def test_a_model_that_finds_nothing_costs_all_the_same(here: Here, tmp_path: Path) -> None:
    with pytest.raises(StepFailed) as caught:
        await read_by(
            here, tmp_path, {"structured_output": {"rows": []}, "total_cost_usd": 0.25}, text="x", columns=COLUMNS
        )
    assert caught.value.kind == "no_structure"
    assert caught.value.cost_usd == pytest.approx(0.25)
    assert caught.value.run_id


async def test_a_model_that_says_nothing_is_left_in_time(here: Here, tmp_path: Path) -> None:
    here.timeout_s = 0.5
    with pytest.raises(StepFailed) as caught:
        await asked_of(here, tmp_path, None, "structure", mode="ai", text="x")
    assert (caught.value.kind, caught.value.can_heal) == ("timed_out", True)


async def test_a_text_too_long_for_a_model_is_told_before_it_costs(here: Here) -> None:
    assert (await refused(here, "structure", text="x" * 400_001, mode="ai")).kind == "too_large"
