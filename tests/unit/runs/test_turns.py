"""Whose turn it is: priority, then the lane with the fewest runs, then age; whatever waits."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from leadrope.runs.records.sqlite import turns

Waiting = list[tuple[int, str, str, int, str | None]]

rows = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(-1, 2), st.sampled_from([None, "x", "y"])), max_size=30
).map(lambda found: [(n, f"run-{n}", lane, priority, owner) for n, (lane, priority, owner) in enumerate(found, 1)])
counts = st.dictionaries(st.sampled_from(["", "a", "b", "z"]), st.integers(0, 5))


@given(rows, counts)
def test_everybody_comes_once(waiting: Waiting, running: dict[str, int]) -> None:
    found = list(turns(waiting, running))
    assert sorted(found) == sorted((n, run_id, owner) for n, run_id, _, _, owner in waiting)


@given(rows, counts)
def test_each_is_the_best_of_those_that_are_left(waiting: Waiting, running: dict[str, int]) -> None:
    by_number = {row[0]: row for row in waiting}
    left, lanes = set(by_number), Counter(running)
    for n, _, _ in turns(waiting, running):
        best = min(left, key=lambda m: (-by_number[m][3], lanes[by_number[m][2]], m))
        assert n == best
        left.remove(n)
        lanes[by_number[n][2]] += 1


@given(rows)
def test_lanes_take_turns(waiting: Waiting) -> None:
    """Within one priority no lane is ahead of another that still waits by more than one."""
    same = [(n, run_id, lane, 0, owner) for n, run_id, lane, _, owner in waiting]
    lane_of = {n: lane for n, _, lane, _, _ in same}
    left, started = Counter(lane_of.values()), Counter[str]()
    for n, _, _ in turns(same, {}):
        lane = lane_of[n]
        left[lane] -= 1
        started[lane] += 1
        behind = [started[other] for other in left if left[other] > 0]
        assert not behind or started[lane] <= min(behind) + 1


def test_a_lane_of_a_thousand_does_not_hide_a_lane_of_one() -> None:
    crowd: Waiting = [(n, f"run-{n}", "crowd", 0, None) for n in range(1, 1001)]
    assert [n for n, _, _ in islice(turns([*crowd, (1001, "late", "one", 0, None)], {}), 2)] == [1, 1001]
