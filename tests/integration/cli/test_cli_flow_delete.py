"""Deleting saved workflows, datasets and cached outputs: asked for first, and nothing else goes with them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

EXECUTION = """# {name}

## Steps

### say

Says.

- type: shell
- cache: true
- command: echo {name}

### keep

Keeps.

- type: save-dataset
- name: data-{name}
- rows: [{{"a": 1}}]
"""


async def saved(desk: Any, *names: str) -> None:
    for name in names:
        (desk.project / f"{name}.flow.md").write_text(EXECUTION.format(name=name))
        assert (await desk.leadrope("flow", "save", f"{name}.flow.md")).code == 0
        ran = await desk.leadrope("flow", "run", name)
        assert ran.code == 0, ran.err
        (desk.project / f"{name}.flow.md").unlink()


async def test_workflows_datasets_and_the_cache(desk: Any) -> None:
    await saved(desk, "one", "two")
    commands = {
        ("flow", "delete", "one"): "Delete the saved workflow one",
        ("flow", "delete-data", "data-one"): "Delete the dataset data-one with 1 row?",
        ("flow", "clear-cache"): "Delete 2 entries of the cache?",
    }
    for args, question in commands.items():
        silent = await desk.leadrope(*args)
        assert (silent.code, "--yes" in silent.err, "nothing was deleted" in silent.err) == (2, True, True), args
        async with desk.at_terminal(*args) as terminal:
            await terminal.reads(question)
            terminal.types("n\n")
            assert await terminal.ends() == 1
    assert "one" in (await desk.leadrope("flow", "list")).out
    for args in commands:
        done = await desk.leadrope(*args, "--yes")
        assert done.code == 0, done.err
        assert "deleted" in done.out
    listed = (await desk.leadrope("flow", "list", "-o", "json")).out
    assert [json.loads(line)["name"] for line in listed.splitlines()] == ["two"]
    kept = (await desk.leadrope("flow", "data", "-o", "json")).out
    assert [json.loads(line)["name"] for line in kept.splitlines()] == ["data-two"]
    assert "The cache holds nothing" in (await desk.leadrope("flow", "clear-cache", "--yes")).err
    history = (await desk.leadrope("flow", "history", "-o", "json")).out.splitlines()
    assert len(history) == 2, "executions stay"
    assert (await desk.leadrope("flow", "report", json.loads(history[-1])["execution"]["id"])).code == 0


async def test_wrong_names_get_the_nearest_one(desk: Any) -> None:
    await saved(desk, "review")
    for args, hint in {
        ("flow", "delete", "reviw", "--yes"): "Did you mean review?",
        ("flow", "delete-data", "data-reviw", "--yes"): "Did you mean data-review?",
        ("flow", "clear-cache", "--type", "shel", "--yes"): "Did you mean shell?",
    }.items():
        told = await desk.leadrope(*args)
        assert (told.code, hint in told.err) == (2, True), told.err


async def test_where_nothing_was_kept_nothing_is_made(desk: Any) -> None:
    assert (await desk.leadrope("flow", "delete-data", "x", "--yes")).code == 2
    assert (await desk.leadrope("flow", "clear-cache", "--yes")).code == 0
    assert not (desk.home / "leadrope").exists()


FORMULAS = {
    "=1+1": "'=1+1",
    "+cmd|' /C calc'!A0": "'+cmd|' /C calc'!A0",
    "@SUM(A1)": "'@SUM(A1)",
    "-2+3": "'-2+3",
    "\t=1": "'\t=1",
    " =1": "' =1",
    "-2": "-2",
    "+1.5": "+1.5",
    "plain": "plain",
}


async def test_formulas_of_a_dataset_are_texts_in_csv(desk: Any) -> None:
    """Rows come from web pages and models; a spreadsheet would run them."""
    rows = [{"v": text, "=head": -2} for text in FORMULAS]
    text = f"### keep\n\nKeeps.\n\n- type: save-dataset\n- name: evil\n- rows: {json.dumps(rows)}\n"
    (desk.project / "keeper.flow.md").write_text(text)
    assert (await desk.leadrope("flow", "run", "keeper")).code == 0
    told = await desk.leadrope("flow", "data", "evil", "-o", "csv")
    read = list(csv.reader(io.StringIO(told.out)))
    assert read[0] == ["v", "'=head"]
    assert dict(zip(FORMULAS, [row[0] for row in read[1:]], strict=True)) == FORMULAS
    assert {row[1] for row in read[1:]} == {"-2"}, "a number stays a number"
    told = await desk.leadrope("flow", "data", "evil", "-o", "json")
    assert [json.loads(line) for line in told.out.splitlines()] == rows
