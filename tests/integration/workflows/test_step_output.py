"""The steps output and save-dataset: the file that a workflow leaves, and rows that outlive it."""

from __future__ import annotations

import asyncio
import html
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Answer
from step_place import Here, do, refused


@pytest.fixture
async def here(ws: Path, tmp_path: Path) -> AsyncIterator[Here]:
    """With a real store in a home of its own."""
    found = Here(ws)
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LEADROPE_HOME": str(tmp_path / "leadrope")}
    async with Service(home) as found.service:
        yield found


# -- output -----------------------------------------------------------------------------------------------------------


async def test_the_file_is_called_after_its_heading_and_the_time(here: Here) -> None:
    done = await do(here, "output", content="Intro\n\n# Größe & Gewicht!\n\ntext\n")
    path = done.outputs["path"]
    assert path.startswith("workflow-output-größe-gewicht-20")
    assert path.endswith(".md")
    assert (here.workspace / path).read_text() == "Intro\n\n# Größe & Gewicht!\n\ntext\n"
    assert done.outputs["bytes_written"] == (here.workspace / path).stat().st_size
    assert done.outputs["format"] == "markdown"


async def test_outputs_of_one_second_do_not_meet(here: Here) -> None:
    paths = {(await do(here, "output", content="x", format="text")).outputs["path"] for _ in range(5)}
    assert len(paths) == 5
    assert all(path.startswith("workflow-output-here-20") and path.endswith(".txt") for path in paths)


async def test_an_output_that_waits_for_a_person_keeps_its_name(shop: Any) -> None:
    """Days may lie between the question and the file; the answer is for this name and no other."""
    text = """## Steps
### report
- type: output
- content: "# Report"
- policy: {require_approval: [Write]}
"""
    waiting = await shop.run(text)
    assert waiting.outcome == "waiting"
    done = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert done.outcome == "succeeded"
    assert [one.name.startswith("workflow-output-report-20") for one in shop.ws.glob("workflow-*")] == [True]


@pytest.mark.parametrize(
    "name", ["Review_2024.Q1", "review-2024-q1", "größe", "報告書", "रिपोर्ट", "_x", "v1..2", "x" * 120]
)
async def test_a_named_output_has_that_name_and_is_replaced(here: Here, name: str) -> None:
    for text in ("one", "two"):
        done = await do(here, "output", content=text, name=name, folder="out/sub", format="html")
        assert done.outputs["path"] == f"out/sub/workflow-output-{name}.html"
    assert "two" in (here.workspace / f"out/sub/workflow-output-{name}.html").read_text()


async def test_names_that_are_nearly_alike_do_not_meet(here: Here) -> None:
    names = ["Review_2024.Q1", "review-2024-q1", "a" * 60 + "1", "a" * 60 + "2"]
    paths = {(await do(here, "output", content="x", name=name)).outputs["path"] for name in names}
    assert len(paths) == len(names)


@pytest.mark.parametrize(
    ("name", "why", "meant"),
    [
        ("My Report", "holds a space", "'My-Report' would do"),
        ("review\n", "holds a line break", "'review' would do"),
        ("a/b", "holds a slash", "'a-b' would do"),
        ("a:b", "holds ':'", "'a-b' would do"),
        (".hidden", "begins with a dot", "'hidden' would do"),
        ("..", "begins with a dot", "Allowed are letters, digits"),
        ("", "is empty", "Allowed are letters, digits"),
        ("x" * 121, "has 121 characters", "at most 120 characters"),
        ("報" * 100, "has 300 bytes", "at most 120 characters"),
    ],
)
async def test_a_name_that_is_refused_says_why_and_what_is_allowed(here: Here, name: str, why: str, meant: str) -> None:
    failed = await refused(here, "output", content="x", name=name)
    assert why in failed.message
    assert meant in (failed.hint or "")
    assert list(here.workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"name": "../x"}, "bad_input"),
        ({"name": "a/b"}, "bad_input"),
        ({"name": "a\\b"}, "bad_input"),
        ({"name": ".."}, "bad_input"),
        ({"name": "!!"}, "bad_input"),
        ({"name": " "}, "bad_input"),
        ({"folder": ".."}, "outside_workspace"),
        ({"folder": "/tmp"}, "outside_workspace"),
        ({"folder": "link"}, "outside_workspace"),
        ({"folder": ".git"}, "denied"),
        ({"content": "  \n"}, "bad_input"),
        ({"content": None}, "bad_input"),
        ({"content": "x" * 10_500_000}, "denied"),
    ],
)
async def test_an_output_stays_in_the_workspace_and_under_the_policy(
    here: Here, given: dict[str, Any], kind: str
) -> None:
    (here.workspace / "link").symlink_to(here.workspace.parent)
    assert (await refused(here, "output", **{"content": "x", **given})).kind == kind
    assert [one.name for one in here.workspace.iterdir()] == ["link"]
    assert not list(here.workspace.parent.glob("workflow-*"))


async def test_values_become_tables_or_json(here: Here) -> None:
    rows = [{"a": 1, "b": "x|y"}, {"a": 2, "c": None}]
    done = await do(here, "output", content=rows, name="t")
    text = (here.workspace / done.outputs["path"]).read_text()
    assert text == "| a | b | c |\n| --- | --- | --- |\n| 1 | x\\|y |  |\n| 2 |  |  |\n"
    done = await do(here, "output", content={"a": 1}, name="t")
    assert (here.workspace / done.outputs["path"]).read_text() == '```json\n{\n  "a": 1\n}\n```\n'
    done = await do(here, "output", content=rows, name="t", format="text")
    assert msgspec.json.decode((here.workspace / done.outputs["path"]).read_text()) == rows


