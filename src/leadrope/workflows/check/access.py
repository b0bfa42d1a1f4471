"""Checks what a file requests from the user's environment: variables, and references to secrets."""

from __future__ import annotations

from collections.abc import Mapping

from leadrope import errors
from leadrope.regex import regex
from leadrope.workflows.check.step import StepType
from leadrope.workflows.language import templates
from leadrope.workflows.model import SECRET, Step, Workflow
from leadrope.workflows.problems import Findings, Path, Position

_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]*")


def look(workflow: Workflow, findings: Findings) -> None:
    """Reports variables that no file may request."""
    asked: list[tuple[str, Path]] = [(name, ("settings", "env")) for name in workflow.settings.env]
    asked += [(one.env, ("inputs", one.name, "env")) for one in workflow.inputs if one.env]
    if not asked:
        return
    from leadrope.runtime.sandboxing.access import check_asked_variable  # noqa: PLC0415  # few workflows request any

    for name, path in asked:
        try:
            check_asked_variable(name, "env")
        except errors.BadValue as error:
            findings.add("wrong_value", error.message, path=path, found=name, hint=error.hint)


def is_secret(one: templates.Reference, path: Path) -> bool:
    """Whether a template that nothing else defines is a step's `${secret.NAME}`."""
    return one.root == SECRET and path[0] == "steps"


def secret(
    one: templates.Reference,
    step: Step,
    types: Mapping[str, StepType],
    findings: Findings,
    *,
    path: Path,
    where: Position,
) -> None:
    """Reports a reference to a secret in a place that does not allow it, or without a name."""
    kind = types.get(step.type)
    if kind is None:
        return
    if len(one.parts) != 1 or not isinstance(one.parts[0], str) or not _NAME.fullmatch(one.parts[0]):
        findings.add(
            "unknown_template",
            f"${{{one.source}}} names no secret",
            where,
            path=path,
            found=one.source,
            hint="Write ${secret.NAME}, with the name of a variable of your environment or of LEADROPE_HOME/.env.",
        )
    elif path[2] not in kind.secret_references:
        findings.add(
            "secret_here",
            f"${{{one.source}}} cannot be used in {path[2]!r} of a step of the type {step.type!r}: it would be shown",
            where,
            path=path,
            found=one.source,
            hint="Secrets are for http steps, and for `env` of shell steps.",
        )
