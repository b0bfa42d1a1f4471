"""Checks that the saved agents named by steps exist and can be used, from the user's configuration."""

from __future__ import annotations

import os
from pathlib import Path

from leadrope import errors
from leadrope.core import config as configs
from leadrope.workflows.language import templates
from leadrope.workflows.language.markdown import WorkflowDocument
from leadrope.workflows.model import Step
from leadrope.workflows.problems import Findings, WorkflowProblem

_TYPES = ("agent", "claude-code")


def names_agents(document: WorkflowDocument) -> bool:
    return any(_named(step) is not None for step in document.workflow.every_step)


def look(document: WorkflowDocument, *, leadrope_home: Path, workspace: Path) -> tuple[WorkflowProblem, ...]:
    """Returns a problem for each step whose agent is unknown, untrusted or invalid."""
    from leadrope.runtime.agents import saved_agents  # noqa: PLC0415  # only needed if a step names an agent

    environ = {**os.environ, "LEADROPE_HOME": str(leadrope_home)}
    findings = Findings(document.places)
    for step in document.workflow.every_step:
        name = _named(step)
        path = ("steps", step.id, "agent")
        if name is None or path in document.unreadable:
            continue
        cwd = templates.settled(step.parameters).get("cwd")
        folder = workspace / cwd if isinstance(cwd, str) else workspace
        known: list[str] = []
        try:
            config = configs.load(environ)
            known = saved_agents.names(config, environ, folder)
            saved = saved_agents.find(name, config, environ, folder)
            for mistake in saved_agents.mistakes(saved, config, folder):
                findings.add("bad_agent", f"agent {name!r}: {mistake}", path=path, hint=mistake.hint)
        except errors.BadValue:
            findings.add("unknown_agent", f"there is no agent {name!r}", path=path, found=name, available=known)
        except errors.LeadropeError as error:
            findings.add("bad_agent", f"agent {name!r}: {error.message}", path=path, hint=error.hint)
    return tuple(findings)


def _named(step: Step) -> str | None:
    name = templates.settled(step.parameters).get("agent") if step.type in _TYPES else None
    return name if isinstance(name, str) else None
