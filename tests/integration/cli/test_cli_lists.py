"""Lists of runs, and `top`: what they say when nothing fits, on narrow terminals, and how to leave."""

from __future__ import annotations

import json
import time
from typing import Any

from leadrope.cli.screen import table


async def test_a_list_says_whether_there_is_nothing_or_nothing_matches(desk: Any, playing: Any) -> None:
    assert "No runs yet." in (await desk.leadrope("runs", "list", "--open")).err
    async with playing({"text": "One."}, {"text": "Two."}) as model:
        for prompt in ("first", "second"):
            assert (await desk.leadrope("run", prompt, "--base-url", model.url)).code == 0
    for args in (("--open",), ("--outcome", "failed"), ("--label", "a=b"), ("--state", "paused")):
        ended = await desk.leadrope("runs", "list", *args)
        assert (ended.out, ended.err) == ("", "No run matches.\n")
    assert len((await desk.leadrope("runs", "list", "-n", "0")).out.splitlines()) == 3
    assert len((await desk.leadrope("runs", "list", "-n", "1")).out.splitlines()) == 2
    wrong = await desk.leadrope("runs", "list", "-n", "-1")
    assert wrong.code == 2

    today = json.loads((await desk.leadrope("stats", "-o", "json")).out)["total"]
    once = (await desk.leadrope("top", "--once")).out
    assert "TIME" in once.splitlines()[2]
    assert f"${today['cost_usd']:.4f} today (API-equivalent estimate)" in once.splitlines()[0]
    async with desk.at_terminal("top") as terminal:
        await terminal.reads("second")
        terminal.types("q")
        assert await terminal.ends() == 0
    assert terminal.seen.endswith("\x1b[?25h\x1b[?1049l")


def test_a_narrow_table_leaves_columns_out_rather_than_words() -> None:
    head = ("RUN", "STATE", "AGE", "COST", "MODEL", "TASK")
    rows = [("70bf1e91", "succeeded", "21s", "~$0.00", "sonnet-4-5", "do five steps and write a file")]
    dropped = ("MODEL", "COST", "AGE")
    assert table.table(head, rows, 100, droppable=dropped)[0].split() == list(head)
    narrow = table.table(head, rows, 40, droppable=dropped)
    assert narrow == ["RUN       STATE      TASK", "70bf1e91  succeeded  do five steps and …"]
    assert all(table.width_of(line) <= 40 for line in narrow)
    assert table.cut_start("/home/me/work/project", 12) == "…ork/project"
    assert table.ago(time.time()) == "0s"
