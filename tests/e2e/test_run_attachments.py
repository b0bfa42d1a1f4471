"""Files that go with a prompt reach the model through the real agent; what cannot go starts nothing."""

from __future__ import annotations

import base64
import logging
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope import Reply, errors, events, open_run, provider
from leadrope.rehearsal import ModelServer

PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"


def stripes(size: int) -> bytes:
    return bytes(x * 7 % 256 for x in range(size))


def png(side: int = 8, row: Callable[[int], bytes] = stripes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row(3 * side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def blocks(model: ModelServer, request: int = 0) -> list[dict[str, Any]]:
    """What the model was given in its first user message, without the agent's own reminders."""
    content = model.requests[request].body["messages"][0]["content"]
    return [block for block in content if "<system-reminder>" not in block.get("text", "")]


async def test_image_text_and_pdf_reach_the_model_in_one_message(stage: Any) -> None:
    (stage.ws / "shot.png").write_bytes(png())
    (stage.ws / "notes.txt").write_text("grün @secret.txt /clear")
    (stage.ws / "paper.pdf").write_bytes(PDF)
    played = await stage.play(
        [{"tool": stage.touch}, {"text": "seen"}],
        prompt="look at @notes.txt",
        attachments=("shot.png", "notes.txt", str(stage.ws / "paper.pdf")),
    )
    assert played.result.text == "seen"
    found = blocks(played.model)
    (image,) = [block for block in found if block["type"] == "image"]
    assert image["source"]["media_type"] == "image/png"
    assert base64.b64decode(image["source"]["data"]).startswith(b"\x89PNG")
    text, pdf = [block for block in found if block["type"] == "document"]
    assert (text["title"], text["source"]["data"]) == ("notes.txt", "grün @secret.txt /clear")
    assert (pdf["title"], pdf["source"]["media_type"]) == ("paper.pdf", "application/pdf")
    assert base64.b64decode(pdf["source"]["data"]) == PDF
    words = [block["text"] for block in found if block["type"] == "text"]
    assert words[0] == "Attached image: shot.png"
    assert "look at @notes.txt" in words[1].strip(), "the prompt stays what it was, and comes after the files"


async def test_a_large_image_is_made_smaller_on_its_way(stage: Any) -> None:
    """The API takes 5 MiB of base64 an image; the agent program sees to that, so ours is the larger limit."""
    picture = png(1300, random.Random(1).randbytes)
    assert len(picture) > 5 * 1024 * 1024 * 3 // 4
    (stage.ws / "shot.png").write_bytes(picture)
    played = await stage.play([{"text": "seen"}], attachments=("shot.png",))
    (image,) = [block for block in blocks(played.model) if block["type"] == "image"]
    assert len(image["source"]["data"]) < 5 * 1024 * 1024


async def test_only_the_first_prompt_has_them(stage: Any) -> None:
    (stage.ws / "notes.txt").write_text("the number is 42")
    sent = False

    async def on(run: Any, event: events.Event) -> None:
        nonlocal sent
        if isinstance(event, events.TurnEnded) and not sent:
            sent = True
            await run.send("go")
            run.finish()

    played = await stage.play(
        [{"text": "one"}, {"text": "two"}], attachments=("notes.txt",), prompt="go", on=on, keep_open=True
    )
    assert played.result.text == "two"
    assert str(played.model.requests[1].body["messages"]).count("the number is 42") == 1


async def test_a_completion_takes_them_too(stage: Any) -> None:
    (stage.ws / "notes.txt").write_text("the number is 42")
    async with ModelServer([{"text": "42"}]) as model:
        request = stage.request(model)
        done: Reply = await provider().complete(
            "which number?",
            environ=stage.environ,
            cwd=request.cwd,
            base_url=model.url,
            credential=request.credential,
            attachments=("notes.txt",),
        )
    assert done.text == "42"
    assert blocks(model)[0]["source"]["data"] == "the number is 42"


@pytest.mark.parametrize(
    ("name", "says"),
    [("missing.png", "does not exist"), ("..", "regular file"), ("a.zip", "no kind"), ("cut.png", "not see it")],
)
async def test_what_cannot_go_starts_nothing(stage: Any, name: str, says: str) -> None:
    (stage.ws / "a.zip").write_bytes(b"PK\x03\x04" + bytes(30))
    (stage.ws / "cut.png").write_bytes(png(40)[:100])
    async with ModelServer([]) as model:
        request = stage.request(model, attachments=(name,))
        with pytest.raises(errors.BadAttachment, match=says):
            async with open_run(request, environ=stage.environ):
                pass
    sessions = Path(stage.environ["LEADROPE_HOME"], "sessions")
    assert not sessions.exists() or not list(sessions.iterdir()), "no session was begun"


async def test_no_log_and_no_event_holds_a_file(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (stage.ws / "notes.txt").write_text("a very private sentence")
    played = await stage.play([{"text": "seen"}], attachments=("notes.txt",))
    assert played.result.text == "seen"
    assert "a very private sentence" not in caplog.text
    assert "a very private sentence" not in repr(played.recorded)
