"""What runs next, and how a workflow ends: a table of small workflows, and properties over generated ones."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.workflows import model
from leadrope.workflows.engine import looping
from leadrope.workflows.engine.plan import Outcome, Plan, PlanProgress, Status, plan
from leadrope.workflows.engine.unit_progress import BatchProgress, Key
from leadrope.workflows.links import Links, links_of


def workflow(text: str) -> Links:
    """`a; b after=a; c next=d,e error=f needs=a` as links."""
    steps = []
    for part in text.split(";"):
        name, *said = part.split()
        keys = dict(one.split("=") for one in said)
        branches = {
            key[1:]: tuple(value.split(",")) if value else () for key, value in keys.items() if key.startswith("?")
        }
        steps.append(
            model.Step(
                id=name,
                type="note",
                after=tuple(filter(None, keys["after"].split(","))) if "after" in keys else None,
                next=tuple(filter(None, keys["next"].split(","))) if "next" in keys else None,
                branches=branches or None,
                on_error=keys.get("error"),
                parameters={
                    **({"text": f"${{{keys['needs']}.x}}"} if "needs" in keys else {}),
                    **({"maybe": f"${{{keys['maybe']}.x ?? 1}}"} if "maybe" in keys else {}),
                },
            )
        )
    return links_of(model.Workflow(steps=tuple(steps)))


def outcomes(text: str) -> dict[str, Outcome]:
    """`a b! c~ d- e?yes`: succeeded, failed, degraded, skipped, chose a branch."""
    found: dict[str, Outcome] = {}
    marks: dict[str, Status] = {"!": "failed", "~": "degraded", "-": "skipped"}
    for one in text.split():
        if "?" in one:
            name, branch = one.split("?")
            found[name] = Outcome(status="succeeded", branch=branch)
        else:
            found[one.rstrip("!~-")] = Outcome(status=marks.get(one[-1], "succeeded"))
    return found


TABLE: list[tuple[str, str, str, str, str | None]] = [
    # workflow, outcomes, ready, will not run (blocked! or left out), ending
    ("a; b; c", "", "a", "", None),
    ("a; b; c", "a", "b", "", None),
    ("a; b; c", "a b c", "", "", "succeeded"),
    ("a; b; c", "a!", "", "b! c!", "failed"),
    ("a; b; c", "a~", "b", "", None),
    ("a; b; c", "a~ b c", "", "", "degraded"),
    ("a; b; c", "a- b", "c", "", None),
    ("a; b; c", "a- b- c-", "", "", "succeeded"),
    # parallel by after
    ("a; b after=a; c after=a", "a", "b c", "", None),
    ("a; b after=a; c after=a; d after=b,c", "a b", "c", "", None),
    ("a; b after=a; c after=a; d after=b,c", "a b c", "d", "", None),
    ("a; b after=a; c after=a; d after=b,c", "a b!", "c", "d!", None),
    ("a; b after=a; c after=a; d after=b,c", "a b! c", "", "d!", "failed"),
    ("a; b after=a; c after=a; d after=c", "a b! c", "d", "", None),
    ("a; b after=; c after=", "", "a b c", "", None),
    ("a; b after=; c after=", "a!", "b c", "", None),
    ("a; b after=; c after=a,b", "b", "a", "", None),
    # next
    ("a next=c; b after=; c", "a", "b", "", None),
    ("a next=c; b after=; c", "a b", "c", "", None),
    ("a next=b,c; b; c", "a", "b c", "", None),
    ("a next=b,c; b next=d; c; d", "a b", "c", "", None),
    ("a next=b,c; b next=d; c; d", "a b c", "d", "", None),
    ("a next=b,c; b next=d; c; d", "a b! c", "", "d!", "failed"),
    ("a next=; b after=a", "a", "b", "", None),
    # branches
    ("a ?yes=b ?no=c; b next=d; c; d", "a?yes", "b", "c", None),
    ("a ?yes=b ?no=c; b next=d; c; d", "a?yes b", "d", "c", None),
    ("a ?yes=b ?no=c; b next=d; c; d", "a?no c", "d", "b", None),
    ("a ?yes=b ?else=c; b; c", "a?other", "c", "b", None),
    ("a ?yes=b ?no=; b", "a?no", "", "b", "succeeded"),
    ("a ?yes=b ?no=; b", "a?other", "", "b", "succeeded"),
    ("a ?yes=b ?no= ?else=c; b next=; c", "a?no", "", "b c", "succeeded"),
    ("a ?yes=b ?no= ?else=c; b next=; c", "a?other", "c", "b", None),
    ("a ?yes=b ?no=c; b; c; d after=b,c", "a?yes b", "d", "c", None),
    # handlers
    ("a error=f; b; f", "a", "b", "f", None),
    ("a error=f; b; f", "a b", "", "f", "succeeded"),
    ("a error=f; b; f", "a!", "f", "b", None),
    ("a error=f; b; f", "a! f", "", "b", "degraded"),
    ("a error=f; b; f", "a! f!", "", "b", "failed"),
    ("a error=f; b; f next=b", "a! f", "b", "", None),
    ("a error=f; b; f next=b", "a! f b", "", "", "degraded"),
    ("a error=f; b; f next=b", "a! f!", "", "b!", "failed"),
    ("a error=f; b error=f; f", "a b!", "f", "", None),
    ("a error=f; f; b", "a", "b", "f", None),
    ("a error=f; b", "a!", "", "b!", "failed"),  # the handler does not exist
    # data
    ("a; b after=; c after=a needs=b", "a", "b", "", None),
    ("a; b after=; c after=a needs=b", "a b", "c", "", None),
    ("a; b after=; c after=a needs=b", "a b!", "", "c!", "failed"),
    ("a; b after=; c after=a maybe=b", "a b!", "c", "", None),
    ("a; b after=; c after=a maybe=b", "a b! c", "", "", "failed"),
    ("a; b after=a error=f; c after=a maybe=b; f", "a b! f", "c", "", None),
    ("a next=; b error=c; c needs=a", "a!", "", "b c", "failed"),
    # what check refuses still ends
    ("a after=b; b after=a", "", "", "a! b!", "failed"),
    ("a; b after=gone", "a", "", "b", "succeeded"),
    ("a next=c; b; c", "a", "c", "b", None),
]


@pytest.mark.parametrize(("text", "so_far", "ready", "never", "ending"), TABLE)
def test_plan(text: str, so_far: str, ready: str, never: str, ending: str | None) -> None:
    found = plan(workflow(text), outcomes(so_far))
    will_not = {*(f"{name}!" for name in found.blocked), *found.left_out}
    assert (" ".join(found.ready), will_not, found.ending) == (ready, set(never.split()), ending)


def test_running_steps_are_not_started_again() -> None:
    links = workflow("a; b after=a; c after=a")
    found = plan(links, outcomes("a"), running=["b"])
    assert (found.ready, found.running, found.is_finished) == (("c",), ("b",), False)
    assert not plan(links, outcomes("a c"), running=["b"]).is_finished


def test_a_step_starts_once_and_has_one_outcome() -> None:
    progress = PlanProgress(workflow("a; b"))
    with pytest.raises(ValueError, match="'b' is waiting"):
        progress.start("b")
    progress.start("a")
    with pytest.raises(ValueError, match="'a' is running"):
        progress.start("a")
    progress.settle("a", Outcome(status="succeeded"))
    with pytest.raises(ValueError, match="'a' has an outcome already"):
        progress.settle("a", Outcome(status="failed"))
    assert progress.ready == ("b",)


def test_descendants_are_what_a_restart_from_a_step_does_again() -> None:
    links = workflow("a; b after=a; c after=b; d after=a; e after= needs=c")
    assert links.descendants("b") == {"c", "e"}


def test_a_chain_of_thousands_of_steps_is_no_recursion() -> None:
    links = workflow(";".join(f"s{number}" for number in range(5000)))
    assert plan(links, {}).waiting[-1] == "s4999"
    assert plan(links, {"s0": Outcome(status="failed")}).blocked[-1] == "s4999"
    assert links.cycles() == ()


@st.composite
def dags(draw: st.DrawFn) -> str:
    count = draw(st.integers(1, 9))
    parts = []
    for number in range(count):
        part = f"s{number}"
        before = [f"s{other}" for other in range(number)]
        later = [f"s{other}" for other in range(number + 1, count)]
        if draw(st.booleans()):
            part += " after=" + ",".join(
                draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
            )
        if later and draw(st.integers(0, 3)) == 0:
            part += " next=" + ",".join(draw(st.lists(st.sampled_from(later), unique=True, max_size=3)))
        elif later and draw(st.integers(0, 3)) == 0:
            part += f" ?yes={draw(st.sampled_from(later))} ?no={draw(st.sampled_from(later))}"
        if later and draw(st.integers(0, 2)) == 0:
            part += f" error={draw(st.sampled_from(later))}"
        if before and draw(st.integers(0, 2)) == 0:
            part += f" {draw(st.sampled_from(['needs', 'maybe']))}={draw(st.sampled_from(before))}"
        parts.append(part)
    return ";".join(parts)


def _play(links: Links, fates: dict[str, Outcome], order: random.Random, width: int) -> tuple[dict[str, Outcome], Plan]:
    """Runs a workflow in some order of completion; every step starts at most once."""
    done: dict[str, Outcome] = {}
    running: list[str] = []
    started: set[str] = set()
    progress = PlanProgress(links)
    while True:
        found = plan(links, done, running)
        assert progress.plan() == found
        assert (progress.ready, progress.is_finished) == (found.ready, found.is_finished)
        assert len([*found.ready, *found.running, *found.waiting, *found.blocked, *found.left_out, *done]) == len(
            links.steps
        )
        if found.is_finished:
            return done, found
        for name in found.ready[: width - len(running)]:
            assert name not in started
            started.add(name)
            running.append(name)
            progress.start(name)
        assert running, "nothing runs and nothing ends"
        name = running.pop(order.randrange(len(running)))
        done[name] = fates[name]
        progress.settle(name, fates[name])


FATES = st.builds(
    Outcome,
    status=st.sampled_from(["succeeded", "succeeded", "degraded", "failed", "skipped"]),
    branch=st.sampled_from(["yes", "no", None]),
)


@settings(max_examples=150, deadline=None)
@given(dags(), st.lists(FATES, min_size=9, max_size=9), st.integers(0, 2**32), st.integers(1, 4))
def test_the_order_of_completion_changes_nothing(text: str, some: list[Outcome], seed: int, width: int) -> None:
    links = workflow(text)
    fates = dict(zip((f"s{number}" for number in range(9)), some, strict=True))
    first, one = _play(links, fates, random.Random(seed), width)
    second, two = _play(links, fates, random.Random(seed + 1), 9)
    assert first == second
    assert (one.ending, set(one.blocked), set(one.left_out)) == (two.ending, set(two.blocked), set(two.left_out))
    has_failed = any(outcome.status == "failed" for outcome in first.values())
    assert not (one.ending == "succeeded" and has_failed)
    assert not (one.ending == "succeeded" and one.blocked)
    if not has_failed:
        assert one.ending == ("degraded" if any(o.status == "degraded" for o in first.values()) else "succeeded")


class Units(NamedTuple):
    ready: tuple[Key, ...] = ()
    outcome: Outcome | None = None


BATCHES: list[tuple[str, int, int, str, str, Units | str]] = [
    # error handling, at once, items, outcomes by item, running, expected
    ("fail_fast", 2, 3, "", "", "0 1"),
    ("fail_fast", 2, 3, "", "0", "1"),
    ("fail_fast", 2, 3, "", "0 1", ""),
    ("fail_fast", 2, 3, "0", "1", "2"),
    ("fail_fast", 2, 3, "0!", "1", ""),
    ("fail_fast", 2, 3, "0! 1", "", Units(outcome=Outcome(status="failed"))),
    ("fail_fast", 2, 3, "0 1 2", "", Units(outcome=Outcome(status="succeeded"))),
    ("fail_fast", 2, 3, "0 1~ 2", "", Units(outcome=Outcome(status="degraded"))),
    ("fail_fast", 2, 0, "", "", Units(outcome=Outcome(status="succeeded"))),
    ("continue", 1, 3, "0!", "", "1"),
    ("continue", 1, 3, "0! 1 2", "", Units(outcome=Outcome(status="degraded"))),
    ("continue", 1, 3, "0! 1! 2!", "", Units(outcome=Outcome(status="failed"))),
    ("continue", 3, 3, "1", "", "0 2"),
]


@pytest.mark.parametrize(("handling", "wide", "count", "so_far", "running", "expected"), BATCHES)
def test_batch(handling: str, wide: int, count: int, so_far: str, running: str, expected: Units | str) -> None:
    batch = model.Batch(items="${x}", max_concurrent=wide, error_handling=handling)  # type: ignore[arg-type]  # a table of words
    done = {Key("s", 2, int(name)): outcome for name, outcome in outcomes(so_far).items()}
    at_work = [Key("s", 2, int(name)) for name in running.split()]
    progress = BatchProgress("s", batch, count, done, at_work, iteration=2)
    found = Units(ready=progress.take() if progress.outcome is None else (), outcome=progress.outcome)
    if isinstance(expected, Units):
        assert found == expected
    else:
        assert found == Units(ready=tuple(Key("s", 2, int(name)) for name in expected.split()))


@pytest.mark.parametrize("handling", ["fail_fast", "continue"])
def test_ten_thousand_items(handling: str) -> None:
    """Each item starts once, never more than four at a time, and a failure ends a batch that is to fail fast."""
    batch = model.Batch(items=[], max_concurrent=4, error_handling=handling)  # type: ignore[arg-type]  # a word
    progress = BatchProgress("s", batch, 10_000)
    running: list[Key] = []
    started: list[Key] = []
    while progress.outcome is None:
        taken = progress.take()
        started += taken
        running += taken
        assert 1 <= len(running) <= 4
        key = running.pop(len(running) // 2)
        progress.settle(key, Outcome(status="failed" if key.item == 50 else "succeeded"))
    assert len(set(started)) == len(started)
    assert progress.outcome == Outcome(status="failed" if handling == "fail_fast" else "degraded")
    assert (len(started) < 60) == (handling == "fail_fast")
    with pytest.raises(ValueError, match="has an outcome already"):
        progress.settle(started[0], Outcome(status="failed"))


LOOPS: list[tuple[int, bool | None, float, str | None]] = [
    # turns so far, what the condition says, seconds used, why it ends
    (1, True, 0.0, None),
    (1, None, 0.0, None),
    (1, False, 0.0, "condition"),
    (3, True, 0.0, "max_iterations"),
    (3, None, 0.0, "max_iterations"),
    (3, False, 0.0, "condition"),
    (1, True, 9.9, None),
    (1, True, 10.0, "max_seconds"),
    (1, None, 11.0, "max_seconds"),
    (1, False, 11.0, "condition"),
    (3, True, 11.0, "max_iterations"),
]


@pytest.mark.parametrize(("turns", "wants", "used_s", "why"), LOOPS)
def test_loop(turns: int, wants: bool | None, used_s: float, why: str | None) -> None:
    bounds = looping.Bounds(turns=3, seconds=10.0)
    assert looping.stopped(bounds, turns=turns, wants=wants, used_s=used_s) == why
    if why != "max_seconds":
        assert looping.stopped(looping.Bounds(turns=3), turns=turns, wants=wants, used_s=used_s) == why


def test_keys_are_names_and_have_an_order() -> None:
    assert [str(key) for key in sorted([Key("b"), Key("a", 1, 2), Key("a", 1, 0)])] == ["a#1[0]", "a#1[2]", "b#0"]
