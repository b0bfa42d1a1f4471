"""Builds HTML from trusted markup, and escapes all other text put into it."""

from __future__ import annotations

import base64
import hashlib
import html


class Safe(str):
    """Trusted markup. Plain text is escaped when it is put into a tag; this is not."""

    __slots__ = ()


def tag(name: str, /, *children: str, cls: str = "", **attributes: str | bool) -> Safe:
    """Build one element; `cls` is its class, `for_` its `for`. Children that are plain text are escaped.

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
    """Draw a rectangle with a tooltip."""
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in rect.items())
    return Safe(f"<rect{written}><title>{html.escape(title)}</title></rect>")


def page_head(title: str, style: str) -> Safe:
    """Build the head of a page that loads and runs nothing: only this exact style is allowed."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        Safe(f"<style>{style}</style>"),
    )
