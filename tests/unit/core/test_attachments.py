"""Files that go with a prompt: judged by their bytes, bounded, and refused in words."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope import errors
from leadrope.core import attachments
from leadrope.core.attachments import MIB, PIXELS_LIMIT, TEXT_LIMIT, TOTAL_LIMIT
from leadrope.core.request import RunRequest
from leadrope.core.request_parts import image_header


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 2, height: int = 3, more: int = 0) -> bytes:
    """With a chunk of so many bytes that no reader knows."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"leAd", bytes(more))
    pixels = chunk(b"IDAT", zlib.compress(bytes(3 * 3)))
    return b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b"")


def jpeg(*, frame: int = 0xC0, end: bytes = b"\xff\xd9") -> bytes:
    thumbnail = b"\xff\xe1\0\x08\xff\xd8\xff\xd9ab"
    sides = bytes((0xFF, 0xFF, frame)) + struct.pack(">HBHH", 8, 8, 3, 2) + b"\1"
    return b"\xff\xd8" + thumbnail + b"\xff\xc4\0\x03a" + sides + b"\xff\xda\0\x02" + b"pixels" + end


def webp(kind: bytes, body: bytes) -> bytes:
    inner = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


PNG = png()
GIF = b"\x02\0\x03\0\0\0\0;"
WEBPS = (
    webp(b"VP8 ", b"\x30\1\0\x9d\x01\x2a" + struct.pack("<HH", 2, 3)),
    webp(b"VP8L", b"\x2f" + struct.pack("<I", 1 | 2 << 14)),
    webp(b"VP8X", bytes(4) + b"\x01\0\0\x02\0\0"),
)


@pytest.mark.parametrize(
    ("content", "kind", "media_type"),
    [
        (PNG, "image", "image/png"),
        (jpeg(), "image", "image/jpeg"),
        (b"GIF87a" + GIF, "image", "image/gif"),
        (b"GIF89a" + GIF, "image", "image/gif"),
        (WEBPS[0], "image", "image/webp"),
        (b"%PDF-1.7\n" + bytes(20), "pdf", "application/pdf"),
        (b"x = 1\n", "text", "text/plain"),
        ("grün €".encode(), "text", "text/plain"),
        (b"<svg/>", "text", "text/plain"),
        (b"x", "text", "text/plain"),
    ],
)
def test_the_bytes_say_what_it_is_and_not_the_name(tmp_path: Path, content: bytes, kind: str, media_type: str) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    (one,) = attachments.read(["a.bin"], tmp_path)
    assert (one.name, one.kind, one.media_type, one.content) == ("a.bin", kind, media_type, content)


def test_paths_are_relative_to_the_working_directory_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("A")
    (tmp_path / "b").write_text("B")
    found = attachments.read(["sub/a", str(tmp_path / "b"), "~/b"], tmp_path)
    assert [one.text for one in found] == ["A", "B", "B"]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfhi")
    assert attachments.read(["a"], tmp_path)[0].text == "hi"


def test_the_content_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("private words")
    assert repr(attachments.read(["a.txt"], tmp_path)) == "(Attachment('a.txt', text/plain, 13 bytes),)"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"RIFF\x10\0\0\0WAVEfmt " + bytes(20), "no kind that the model reads"),
        (b"PK\x03\x04" + bytes(20), "no kind that the model reads"),
        (b"\xff\xfeh\0i\0", "no kind that the model reads"),
        (b"caf\xe9", "no kind that the model reads"),
        (png(more=TOTAL_LIMIT), "larger than 18 MiB, the limit for an image"),
        (b"x" * (TEXT_LIMIT + 1), "larger than 1 MiB, the limit for a text"),
        ("€".encode() * (TEXT_LIMIT // 3 + 1), "larger than 1 MiB, the limit for a text"),
        (b"%PDF-1.7" + bytes(TOTAL_LIMIT), "larger than 18 MiB, the limit for a PDF"),
        (png(16_384, 16_384), "it has 16,384 x 16,384 pixels"),
        (png(0, 5), "it has no pixels"),
        (PNG[:-12], "cut off or damaged, and the model would not see it"),
        (PNG[:40], "cut off or damaged"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "cut off or damaged"),
        (jpeg(end=b""), "cut off or damaged"),
        (jpeg()[:20], "cut off or damaged"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF" + b"x" * 20, "cut off or damaged"),
        (b"GIF89a\x02", "cut off or damaged"),
        (WEBPS[0][:-1], "cut off or damaged"),
        (webp(b"NOPE", bytes(20)), "cut off or damaged"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_name(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "shot.png").write_bytes(content)
    with pytest.raises(errors.BadAttachment, match=says) as caught:
        attachments.read(["shot.png"], tmp_path)
    assert caught.value.message.startswith("attachments: shot.png: ")
    assert (caught.value.field, caught.value.path) == ("attachments", "shot.png")


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("image/png", PNG),
        ("image/jpeg", jpeg()),
        ("image/jpeg", jpeg(frame=0xC2)),
        ("image/jpeg", jpeg() + b"what a camera appends"),
        ("image/gif", b"GIF89a" + GIF),
        *(("image/webp", each) for each in WEBPS),
    ],
)
def test_an_image_tells_its_sides(media_type: str, content: bytes) -> None:
    assert image_header.sides(media_type, content) == (2, 3)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["image/png", "image/jpeg", "image/gif", "image/webp"]))
