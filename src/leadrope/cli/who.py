"""Who sits at this terminal, for records of who decided what."""

from __future__ import annotations

import getpass
import os


def current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "person"
