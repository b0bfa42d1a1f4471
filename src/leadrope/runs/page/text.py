"""Text for a page: escaped, without what an eye cannot see, cut with a note, and a little of Markdown. Knows no run.

Whatever an agent, a tool or a file has said is a stranger's text. It becomes characters on the page, never mark-up.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from leadrope.regex import regex
from leadrope.runtime.terminal_text import clean, exact

_FENCE = regex(r"[ \t]{0,3}(`{3,}|~{3,})")
_HEADING = regex(r"(#{1,6})[ \t]+(.{1,400}?)[ \t#]*")
_ITEM = regex(r"([ \t]{0,12})(?:[-*+]|(\d{1,6})[.)])[ \t]+(.*)")
# Each is bounded by its own closing mark within one line, so that a hostile text costs linear time.
_INLINE = regex(r"`([^`\n]{1,500})`|\*\*([^*\n]{1,500})\*\*")


class Safe(str):
    """Mark-up of our own making. A plain text that is put into a tag is escaped; this is not."""

    __slots__ = ()


def tag(name: str, /, *children: str, cls: str = "", **attributes: str | bool) -> Safe:
    """One element; `cls` is its class, `for_` its `for`. Children that are plain text are escaped.

    >>> tag("b", "a < b", cls="x")
    '<b class="x">a &lt; b</b>'
    """
    given = {"class": cls, **attributes} if cls else attributes
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        if value is True
        else f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in given.items()
        if value is not False
    )
    if name in ("input", "meta", "br", "rect"):
        return Safe(f"<{name}{written}>" if name != "rect" else f"<{name}{written}/>")
    return Safe(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*parts: str) -> Safe:
    return Safe("".join(part if isinstance(part, Safe) else html.escape(part) for part in parts))


def titled(title: str, rect: dict[str, str]) -> Safe:
    """A rectangle of a drawing, with the words that are shown when one points at it."""
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in rect.items())
    return Safe(f"<rect{written}><title>{html.escape(title)}</title></rect>")


def size(characters: int) -> str:
    """How long a text is, in words.

    >>> size(12_345)
    '12 kB'
    """
    if characters < 2000:
        return f"{characters} characters"
    if characters < 2_000_000:
        return f"{characters / 1000:.0f} kB"
    return f"{characters / 1_000_000:.1f} MB"


class PageWriter:
    """Cleans and cuts. All texts together stay within `total` characters: a page that no browser opens helps nobody."""

    def __init__(self, redact: Callable[[str], str], *, total: int = 10_000_000, scarce: int = 300) -> None:
        self.redact = redact
        self._left = total
        self._scarce = scarce

    def line(self, text: str, width: int = 200) -> str:
        """White space folded; for titles and cells."""
        # What is cut off could be the rest of a key: it is looked for in the whole text.
        flat = " ".join(clean(self.redact(text)[: width * 8]).split())
        return flat if len(flat) <= width else flat[: width - 1] + "…"

    def block(self, text: str, limit: int = 6000) -> Safe:
        """As it is, to the letter: what is invisible is written out. For commands, inputs and files."""
        kept, note = self._cut(text, limit)
        return joined(tag("pre", exact(kept), tabindex="0"), note)

    def output(self, text: str, limit: int = 6000) -> Safe:
        """What a program printed, without the sequences that coloured it."""
        kept, note = self._cut(text, limit)
        return joined(tag("pre", clean(kept), tabindex="0"), note)

    def prose(self, text: str, limit: int = 20_000) -> Safe:
        kept, note = self._cut(text, limit)
        return joined(tag("div", markdown(clean(kept)), cls="prose"), note)

    def lines(self, lines: Sequence[str], width: int = 400) -> list[str]:
        """Lines of a diff: cleaned as a whole, so that a key over several lines is found; long ones are cut."""
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


def markdown(text: str) -> Safe:
    """Paragraphs, headings, lists, fenced blocks, `code` and **bold**. Links and pictures stay the text they are."""
    found: list[Safe] = []
    paragraph: list[str] = []
    items: list[Safe] = []

    def end() -> None:
        if paragraph:
            found.append(tag("p", _inline("\n".join(paragraph))))
            paragraph.clear()
        if items:
            found.append(tag("ul", *items))
            items.clear()

    lines = iter(text.split("\n"))
    for line in lines:
        fence = _FENCE.match(line)
        if fence:
            end()
            body: list[str] = []
            for inner in lines:
                if inner.strip().startswith(fence[1]) and not inner.strip(" \t`~"):
                    break
                body.append(inner)
            found.append(tag("pre", "\n".join(body), tabindex="0"))
            continue
        heading = _HEADING.fullmatch(line)
        item = None if heading else _ITEM.fullmatch(line)
        if heading:
            end()
            # Below the headings of the page itself.
            found.append(tag("h4", _inline(heading[2])))
        elif item:
            if paragraph:
                end()
            number = f"{item[2]}. " if item[2] else ""
            deep = "deep" if len(item[1].expandtabs(4)) >= 2 else ""
            items.append(tag("li", number, _inline(item[3]), cls=" ".join(filter(None, (deep, number and "numbered")))))
        elif not line.strip():
            end()
        else:
            if items:
                end()
            paragraph.append(line)
    end()
    return joined(*found)


def _inline(text: str) -> Safe:
    parts: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        parts.append(text[at : found.start()])
        parts.append(tag("code", found[1]) if found[1] is not None else tag("strong", found[2]))
        at = found.end()
    return joined(*parts, text[at:])