HOSTILE = """# Title <script>alert(1)</script>

<script>alert(1)</script> <img src=x onerror=alert(1)> <b onclick="x">b</b>
[click](javascript:alert(1)) [data](data:text/html,x) ![pic](http://host/p.png) [ok](https://example.org/a?b=1&c="x)
[mail](mailto:a@example.org) **bold** *it* `<code>`

| a | <i>b</i> |
|---|---|
| <script>x</script> | y |

- item <iframe>
1. first

> quoted <script>

```html
<script>alert(1)</script>
```
"""


async def test_a_page_holds_a_strangers_text_and_none_of_his_mark_up(here: Here) -> None:
    done = await do(here, "output", content=HOSTILE, format="html")
    text = (here.workspace / done.outputs["path"]).read_text()
    assert done.outputs["path"].endswith(".html")
    body = text.partition("<body>")[2]
    for bad in ("<script", "<img", "<iframe", "<b ", "<i>", "onerror=alert(1)>", 'href="javascript', 'href="data'):
        assert bad not in body, bad
    assert "<title>Title &lt;script&gt;alert(1)&lt;/script&gt;</title>" in text
    assert "<h1>Title &lt;script&gt;" in body
    assert '<a href="http://host/p.png" rel="noopener noreferrer">pic</a>' in body
    assert '<a href="mailto:a@example.org" rel="noopener noreferrer">mail</a>' in body
    assert "<strong>bold</strong> <em>it</em> <code>&lt;code&gt;</code>" in body
    assert "<th>&lt;i&gt;b&lt;/i&gt;</th>" in body
    assert "<blockquote><p>quoted &lt;script&gt;</p></blockquote>" in body
    assert html.escape("<script>alert(1)</script>") in body.partition("<pre")[2]
    assert "default-src &#x27;none&#x27;" in text
    assert "http" not in text.partition("<body>")[0].replace("http-equiv", "")


async def test_an_output_belongs_to_whoever_owns_the_workspace(here: Here) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root writes for others")
    os.chown(here.workspace, 12345, 12345)
    done = await do(here, "output", content="x", folder="out")
    for path in (here.workspace / "out", here.workspace / done.outputs["path"]):
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12345)
    assert stat.S_IMODE((here.workspace / done.outputs["path"]).stat().st_mode) & 0o600 == 0o600


# -- save-dataset -----------------------------------------------------------------------------------------------------


async def test_rows_are_kept_replaced_added_and_brought_up_to_date(here: Here) -> None:
    done = await do(here, "save-dataset", name="parts", rows=[{"id": 1, "n": "a"}, {"id": 2, "n": "b"}])
    assert done.outputs == {"name": "parts", "rows": 2, "total": 2, "columns": ["id", "n"]}
    done = await do(here, "save-dataset", name="parts", rows={"id": 3, "m": True}, mode="append")
    assert (done.outputs["total"], done.outputs["columns"]) == (3, ["id", "n", "m"])
    rows = '[{"id": 2, "n": "new"}, {"id": 4, "n": "d"}, {"id": 4, "n": "D"}]'
    done = await do(here, "save-dataset", name="parts", rows=rows, mode="append", key="id")
    assert (done.outputs["rows"], done.outputs["total"]) == (2, 4)
    assert (await here.service.executions.dataset("parts")).rows == [
        {"id": 1, "n": "a"},
        {"id": 2, "n": "new"},
        {"id": 3, "m": True},
        {"id": 4, "n": "D"},
    ]
    assert (await here.service.executions.dataset("parts")).execution_id == here.execution_id
    done = await do(here, "save-dataset", name="parts", rows=[])
    assert done.outputs["total"] == 0


async def test_adding_at_the_same_time_loses_no_row(here: Here) -> None:
    await asyncio.gather(
        *(
            do(here, "save-dataset", name="n", rows=[{"id": number % 10, "n": number}], mode="append", key=key)
            for number in range(20)
            for key in (None, "id")
        )
    )
    rows = (await here.service.executions.dataset("n")).rows
    assert {row["id"] for row in rows} == set(range(10))


@pytest.mark.parametrize(
    ("given", "kind", "told"),
    [
        ({"rows": [{"a": 1}] * 5001}, "too_large", "5,001 rows"),
        ({"rows": [{"a": "x" * 3_000_000}]}, "too_large", "bytes"),
        ({"rows": "just text"}, "bad_input", "not a list of objects"),
        ({"rows": 7}, "bad_input", "not a list of objects"),
        ({"rows": None}, "bad_input", "not a list of objects"),
        ({"rows": [{"a": 1}, 2]}, "bad_input", "row 2 is not an object"),
        ({"rows": [{"a": 1}, {"b": 2}], "key": "a"}, "bad_input", "row 2 has no 'a'"),
        ({"rows": [{"a": 1}], "name": " "}, "bad_request", "cannot be the name"),
    ],
)
async def test_rows_that_cannot_be_kept_are_told_and_change_nothing(
    here: Here, given: dict[str, Any], kind: str, told: str
) -> None:
    await do(here, "save-dataset", name="d", rows=[{"a": 0}])
    with pytest.raises(errors.LeadropeError) as caught:
        await do(here, "save-dataset", **{"name": "d", "mode": "append", **given})
    assert (caught.value.kind, told in caught.value.message) == (kind, True), caught.value.message
    assert (await here.service.executions.dataset("d")).rows == [{"a": 0}]
