"""A long text on a terminal as git shows it: coloured if it is a patch, and through $PAGER if it is longer than it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping

from leadrope.cli.screen.screen import Style
from leadrope.runtime.terminal_text import clean

_FALLBACK = ("less", "more")


def show(patch: str, style: Style, *, paged: bool = True, environ: Mapping[str, str] | None = None) -> None:
    """To the terminal behind stdout. What it cannot page it prints."""
    environ = os.environ if environ is None else environ
    text = painted(patch, style)
    command = _pager(environ) if paged and _is_long(text) else None
    if command is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    # As git: colours as they are, end at once if it fits, and what was shown stays on the screen.
    settings = {"LESS": "FRX", "LV": "-c", **environ}
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=settings)
    except OSError:
        sys.stdout.write(text)
        return
    try:
        process.communicate(text.encode(errors="replace"))
    except KeyboardInterrupt:
        process.wait()  # the pager has its own use for Ctrl-C


def painted(patch: str, style: Style) -> str:
    """The lines of a patch in git's colours; without what would steer a terminal."""
    lines = []
    for line in clean(patch).split("\n"):
        if line.startswith(("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "rename ", "similarity ")):
            lines.append(style.bold(line))
        elif line.startswith("@@"):
            lines.append(style.dim(line))
        elif line.startswith("+"):
            lines.append(style.good(line))
        elif line.startswith("-"):
            lines.append(style.bad(line))
        else:
            lines.append(line)
    return "\n".join(lines)


def _is_long(text: str) -> bool:
    return text.count("\n") >= shutil.get_terminal_size().lines - 1


def _pager(environ: Mapping[str, str]) -> list[str] | None:
    """None: what the user has set is empty or `cat`, or there is none."""
    named = environ.get("LEADROPE_PAGER", environ.get("PAGER"))
    if named is not None:
        words = shlex.split(named)
        return words if words and words != ["cat"] and shutil.which(words[0]) else None
    if environ.get("TERM", "dumb") == "dumb":
        return None
    found = next((path for name in _FALLBACK if (path := shutil.which(name))), None)
    return [found] if found else None
