"""Converts an HTTP answer to step outputs: text if its bytes decode, otherwise base64, without secrets. Pure."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from leadrope.core.secrets.redaction import MASK
from leadrope.net import http_client
from leadrope.net.urls import Target
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Caution, StepDone, StepFailed, brief
from leadrope.workflows.tools import media
from leadrope.workflows.tools.step_redactor import KnownSecrets

MOST_BASE64 = 10 * 1024 * 1024
"""Maximum bytes returned as base64. Outputs are stored in the journal; anything larger belongs in a file."""


class Shown:
    """One complete answer."""

    def __init__(
        self, *, target: Target, answer: http_client.HttpAnswer, content: bytes, secrets: KnownSecrets
    ) -> None:
        self._target = target
        self._answer = answer
        self._secrets = secrets
        self.clean = secrets.data(content)
        """The content without the request's secrets, which a server may echo."""
        self._is_masked = self.clean != content

    def done(self) -> StepDone:
        if "body" not in self._content and "body_base64" not in self._content:
            raise StepFailed(
                f"the answer of {self._target.shown} is {self._size} and not text; "
                f"at most {MOST_BASE64:,} bytes are given as base64",
                kind="too_large",
                hint="Set save_to: the bytes go into a file of the workspace.",
            )
        value, doubts = self._json()
        outputs = {**self._head, **self._content, "json": value}
        return StepDone(outputs=outputs, warnings=(*(() if "body" in outputs else self._masked()), *doubts))

    def saved(self, path: str) -> StepDone:
        """Return the result for content that was saved to a file of the workspace."""
        why = f"the answer was saved to {path}; read it with a `read-file` step"
        absent = {templates.ABSENT: dict.fromkeys(("body", "body_base64", "json"), why)}
        return StepDone(outputs={**self._head, "path": path, **absent}, warnings=self._masked())

    def refused(self) -> StepFailed:
        """Return the failure for an unexpected status."""
        outputs = {**self._head, **self._content, "json": self._json()[0]}
        told = brief(str(outputs.get("body", self._size)))
        again = self._answer.headers.get("retry-after", "")
        wait = f"{brief(again, 60)}{' s' if again.isdigit() else ''}"
        return StepFailed(
            f"{self._target.shown} answered with status {self._answer.status}{f': {told}' if told else ''}",
            kind="http_error",
            hint=f"The server says: try again after {wait}."
            if again
            else "Set expect if this status is not a failure.",
            can_heal=self._answer.status in (408, 425, 429) or self._answer.status >= 500,
            outputs=outputs,
        )

    def _masked(self) -> tuple[Caution, ...]:
        """Warn if bytes were changed; in text the mask is visible by itself."""
        told = f"the answer of {self._target.shown} held a secret of the request, which was replaced by {MASK}"
        return (Caution(kind="secret_masked", message=told),) if self._is_masked else ()

    @property
    def _head(self) -> dict[str, Any]:
        return {
            "status": self._answer.status,
            "headers": {name: self._secrets.text(text) for name, text in self._answer.headers.items()},
            "url": self._secrets.text(self._target.url),
            "media_type": self._answer.media_type,
            "size": len(self.clean),
        }

    @property
    def _size(self) -> str:
        return f"{len(self.clean):,} bytes of {self._answer.media_type or 'an unknown type'}"

    @functools.cached_property
    def _content(self) -> dict[str, Any]:
        """Return the text if it decodes, and base64 if the content is not meant to be text."""
        found: dict[str, Any] = {}
        text = media.text_of(self.clean, media.charset_of(self._answer.headers.get("content-type", "")))
        if text is not None:
            found["body"] = self._secrets.text(text)
        else:
            why = f"the answer is {self._size} and not text; use `save_to` to keep it in a file, or body_base64"
            found[templates.ABSENT] = {"body": why}
        is_wanted = text is None or not media.is_text_type(self._answer.media_type)
        if is_wanted and len(self.clean) <= MOST_BASE64:
            found["body_base64"] = media.as_base64(self.clean)
        return found

    def _json(self) -> tuple[Any, tuple[Caution, ...]]:
        kind, text = self._answer.media_type, self._content.get("body")
        if not (kind == "application/json" or kind.endswith("+json")) or (text is not None and not text.strip()):
            return None, ()
        try:
            if text is None:
                raise ValueError("it is not text")
            return msgspec.json.decode(text), ()
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            told = f"{self._target.shown} says that it answers in JSON, and does not: {error}"
            return None, (Caution(kind="bad_json", message=told),)
