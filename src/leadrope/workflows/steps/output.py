"""The step `output`: the file that a workflow is there for, `workflow-output-…`, as Markdown, page or plain text."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Annotated, Any, Literal

from msgspec import Meta

from leadrope import errors
from leadrope.workflows import file_calls, places, tables
from leadrope.workflows.places import Place
from leadrope.workflows.steps.base import Config, Context, Done, Kind, StepFailed
from leadrope.workflows.steps.write_file import text_of

PREFIX = "workflow-output-"
_ENDINGS = {"markdown": ".md", "html": ".html", "text": ".txt"}
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.{1,200})$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+")
_TRIES = 100


class OutputConfig(Config, frozen=True, kw_only=True):
    content: Annotated[Any, Meta(description="Text; a list of objects becomes a table, any other value JSON.")]
    format: Annotated[
        Literal["markdown", "html", "text"], Meta(description="`html` is a page of its own, made from Markdown.")
    ] = "markdown"
    name: Annotated[
        str | None,
        Meta(
            description="Of the file, without beginning and ending; a file of that name is replaced. Left out: "
            "from the first heading and the workflow's time."
        ),
    ] = None
    folder: Annotated[str, Meta(description="Where, seen from the workspace.")] = ""
    title: Annotated[str | None, Meta(description="Of the page; left out: the first heading.")] = None


async def run(config: OutputConfig, context: Context) -> Done:
    if config.name is not None:
        _check_name(config.name)
    text = _text(config.content, config.format)
    if not text.strip():
        raise StepFailed(
            f"content: {context.key.step!r} has nothing to write",
            kind="bad_input",
            hint="Look at what the step before it gave.",
        )
    title = config.title or _heading(text) or config.name or context.key.step
    if config.format == "html":
        from leadrope.workflows import documents  # noqa: PLC0415  # only where a page is made

        text = documents.page(text, title)
    name = f"{PREFIX}{_slug(config.name or title)}"
    if config.name is not None:
        place = _place(config, name, context)
        return await _written(place, text, "overwrite", config, context)
    stamped = f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(_began(context)))}"
    for number in range(1, _TRIES + 1):
        place = _place(config, stamped if number == 1 else f"{stamped}-{number}", context)
        if places.exists(place):
            continue
        try:
            return await _written(place, text, "create", config, context)
        except StepFailed as error:
            # Another step had the same idea in the same second.
            if error.kind != "exists":
                raise
    raise StepFailed(f"{stamped} is taken, and so are {_TRIES} names like it", kind="exists", hint="Give it a `name`.")


def _began(context: Context) -> float:
    """When the workflow was started: where a person is asked about the file, it has the same name after his answer."""
    try:
        return context.service.flows.get(context.flow_id).created
    except errors.UnknownRun:
        return time.time()


async def _written(
    place: Place, text: str, mode: Literal["overwrite", "create"], config: OutputConfig, context: Context
) -> Done:
    place, text = await file_calls.may_write(context, place, text, parameters=("content", "name", "folder"))
    context.say(f"writes {place.relative}")
    data = text.encode(errors="replace")
    await asyncio.to_thread(places.write, place, data, mode)
    return Done(outputs={"path": place.relative, "bytes_written": len(data), "format": config.format})


def _place(config: OutputConfig, name: str, context: Context) -> Place:
    folder = f"{config.folder.rstrip('/')}/" if config.folder else ""
    return places.find(context.workspace, f"{folder}{name}{_ENDINGS[config.format]}", parameter="folder")


def _check_name(name: str) -> None:
    if not name.strip() or ".." in name or "/" in name or "\\" in name or not _WORD.search(name):
        raise StepFailed(
            f"name: {name[:40]!r} cannot be a part of a file's name",
            kind="bad_input",
            hint="Use letters, digits and dashes; `folder` says where the file goes.",
        )


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
)
