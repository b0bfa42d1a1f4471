"""Texts of steps in files beside the workflow: read with it, kept with its executions, and never from elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library
from leadrope.workflows.language import beside, markdown

EXECUTION = """# Files

## Steps

### sum

Adds them.

- type: code
- code_file: texts/sum.py
- inputs: {numbers: [1, 2, 3]}

### ask

A person.

- type: approval
- message: Go on?

### tell

Says it.

- type: shell
- command_file: texts/tell.sh
- env: {TOTAL: "${sum.result}"}

## Outputs

### said

- source: ${tell.stdout}
"""
SUM = "numbers: list\nresult = sum(numbers)  # ${numbers} is not a template\n"
TELL = 'name=total\necho "${name}: $TOTAL ${MISSING:-none} $$${name}" | sed "s/[0-9]*total$/pid/"\n'


def files(shop: Any, **texts: str) -> None:
    (shop.ws / "texts").mkdir(exist_ok=True)
    for name, text in {"sum.py": SUM, "tell.sh": TELL, **texts}.items():
        (shop.ws / "texts" / name).write_text(text)


async def test_code_and_scripts_come_from_files_and_their_dollars_are_their_own(shop: Any) -> None:
    files(shop)
    result = await shop.run(EXECUTION)
    assert result.outcome == "waiting"
    ended = await shop.resume(result.approvals[0].id, answer=Answer(approved=True))
    assert (ended.outcome, ended.outputs) == ("succeeded", {"said": "total: 6 none pid"})


async def test_an_execution_that_is_resumed_has_the_text_that_it_began_with(shop: Any) -> None:
    """The files may be gone; the text that is kept is whole, and reads as the same workflow."""
    files(shop)
    result = await shop.run(EXECUTION)
    async with shop.service() as service:
        kept = (await service.executions.texts(result.execution_id)).text
    assert "_file" not in kept
    assert markdown.read(kept).workflow == library.load(shop.ws / "test.flow.md").workflow
    for name in ("sum.py", "tell.sh"):
        (shop.ws / "texts" / name).unlink()
    ended = await shop.resume(result.approvals[0].id, answer=Answer(approved=True))
    assert ended.outputs == {"said": "total: 6 none pid"}


async def test_a_changed_file_is_a_changed_workflow(shop: Any) -> None:
    files(shop)
    result = await shop.run(EXECUTION)
    (shop.ws / "texts/tell.sh").write_text("echo other\n")
    with pytest.raises(errors.WrongState, match="or a file that its steps name, was changed"):
        await shop.resume(result.approvals[0].id, answer=Answer(approved=True))
    ended = await shop.resume(result.approvals[0].id, answer=Answer(approved=True), takes_change=True)
    assert ended.outputs == {"said": "other"}


async def test_a_changed_file_changes_the_step_for_from(shop: Any) -> None:
    files(shop)
    text = EXECUTION.replace("### ask\n\nA person.\n\n- type: approval\n- message: Go on?\n\n", "")
    await shop.run(text)
    (shop.ws / "texts/sum.py").write_text("result = 7\n")
    with pytest.raises(errors.WrongState, match="'sum' was changed"):
        await shop.run(text, begin_at="tell")


async def test_a_prompt_in_a_file_has_templates(shop: Any) -> None:
    (shop.ws / "ask.md").write_text("Look at ${topic}.\n\n```\n### not a heading\n```\n")
    text = "## Inputs\n\n### topic\n\n- type: string\n\n"
    text += "## Steps\n\n### ask\n\nAsks.\n\n- type: llm\n- prompt_file: ask.md\n"
    loaded = library.load(shop.write(text))
    assert loaded.warnings == ()
    assert loaded.workflow.step("ask").parameters == {"prompt": "Look at ${topic}.\n\n```\n### not a heading\n```"}
    assert markdown.read(loaded.text).workflow == loaded.workflow
    (shop.ws / "ask.md").write_text("Look at ${topik}.")
    with pytest.raises(errors.RequestError, match=r"did you mean \$\{topic\}"):
        library.load(shop.ws / "test.flow.md")


async def test_a_saved_copy_needs_no_file(shop: Any) -> None:
    files(shop)
    saved = library.save(library.load(shop.write(EXECUTION)), shop.home, name="kept")
    assert library.load(saved).workflow == library.load(shop.ws / "test.flow.md").workflow


async def test_a_workflow_that_is_called_takes_its_texts_from_beside_itself(shop: Any) -> None:
    (shop.ws / "deep/texts").mkdir(parents=True)
    (shop.ws / "deep/texts/say.sh").write_text("echo deep\n")
    inner = "## Steps\n\n### say\n\n- type: shell\n- command_file: texts/say.sh\n\n"
    inner += "## Outputs\n\n### said\n\n- source: ${say.stdout}\n"
    (shop.ws / "deep/in.flow.md").write_text(inner)
    text = "## Steps\n\n### group\n\n- type: group\n\n#### call\n\n- type: workflow\n- workflow: deep/in.flow.md\n"
    text += "\n## Outputs\n\n### said\n\n- source: ${group.call.said}\n"
    assert (await shop.run(text)).outputs == {"said": "deep"}


def _make(folder: Path, kind: str) -> str:
    """What stands in place of the file, and how the step names it."""
    match kind:
        case "missing":
            return "gone.md"
        case "outside":
            (folder.parent / "secret.md").write_text("secret")
            return "../secret.md"
        case "absolute":
            return "/etc/hostname"
        case "link out":
            (folder.parent / "secret.md").write_text("secret")
            (folder / "link.md").symlink_to(folder.parent / "secret.md")
            return "link.md"
        case "folder link":
            (folder.parent / "other").mkdir()
            (folder.parent / "other/secret.md").write_text("secret")
            (folder / "texts").symlink_to(folder.parent / "other")
            return "texts/secret.md"
        case "pipe":
            os.mkfifo(folder / "pipe.md")
            return "pipe.md"
        case "folder":
            (folder / "sub").mkdir()
            return "sub"
        case "large":
            (folder / "large.md").write_text("x" * (beside.MOST_BYTES + 1))
            return "large.md"
        case "binary":
            (folder / "binary.md").write_bytes(b"\xff\xfe\x00")
            return "binary.md"
        case "empty":
            (folder / "empty.md").write_text("\n")
            return "empty.md"
        case _:
            return '"${name}.md"'


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("missing", "there is no file gone.md beside the workflow"),
        ("outside", "leads out of the folder"),
        ("absolute", "leads out of the folder"),
        ("link out", "through a link"),
        ("folder link", "through a link"),
        ("pipe", "pipe"),
        ("folder", "folder"),
        ("large", "1,000,000 bytes"),
        ("binary", "not UTF-8"),
        ("empty", "is empty"),
        ("template", "read before anything runs"),
    ],
)
def test_a_file_that_cannot_be_taken_is_told_with_its_place(shop: Any, kind: str, told: str) -> None:
    name = _make(shop.ws, kind)
    text = f"## Steps\n\n### ask\n\n- type: llm\n- prompt_file: {name}\n"
    document, problems = library.judged(shop.write(text), leadrope_home=None)
    wrong = [one for one in problems if one.severity == "error" and one.kind != "unknown_template"]
    assert [(one.kind, one.line) for one in wrong] == [("bad_file", 6)], [str(one) for one in problems]
    assert told in str(wrong[0])
    assert "secret" not in str(document.workflow.step("ask").parameters.get("prompt", ""))


def test_both_a_text_and_a_file_are_too_much(shop: Any) -> None:
    (shop.ws / "a.md").write_text("x")
    text = "## Steps\n\n### ask\n\n- type: llm\n- prompt: x\n- prompt_file: a.md\n"
    _, problems = library.judged(shop.write(text), leadrope_home=None)
    assert [(one.kind, one.line) for one in problems if one.severity == "error"] == [("both_given", 7)]
