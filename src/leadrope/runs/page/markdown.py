"""Renders a small, safe subset of Markdown as HTML: headings, paragraphs, lists, tables, quotes, rules, code and links.

The text is untrusted: it is always escaped and never becomes markup. Only web and mail links are kept; images, which
would be fetched when the page is opened, become links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from leadrope.core.text import table_lines
from leadrope.regex import regex
from leadrope.runs.page.tags import Safe, joined, tag
from leadrope.runtime.terminal_text import clean

_FENCE = regex(r" {0,3}(`{3,}|~{3,})")
_HEADING = regex(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_ITEM = regex(r"([ \t]{0,12})(?:([-*+])|(\d{1,9})[.)])[ \t]+(.*)")
_RULE = regex(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})")
# Each alternative is bounded by its closing mark and a length, so that a hostile text takes linear time.
_INLINE = regex(
    r"`([^`\n]{1,500})`"
    r"|\*\*([^*\n]{1,500})\*\*"
    r"|(?<![\w*])\*([^*\s][^*\n]{0,500})\*(?![\w*])"
    r"|!?\[([^\[\]\n]{0,300})\]\(([^()\s<>\"]{1,1000})\)"
)
_LEADS = regex(r"(?:https?://|mailto:)[^\s<>\"'`]+", re.IGNORECASE)


def markdown(text: str, *, heading: str = "", has_links: bool = True) -> Safe:
    """Render Markdown. `heading` is the element used for all headings; with `has_links=False` links stay text."""

    def inline(text: str) -> Safe:
        return _inline(text, has_links=has_links)

    lines = clean(text).split("\n")
    found: list[Safe] = []
    paragraph: list[str] = []

    def end() -> None:
        if paragraph:
            found.append(tag("p", inline("\n".join(paragraph))))
            paragraph.clear()

    at = 0
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end()
            stop = _closing(lines, at + 1, fence[1])
            found.append(tag("pre", tag("code", "\n".join(lines[at + 1 : stop])), tabindex="0"))
            at = stop + 1
        elif title := _HEADING.fullmatch(line):
            end()
            found.append(tag(heading or f"h{len(title[1])}", inline(title[2].rstrip().rstrip("#").rstrip())))
            at += 1
        elif _RULE.fullmatch(line):
            end()
            found.append(Safe("<hr>"))
            at += 1
        elif "|" in line and at + 1 < len(lines) and table_lines.is_rule(lines[at + 1]):
            end()
            stop = next((i for i in range(at + 2, len(lines)) if "|" not in lines[i]), len(lines))
            found.append(_table(lines[at], lines[at + 2 : stop], inline))
            at = stop
        elif _ITEM.fullmatch(line):
            end()
            stop = next((i for i in range(at, len(lines)) if not _ITEM.fullmatch(lines[i])), len(lines))
            found.append(_list(lines[at:stop], inline))
            at = stop
        elif line.startswith(">"):
            end()
            stop = next((i for i in range(at, len(lines)) if not lines[i].startswith(">")), len(lines))
            quoted = "\n".join(part.lstrip("> ") for part in lines[at:stop])
            found.append(tag("blockquote", tag("p", inline(quoted))))
            at = stop
        else:
            if line.strip():
                paragraph.append(line)
            else:
                end()
            at += 1
    end()
    return joined(*found)


def _inline(text: str, *, has_links: bool) -> Safe:
    parts: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        parts.append(text[at : found.start()])
        code, bold, slanted, shown, target = found.groups()
        if code is not None:
            parts.append(tag("code", code))
        elif bold is not None:
            parts.append(tag("strong", bold))
        elif slanted is not None:
            parts.append(tag("em", slanted))
        elif has_links and _LEADS.fullmatch(target):
            parts.append(tag("a", shown or target, href=target, rel="noopener noreferrer"))
        else:
            parts.append(found[0])
        at = found.end()
    return joined(*parts, text[at:])


def _closing(lines: Sequence[str], start: int, mark: str) -> int:
    for at in range(start, len(lines)):
        line = lines[at].strip()
        if line.startswith(mark) and not line.strip(mark[0]):
            return at
    return len(lines)


def _table(head: str, rows: Sequence[str], inline: Callable[[str], Safe]) -> Safe:
    names = table_lines.cells(head)
    heads = tag("tr", *(tag("th", inline(name)) for name in names))
    width = len(names)
    lines = [tag("tr", *(tag("td", inline(cell)) for cell in table_lines.cells(row)[:width])) for row in rows]
    return tag("table", tag("thead", heads), tag("tbody", *lines))


def _list(lines: Sequence[str], inline: Callable[[str], Safe]) -> Safe:
    found = [item for line in lines if (item := _ITEM.fullmatch(line))]
    is_numbered = bool(found[0][3])
    items = []
    for item in found:
        classes = ["deep"] if len(item[1].expandtabs(4)) >= 2 else []
        number = item[3]
        # Numbers are kept as written, since text refers to steps by number.
        given = {"value": number} if number and is_numbered else {}
        if bool(number) != is_numbered:
            classes.append("numbered" if number else "plain")
        label = f"{number}. " if number and not is_numbered else ""
        items.append(tag("li", label, inline(item[4]), cls=" ".join(classes), **given))
    return tag("ol" if is_numbered else "ul", *items)
