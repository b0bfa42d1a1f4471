"""Folders beside the workspace, as they are written: `DIR`, or `DIR:ro` for one that can only be read."""

from __future__ import annotations

from collections.abc import Iterable

READ_ONLY = ":ro"


def parse(text: str) -> tuple[str, bool]:
    """The path, and whether it is read-only. A folder whose own name ends in `:ro` is written with a `/` at its end."""
    return text.removesuffix(READ_ONLY), text.endswith(READ_ONLY)


def spell(path: str, *, is_read_only: bool) -> str:
    """The text that `parse` reads as this."""
    if is_read_only:
        return f"{path}{READ_ONLY}"
    return f"{path}/" if path.endswith(READ_ONLY) else path


def paths(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(parse(text)[0] for text in texts))


def writable(texts: Iterable[str]) -> tuple[str, ...]:
    found = (parse(text) for text in texts)
    return tuple(dict.fromkeys(path for path, is_read_only in found if not is_read_only))


def read_only(texts: Iterable[str]) -> tuple[str, ...]:
    """Without those that were given to be written as well."""
    texts = tuple(texts)
    both = set(writable(texts))
    return tuple(path for path in paths(texts) if path not in both)