def test_any_bytes_are_an_image_or_refused(content: bytes, media_type: str) -> None:
    try:
        width, height = image_header.sides(media_type, content)
    except image_header.BadImage:
        return
    assert width > 0
    assert height > 0


@pytest.mark.parametrize(
    "content", [png(more=TOTAL_LIMIT - len(PNG)), png(16_383, PIXELS_LIMIT // 16_383), b"x" * TEXT_LIMIT]
)
def test_a_limit_is_the_last_size_that_passes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert attachments.read(["a"], tmp_path)[0].content == content


def test_all_together_have_a_limit(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7" + bytes(12 * MIB))
    with pytest.raises(errors.BadAttachment, match="all attachments together"):
        attachments.read(["a.pdf", "a.pdf"], tmp_path)


def test_their_number_has_a_limit(tmp_path: Path) -> None:
    with pytest.raises(errors.BadAttachment, match="101 files: at most 100"):
        attachments.read(["a"] * 101, tmp_path)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "round").symlink_to("round")
    cases = {"pipe": "not a regular file", "folder": "not a regular file", "/dev/zero": "not a regular file"}
    cases |= {"missing": "does not exist", "dangling": "does not exist", "round": "in a circle", "a\0b": "be read"}
    for name, says in cases.items():
        with pytest.raises(errors.BadAttachment, match=says):
            attachments.read([name], tmp_path)


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("hi")
    (tmp_path / "link").symlink_to("real")
    assert attachments.read(["link"], tmp_path)[0].text == "hi"


def test_a_link_out_of_the_working_directory_is_not_followed(tmp_path: Path) -> None:
    """An agent that works there may have put it in place of the file that the user means."""
    (tmp_path / "key").write_text("private")
    ws = tmp_path / "ws"
    (ws / "sub").mkdir(parents=True)
    (ws / "notes.txt").symlink_to("../key")
    (ws / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to(ws)
    for name in ("notes.txt", str(ws / "notes.txt"), "sub/up/key", str(tmp_path / "alias" / "notes.txt")):
        with pytest.raises(errors.BadAttachment, match="leads out of the folder") as caught:
            attachments.read([name], ws)
        assert "private" not in str(caught.value)
    assert attachments.read([str(tmp_path / "key"), "../key"], ws)[0].text == "private"


def test_a_link_out_of_an_added_folder_is_not_followed_either(tmp_path: Path) -> None:
    for name in ("ws", "more"):
        (tmp_path / name).mkdir()
    (tmp_path / "key").write_text("private")
    (tmp_path / "more" / "notes.txt").symlink_to("../key")
    for folder in ("../more", f"{tmp_path}/more:ro"):
        request = RunRequest(
            prompt="go", cwd=str(tmp_path / "ws"), extra_dirs=(folder,), attachments=("../more/notes.txt",)
        )
        with pytest.raises(errors.BadAttachment, match="leads out of the folder"):
            attachments.of_request(request)


def test_nothing_outside_of_the_only_folder_is_attached(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "key").write_text("private")
    (tmp_path / "ws" / "notes.txt").write_text("hello")
    assert attachments.read(["notes.txt"], tmp_path / "ws", root=tmp_path / "ws")[0].text == "hello"
    for name in ("../key", str(tmp_path / "key")):
        with pytest.raises(errors.BadAttachment, match="is outside of the workspace"):
            attachments.read([name], tmp_path / "ws", root=tmp_path / "ws")
