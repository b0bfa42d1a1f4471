"""The scripted provider holds what every provider must hold, and a provider that does not is caught."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret
from leadrope.providers import registry
from leadrope.rehearsal import ExecutableStage, Scene, Staged, conformance, scenes, write_executable

STAGE = ExecutableStage("scripted", {"PATH": os.environ["PATH"]})


@pytest.mark.parametrize("check", conformance.checks("scripted"), ids=str)
async def test_the_scripted_provider_conforms(check: conformance.Check, tmp_path: Path) -> None:
    await check(STAGE, tmp_path)


def test_capabilities_choose_the_checks() -> None:
    """It cannot stream and is a process; it is asked for neither, and all else is looked at."""
    assert not registry.provider("scripted").capabilities.partial_text
    assert conformance.left_out("scripted") == {
        "address-holds-no-secret": ("endpoint",),
        "names-how-an-answer-ends": ("endpoint",),
        "streams": ("partial_text",),
    }
    looked_at = {check.name for check in conformance.checks("scripted")}
    assert looked_at | set(conformance.left_out("scripted")) == {check.name for check in conformance.CHECKS}


def test_checks_have_names_of_their_own_and_say_what_they_are_about() -> None:
    names = [check.name for check in conformance.CHECKS]
    assert len(set(names)) == len(names)
    assert all(check.about for check in conformance.CHECKS)


# -- what does not conform is caught ---------------------------------------------------------------------------------


class Rogue:
    """An agent of the scripted provider that does what the test says, whatever the scene is."""

    provider = "scripted"

    def __init__(self, *steps: dict[str, Any]) -> None:
        self._steps = steps

    @asynccontextmanager
    async def play(self, scene: Scene) -> AsyncIterator[Staged]:
        opening: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
        binary = write_executable(scene.folder / "agent", [*opening, *self._steps, {"await_eof": True}])
        environ = {"PATH": os.environ["PATH"], "HOME": str(scene.folder / "home")}
        yield Staged(environ=environ, fields={"provider": "scripted", "binary": str(binary)})


def find(name: str) -> conformance.Check:
    (found,) = [check for check in conformance.CHECKS if check.name == name]
    return found


def call(folder: Path, **fields: Any) -> dict[str, Any]:
    return {"call": {"tool": "Bash", "id": "t", "touch": str(folder / "work" / "marker"), **fields}}


RESULT = {"result": {"result": "fine"}}


async def test_an_agent_that_does_not_ask_is_caught(tmp_path: Path) -> None:
    with pytest.raises(conformance.NotConforming, match="a denied call has no effect"):
        await find("denied-call-has-no-effect")(Rogue(call(tmp_path, gate=False), RESULT), tmp_path)


async def test_an_agent_that_acts_before_the_yes_is_caught(tmp_path: Path) -> None:
    early = {"touch": str(tmp_path / "work" / "marker")}
    with pytest.raises(conformance.NotConforming, match="held, once, until it was decided"):
        await find("allowed-call-runs-once")(Rogue(early, call(tmp_path), RESULT), tmp_path)


async def test_a_failure_that_is_called_a_success_is_caught(tmp_path: Path) -> None:
    with pytest.raises(conformance.NotConforming, match="a refused request is a failed run: succeeded"):
        await find("a-failure-is-failed")(Rogue(RESULT), tmp_path)


async def test_another_answer_is_caught(tmp_path: Path) -> None:
    with pytest.raises(conformance.NotConforming, match="the answer is the result's text"):
        await find("answers")(Rogue(RESULT), tmp_path)


LEAKY = """
import msgspec
from leadrope.providers.scripted import Scripted

class Leaky(Scripted):
    id = "leaky"

    async def prepare(self, request, place, *, attempt):
        launch = await super().prepare(request, place, attempt=attempt)
        extra = {"prompt": request.prompt, "key": request.credential.reveal()}[request.labels["leak"]]
        return msgspec.structs.replace(launch, argv=(*launch.argv, extra))
"""


@pytest.mark.parametrize(
    ("leak", "says"), [("prompt", "the prompt is not an argument"), ("key", "credential is not an arg")]
)
async def test_a_provider_that_leaks_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak: str, says: str
) -> None:
    site = tmp_path / "site"
    info = site / "leaky-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"leaky_{leak}.py").write_text(LEAKY)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[leadrope.providers]\nleaky = leaky_{leak}:Leaky\n")
    monkeypatch.syspath_prepend(str(site))
    stage = ExecutableStage("leaky", {"PATH": os.environ["PATH"]}, labels={"leak": leak}, credential=Secret(scenes.KEY))
    with pytest.raises(conformance.NotConforming, match=says):
        await find("argv-holds-no-secret")(stage, tmp_path)
