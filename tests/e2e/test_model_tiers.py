"""The words for models against what the installed agent says: a version that knows newer models fails here."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from leadrope.core import models
from leadrope.core.cost.prices import TABLE, plain_name


@pytest.fixture(scope="module")
def told(claude: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Its answer to `initialize`, by the word; nothing is asked of a model."""
    return asyncio.run(_models(claude, tmp_path_factory.mktemp("agent")))


async def _models(claude: str, folder: Path) -> dict[str, dict[str, Any]]:
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "ANTHROPIC_API_KEY": "sk-ant-rehearsal-0000000000000000",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *(claude, "-p", "--verbose", "--output-format", "stream-json", "--input-format", "stream-json"),
        *("--setting-sources", "", "--strict-mcp-config"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environ,
        cwd=folder,
        limit=16 * 1024 * 1024,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        asked = {"type": "control_request", "request_id": "i", "request": {"subtype": "initialize"}}
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        async with asyncio.timeout(60):
            async for line in process.stdout:
                answer = json.loads(line)
                if answer.get("type") == "control_response":
                    return {one["value"]: one for one in answer["response"]["response"]["models"]}
    finally:
        process.kill()
        await process.wait()
    raise AssertionError("the agent ended without an answer")


def test_tiers_are_the_newest_models_that_the_agent_knows(told: dict[str, dict[str, Any]]) -> None:
    """If this fails after an update of the agent: TIERS, TIERS_OF, TIERS_DATE in core/models, and prices."""
    assert {word: told[word]["resolvedModel"] for word in models.TIERS} == dict(models.TIERS)


def test_the_agent_has_no_word_that_we_do_not_know(told: dict[str, dict[str, Any]]) -> None:
    assert set(told) - {"default"} == set(models.TIERS)


def test_their_prices_are_those_that_the_agent_names(told: dict[str, dict[str, Any]]) -> None:
    found = {}
    for word in models.TIERS:
        price = re.search(r"\$([0-9.]+)/\$([0-9.]+) per Mtok", told[word]["description"])
        assert price is not None, told[word]
        found[word] = (float(price[1]), float(price[2]))
    listed = {word: TABLE[plain_name(model)] for word, model in models.TIERS.items()}
    assert found == {word: (price.input, price.output) for word, price in listed.items()}
