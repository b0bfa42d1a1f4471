"""Every example of docs/sessions.md is run as it stands, with the rehearsal model behind it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from leadrope.rehearsal import ModelServer

PAGE = Path(__file__).parents[2] / "docs" / "sessions.md"


def test_the_page_tells_what_happens(stage: Any) -> None:
    text = PAGE.read_text()
    home = Path(stage.environ["LEADROPE_HOME"])
    home.mkdir()
    (home / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-rehearsal-0000000000\n")
    config = Path(stage.environ["HOME"], ".config", "leadrope", "config.toml")
    config.parent.mkdir(parents=True)
    stage.environ["PATH"] = f"{Path(sys.executable).parent}:{stage.environ['PATH']}"
    (console,) = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    scripts = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    commands = [["bash", "-c", line[2:]] for line in console.splitlines()]
    commands += [[sys.executable, "-c", script] for script in scripts]
    shown = []
    with ModelServer.in_thread([{"text": "Here you are.", "repeat": 6}]) as model:
        config.write_text(f'[run]\nbase_url = "{model.url}"\n')
        for command in commands:
            done = subprocess.run(
                command, cwd=stage.ws, env=stage.environ, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            shown.append(done.stdout)
    assert "remember the number 42" in shown[2]
    assert "assistant Here you are." in shown[3]
    assert "succeeded Here you are." in shown[4]
    assert shown[4].rstrip().endswith(" 2 1"), "two turns, one start"
