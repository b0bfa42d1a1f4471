"""Formats log records: JSON for machines, each with its run, or text. Independent of store and runs.

LEADROPE_LOG=json selects JSON. Keys are redacted here, where text leaves the process.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.secrets.redaction import Redactor

VARIABLE = "LEADROPE_LOG"
FORMS = ("text", "json")
MAX_TEXT = 10_000
"""Maximum length of one text in a record. A log collector drops a line that is too long, and the error in it."""
MAX_DEPTH = 6

_run_id: ContextVar[str | None] = ContextVar("leadrope_run_id", default=None)
_redactor: ContextVar[Callable[[], Redactor]] = ContextVar("leadrope_redactor", default=Redactor)
_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "taskName", "run_id"}
"""The standard attributes of a record; all others were given as `extra`."""
_BREAKS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""JSON leaves them unescaped; line-based readers may take them for line ends."""
_encode = msgspec.json.Encoder(enc_hook=repr).encode


@contextlib.contextmanager
def about(run_id: str, redactor: Callable[[], Redactor] = Redactor) -> Iterator[None]:
    """Attribute log records in this block, and in tasks started in it, to a run and redact them with its redactor.

    with jsonlog.about(info.id):
        log.info("started")
    """
    token, cleaning = _run_id.set(run_id), _redactor.set(redactor)
    try:
        yield
    finally:
        _run_id.reset(token)
        _redactor.reset(cleaning)


def is_wanted(environ: Mapping[str, str]) -> bool:
    form = environ.get(VARIABLE, "").strip().lower() or "text"
    if form not in FORMS:
        raise errors.BadConfig(f"{VARIABLE} is {form!r}", hint=f"Use one of: {', '.join(FORMS)}.")
    return form == "json"


class TextFormatter(logging.Formatter):
    """Human-readable lines, without keys."""

    def format(self, record: logging.LogRecord) -> str:
        return _redactor.get()().clean(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, run_id, then `extra` fields, then the error, if any."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._more = redactor or Redactor(shapes=False)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._text(record.getMessage()),
        }
        run_id = getattr(record, "run_id", None) or _run_id.get()
        if run_id:
            line["run_id"] = self._text(str(run_id))
        for name, value in vars(record).items():
            if name not in _OWN and not name.startswith("_") and name not in line:
                line[self._text(name)] = self._value(value, MAX_DEPTH)
        if record.exc_info and record.exc_info[0] is not None:
            kind = record.exc_info[0]
            line["error"] = {
                "type": f"{kind.__module__}.{kind.__qualname__}",
                "message": self._text(str(record.exc_info[1])),
                "stack": self._text(self.formatException(record.exc_info)),
            }
        return _encode(line).decode().translate(_BREAKS)

    def _text(self, text: str) -> str:
        # Redacted before it is cut and before it is encoded: half a key is still half a key, and a pattern that matches
        # a backslash would break the line. A lone surrogate cannot be encoded.
        cleaned = self._more.clean(_redactor.get()().clean(text)).encode("utf-8", "replace").decode()
        return cleaned if len(cleaned) <= MAX_TEXT else f"{cleaned[:MAX_TEXT]}… ({len(cleaned)} characters)"

    def _value(self, value: Any, depth: int) -> Any:
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return self._text(value)
            case Mapping() if depth:
                return {self._text(str(key)): self._value(inner, depth - 1) for key, inner in value.items()}
            case list() | tuple() | set() | frozenset() if depth:
                return [self._value(inner, depth - 1) for inner in value]
            case _:
                return self._text(str(value))
