"""Files that go with a prompt: found, judged by their bytes and size, and read once. Knows no agent and no wire.

What cannot be handed over is refused before anything starts: a model that never saw the file would answer all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from leadrope import errors
from leadrope.confined import open_named
from leadrope.core.request import RunRequest
from leadrope.core.request_parts import extra_dirs, image_header

Kind = Literal["image", "pdf", "text"]

MIB = 1024 * 1024
COUNT_LIMIT = 100
"""Of a longer list the agent program drops the oldest, and says so to nobody."""
TEXT_LIMIT = MIB
TOTAL_LIMIT = 24 * MIB * 3 // 4 - 3 * COUNT_LIMIT
"""Of all together, one image or PDF alone included. The API takes 32 MiB a request. Claude Code 2.1.325 keeps 8 of them
for the words and drops files silently once their base64, four bytes for three and some padding, is more than the rest.
An image needs no limit of its own: the API takes 5 MiB, but the agent program brings each one to about 0.5 MB and 2,000
pixels a side before (tried with PNG files of up to 32 MB and a JPEG of 10)."""
PIXELS_LIMIT = 16_383**2
"""Of an image. The agent program's decoder refuses more: 16,300 pixels a side were made smaller, 16,500 were not."""

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


def of_request(request: RunRequest) -> tuple[Attachment, ...]:
    cwd = Path(request.cwd or ".")
    root = Path(request.attachment_root) if request.attachment_root is not None else None
    others = [Path(cwd, Path(folder).expanduser()) for folder in extra_dirs.paths(request.extra_dirs)]
    return read(request.attachments, cwd, root=root, others=others)


def read(
    paths: Iterable[str], cwd: Path, *, root: Path | None = None, others: Iterable[Path] = ()
) -> tuple[Attachment, ...]:
    """The files, each of a kind and size that can be sent, or the first thing that is wrong. Relative to `cwd`.

    Where an agent can write, in `cwd` and the `others`, no link is followed out of the folder. With `root` all of them
    must lie in that folder.
    """
    wanted = tuple(paths)
    folders = (cwd, *others) if root is None else (root,)
    if len(wanted) > COUNT_LIMIT:
        raise errors.BadAttachment(f"{len(wanted)} files", f"at most {COUNT_LIMIT} can be attached")
    found: list[Attachment] = []
    room = TOTAL_LIMIT
    for path in wanted:
        one = _read_one(path, cwd, room, folders, is_bound=root is not None)
        room -= len(one.content)
        found.append(one)
    return tuple(found)


def _read_one(given: str, cwd: Path, room: int, folders: Iterable[Path], *, is_bound: bool) -> Attachment:
    try:
        path = Path(cwd, Path(given).expanduser())
        with open_named(path, workspaces=folders, only_there=is_bound) as file:
            return _judge(given, path.name, file, room)
    except FileNotFoundError:
        raise errors.BadAttachment(
            given, f"it does not exist (looked for from {cwd})", hint="Paths are relative to the working directory."
        ) from None
    except errors.UnsafeFile as error:
        raise errors.BadAttachment(given, f"it {error.reason}", hint="Attach the files themselves.") from None
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a home that nobody has
        raise errors.BadAttachment(given, f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _judge(given: str, name: str, file: BinaryIO, room: int) -> Attachment:
    head = file.read(_HEAD)
    if not head:
        raise errors.BadAttachment(given, "it is empty")
    kind, media_type = _kind_of(head)
    limit = TEXT_LIMIT if kind == "text" else TOTAL_LIMIT
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
    if kind == "image":
        _check_image(given, media_type, content)
    return Attachment(name=name, kind=kind, media_type=media_type, content=content)


def _check_image(given: str, media_type: str, content: bytes) -> None:
    try:
        width, height = image_header.sides(media_type, content)
    except image_header.BadImage as error:
        hint = "Look at it in another program, and save it again."
        raise errors.BadAttachment(given, f"{error}, and the model would not see it", hint=hint) from None
    if width * height > PIXELS_LIMIT:
        told = f"it has {width:,} x {height:,} pixels, and the agent reads no more than {PIXELS_LIMIT:,}"
        raise errors.BadAttachment(given, told, hint=_SMALLER["image"])


_NAMES: dict[Kind, str] = {"image": "an image", "pdf": "a PDF", "text": "a text"}
_SMALLER: dict[Kind, str] = {
    "image": "Make the image smaller: models see no more than 2,000 pixels a side.",
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
