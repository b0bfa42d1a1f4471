"""What a policy can say about a call: yes, ask a person, or no. Values only; how one is reached is decide's matter."""

from __future__ import annotations

from typing import Literal

import msgspec

Word = Literal["allow", "ask", "deny"]


class _Verdict(msgspec.Struct, frozen=True):
    rule: str
    """What said so: `blocked_commands`, `mode:plan`, `tools` …"""
    reason: str = ""
    layer: str = ""
    """The layer that the rule came from: `default`, `global`, `agent:NAME`, `project`, `run` …"""
    reading: str = ""
    """For a command, how it was read."""

    @property
    def word(self) -> Word:
        return WORDS[type(self)]


class Allow(_Verdict, frozen=True):
    only_reads: bool = False
    """A command that is known to change nothing."""


class Ask(_Verdict, frozen=True):
    pass


class Deny(_Verdict, frozen=True):
    is_unasked: bool = False
    """A person would have been asked, and nobody is there."""


Verdict = Allow | Ask | Deny

WORDS: dict[type, Word] = {Allow: "allow", Ask: "ask", Deny: "deny"}
_STRICTNESS: dict[type, int] = {Allow: 0, Ask: 1, Deny: 2}


def strictness(verdict: Verdict) -> int:
    """0 allow, 1 ask, 2 deny."""
    return _STRICTNESS[type(verdict)]


def stricter(one: Verdict, other: Verdict) -> Verdict:
    """The stricter of two; the first if they agree."""
    return other if strictness(other) > strictness(one) else one
