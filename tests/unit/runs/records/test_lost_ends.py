"""How a run ended whose end the store could not take: written into reserved room, and found by the next process."""

from __future__ import annotations

from pathlib import Path

from leadrope.core.result import RunError, RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.lost_ends import ROOM, LostEnds, forget, of_owner


def ended(run_id: str, outcome: str = "succeeded", error: RunError | None = None) -> RunResult:
    return RunResult(run_id=run_id, outcome=outcome, text="the answer", cost_usd=1.5, error=error)  # type: ignore[arg-type]  # by name


def test_what_was_kept_is_found_by_others_and_what_was_dropped_is_not(tmp_path: Path) -> None:
    ends = LostEnds(tmp_path, "terminal-1")
    ends.reserve()
    (path,) = (tmp_path / "owners").iterdir()
    assert path.stat().st_size == ROOM
    ends.keep("a", ended("a"), Redactor(), 7)
    ends.keep(
        "b", ended("b", "stopped", RunError(kind="stopped", message="by hunter2-4711")), Redactor(["hunter2-4711"]), 2
    )
    found = of_owner(tmp_path, "terminal-1")
    assert (found["a"].outcome, found["a"].lost_events) == ("succeeded", 7)
    assert found["b"].error is not None
    assert "hunter2" not in path.read_text()
    assert "the answer" not in path.read_text()
    assert path.stat().st_size == ROOM, "it never grows"
    ends.drop("a")
    assert set(of_owner(tmp_path, "terminal-1")) == {"b"}
    assert ends.close()
    assert set(of_owner(tmp_path, "terminal-1")) == {"b"}
    forget(tmp_path, "terminal-1")
    assert of_owner(tmp_path, "terminal-1") == {}


def test_nothing_is_left_where_every_end_was_stored(tmp_path: Path) -> None:
    ends = LostEnds(tmp_path, "terminal-1")
    ends.reserve()
    ends.keep("a", ended("a"), Redactor(), 1)
    ends.drop("a")
    assert not ends.close()
    assert not list((tmp_path / "owners").iterdir())


def test_the_stored_part_of_a_log_gives_no_answer(tmp_path: Path) -> None:
    ends = LostEnds(tmp_path, "terminal-1")
    ends.reserve()
    ends.keep("a", ended("a"), Redactor(), 3)
    ends.close()
    before = RunResult(run_id="a", outcome="failed", text="I am about to begin", cost_usd=0.5)
    result = of_owner(tmp_path, "terminal-1")["a"].result(before)
    assert (result.outcome, result.text, result.cost_usd, result.error) == ("succeeded", "", 1.5, None)
    assert "the disk was full" in result.warnings[-1].message


def test_without_room_nothing_is_known_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "owners").write_text("a file where the folder belongs")
    ends = LostEnds(tmp_path, "terminal-1")
    ends.reserve()
    ends.keep("a", ended("a"), Redactor(), 1)
    assert not ends.close()
    assert of_owner(tmp_path, "terminal-1") == {}


def test_more_than_fits_leaves_what_was_there(tmp_path: Path) -> None:
    ends = LostEnds(tmp_path, "terminal-1")
    ends.reserve()
    for number in range(200):
        ends.keep(f"run-{number}", ended("a", "failed", RunError(kind="agent_died", message="x" * 5000)), Redactor(), 1)
    found = of_owner(tmp_path, "terminal-1")
    assert "run-0" in found
    assert 20 < len(found) < 200
    ends.close()
