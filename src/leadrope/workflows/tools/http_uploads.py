"""Builds the body of an http step's request, with the files it names; each is permitted before it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from leadrope.workflows.steps.base import StepContext, StepFailed
from leadrope.workflows.tools import file_calls, http_bodies, media, workspace_files
from leadrope.workflows.tools.http_bodies import FormPart, RequestBody, Scalar, UploadPart, Values

MOST_BYTES = 50 * 1024 * 1024
"""Maximum size of one file, and of all parts of an upload together: they are held in memory."""

Fields = Mapping[str, UploadPart | Scalar | list[UploadPart | Scalar]]


async def body_of(
    context: StepContext,
    *,
    body: Any,
    form: Mapping[str, Values] | None,
    in_base64: str,
    file: str,
    multipart: Fields | None,
) -> RequestBody | None:
    """Return the body that is given, or None."""
    if form is not None:
        return http_bodies.form(form)
    if multipart is not None:
        return http_bodies.multipart(await _parts(multipart, context))
    if in_base64:
        return RequestBody(data=media.from_base64(in_base64, "body_base64"), media_type=media.OCTETS)
    if file:
        data, place = await _file(file, context, "body_file")
        return RequestBody(data=data, media_type=_type_of(place, data))
    return http_bodies.plain(body) if body is not None else None


async def _parts(fields: Fields, context: StepContext) -> list[FormPart]:
    found: list[FormPart] = []
    size = 0
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if one is None:
                continue
            part = await _part(name, one, context)
            size += len(part.data)
            if size > MOST_BYTES:
                raise _bad(f"multipart: its parts have more than {MOST_BYTES:,} bytes", "Send fewer files at once.")
            found.append(part)
    return found


async def _part(name: str, value: UploadPart | Scalar, context: StepContext) -> FormPart:
    if not isinstance(value, UploadPart):
        return FormPart(name=name, data=http_bodies.word(value).encode())
    where = f"multipart.{name}"
    ways = [way for way in ("file", "base64", "value") if getattr(value, way) not in (None, "")]
    if len(ways) > 1:
        raise _bad(f"{where}: {http_bodies.together(ways)}", "Use one of them.")
    media.check_type(value.media_type, f"{where}.media_type")
    if value.file:
        data, place = await _file(value.file, context, "multipart")
        filename, kind = value.filename or place.name, value.media_type or _type_of(place, data)
        return FormPart(name=name, data=data, filename=filename, media_type=kind)
    if value.base64:
        data = media.from_base64(value.base64, f"{where}.base64")
        filename, kind = value.filename or name, value.media_type or media.OCTETS
        return FormPart(name=name, data=data, filename=filename, media_type=kind)
    plain = http_bodies.plain("" if value.value is None else value.value)
    # Plain text needs no type: that is what a form field is.
    kind = value.media_type or ("" if isinstance(value.value, str | None) else plain.media_type)
    return FormPart(name=name, data=plain.data, filename=value.filename, media_type=kind)


async def _file(path: str, context: StepContext, parameter: str) -> tuple[bytes, workspace_files.WorkspaceFiles]:
    place = workspace_files.find(context.workspace, path, parameter=parameter)
    place = await file_calls.may_read(context, place, parameter=parameter)
    content = await asyncio.to_thread(workspace_files.read, place, MOST_BYTES)
    return content.data, place


def _type_of(place: workspace_files.WorkspaceFiles, data: bytes) -> str:
    return media.type_of(place.name, is_text=media.text_of(data) is not None)


def _bad(message: str, hint: str) -> StepFailed:
    return StepFailed(message, kind="bad_input", hint=hint)
