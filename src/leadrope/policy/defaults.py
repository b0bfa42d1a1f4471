"""The policy that ships with the package. Read from its file once; changed by nobody."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import msgspec

from leadrope.policy.examples import Example
from leadrope.policy.resolve import settings_only
from leadrope.policy.schema import PolicyRules

PATH = Path(__file__).with_name("default.toml")


@functools.cache
def rules(*, lists: bool = True) -> PolicyRules:
    """The shipped rules; without their lists for a user who said `defaults = false`."""
    table = dict(_table())
    table.pop("examples")
    found = msgspec.convert(table, PolicyRules)
    return found if lists else settings_only(found)


@functools.cache
def examples() -> tuple[Example, ...]:
    return msgspec.convert(_table()["examples"], tuple[Example, ...])


@functools.cache
def _table() -> dict[str, object]:
    table: dict[str, object] = tomllib.loads(PATH.read_text(encoding="utf-8"))["policy"]
    return table
