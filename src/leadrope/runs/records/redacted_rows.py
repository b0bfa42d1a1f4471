"""What a row may hold: values as JSON, without secrets. Knows no table."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.core.secrets.redacted_json import clean_json
from leadrope.core.secrets.redaction import Redactor

_encode = msgspec.json.Encoder().encode


def as_json(value: Any, redactor: Redactor) -> str:
    return clean_json(_encode(value).decode(), redactor.clean)
