"""Secrets that can be found again in a text without being kept: an HMAC of each under a key, and its length. Pure.

Looking for an HMAC at every place of a text would take minutes for a megabyte. So of the first bytes of each secret one
bit each is kept too, by a division of all byte values into two halves that only the key knows: the text is translated
into such bits, and the HMAC is computed where they agree. That is linear, and takes two to three seconds for 10
MB and twenty secrets. Whoever has the digests but not the key learns lengths and nothing else that is of use.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Iterable, Iterator

import msgspec

from leadrope.core.secrets.redaction import MASK

KEY_BYTES = 32
HEAD = 16
"""Bytes of a secret of which a bit is kept: in other texts these bits agree at one place of 65,536."""


class Digest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One spelling of one secret."""

    length: int
    """In bytes of UTF-8."""
    head: str
    """A bit, 0 or 1, for each of the first bytes."""
    digest: str


class Finder:
    """Finds and removes what has one of these digests."""

    def __init__(self, key: bytes, digests: Iterable[Digest]) -> None:
        self._key = key
        self._bits = _bits(key)
        self._heads: dict[bytes, dict[int, set[bytes]]] = {}
        for one in digests:
            lengths = self._heads.setdefault(one.head.encode(), {})
            lengths.setdefault(one.length, set()).add(bytes.fromhex(one.digest))

    def clean(self, data: bytes) -> bytes:
        places = sorted(self._places(data))
        if not places:
            return data
        kept, end = bytearray(), 0
        for start, stop in places:
            if start >= end:  # else it overlaps the one before, and one mask stands for both
                kept += data[end:start] + MASK.encode()
            end = max(end, stop)
        return bytes(kept + data[end:])

    def clean_text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        cleaned = self.clean(data)
        return text if cleaned == data else cleaned.decode("utf-8", "replace")

    def _places(self, data: bytes) -> Iterator[tuple[int, int]]:
        if not self._heads:
            return
        bits = data.translate(self._bits)
        for head, lengths in self._heads.items():
            start = bits.find(head)
            while start >= 0:
                for length, digests in lengths.items():
                    if start + length <= len(data) and _digest(self._key, data[start : start + length]) in digests:
                        yield start, start + length
                start = bits.find(head, start + 1)


def of(secrets: Iterable[str], key: bytes) -> list[Digest]:
    """The digests of these spellings, in no order that tells anything of them."""
    texts = {secret.encode("utf-8", "surrogatepass") for secret in secrets}
    bits = _bits(key)
    found = [
        Digest(length=len(text), head=text[:HEAD].translate(bits).decode(), digest=_digest(key, text).hex())
        for text in texts
        if text
    ]
    return sorted(found, key=lambda one: one.digest)


def key_name(key: bytes) -> str:
    """Tells whether digests were made with this key."""
    return hmac.digest(key, b"leadrope: name of the key", "sha256").hex()[:16]


def _digest(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


@functools.lru_cache(maxsize=4)
def _bits(key: bytes) -> bytes:
    """For each byte value the character 0 or 1: one half of all values each, in an order that the key gives."""
    order = sorted(range(256), key=lambda value: hashlib.sha256(key + b"\0bit\0" + bytes([value])).digest())
    ones = set(order[:128])
    return bytes(ord("1") if value in ones else ord("0") for value in range(256))
