"""Where a run's layers come from: shipped, the user's config, the agent, the project, the run. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.policy import defaults, files
from leadrope.policy.project import ProjectFile, read_project
from leadrope.policy.resolve import EffectivePolicy, Layer, resolve, rules_of, with_defaults
from leadrope.policy.schema import PolicyRules


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    layers: tuple[Layer, ...]
    """From the broadest to the narrowest."""
    project: ProjectFile | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(map(str, self.project.ignored)) if self.project else ()

    def effective(self) -> EffectivePolicy:
        return resolve(self.layers)


def gather(
    *,
    config: Path | None = None,
    agent: str | None = None,
    cwd: Path | None = None,
    policies: Sequence[Path] = (),
    values: PolicyRules | Mapping[str, Any] | None = None,
    more: Sequence[Mapping[str, Any]] = (),
) -> Sources:
    """All layers that hold for a run.

    `config` is the user's config.toml, `cwd` the working directory with its leadrope.toml, `policies` the files of
    `--policy`, `values` and each of `more` a policy given in Python. Whatever cannot be used is an error, never a
    missing rule.
    """
    user = files.read_user(config) if config else files.UserFile(policy=files.PolicyFile(source=""))
    layers = [*with_defaults(user.policy.parts, defaults.rules(lists=user.policy.defaults))]
    if agent is not None and agent in user.agents:
        layers += user.agents[agent].layers(f"agent:{agent}")
    project = read_project(cwd) if cwd else None
    if project is not None:
        layers += project.policy.layers("project")
    for path in policies:
        layers += files.read_policy(path).layers(f"run:{path.name}")
    for rules in (*((values,) if values is not None else ()), *more):
        try:
            layers.append(Layer("run", rules_of(rules), True))
        except errors.BadValue as error:
            raise errors.BadValue("policy", error.message, hint=error.hint) from None
    return Sources(layers=tuple(layers), project=project)
