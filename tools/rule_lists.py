"""What follows from the rules of a policy (policy/rules.py): their static types, and their table in docs/policy.md.
`make docs` writes both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leadrope.policy.rules import RULES
from option_lists import formatted

PAGE = "docs/policy.md"
SCHEMA = "src/leadrope/policy/schema.py"
_START, _END = "<!-- rules: made by `make docs` -->", "<!-- end of rules -->"


def schema() -> str:
    """src/leadrope/policy/schema.py"""
    tables = sorted({rule.name.partition(".")[0] for rule in RULES if "." in rule.name})
    parts = [_HEAD]
    for table in tables:
        parts += [f"class {table.title()}Rules({_STRUCT}):", f'    """`[policy.{table}]`"""\n']
        parts += [
            f"    {rule.name.partition('.')[2]}: {rule.written} | UnsetType = UNSET"
            for rule in RULES
            if rule.name.startswith(f"{table}.")
        ]
        parts.append("\n")
    parts += [f"class PolicyRules({_STRUCT}):", _LAYER]
    parts += [f"    {rule.name}: {rule.written} | UnsetType = UNSET" for rule in RULES if "." not in rule.name]
    parts += [f"    {table}: {table.title()}Rules | UnsetType = UNSET" for table in tables]
    parts += ["\n", "class EffectiveRules(msgspec.Struct, frozen=True, kw_only=True):", _MERGED]
    parts += [f"    {rule.field}: {rule.merged} = {rule.bottom!r}" for rule in RULES]
    named = ", ".join(f'"{table}": {table.title()}Rules' for table in tables)
    parts += [
        "\n",
        f"TABLES: Mapping[str, type[msgspec.Struct]] = {{{named}}}",
        '"""Rules with a dot in their names."""',
    ]
    return formatted("\n".join(parts) + "\n")


_STRUCT = "msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True"
_LAYER = '    """The rules of one layer. What is left out is not said, and leaves the other layers alone."""\n'
_MERGED = '    """What holds when all layers have spoken. A rule that nobody spoke of has its loosest value."""\n'
_HEAD = '''"""What a policy may say, as people write it, and what comes out when layers are merged.

Made by tools/rule_lists.py (`make docs`) from policy/rules.py. Do not edit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from leadrope.core.request import Mode

Amount = Annotated[float, Meta(gt=0)]
Positive = Annotated[int, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Texts = tuple[str, ...]
NoLimit = Literal["none"]
"""This layer sets no limit. In the user\'s own `[policy]` it lifts the shipped one; elsewhere it changes nothing."""


'''


def page(root: Path) -> str:
    """docs/policy.md with the rules in its table."""
    text = (root / PAGE).read_text(encoding="utf-8")
    start, end = text.index(_START), text.index(_END)
    return text[:start] + "\n".join([_START, *_rows()]) + "\n" + text[end:]


def _rows() -> Iterator[str]:
    from leadrope.policy.files import defaults  # it needs the schema that is written here
    from leadrope.policy.resolve import said

    shipped = dict(said(defaults.rules()))
    yield "| rule | meaning | shipped | layers merge to |"
    yield "|---|---|---|---|"
    for rule in RULES:
        value = shipped.get(rule)
        shown = "" if value is None else "a list" if isinstance(value, tuple) else f"`{value}`".replace(".0`", "`")
        yield f"| `{rule.name}` | {rule.help} | {shown} | {rule.merged_as} |"
