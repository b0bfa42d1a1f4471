"""The examples pass their check without a word, and the lines that say how to start them name what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from leadrope.workflows import inputs, library
from leadrope.workflows.language import markdown, markdown_writer
from leadrope.workflows.views import graph

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "examples").iterdir())


def test_there_are_some() -> None:
    assert FILES
    assert all(markdown.is_workflow_file(path.name) for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_has_no_mistake_and_no_warning(path: Path) -> None:
    loaded = library.load(path)
    assert [str(problem) for problem in loaded.warnings] == []
    assert markdown.read(markdown_writer.write(loaded.workflow)).workflow == loaded.workflow
    assert (
        graph.from_graph(msgspec.json.decode(msgspec.json.encode(graph.to_graph(loaded.workflow)))) == loaded.workflow
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_says_how_it_is_started(path: Path) -> None:
    loaded = library.load(path)
    (line,) = re.findall(r"^ {4}leadrope flow run (.*)$", loaded.workflow.prose, re.MULTILINE)
    file, *words = shlex.split(line)
    assert ROOT / file == path
    given = inputs.read_words(word for word in words if not word.startswith("--"))
    assert set(loaded.inputs(given, are_texts=True)) == {one.name for one in loaded.workflow.inputs}
