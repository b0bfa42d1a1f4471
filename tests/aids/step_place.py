"""The place of one step that a test runs alone: a workspace, the real gate, and a record of what was asked and said.

Knows no kind of step. Whatever a test does not give it (a service, commands, a person) it does not have: a step that
reaches for it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.policy import sources
from leadrope.policy.decide import Allow, Ask, Facts, Policy, decide
from leadrope.workflows import templates
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import Asked, Done, StepFailed, Word
from leadrope.workflows.units import Key


class Here:
    """What a step knows of its place. The gate is the real one, with the shipped rules below those of the test."""

    flow_id = "flow-1"
    timeout_s: float | None = None
    budget_usd: float | None = None
    approver = None
    depth = 0
    branches: frozenset[str] = frozenset()

    def __init__(self, workspace: Path, *policies: dict[str, Any], home: Path | None = None) -> None:
        self.workspace = workspace
        self.home = home or workspace
        self.policies = policies
        self.key = Key("here")
        self.redactor = Redactor()
        self.environ: Mapping[str, str] = {}
        self.sources: Mapping[str, Any] = {}
        self._service: Any = None
        self.said: list[str] = []
        self.asked: list[ToolCall] = []
        """Every call that came to the gate, also those that it refused."""
        self.owned: list[bool] = []
        """Of each of them whether the step called it the author's own."""
        self.says_yes = False
        """What a person says where the policy wants one."""
        self.edit: dict[str, Any] = {}
        """What a person changes in a call that he allows."""
        self.meanwhile: Callable[[], object] = lambda: None
        """What somebody else does between the yes and the deed."""

    @property
    def service(self) -> Any:
        if self._service is None:
            raise NotImplementedError("this place has no service")
        return self._service

    @service.setter
    def service(self, service: Any) -> None:
        self._service = service

    @property
    def commands(self) -> Any:
        raise NotImplementedError("this place runs no commands")

    def say(self, action: str, *, cost_usd: float = 0.0) -> None:
        self.said.append(action)

    async def permit(self, call: ToolCall, *, is_own: bool = True) -> ToolCall:
        self.asked.append(call)
        self.owned.append(is_own)
        rules = sources.gather(more=self.policies).effective()
        policy = Policy(mode="full", workspace=(str(self.workspace),), rules=rules)
        verdict = decide(policy, call, Facts(is_request=call.name == "WebFetch"))
        if not isinstance(verdict, Allow) and not (self.says_yes and isinstance(verdict, Ask)):
            raise StepFailed(f"{call.name} is not allowed: {verdict.reason}", kind="denied")
        self.meanwhile()
        return msgspec.structs.replace(call, input={**call.input, **self.edit_of(call)})

    def edit_of(self, call: ToolCall) -> dict[str, Any]:
        return self.edit

    async def ask(self, asked: Asked) -> Word:
        raise NotImplementedError("there is no person in this place")

    async def subflow(self, name: str, inputs: Mapping[str, Any]) -> Done:
        raise NotImplementedError("this place has no other workflows")


async def do(here: Here, name: str, scope: dict[str, Any] | None = None, /, **given: Any) -> Done:
    """As the engine does it: templates filled, types converted, run."""
    kind = registry.kind_of(name)
    here.sources = given
    filled = (kind.fill or templates.resolve)(given, scope or {})
    done: Done = await kind.run(msgspec.convert(filled, kind.config, strict=False), here)
    assert msgspec.json.decode(msgspec.json.encode(done.outputs)) == done.outputs, f"no JSON: {done.outputs}"
    assert set(done.outputs) <= set(kind.outputs), f"{name} gave more than it declares: {sorted(done.outputs)}"
    return done


async def outputs_of(here: Here, name: str, /, **given: Any) -> dict[str, Any]:
    return (await do(here, name, **given)).outputs


async def refused(here: Here, name: str, scope: dict[str, Any] | None = None, /, **given: Any) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await do(here, name, scope, **given)
    return caught.value
