"""What a type checker and `help()` tell somebody who writes a program with leadrope."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from collections import deque
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import leadrope
from leadrope.core.request import McpServer, RunRequest
from leadrope.core.request_checks import check
from leadrope.core.request_forms import RunFields
from leadrope.core.request_parts.field_docs import fields_of
from leadrope.runtime.keywords import read

PROGRAM = Path(__file__).parents[1] / "data" / "users_program.txt"


def test_mypy_finds_every_typo_in_a_users_program_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.read_text())
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = {int(number) for number in re.findall(r"^program\.py:(\d+): error", done.stdout, re.MULTILINE)}
    lines = enumerate(program.read_text().splitlines(), 1)
    assert found == {number for number, line in lines if line.endswith("# wrong")}, done.stdout + done.stderr


def test_the_keywords_are_the_fields_of_a_request() -> None:
    fields = get_type_hints(RunRequest)
    assert next(iter(fields)) == "prompt"
    del fields["prompt"], fields["agent_from"], fields["attachment_root"]  # the latter two are set by leadrope alone
    taken = {field.name: as_taken(field.kind) for field in fields_of(RunRequest) if field.name in fields}
    keywords = {name: kind.__forward_arg__ for name, kind in RunFields.__annotations__.items()}
    assert list(keywords.items()) == list(taken.items())


def as_taken(kind: str) -> str:
    """The type of a keyword for a field of this type: callers may pass any sequence where a value holds a tuple."""
    return re.sub(r"tuple\[(.+), \.\.\.\]", r"SequenceNotStr[\1]", kind)


def test_the_arguments_of_a_connection_are_its_fields() -> None:
    """Type checkers are shown an `__init__` that takes lists; it is written by hand, and must name every field."""
    (found,) = [
        node
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(McpServer))))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    shown = {one.arg: ast.unparse(one.annotation) for one in found.args.kwonlyargs if one.annotation}
    assert shown == {field.name: as_taken(field.kind) for field in fields_of(McpServer)}


SEQUENCES = ("attachments", "tools", "disallowed_tools", "allow", "policies", "policy_files", "extra_dirs")


@pytest.mark.parametrize("name", [*SEQUENCES, "secret_variables"])
def test_a_bare_text_in_place_of_a_list_is_refused_with_the_list_that_was_meant(name: str) -> None:
    keywords: dict[str, Any] = {name: "Read"}
    for request in ("text", RunRequest(prompt="text")):
        with pytest.raises(leadrope.errors.BadValue) as refused:
            leadrope.open_run(request, **keywords)
        assert (refused.value.field, refused.value.hint) == (name, f"Write {name}=['Read'].")
    with pytest.raises(leadrope.errors.BadValue, match="is a text, not a list"):
        check(RunRequest(prompt="text", **keywords))


@pytest.mark.parametrize("given", [["Read"], ("Read",), {"Read"}, deque(["Read"])])
def test_any_collection_is_taken_for_a_list(given: Any) -> None:
    """Before anything of a config is added to it: a list that is not recognised as one would replace the config's."""
    assert read("text", {"disallowed_tools": given}).request.disallowed_tools == ("Read",)
    assert check(RunRequest(prompt="text", tools=given)).tools == ("Read",)
    assert leadrope.provider(allowed_tools=given).allowed_tools == ("Read",)


async def test_a_completion_refuses_a_bare_text_too(tmp_path: Path) -> None:
    with pytest.raises(leadrope.errors.BadValue, match="is a text, not a list"):
        await leadrope.complete("text", tools="Read", environ={"HOME": str(tmp_path)})  # type: ignore[arg-type]
    with pytest.raises(leadrope.errors.BadValue, match="is a text, not a list"):
        leadrope.provider(allowed_tools="Read")  # type: ignore[arg-type]
    with pytest.raises(leadrope.errors.BadValue, match="mod: is not a field"):
        await leadrope.complete("text", mod="plan", environ={"HOME": str(tmp_path)})  # type: ignore[call-arg]


def test_help_shows_what_a_class_is_for_and_what_its_fields_mean() -> None:
    shown = pydoc.plain(pydoc.render_doc(RunRequest))
    assert "What to run, and how" in shown
    assert "A tier (opus, sonnet, haiku), a name from `[models]`, or any model id." in shown
    assert "A tier (opus" in (inspect.getdoc(RunRequest) or "")
    schema = msgspec.json.schema(leadrope.Answer)
    assert schema["$defs"]["Answer"]["description"].endswith(" It is good for that one request.")


@pytest.mark.parametrize("name", [name for name in leadrope.__all__ if name[0].isupper()])
def test_every_public_class_and_its_public_methods_have_a_docstring(name: str) -> None:
    kind = getattr(leadrope, name)
    if not isinstance(kind, type):
        return
    assert (kind.__doc__ or "").strip(), name
    missing = [
        member
        for member, value in vars(kind).items()
        if not member.startswith("_")
        and (callable(value) or isinstance(value, property | classmethod | staticmethod))
        and not (getattr(value, "__doc__", None) or "").strip()
    ]
    assert not missing, f"{name}: {missing}"


@pytest.mark.parametrize("kind", [RunRequest, leadrope.Limits, leadrope.McpServer, leadrope.RunResult, leadrope.Answer])
def test_every_field_of_a_value_is_explained(kind: type) -> None:
    unexplained = [field.name for field in fields_of(kind) if not field.text.strip()]
    assert not unexplained
