"""Renders a Markdown text as a self-contained page without scripts, which loads nothing."""

from __future__ import annotations

from leadrope.runs.page.markdown import markdown
from leadrope.runs.page.tags import Safe, tag
from leadrope.runtime.terminal_text import clean

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.6 system-ui, sans-serif; }
pre, code { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { padding: 0.8rem; overflow-x: auto; border: 1px solid #8886; border-radius: 6px; white-space: pre-wrap; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #8886; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
blockquote { margin: 0; padding-left: 1rem; border-left: 3px solid #8886; }
li.deep { margin-left: 1.5rem; }
li.numbered { list-style: none; margin-left: -1rem; }
li.plain { list-style: disc; }
"""


def page(text: str, title: str) -> str:
    """Returns a complete HTML file, which loads nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", clean(title)),
        Safe(f"<style>{_STYLE}</style>"),
    )
    return Safe("<!doctype html>\n") + tag("html", head, tag("body", tag("main", markdown(text))), lang="en") + "\n"
