"""Files that go with a prompt: found, judged by their bytes and size, and read once. Knows no agent and no wire.

What cannot be handed over is refused before anything starts: a model that never saw the file would answer all the same.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from leadrope import errors

Kind = Literal["image", "pdf", "text"]

MIB = 1024 * 1024
IMAGE_LIMIT = 5 * MIB * 3 // 4
"""The API takes 5 MiB an image and counts its base64, which is four bytes for three."""
TEXT_LIMIT = MIB
TOTAL_LIMIT = 30 * MIB * 3 // 4
"""Of all together, a PDF alone included: the API takes 32 MB a request, base64 and everything else in it."""
COUNT_LIMIT = 100

_HEAD = 16
_KINDS = "Images (PNG, JPEG, GIF, WebP), PDF and UTF-8 text can be attached."


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One file's content. It may be private: it is never printed."""

    name: str
    """The file's own name, without its folder."""
    kind: Kind
    media_type: str
    content: bytes

    @property
    def text(self) -> str:
        """Of a text file, without a byte order mark."""
        return self.content.decode("utf-8-sig")

    def __repr__(self) -> str:
        return f"Attachment({self.name!r}, {self.media_type}, {len(self.content)} bytes)"


def read(paths: Iterable[str], cwd: Path) -> tuple[Attachment, ...]:
    """The files, each of a kind and size that can be sent, or the first thing that is wrong. Relative to `cwd`."""
    wanted = tuple(paths)
    if len(wanted) > COUNT_LIMIT:
        raise errors.BadAttachment(f"{len(wanted)} files", f"at most {COUNT_LIMIT} can be attached")
    found: list[Attachment] = []
    room = TOTAL_LIMIT
    for path in wanted:
        one = _read_one(path, cwd, room)
        room -= len(one.content)
        found.append(one)
    return tuple(found)


def _read_one(given: str, cwd: Path, room: int) -> Attachment:
    try:
        path = Path(cwd, Path(given).expanduser())
        with _opened(path) as file:
            if file is None:
                raise errors.BadAttachment(given, "it is not a regular file", hint="Attach the files themselves.")
            return _judge(given, path.name, file, room)
    except FileNotFoundError:
        raise errors.BadAttachment(
            given, f"it does not exist (looked for from {cwd})", hint="Paths are relative to the working directory."
        ) from None
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a home that nobody has
        raise errors.BadAttachment(given, f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO | None]:
    """None for what is no regular file. The open file is asked: a name can change its meaning in between."""
    # Not blocking, or the opening of a pipe would wait for its other side. Not every system has each of them.
    flags = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    fd = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        yield None
        return
    with os.fdopen(fd, "rb") as file:
        yield file


def _judge(given: str, name: str, file: BinaryIO, room: int) -> Attachment:
    head = file.read(_HEAD)
    if not head:
        raise errors.BadAttachment(given, "it is empty")
    kind, media_type = _kind_of(head)
    limit = {"image": IMAGE_LIMIT, "pdf": TOTAL_LIMIT, "text": TEXT_LIMIT}[kind]
    # One byte more than allowed tells that there is more, without reading a file that may be endless.
    content = head + file.read(limit - len(head) + 1)
    if kind == "text" and not _is_text(content):
        raise errors.BadAttachment(given, "it is of no kind that the model reads", hint=_KINDS)
    if len(content) > limit:
        raise errors.BadAttachment(
            given, f"it is larger than {_size(limit)}, the limit for {_NAMES[kind]}", hint=_SMALLER[kind]
        )
    if len(content) > room:
        raise errors.BadAttachment(
            given, f"all attachments together are larger than {_size(TOTAL_LIMIT)}", hint="Attach less at once."
        )
    return Attachment(name=name, kind=kind, media_type=media_type, content=content)


_NAMES: dict[Kind, str] = {"image": "an image", "pdf": "a PDF", "text": "a text"}
_SMALLER: dict[Kind, str] = {
    "image": "Make the image smaller: models see no more than about 1,500 pixels a side.",
    "pdf": "Attach the pages that matter, or let the agent read the file in its folder.",
    "text": "Name the file in the prompt instead: the agent can read it piece by piece.",
}


def _kind_of(head: bytes) -> tuple[Kind, str]:
    """By the first bytes: a name may lie, and the API refuses an image that is not what it is said to be."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image", "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image", "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image", "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image", "image/webp"
    if head.startswith(b"%PDF-"):
        return "pdf", "application/pdf"
    return "text", "text/plain"


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content[:TEXT_LIMIT].decode()
    except UnicodeDecodeError as error:
        # A text that is too long may be cut inside its last character.
        return len(content) > TEXT_LIMIT and error.start > TEXT_LIMIT - 4
    return True


def _size(count: int) -> str:
    return f"{count / MIB:.3g} MiB"
