"""A TOML file with its lines, and the problems found in it. Knows nothing of what the file is about."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.confined import open_named
from leadrope.core.text import toml_lines
from leadrope.spelling import close_matches

Key = tuple[str | int, ...]

# A policy is a page or two. More is a mistake or an attack on whoever reads it.
MAX_BYTES = 1024 * 1024
# Finding a line costs a parse of the file: the first problems get theirs, and a file built to waste time wastes little.
MAX_LOOKS = 20
MAX_LOOKED_AT = 100_000
_MARK = "leadrope-looks-for-this-line"


class FileProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong, where it stands, and what to do about it."""

    file: str
    line: int | None = None
    where: str = ""
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.where}: {self.message}" if self.where else f"{place}: {self.message}"


class Problems(errors.BadConfig):
    """A file that cannot be used; the message is its first problem, `problems` are all of them."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}", hint=problems[0].hint)
        self.problems = tuple(problems)


class TomlDocument:
    """Parsed once for its values; parsed again, with every blank kept, only when a line is asked for."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self._text = text
        self._looked = 0
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line, message, hint = toml_lines.in_words(error, text)
            raise Problems(
                [FileProblem(file=source, line=line, message=f"is not TOML: {message}", hint=hint)]
            ) from None
        except RecursionError:
            raise Problems([FileProblem(file=source, message="is not TOML: it is nested too deeply")]) from None

    @classmethod
    def read(cls, path: Path, shown: str | None = None, *, inside: Path | None = None) -> TomlDocument:
        """FileNotFoundError is the caller's matter; everything else that prevents reading is a problem.

        `inside`: a folder that an agent can write; no link may lead out of it.
        """
        source = shown or str(path)
        try:
            with open_named(path, workspaces=(inside,) if inside is not None else ()) as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise Problems([FileProblem(file=source, message=f"is larger than {MAX_BYTES} bytes")])
            text = content.decode()
        except FileNotFoundError:
            raise
        except errors.UnsafeFile as error:
            message = error.reason if "leads out" in error.reason else "is not a plain file"
            raise Problems([FileProblem(file=source, message=message)]) from None
        except (OSError, UnicodeDecodeError) as error:
            raise Problems([FileProblem(file=source, message=f"cannot be read: {error}")]) from None
        return cls(text, source)

    def table(self, key: Key) -> Any:
        found: Any = self.data
        for part in key:
            found = found.get(part, {}) if isinstance(found, dict) else {}
        return found

    def line(self, key: Key) -> int | None:
        """The line on which the value of a key stands.

        The parser keeps every blank but no positions: a value is replaced by a mark, and the mark looked for.
        """
        import tomlkit  # noqa: PLC0415  # 40 ms that only a faulty file costs
        from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415  # the same

        self._looked += 1
        if self._looked > MAX_LOOKS or len(self._text) > MAX_LOOKED_AT:
            return None
        for length in range(len(key), 0, -1):
            try:
                document = tomlkit.parse(self._text)
                holder: Any = document
                for part in key[: length - 1]:
                    holder = holder[part]
                last = key[length - 1]
                if isinstance(holder[last], dict):
                    # A table's own line: that of the first key in it, which is all that can be marked.
                    holder, last = holder[last], next(iter(holder[last]))
                holder[last] = _MARK
                before, found, _ = tomlkit.dumps(document).partition(_MARK)
            except (TOMLKitError, KeyError, IndexError, TypeError, StopIteration, ValueError):
                continue  # not there, or not reachable this way: what it stands in is the next best place
            if found:
                return before.count("\n") + 1
        return None

    def problem(self, key: Key, message: str, hint: str | None = None) -> FileProblem:
        return FileProblem(file=self.source, line=self.line(key), where=shown(key), message=message, hint=hint)


def shown(key: Key) -> str:
    """`policy.network.allowed_hosts[1]`"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")


def suggest(word: str, known: Iterable[str]) -> str | None:
    names = list(known)
    close = close_matches(word, names, n=2)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known here: {', '.join(names)}." if names else None


def inner_key(error: msgspec.ValidationError) -> tuple[str, Key]:
    """The message and the path of a decoder's error: `$.network.allowed_hosts[1]` as a key."""
    message, _, path = str(error).partition(" - at `$")
    parts = re.findall(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]", path)
    return message, tuple(name or int(number) for name, number in parts)
