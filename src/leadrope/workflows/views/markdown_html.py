"""A text as a page of its own: a small, safe part of Markdown, one file without scripts. Knows no workflow.

Whatever stands in the text is a stranger's: it becomes characters on the page and never mark-up. Links are kept where
they lead to the web or to a mailbox; pictures, which would be fetched when the page is opened, become links.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from leadrope.regex import regex
from leadrope.runs.page.text import Safe, joined, tag
from leadrope.runtime.terminal_text import clean
from leadrope.workflows.tools import tables

_FENCE = regex(r" {0,3}(`{3,}|~{3,})")
_HEADING = regex(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_ITEM = regex(r"([ \t]{0,12})(?:([-*+])|(\d{1,9})[.)])[ \t]+(.*)")
_RULE = regex(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})")
# Each alternative is bounded by its own closing mark and a length, so that a hostile text costs linear time.
_INLINE = regex(
    r"`([^`\n]{1,500})`"
    r"|\*\*([^*\n]{1,500})\*\*"
    r"|(?<![\w*])\*([^*\s][^*\n]{0,500})\*(?![\w*])"
    r"|!?\[([^\[\]\n]{0,300})\]\(([^()\s<>\"]{1,1000})\)"
)
_LEADS = regex(r"(?:https?://|mailto:)[^\s<>\"'`]+", re.IGNORECASE)
_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.6 system-ui, sans-serif; }
pre, code { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { padding: 0.8rem; overflow-x: auto; border: 1px solid #8886; border-radius: 6px; white-space: pre-wrap; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #8886; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
blockquote { margin: 0; padding-left: 1rem; border-left: 3px solid #8886; }
li.deep { margin-left: 1.5rem; }
"""


def page(text: str, title: str) -> str:
    """A whole HTML file. It may load nothing, from nowhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", clean(title)),
        Safe(f"<style>{_STYLE}</style>"),
    )
    return Safe("<!doctype html>\n") + tag("html", head, tag("body", tag("main", body(text))), lang="en") + "\n"


def body(text: str) -> Safe:
    """Headings, paragraphs, lists, tables, quotes, rules, fenced blocks, `code`, **bold**, *italic* and links."""
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
            found.append(tag("pre", tag("code", "\n".join(lines[at + 1 : stop]))))
            at = stop + 1
        elif heading := _HEADING.fullmatch(line):
            end()
            found.append(tag(f"h{len(heading[1])}", inline(heading[2].rstrip().rstrip("#").rstrip())))
            at += 1
        elif _RULE.fullmatch(line):
            end()
            found.append(Safe("<hr>"))
            at += 1
        elif "|" in line and at + 1 < len(lines) and tables.is_rule(lines[at + 1]):
            end()
            stop = next((i for i in range(at + 2, len(lines)) if "|" not in lines[i]), len(lines))
            found.append(_table(lines[at], lines[at + 2 : stop]))
            at = stop
        elif _ITEM.fullmatch(line):
            end()
            stop = next((i for i in range(at, len(lines)) if not _ITEM.fullmatch(lines[i])), len(lines))
            found.append(_list(lines[at:stop]))
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
    return joined(*(part for one in found for part in (one, Safe("\n"))))


def inline(text: str) -> Safe:
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
        elif _LEADS.fullmatch(target):
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


def _table(head: str, rows: Sequence[str]) -> Safe:
    names = tables.cells(head)
    heads = tag("tr", *(tag("th", inline(name)) for name in names))
    width = len(names)
    lines = [tag("tr", *(tag("td", inline(cell)) for cell in tables.cells(row)[:width])) for row in rows]
    return tag("table", tag("thead", heads), tag("tbody", *lines))


def _list(lines: Sequence[str]) -> Safe:
    found = [item for line in lines if (item := _ITEM.fullmatch(line))]
    items = []
    for item in found:
        deep = "deep" if len(item[1].expandtabs(4)) >= 2 else ""
        # A number is kept as it was written: steps are spoken of by it.
        items.append(tag("li", inline(item[4]), cls=deep, **({"value": item[3]} if item[3] else {})))
    return tag("ol" if found[0][3] else "ul", *items)
