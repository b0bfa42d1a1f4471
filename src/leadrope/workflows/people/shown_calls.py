"""Decides whether the person who approved a step has seen exactly the call it then makes. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadrope.confined import real_path
from leadrope.core.tools import ToolCall, fingerprint
from leadrope.workflows.language import templates


def has_shown(values: Mapping[str, Any], call: ToolCall, workspace: Path) -> bool:
    """Return whether `values`, the parameters as shown without secrets, include this call. Hidden parts count as not
    seen.
    """
    mark = fingerprint(call.name, call.input)
    return any(fingerprint(name, input_) == mark for name, input_ in _calls(values, workspace))


def _calls(values: Mapping[str, Any], workspace: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a step with these parameters makes: those of `shell`, `code` and `mcp`."""
    found: list[tuple[str, dict[str, Any]]] = []
    command = values.get("command")
    if isinstance(command, list):
        command = shlex.join(templates.as_text(word) for word in command)
    if isinstance(command, str):
        cwd = values.get("cwd")
        folder = Path(real_path(workspace / cwd)) if isinstance(cwd, str) and cwd else workspace
        text = command if folder == workspace else f"cd {shlex.quote(str(folder))}\n{command}"
        found.append(("Bash", {"command": text}))
    if isinstance(code := values.get("code"), str):
        python = values.get("python") or "python3"
        found.append(("Bash", {"command": f"{shlex.quote(str(python))} -c {shlex.quote(code)}"}))
    if isinstance(tool := values.get("tool"), str) and isinstance(arguments := values.get("arguments", {}), dict):
        found.append((f"mcp__{values.get('server')}__{tool}", arguments))
    return found
