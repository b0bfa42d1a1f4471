"""The place of one step that a test runs alone: a workspace, the real gate, and a record of what was asked and said.

Knows no kind of step. Whatever a test does not give it (a service, commands, a person) it does not have: a step that
reaches for it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from leadrope.core.events import Notice
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Allow, Ask, Facts, Policy, decide
from leadrope.policy.files import sources
from leadrope.policy.resolve import EffectivePolicy
from leadrope.runtime.gate.approvers import Answer
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows.engine.rehearsed import Rehearsal
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.language import templates
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import StepDone, StepFailed, StepQuestion


class Here:
    """What a step knows of its place. The gate is the real one, with the shipped rules below those of the test."""

    execution_id = "f" * 32
    outermost_id = "f" * 32
    timeout_s: float | None = None
    budget_usd: float | None = None
    approver = None
    depth = 0
    branches: frozenset[str] = frozenset()
    used_secrets: tuple[str, ...] = ()
    access = Access()
    rehearsal: Rehearsal | None = None

    def __init__(self, workspace: Path, *policies: dict[str, Any], home: Path | None = None) -> None:
        self.workspace = workspace
        self.home = home or workspace
        self.policies = policies
        self.key = Key("here")
        self.redactor = Redactor()
        self.environ: Mapping[str, str] = {}
        self.sources: Mapping[str, Any] = {}
        self._service: Any = None
        self._runs = 0
        self.said: list[str] = []
        self.notices: list[Notice] = []
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
        """Runs none, and knows the rules."""
        return SimpleNamespace(rules=self._rules)

    @property
    def _rules(self) -> EffectivePolicy:
        return sources.gather_policy(more=self.policies).effective()

    def retries(self, attempt: int, wait_s: float, why: str) -> None:
        self.said.append(f"{why}; attempt {attempt}")

    def run_name(self) -> str:
        self._runs += 1
        return f"here#0:1:{self._runs}"

    def is_named_elsewhere(self, text: str) -> bool:
        return False

    def say(self, action: str, *, cost_usd: float = 0.0) -> None:
        self.said.append(action)

    def notify(self, notice: Notice) -> None:
        self.notices.append(notice)

    def asks(self, run_id: str, approval_id: str, asked: StepQuestion) -> None:
        self.said.append(f"{approval_id} asks: {asked.detail}")

    async def permit(self, call: ToolCall, *, is_own: bool = True) -> ToolCall:
        self.asked.append(call)
        self.owned.append(is_own)
        policy = Policy(mode="full", workspace=(str(self.workspace),), rules=self._rules)
        verdict = decide(policy, call, Facts(is_request=call.name == "WebFetch"))
        if not isinstance(verdict, Allow) and not (self.says_yes and isinstance(verdict, Ask)):
            raise StepFailed(f"{call.name} is not allowed: {verdict.reason}", kind="denied")
        self.meanwhile()
        return msgspec.structs.replace(call, input={**call.input, **self.edit_of(call)})

    def edit_of(self, call: ToolCall) -> dict[str, Any]:
        return self.edit

    async def ask(self, asked: StepQuestion) -> Answer:
        raise NotImplementedError("there is no person in this place")

    async def subflow(self, name: str, inputs: Mapping[str, Any]) -> StepDone:
        raise NotImplementedError("this place has no other workflows")

    async def run_inside(self) -> StepDone:
        raise NotImplementedError("this place has no steps inside")


async def do(here: Here, name: str, scope: dict[str, Any] | None = None, /, **given: Any) -> StepDone:
    """As the engine does it: templates filled, types converted, run."""
    kind = registry.kind_of(name)
    here.sources = given
    filled = (kind.fill or templates.resolve)(given, scope or {})
    done: StepDone = await kind.run(msgspec.convert(filled, kind.config, strict=False), here)
    assert msgspec.json.decode(msgspec.json.encode(done.outputs)) == done.outputs, f"no JSON: {done.outputs}"
    assert set(done.outputs) - {templates.ABSENT} <= set(kind.outputs), (
        f"{name} gave more than it declares: {sorted(done.outputs)}"
    )
    return done


async def outputs_of(here: Here, name: str, /, **given: Any) -> dict[str, Any]:
    return (await do(here, name, **given)).outputs


async def refused(here: Here, name: str, scope: dict[str, Any] | None = None, /, **given: Any) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await do(here, name, scope, **given)
    return caught.value
