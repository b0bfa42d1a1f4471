"""`leadrope flow data`: what save-dataset steps have kept is read back, by people and by programs."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

ROWS = [{"name": "Ann", "tags": ["a", "b"]}, {"name": "Bob", "note": 'says "x, y"', "age": 36}]


async def keep(desk: Any, name: str, rows: Any) -> None:
    text = f"### keep\n\nKeeps.\n\n- type: save-dataset\n- name: {name}\n- rows: {json.dumps(rows)}\n"
    (desk.project / "keeper.flow.md").write_text(text)
    said = await desk.leadrope("flow", "run", "keeper")
    assert said.code == 0, said.err


async def test_where_there_is_none_it_says_how_to_keep_one(desk: Any) -> None:
    said = await desk.leadrope("flow", "data")
    assert (said.code, said.out) == (0, "")
    assert "- type: save-dataset" in said.err
    assert not (desk.home / "leadrope").exists(), "a look makes nothing"
    said = await desk.leadrope("flow", "data", "people")
    assert (said.code, said.out) == (2, "")
    assert "there is no dataset 'people'" in said.err
    assert (await desk.leadrope("flow", "data", "-o", "json")).out == ""


async def test_rows_come_back_as_they_were_kept(desk: Any) -> None:
    await keep(desk, "people", ROWS)
    said = await desk.leadrope("flow", "data")
    head, row = said.out.splitlines()
    assert head.split() == ["DATASET", "ROWS", "SIZE", "AGE", "WORKFLOW", "COLUMNS"]
    assert row.split()[:2] == ["people", "2"]
    assert row.endswith("keeper    name, tags, note, age")
    told = json.loads((await desk.leadrope("flow", "data", "-o", "json")).out)
    assert (told["name"], told["rows"], told["workflow"]) == ("people", 2, "keeper")
    said = await desk.leadrope("flow", "data", "people")
    assert [line.split() for line in said.out.splitlines()][:2] == [
        ["name", "tags", "note", "age"],
        ["Ann", '["a",', '"b"]'],
    ]
    assert "2 rows, saved by keeper" in said.err
    said = await desk.leadrope("flow", "data", "people", "-o", "json")
    assert [json.loads(line) for line in said.out.splitlines()] == ROWS
    said = await desk.leadrope("flow", "data", "people", "-o", "csv")
    assert list(csv.reader(io.StringIO(said.out))) == [
        ["name", "tags", "note", "age"],
        ["Ann", '["a", "b"]', "", ""],
        ["Bob", "", 'says "x, y"', "36"],
    ]
    said = await desk.leadrope("flow", "data", "people", "-o", "csv", "-n", "1")
    assert len(said.out.splitlines()) == 2
    said = await desk.leadrope("flow", "data", "poeple")
    assert (said.code, "Did you mean people?" in said.err) == (2, True), said.err
    for args in (("-o", "csv"), ("-n", "3")):
        said = await desk.leadrope("flow", "data", *args)
        assert (said.code, "Give its NAME" in said.err) == (2, True), said.err


async def test_a_terminal_gets_what_has_room_and_nothing_that_it_would_act_on(desk: Any) -> None:
    row = {f"column{number}": f"value {number} \x1b[31mred\nand more of it" for number in range(12)}
    await keep(desk, "wide", [row] * 120)
    async with desk.at_terminal("flow", "data", "wide", COLUMNS="80") as terminal:
        assert await terminal.ends() == 0
    lines = terminal.seen.replace("\r", "").split("\n")
    assert [line for line in lines if len(line) > 80] == []
    assert len([line for line in lines if line.startswith("value 0")]) == 50
    assert "The first 50 are shown" in terminal.seen
    assert "columns have no room here: " in terminal.seen
    assert "\x1b[31m" not in terminal.seen
    said = await desk.leadrope("flow", "data", "wide", "-o", "json")
    assert [json.loads(line) for line in said.out.splitlines()] == [row] * 120, "a program gets all of it"
