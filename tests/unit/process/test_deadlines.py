"""Clocks are numbers: every case gives the times itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.process.deadlines import Clocks


def test_a_clock_runs_out_at_its_limit_and_stays_so_until_stopped() -> None:
    clocks = Clocks()
    assert clocks.next_due() is None
    clocks.start("idle", 10, now=100)
    assert clocks.next_due() == 110
    assert clocks.expired(109.9) == ()
    assert clocks.expired(110) == ("idle",)
    assert clocks.expired(200) == ("idle",)
    clocks.stop("idle")
    assert clocks.expired(200) == ()


def test_a_limit_of_zero_is_off_and_turns_a_running_clock_off() -> None:
    clocks = Clocks()
    clocks.start("wall", 0, now=0)
    clocks.touch("wall", 5)
    clocks.stop("wall")
    assert clocks.next_due() is None
    clocks.start("wall", 5, now=0)
    clocks.start("wall", 0, now=1)
    assert clocks.expired(1000) == ()


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="use 0 to turn it off"):
        Clocks().start("wall", -1, now=0)


def test_touch_gives_the_whole_limit_again() -> None:
    clocks = Clocks()
    clocks.start("idle", 10, now=0)
    clocks.touch("idle", 9)
    assert clocks.expired(18) == ()
    assert clocks.expired(19) == ("idle",)


def test_the_earliest_is_named_first() -> None:
    clocks = Clocks()
    clocks.start("wall", 30, now=0)
    clocks.start("idle", 10, now=0)
    clocks.start("start", 20, now=0)
    assert clocks.next_due() == 10
    assert clocks.expired(25) == ("idle", "start")


def test_pauses_nest_and_the_rest_of_the_time_is_kept() -> None:
    clocks = Clocks()
    clocks.start("idle", 10, now=0)
    clocks.pause("idle", 4)
    clocks.pause("idle", 50)
    assert clocks.next_due() is None
    clocks.resume("idle", 60)
    assert clocks.expired(1000) == ()
    clocks.resume("idle", 1000)
    assert clocks.next_due() == 1006


def test_touch_during_a_pause_counts_after_it() -> None:
    clocks = Clocks()
    clocks.start("idle", 10, now=0)
    clocks.pause("idle", 9)
    clocks.touch("idle", 20)
    clocks.resume("idle", 100)
    assert clocks.next_due() == 110


def test_a_clock_started_under_a_pause_waits_for_its_end() -> None:
    clocks = Clocks()
    clocks.pause("idle", 0)
    clocks.start("idle", 10, now=5)
    assert clocks.next_due() is None
    clocks.resume("idle", 20)
    assert clocks.next_due() == 30


def test_a_resume_without_a_pause_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="was not paused"):
        Clocks().resume("idle", 0)


@given(
    limit=st.integers(1, 100),
    steps=st.lists(st.tuples(st.integers(0, 50), st.sampled_from(["pause", "resume", "touch", "wait"])), max_size=30),
)
def test_a_clock_expires_exactly_when_its_unpaused_time_since_the_last_touch_is_used_up(
    limit: int, steps: list[tuple[int, str]]
) -> None:
    clocks = Clocks()
    now = 0
    used = 0
    paused = 0
    clocks.start("c", limit, now)
    for wait, action in steps:
        now += wait
        used += 0 if paused else wait
        if action == "pause":
            clocks.pause("c", now)
            paused += 1
        elif action == "resume" and paused:
            clocks.resume("c", now)
            paused -= 1
        elif action == "touch":
            clocks.touch("c", now)
            used = 0
        assert clocks.expired(now) == (("c",) if used >= limit and not paused else ())
        assert clocks.next_due() == (None if paused else now + limit - used)
