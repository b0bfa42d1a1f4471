"""Connections as a user gives them: from config.toml and from a file, with keys that nobody sees afterwards."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SERVER = str(Path(__file__).parents[2] / "data" / "mcp_server.py")
KEYS = {"FILES_TOKEN": "opensesame-of-files", "GITLAB": "Zq81kfL0ppW2mmxT"}


async def test_servers_of_config_and_file_are_one_and_their_keys_are_shown_nowhere(desk: Any, playing: Any) -> None:
    """Every command of the agent can read the file that it is given; what it prints leaves without the keys."""
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    seen = desk.project / "seen"
    words = json.dumps([SERVER, "stdio", str(seen)])
    config.write_text(
        f'[connections.files]\ncommand = "{sys.executable}"\nargs = {words}\n'
        'env = { SERVER_TOKEN = "${FILES_TOKEN}" }\n'
    )
    other = {"command": sys.executable, "args": [SERVER, "stdio", f"{seen}2", "--key=${GITLAB}"]}
    (desk.project / "mcp.json").write_text(json.dumps({"mcpServers": {"other": other}}))
    command = f"cat $TMPDIR/../../launch-*/mcp.json | tee {desk.project}/got | tr -d '\\n'"
    show = {"name": "Bash", "input": {"command": command, "description": "show"}}
    call = {"name": "mcp__other__touch", "input": {"path": str(desk.marker)}}
    async with playing({"tool": show}, {"tool": call}, {"text": "done"}) as model:
        ended = await desk.leadrope(
            *("run", "go", "--base-url", model.url, "--mode", "full", "-o", "stream-json"),
            *("--mcp-server", "files", "--mcp-config", str(desk.project / "mcp.json")),
            **KEYS,
        )
    assert ended.code == 0, ended.err
    assert desk.marker.exists()
    assert seen.read_text() == KEYS["FILES_TOKEN"], "the server itself has it"
    given = json.loads((desk.project / "got").read_text())["mcpServers"]
    assert sorted(given) == ["files", "other"]
    assert given["other"]["args"][-1] == f"--key={KEYS['GITLAB']}"
    assert "--key=[redacted]" in ended.out
    # The agent program's own transcript is not ours to change: a resume would read another conversation.
    ours = [path for path in (desk.home / "leadrope").rglob("*") if path.is_file() and "projects" not in path.parts]
    kept = b"".join(path.read_bytes() for path in ours)
    for key in KEYS.values():
        assert key not in ended.out + ended.err
        assert key.encode() not in kept
