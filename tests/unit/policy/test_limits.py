"""Limits that can be set: shipped values give way to what the user asks for, every other layer's only tighten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.core.request import Limits
from leadrope.policy import limits
from leadrope.policy.files import defaults
from leadrope.policy.files.sources import Sources, gather_policy
from leadrope.policy.resolve import Layer, rules_of, with_defaults

CAPS = st.none() | st.just("none") | st.integers(1000, 2_000_000)
ASKED = st.none() | st.just(0) | st.integers(1, 2000)


def numbers(*values: object) -> list[float]:
    return [value / 1000 for value in values if isinstance(value, int)]


def rules(**values: Any) -> Any:
    return rules_of({name: value for name, value in values.items() if value is not None})


@settings(max_examples=400, deadline=None)
@given(CAPS, CAPS, CAPS, ASKED)
def test_only_the_shipped_cap_gives_way_to_what_was_asked_for(
    user: object, agent: object, project: object, asked: int | None
) -> None:
    layers = (
        *with_defaults([rules(max_timeout_ms=user)], defaults.rules(lists=False)),
        Layer("agent:a", rules(max_timeout_ms=agent)),
        Layer("project", rules(max_timeout_ms=project)),
    )
    wanted = Limits(idle_s=asked)
    found = Sources(layers=layers).effective(lifted=limits.lifted(wanted))
    idle = limits.capped(wanted, found).idle_s

    firm = numbers(user, agent, project)
    if asked is None and user is None:
        firm.append(300)  # the shipped value, which nobody has replaced
    if not firm:
        assert idle == asked
    else:
        assert idle == min([*firm, *([asked] if asked else [])])
    is_lowered = asked is not None and bool(firm) and (asked == 0 or asked > min(firm))
    told = list(limits.lowered(wanted, found))
    assert bool(told) == is_lowered
    if told:
        smallest = min(firm)
        names = {"global": user, "agent:a": agent, "project": project}
        (author,) = [name for name in names if f"the policy ({name})" in told[0]]
        assert numbers(names[author]) == [smallest]
        assert told[0].endswith(f"allows {smallest:g} s")


@settings(max_examples=200, deadline=None)
@given(CAPS, CAPS, ASKED, st.sampled_from(["max_timeout_ms", "max_wall_ms", "max_memory_mb", "max_budget_usd"]))
def test_one_more_layer_never_raises_a_limit(one: object, other: object, asked: int | None, rule: str) -> None:
    name = next(name for name, its_rule in limits.RULE_OF.items() if its_rule == rule)
    asked = asked or None if name == "budget_usd" else asked
    layers = [*with_defaults([], defaults.rules(lists=False)), Layer("project", rules(**{rule: one}))]
    wanted = msgspec.convert({name: asked}, Limits)

    def limit(*found: Layer) -> float:
        effective = Sources(layers=found).effective(lifted=limits.lifted(wanted))
        return getattr(limits.capped(wanted, effective), name) or float("inf")

    assert limit(*layers, Layer("run", rules(**{rule: other}))) <= limit(*layers)


def test_none_in_the_users_own_layer_lifts_a_shipped_limit(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[policy]\nmax_budget_usd = "none"\nmax_timeout_ms = "none"\nmax_file_size = "none"\n')
    found = gather_policy(config=config).effective()
    assert (found.max_budget_usd, found.max_timeout_ms, found.max_file_size) == (None, None, None)
    assert found.origin["max_budget_usd"] == found.origin["max_file_size"] == "global"


@pytest.mark.parametrize("rule", ["max_budget_usd", "max_timeout_ms", "max_file_size"])
def test_none_in_a_projects_layer_lifts_nothing(tmp_path: Path, rule: str) -> None:
    (tmp_path / "leadrope.toml").write_text(f'[policy]\n{rule} = "none"\n')
    found = gather_policy(cwd=tmp_path).effective()
    assert getattr(found, rule) == getattr(gather_policy().effective(), rule) is not None
    assert found.origin[rule] == "default"


def test_no_budget_is_a_word_that_survives_being_stored() -> None:
    asked = Limits(budget_usd="none", idle_s=0)
    stored = msgspec.json.decode(msgspec.json.encode(asked), type=Limits)
    assert stored == asked
    assert stored.cap_usd is None
    capped = limits.capped(stored, gather_policy().effective(lifted=limits.lifted(stored)))
    assert (capped.cap_usd, capped.idle_s) == (None, 0)
    assert limits.capped(Limits(), gather_policy().effective()).cap_usd == 100
