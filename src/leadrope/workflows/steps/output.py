"""The step `output`: the workflow's result file, `workflow-output-…`, as Markdown, HTML or plain text."""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from leadrope import errors
from leadrope.regex import regex
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, as_mistake
from leadrope.workflows.steps.write_file import text_of
from leadrope.workflows.tools import file_calls, tables, workspace_files
from leadrope.workflows.tools.workspace_files import WorkspaceFiles

PREFIX = "workflow-output-"
_ENDINGS = {"markdown": ".md", "html": ".html", "text": ".txt"}
_HEADING = regex(r"^ {0,3}#{1,6}[ \t]+(.{1,200})$", re.MULTILINE)
_WORD = regex(r"[^\W_]+")
_NAME_WORD = regex(r"\w[\w.-]*")
_CHARS = {" ": "a space", "\n": "a line break", "\t": "a tab", "/": "a slash", "\\": "a backslash"}
_TRIES = 100
NAME_CHARS = 120
NAME_BYTES = 230
"""A file system allows 255, including prefix and suffix."""
_ALLOWED = f"letters, digits, `.`, `_` and `-`, no `.` in front, and at most {NAME_CHARS} characters"


class OutputConfig(StepConfig, frozen=True, kw_only=True):
    content: Annotated[Any, Meta(description="Text; a list of objects becomes a table, any other value JSON.")]
    format: Annotated[
        Literal["markdown", "html", "text"], Meta(description="`html` is a page of its own, made from Markdown.")
    ] = "markdown"
    name: Annotated[
        str | None,
        Meta(
            description="Of the file, without beginning and ending: letters, digits, `.`, `_`, `-`. "
            "A file of that name is replaced. Left out: from the first heading and the workflow's time."
        ),
    ] = None
    folder: Annotated[str, Meta(description="Where, seen from the workspace.")] = ""
    title: Annotated[str | None, Meta(description="Of the page; left out: the first heading.")] = None


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    name = templates.settled(parameters).get("name")
    if isinstance(name, str):
        try:
            _check_name(name)
        except StepFailed as error:
            yield "name", as_mistake(error).removeprefix("name: ")


async def run(config: OutputConfig, context: StepContext) -> StepDone:
    if config.name is not None:
        _check_name(config.name)
    text = _text(config.content, config.format)
    if not text.strip():
        raise StepFailed(
            f"content: {context.key.step!r} has nothing to write",
            kind="bad_input",
            hint="Check the output of the step before it.",
        )
    title = config.title or _heading(text) or config.name or context.key.step
    if config.format == "html":
        from leadrope.workflows.views import markdown_html  # noqa: PLC0415  # only where a page is made

        text = markdown_html.page(text, title)
    if config.name is not None:
        # The name is used as given: if two names were made alike, one file would replace the other.
        place = _place(config, f"{PREFIX}{config.name}", context)
        return await _written(place, text, "overwrite", config, context)
    stamped = f"{PREFIX}{_slug(title)}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(await _began(context)))}"
    for number in range(1, _TRIES + 1):
        place = _place(config, stamped if number == 1 else f"{stamped}-{number}", context)
        if workspace_files.exists(place):
            continue
        try:
            return await _written(place, text, "create", config, context)
        except StepFailed as error:
            # Another step chose the same name in the same second.
            if error.kind != "exists":
                raise
    raise StepFailed(f"{stamped} is taken, and so are {_TRIES} names like it", kind="exists", hint="Give it a `name`.")


async def _began(context: StepContext) -> float:
    """When the workflow was started: where a person is asked about the file, it has the same name after his answer."""
    try:
        return (await context.service.executions.get(context.execution_id)).created
    except errors.UnknownRun:
        return time.time()


async def _written(
    place: WorkspaceFiles, text: str, mode: Literal["overwrite", "create"], config: OutputConfig, context: StepContext
) -> StepDone:
    place, text = await file_calls.may_write(context, place, text, parameters=("content", "name", "folder"))
    context.say(f"writes {place.relative}")
    data = text.encode(errors="replace")
    await asyncio.to_thread(workspace_files.write, place, data, mode)
    return StepDone(outputs={"path": place.relative, "bytes_written": len(data), "format": config.format})


def _place(config: OutputConfig, name: str, context: StepContext) -> WorkspaceFiles:
    folder = f"{config.folder.rstrip('/')}/" if config.folder else ""
    return workspace_files.find(context.workspace, f"{folder}{name}{_ENDINGS[config.format]}", parameter="folder")


def _check_name(name: str) -> None:
    if why := _unfit(name):
        shown = repr(name if len(name) <= 40 else f"{name[:39]}…")
        near = "-".join(_NAME_WORD.findall(name))[:60].strip("-")
        meant = f" {near!r} would do." if near and not _unfit(near) else ""
        raise StepFailed(
            f"name: {shown} {why}",
            kind="bad_input",
            hint=f"Allowed are {_ALLOWED}; `folder` says where the file goes.{meant}",
        )


def _unfit(name: str) -> str:
    """Return why the text cannot be part of a file name; empty if it can."""
    if not name:
        return "is empty"
    if name.startswith("."):
        return "begins with a dot"
    wrong = next((char for char in name if char not in "._-" and unicodedata.category(char)[0] not in "LMN"), None)
    if wrong is not None:
        return f"holds {_CHARS.get(wrong) or repr(wrong)}"
    if len(name) > NAME_CHARS:
        return f"has {len(name)} characters"
    if len(name.encode()) > NAME_BYTES:
        return f"has {len(name.encode())} bytes, and a file's name has room for {NAME_BYTES}"
    return ""


def _text(content: Any, kind: str) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    if kind == "text":
        return text_of(content)
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        return tables.to_markdown(tables.names_of(content), content)
    return f"```json\n{text_of(content)}```\n"


def _heading(text: str) -> str:
    found = _HEADING.search(text[:20_000])
    return found[1].strip(" #*`") if found else ""


def _slug(title: str) -> str:
    return "-".join(_WORD.findall(title.lower()))[:60].strip("-") or "result"


KIND = Kind(
    name="output",
    summary="Writes the workflow's result as a file.",
    config=OutputConfig,
    outputs={
        "path": {"type": "string"},
        "bytes_written": {"type": "integer"},
        "format": {"enum": ["markdown", "html", "text"]},
    },
    run=run,
    mistakes=mistakes,
)
