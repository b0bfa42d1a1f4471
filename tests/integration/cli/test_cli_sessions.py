"""`leadrope sessions`, and going on with one from the command line."""

from __future__ import annotations

import json
from typing import Any


async def test_from_the_first_words_to_the_last_file(desk: Any, playing: Any) -> None:
    turns = (
        {"text": "Noted."},
        {"text": "42.", "expect": {"contains": "remember 42"}},
        {"text": "Forked.", "expect": {"contains": "which one?"}},
        {"text": "Imported.", "expect": {"contains": "which one?"}},
    )
    async with playing(*turns) as model:
        to_model = ("--base-url", model.url)
        assert (await desk.leadrope("run", "remember 42", *to_model)).code == 0
        again = await desk.leadrope("run", "which one?", "--continue", *to_model)
        assert again.out == "42.\n", again.err

        (row,) = (await desk.leadrope("sessions", "list", "-o", "json")).out.splitlines()
        info = json.loads(row)
        short = info["id"][:8]
        assert (info["title"], len(info["runs"])) == ("remember 42", 2)
        listed = await desk.leadrope("sessions", "list", "--here")
        head, row = listed.out.splitlines()
        assert head.split() == ["SESSION", "AGE", "LAST", "RUN", "RUNS", "FOLDER", "TITLE"]
        assert row.startswith(short)
        assert "/project  remember 42" in row
        shown = (await desk.leadrope("sessions", "show", short)).out
        assert "  you  remember 42\n" in shown
        assert "agent  42.\n" in shown

        assert (await desk.leadrope("run", "another way", "--fork", short, *to_model)).out == "Forked.\n"
        assert f"(fork of {short})" in (await desk.leadrope("sessions", "list")).out
        newest = await desk.leadrope("sessions", "list", "-n", "1")
        assert len(newest.out.splitlines()) == 2
        assert "1 more; -n 0 shows all." in newest.err

        exported = await desk.leadrope("sessions", "export", short)
        assert (await desk.leadrope("sessions", "delete", info["id"])).out == "deleted 1 session\n"
        gone = await desk.leadrope("sessions", "show", info["id"])
        assert gone.code == 2
        assert "no session" in gone.err
        taken = await desk.leadrope("sessions", "import", "-", stdin=exported.out.encode())
        assert taken.out.startswith(info["id"]), taken.err
        back = await desk.leadrope("run", "still there?", "--resume", info["id"][:13], *to_model)
        assert back.out == "Imported.\n", back.err
    assert (await desk.leadrope("sessions", "delete", "--older-than", "0")).out == "deleted 2 sessions\n"
    assert "there are no sessions" in (await desk.leadrope("sessions", "list")).err


async def test_mistakes_are_2_and_say_what_to_do(desk: Any) -> None:
    for args, told in (
        (("delete",), "no session was named"),
        (("export", "nobody"), "no session 'nobody' is known"),
        (("import", "missing.jsonl"), "cannot be read"),
        (("import", "-"), "line 1 is not of an exported session"),
    ):
        ended = await desk.leadrope("sessions", *args, stdin=b"")
        assert ended.code == 2, ended.err
        assert told in ended.err
        assert "Traceback" not in ended.err
