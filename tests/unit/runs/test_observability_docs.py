"""The examples of docs/observability.md run, and docs/ci.md names what there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from leadrope.runs.observe import notify

DOCS = Path(__file__).parents[3] / "docs"


def blocks(name: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def test_every_python_example_runs() -> None:
    found = blocks("observability.md", "python")
    found += [code for code in blocks("internals/index.md", "python") if "leadrope.runs.page.page" in code]
    assert len(found) == 2
    for code in found:
        exec(compile(code, "an example of the documentation", "exec"), {})


def test_the_sample_settings_are_accepted() -> None:
    (text,) = blocks("observability.md", "toml")
    found = notify.settings(tomllib.loads(text)["notify"], {"LEADROPE_WEBHOOK_SECRET": "0123456789abcdef"})
    assert found.bell
    assert found.command[0] == "notify-send"
    assert found.webhook is not None


def test_the_sample_action_keeps_strangers_texts_out_of_its_shell() -> None:
    (text,) = blocks("ci.md", "yaml")
    steps = yaml.safe_load(text)["jobs"]["review"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]
    assert 'pip install "leadrope[claude] @ git+$LEADROPE_URL"' in scripts
