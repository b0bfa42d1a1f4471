"""`python -m leadrope`: the command line, where the installed program is not on PATH."""

from __future__ import annotations

from leadrope.cli.main import entry

if __name__ == "__main__":
    entry()
