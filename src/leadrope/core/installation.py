"""How leadrope was installed, and the command that adds one of its extras there.

`pip install 'leadrope[claude]'` is right for a package from an index in an activated environment, and for nobody else.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

Tool = Literal["pip", "uv", "pipx", "uv tool"]

NAME = "leadrope"


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    tool: Tool = "pip"
    python: str = "python3"
    """The interpreter of the environment that leadrope is in."""
    source: str | None = None
    """A folder, or the URL of an archive or a repository; None for a package from an index."""
    is_folder: bool = False
    is_editable: bool = False


def here() -> Installation:
    """How the running leadrope was installed, from what the installers leave in its environment."""
    return read(Path(sys.prefix), sys.executable, _direct_url(), has_pip=importlib.util.find_spec("pip") is not None)


def read(prefix: Path, python: str, direct_url: Mapping[str, Any] | None, *, has_pip: bool) -> Installation:
    """`direct_url` is the content of direct_url.json, which every installer writes for what is not from an index."""
    if (prefix / "uv-receipt.toml").is_file():
        tool: Tool = "uv tool"
    elif (prefix / "pipx_metadata.json").is_file():
        tool = "pipx"
    else:
        tool = "pip" if has_pip else "uv"
    url = str((direct_url or {}).get("url", ""))
    if not direct_url or not url:
        return Installation(tool=tool, python=python)
    if "dir_info" in direct_url:
        editable = bool(direct_url["dir_info"].get("editable", False))
        return Installation(tool=tool, python=python, source=_path(url), is_folder=True, is_editable=editable)
    if "vcs_info" in direct_url:
        vcs = direct_url["vcs_info"]
        revision = vcs.get("requested_revision")
        url = f"{vcs.get('vcs', 'git')}+{url}{f'@{revision}' if revision else ''}"
    return Installation(tool=tool, python=python, source=url)


def command_for(extra: str, found: Installation | None = None) -> str:
    """The command line that installs leadrope again, in the same way and with `extra`.

    command_for("claude")  # "pipx install --force 'leadrope[claude]'"
    """
    found = here() if found is None else found
    if found.source is None:
        what = f"{NAME}[{extra}]"
    elif found.is_folder:
        what = f"{found.source}[{extra}]"
    else:
        what = f"{NAME}[{extra}] @ {found.source}"
    editable = ["-e"] if found.is_editable else []
    match found.tool:
        case "pipx":
            words = ["pipx", "install", "--force", *editable, what]
        case "uv tool":
            words = ["uv", "tool", "install", "--force", *editable, what]
        case "uv":
            words = ["uv", "pip", "install", "--python", found.python, *editable, what]
        case "pip":
            words = [found.python, "-m", "pip", "install", *editable, what]
    return join(words)


def join(words: list[str], platform: str = sys.platform) -> str:
    """Words as the user's shell takes them: cmd.exe knows double quotes only."""
    if platform != "win32":
        return shlex.join(words)
    return " ".join(f'"{word}"' if set(word) & set(" []@&") else word for word in words)


def _path(url: str) -> str:
    from urllib.parse import urlsplit  # noqa: PLC0415  # for a hint alone
    from urllib.request import url2pathname  # noqa: PLC0415  # the same

    return url2pathname(urlsplit(url).path)


def _direct_url() -> Mapping[str, Any] | None:
    from importlib import metadata  # noqa: PLC0415  # 20 ms, and only for a hint

    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
        found = json.loads(text) if text else None
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
