"""Patterns that are compiled when they are first used: a command uses few of the three hundred that it imports."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _Late:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._given: tuple[Any, int] = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Called once for each name: from then on the compiled pattern's own method is an attribute here."""
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but later. `re.sub` and the like do not take it: use its own methods."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))
