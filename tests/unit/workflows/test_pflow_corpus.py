"""Small workflows in pflow's words, one for each of its features: what `check` says to them.

pflow 0.16.0 accepts all of them, so what is refused here is what somebody who moves would have to change.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from leadrope.workflows import library
from leadrope.workflows.language import markdown, markdown_writer
from leadrope.workflows.problems import WorkflowProblem

FOLDER = Path(__file__).parents[2] / "data/pflow"
EXPECTED = tomllib.loads((FOLDER / "expected.toml").read_text())
NAMES = sorted(str(path.relative_to(FOLDER)).removesuffix(".pflow.md") for path in FOLDER.rglob("*.pflow.md"))


def problems(name: str, home: Path) -> tuple[WorkflowProblem, ...]:
    return library.judged(FOLDER / f"{name}.pflow.md", leadrope_home=home)[1]


def test_every_file_has_its_verdict() -> None:
    assert sorted([*EXPECTED["accepted"], *EXPECTED["refused"]]) == NAMES


def test_nearly_all_that_pflow_accepts_is_accepted() -> None:
    assert len(EXPECTED["accepted"]) / len(NAMES) >= 0.95


@pytest.mark.parametrize("name", EXPECTED["accepted"])
def test_it_is_accepted_with_a_word_on_what_differs(name: str, tmp_path: Path) -> None:
    found = problems(name, tmp_path)
    assert [str(one) for one in found if one.severity == "error"] == []
    assert sorted({one.kind for one in found}) == EXPECTED["accepted"][name], "\n".join(map(str, found))


@pytest.mark.parametrize("name", EXPECTED["refused"])
def test_it_is_refused_for_one_reason(name: str, tmp_path: Path) -> None:
    found = [one for one in problems(name, tmp_path) if one.severity == "error"]
    assert sorted({one.kind for one in found}) == EXPECTED["refused"][name], "\n".join(map(str, found))


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_the_same_once_it_was_written_anew(name: str) -> None:
    first = markdown.read((FOLDER / f"{name}.pflow.md").read_text(), dialect="pflow")
    again = markdown.read(markdown_writer.write(first.workflow), dialect="pflow")
    if not first.has_errors:
        assert again.workflow == first.workflow
