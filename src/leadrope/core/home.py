"""Where leadrope keeps its own things, and the .env file there; never looks into a project."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from leadrope import errors
from leadrope.regex import regex

_LINE = regex(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)", re.DOTALL)
_QUOTED = regex(r"""(?:'(?P<plain>[^']*)'|"(?P<escaped>(?:[^"\\]|\\.)*)")\s*(?:\#.*)?""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def user_home(environ: Mapping[str, str]) -> Path:
    """The user's home as the environment says, else as the system does."""
    named = environ.get("HOME") or environ.get("USERPROFILE")
    if named:
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        raise errors.BadConfig("the user has no home folder", hint="Set HOME.") from None


def leadrope_home(environ: Mapping[str, str], *, platform: str = sys.platform) -> Path:
    """LEADROPE_HOME, else the platform's folder for data. Nothing is created by naming it; see `ensure`."""
    home = user_home(environ)
    chosen = environ.get("LEADROPE_HOME")
    return _absolute("LEADROPE_HOME", chosen, home) if chosen else _data(environ, home, platform)


def claude_dir(environ: Mapping[str, str]) -> Path:
    """Where Claude Code keeps the user's settings, login and agents; agent files are read there for every provider."""
    chosen = environ.get("CLAUDE_CONFIG_DIR")
    return Path(chosen) if chosen else user_home(environ) / ".claude"


def config_file(environ: Mapping[str, str]) -> Path:
    """LEADROPE_CONFIG, else config.toml in the user's folder for configuration."""
    home = user_home(environ)
    chosen = environ.get("LEADROPE_CONFIG")
    if chosen:
        return _absolute("LEADROPE_CONFIG", chosen, home)
    return _base(environ, "XDG_CONFIG_HOME", home / ".config") / "leadrope" / "config.toml"


def sessions_dir(home: Path) -> Path:
    """Where conversations are kept, so that a resume finds them."""
    return home / "sessions"


def ensure(folder: Path) -> Path:
    """Make the folder, and those above it that are missing, for this user alone."""
    try:
        for level in reversed((folder, *folder.parents)):
            if not level.is_dir():
                level.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise errors.BadConfig(
            f"the folder {folder} cannot be made: {error.strerror}",
            hint="Set LEADROPE_HOME to a folder that you may write to.",
        ) from None
    return folder


def parse_env(text: str, source: str = ".env") -> dict[str, str]:
    r"""KEY=VALUE lines; `#` comments, quotes and a leading `export` are understood, nothing is expanded.

    >>> parse_env("export A=1  # one\nB='two words'")
    {'A': '1', 'B': 'two words'}
    """
    values: dict[str, str] = {}
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = _value(match[2]) if match else None
        if match is None or value is None or "\0" in value:
            # The line itself is not shown: it may hold a secret.
            raise errors.BadConfig(
                f"{source}, line {number}: not a KEY=VALUE line",
                hint="""Write NAME=value, NAME='value' or NAME="value", each on one line.""",
            )
        values[match[1]] = value
    return values


def load_env(home: Path) -> dict[str, str]:
    """The values of LEADROPE_HOME/.env; a missing file has none. The real environment's values stand above them."""
    path = home / ".env"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise errors.BadConfig(f"{path} cannot be read: it is not UTF-8 text ({error})") from None
    except OSError as error:
        raise errors.BadConfig(
            f"{path} cannot be read: {error.strerror}",
            hint="LEADROPE_HOME must be a folder of yours; check who owns it, or name another one.",
        ) from None
    return parse_env(text, str(path))


def _value(text: str) -> str | None:
    if text.startswith(("'", '"')):
        match = _QUOTED.fullmatch(text)
        if match is None:
            return None
        if match["plain"] is not None:
            return match["plain"]
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match["escaped"])
    # A `#` inside a word belongs to it, as in a password or an address.
    return re.sub(r"(^|\s+)#.*", "", text).rstrip()


def _data(environ: Mapping[str, str], home: Path, platform: str) -> Path:
    if platform == "darwin":
        return home / "Library" / "Application Support" / "leadrope"
    if platform == "win32":
        return _base(environ, "LOCALAPPDATA", home / "AppData" / "Local") / "leadrope"
    return _base(environ, "XDG_DATA_HOME", home / ".local" / "share") / "leadrope"


def _base(environ: Mapping[str, str], name: str, default: Path) -> Path:
    # The XDG rules say that a relative path counts as unset.
    value = environ.get(name, "")
    return Path(value) if Path(value).is_absolute() else default


def _absolute(name: str, value: str, home: Path) -> Path:
    path = home / value[2:] if value.startswith("~/") else home if value == "~" else Path(value)
    if not path.is_absolute():
        raise errors.BadConfig(
            f"{name} is {value!r}, which changes with the working directory", hint="Give an absolute path."
        )
    return path
