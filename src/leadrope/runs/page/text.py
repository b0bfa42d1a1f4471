"""Text for a page: escaped, without invisible characters, and cut with a note. Independent of runs.

Text of agents, tools and files is untrusted: it is always escaped and never becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leadrope.runs.page.markdown import markdown
from leadrope.runs.page.tags import Safe, joined, tag
from leadrope.runtime.terminal_text import clean, exact


def size(characters: int) -> str:
    """Format the length of a text.

    >>> size(12_345)
    '12 kB'
    """
    if characters < 2000:
        return f"{characters} characters"
    if characters < 2_000_000:
        return f"{characters / 1000:.0f} kB"
    return f"{characters / 1_000_000:.1f} MB"


class PageWriter:
    """Redacts, cleans and cuts. All texts together are limited to `total` characters, so that browsers can open the
    page.
    """

    def __init__(self, redact: Callable[[str], str], *, total: int = 10_000_000, scarce: int = 300) -> None:
        self.redact = redact
        self._left = total
        self._scarce = scarce

    def line(self, text: str, width: int = 200) -> str:
        """Return text on one line, for titles and cells."""
        # Redacted before it is cut: the part that is cut off could be the rest of a key.
        flat = " ".join(clean(self.redact(text)[: width * 8]).split())
        return flat if len(flat) <= width else flat[: width - 1] + "…"

    def block(self, text: str, limit: int = 6000) -> Safe:
        """Return text verbatim, with invisible characters escaped. For commands, inputs and files."""
        kept, note = self._cut(text, limit)
        return joined(tag("pre", exact(kept), tabindex="0"), note)

    def output(self, text: str, limit: int = 6000) -> Safe:
        """Return what a program printed, without color escape sequences."""
        kept, note = self._cut(text, limit)
        return joined(tag("pre", clean(kept), tabindex="0"), note)

    def prose(self, text: str, limit: int = 20_000) -> Safe:
        kept, note = self._cut(text, limit)
        return joined(tag("div", markdown(kept, heading="h4", has_links=False), cls="prose"), note)

    def lines(self, lines: Sequence[str], width: int = 400) -> list[str]:
        """Return the lines of a diff: redacted as a whole, so that a multi-line key is found; long ones are cut."""
        given = "\n".join(lines)
        self._left -= len(given)
        limit = width if self._left > 0 else 80
        shown = (exact(line[:limit]) + ("…" if len(line) > limit else "") for line in self.redact(given).split("\n"))
        return list(shown)

    def _cut(self, text: str, limit: int) -> tuple[str, Safe]:
        if self._left <= 0:
            limit = min(limit, self._scarce)
        text = self.redact(text)
        kept = text if len(text) <= limit else text[:limit]
        self._left -= len(kept)
        if len(kept) == len(text):
            return kept, Safe()
        return kept, tag("p", f"Cut here: {size(len(text))} in all.", cls="note")
