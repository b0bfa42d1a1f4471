"""The verdicts of a policy on a call: allow, ask a person, or deny; `decide` produces them."""

from __future__ import annotations

from typing import Literal

import msgspec

Word = Literal["allow", "ask", "deny"]


class _Verdict(msgspec.Struct, frozen=True):
    rule: str
    """The rule that decided: `blocked_commands`, `mode:plan`, `tools` …"""
    reason: str = ""
    layer: str = ""
    """The layer that the rule came from: `default`, `global`, `agent:NAME`, `project`, `run` …"""
    reading: str = ""
    """How a command was read."""

    @property
    def word(self) -> Word:
        return WORDS[type(self)]


class Allow(_Verdict, frozen=True):
    only_reads: bool = False
    """The command is known to change nothing."""


class Ask(_Verdict, frozen=True):
    pass


class Deny(_Verdict, frozen=True):
    is_unasked: bool = False
    """A person would have been asked, but nobody is available."""


Verdict = Allow | Ask | Deny

WORDS: dict[type, Word] = {Allow: "allow", Ask: "ask", Deny: "deny"}
_STRICTNESS: dict[type, int] = {Allow: 0, Ask: 1, Deny: 2}


def strictness(verdict: Verdict) -> int:
    """Orders verdicts: 0 allow, 1 ask, 2 deny."""
    return _STRICTNESS[type(verdict)]


def stricter(one: Verdict, other: Verdict) -> Verdict:
    """Returns the stricter of two; the first if they are equal."""
    return other if strictness(other) > strictness(one) else one
