"""Merges layers of rules into one effective policy: the strictest value per rule, and the layer it came from.

    policy = resolve([*with_defaults([user_rules], shipped), Layer("project", project_rules), Layer("run", run_rules)])

Pure: files are read and calls are decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope import errors
from leadrope.policy.rules import RULES, Rule
from leadrope.policy.schema import EffectiveRules, PolicyRules

Entries = tuple[str, ...]


SHIPPED = "default"
"""The layer of the policy that is shipped with leadrope."""


class Layer(msgspec.Struct, frozen=True):
    name: str
    """`default`, `global`, `agent:NAME`, `project`, `run`, or a file's name, as shown by `origin`."""
    rules: PolicyRules
    is_checked: bool = False
    """Whether its patterns were already checked."""


class EffectivePolicy(EffectiveRules, frozen=True, kw_only=True):
    """The merge of all layers, and the layer that each value came from."""

    origin: dict[str, str] = {}  # noqa: RUF012  # msgspec copies it for every value
    """The layer (or layers, comma-separated) that set a rule. Rules that no layer sets are missing."""
    entry_origin: dict[str, dict[str, str]] = {}  # noqa: RUF012  # the same
    """For each rule, the layer that contributed each entry of its list."""

    def layer_of(self, rule: str, entry: Any = None) -> str:
        """Returns the layer that set an entry of a list, or the rule."""
        return self.entry_origin.get(rule, {}).get(_key(entry), self.origin.get(rule, ""))

    @property
    def gates_commands(self) -> bool:
        """Whether some rule checks command lines."""
        return any(rule.gates_commands(getattr(self, rule.field)) for rule in RULES)

    @property
    def blocked_programs(self) -> Entries:
        """Programs that are blocked whatever their arguments, which a sandbox can mask."""
        return tuple(entry for entry in self.blocked_commands if re.fullmatch(r"[A-Za-z0-9_.+-]+", entry))


def of_rules(rules: PolicyRules, *, is_checked: bool = False) -> EffectivePolicy:
    """Builds the policy of a single layer. Patterns that could never match are refused (BadValue, with a hint)."""
    for rule, value in said(rules) if not is_checked else ():
        validate(rule, value)
    return EffectivePolicy(**{rule.field: rule.canonical(value) for rule, value in said(rules)})


def merge(one: EffectivePolicy, other: EffectivePolicy) -> EffectivePolicy:
    """Returns the stricter value for every rule. Origins are dropped; `resolve` adds them."""
    return EffectivePolicy(
        **{rule.field: rule.merge(getattr(one, rule.field), getattr(other, rule.field)) for rule in RULES}
    )


def resolve(layers: Iterable[Layer]) -> EffectivePolicy:
    """Merges all layers, with the origin of each value.

    Their order only decides which layer is named where several have the same value.
    """
    alone = [
        (layer.name, of_rules(layer.rules, is_checked=layer.is_checked), {rule.name for rule, _ in said(layer.rules)})
        for layer in layers
    ]
    merged = EffectivePolicy()
    for _, policy, _ in alone:
        merged = merge(merged, policy)
    origin: dict[str, str] = {}
    entry_origin: dict[str, dict[str, str]] = {}
    for rule in RULES:
        whole = getattr(merged, rule.field)
        found: dict[str, str] = {}
        for layer, policy, spoken in alone:
            own = rule.entries(getattr(policy, rule.field)) if rule.name in spoken else ()
            for entry in own:
                if entry in rule.entries(whole):
                    found.setdefault(_key(entry), layer)
        if found:
            origin[rule.name] = ", ".join(dict.fromkeys(found.values()))
            if len(found) > 1 or rule.entries(whole) == whole:
                entry_origin[rule.name] = found
        else:
            # The loosest value, but explicit: it still has an origin.
            names = [layer for layer, _, spoken in alone if rule.name in spoken]
            if names:
                origin[rule.name] = names[0]
    return msgspec.structs.replace(merged, origin=origin, entry_origin=entry_origin)


def with_defaults(user: Sequence[PolicyRules], shipped: PolicyRules, *, name: str = "global") -> tuple[Layer, ...]:
    """Combines the shipped rules with the user's own: the user's values replace them, the user's lists are added.

    This is the only place where one layer overrides another, and only the user's own configuration gets here. All
    narrower layers only tighten the result. Both must have been checked.
    """
    replaced = {rule.name for part in user for rule, _ in said(part) if not _is_list(rule)}
    return Layer(SHIPPED, without(shipped, replaced), True), *(Layer(name, part, True) for part in user)


def settings_only(rules: PolicyRules) -> PolicyRules:
    """Returns the values of a policy without its lists."""
    return without(rules, {rule.name for rule in RULES if _is_list(rule)} | {"destructive"})


def without(rules: PolicyRules, names: Iterable[str]) -> PolicyRules:
    dropped = set(names)
    kept: dict[str, Any] = {}
    for rule, value in said(rules):
        if rule.name not in dropped:
            table, _, key = rule.name.rpartition(".")
            (kept.setdefault(table, {}) if table else kept)[key] = value
    return msgspec.convert(kept, PolicyRules)


def said(rules: PolicyRules) -> Iterator[tuple[Rule, Any]]:
    """Yields each rule that this layer sets, with its value as written."""
    for rule in RULES:
        value: Any = rules
        for key in rule.name.split("."):
            value = getattr(value, key) if value is not UNSET else UNSET
        if value is not UNSET:
            yield rule, value


def validate(rule: Rule, value: Any) -> None:
    """Raises BadValue under the rule's own name if the value cannot be used."""
    try:
        rule.validate(value)
    except errors.BadValue as error:
        raise errors.BadValue(rule.name, error.message.partition(": ")[2], hint=error.hint) from None


def _is_list(rule: Rule) -> bool:
    return isinstance(rule.bottom, tuple) and rule.name != "permission_mode"


def _key(entry: Any) -> str:
    return ", ".join(entry) if isinstance(entry, tuple) else str(entry)


def rules_of(value: PolicyRules | Mapping[str, Any]) -> PolicyRules:
    """Checks a policy given in Python: `rules_of({"blocked_commands": ["rm"], "max_budget_usd": 5})`."""
    try:
        plain = msgspec.to_builtins(value) if isinstance(value, PolicyRules) else dict(value)
        rules = msgspec.convert(plain, PolicyRules)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        if path.startswith(".max_"):
            message = 'must be a number or "none"' if "enum" in message else message.replace(" | str`", "`")
        raise errors.BadValue(f"policy{path.rstrip('`')}", message) from None
    of_rules(rules)
    return rules
