"""Where a run's layers come from: shipped, the user's config, the agent, the project, the run. Decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.policy.files import defaults, policy_file
from leadrope.policy.files.document import FileProblem, Problems, suggest
from leadrope.policy.files.project import ProjectFile, read_project
from leadrope.policy.resolve import SHIPPED, EffectivePolicy, Layer, resolve, rules_of, with_defaults, without
from leadrope.policy.schema import PolicyRules


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    layers: tuple[Layer, ...]
    """From the broadest to the narrowest."""
    project: ProjectFile | None = None
    broken_agents: Mapping[str, tuple[FileProblem, ...]] = {}
    """Agents of the user's configuration that cannot be used, with what is wrong."""

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(map(str, self.project.ignored)) if self.project else ()

    def effective(self, *, lifted: Collection[str] = ()) -> EffectivePolicy:
        """All layers as one. `lifted` names shipped values that give way to what the user has asked for himself."""
        return resolve(
            Layer(layer.name, without(layer.rules, lifted), layer.is_checked)
            if layer.name == SHIPPED and lifted
            else layer
            for layer in self.layers
        )


def gather_policy(
    *,
    config: Path | None = None,
    home: Path | None = None,
    agent: str | None = None,
    cwd: Path | None = None,
    policies: Sequence[Path] = (),
    values: PolicyRules | Mapping[str, Any] | None = None,
    more: Sequence[Mapping[str, Any]] = (),
) -> Sources:
    """All layers that hold for a run.

    `config` is the user's config.toml, `home` leadrope's own folder of data, `cwd` the working directory with its
    leadrope.toml, `policies` the files of `--policy`, `values` and each of `more` a policy given in Python. Whatever
    cannot be used is an error, never a missing rule.
    """
    user = policy_file.UserFile(policy=policy_file.PolicyFile(source=""))
    if config:
        user = policy_file.read_user(config, sets_aside=True)
    layers = [*with_defaults(user.policy.parts, defaults.rules(lists=user.policy.defaults))]
    if home is not None and user.policy.defaults:
        layers.append(Layer(SHIPPED, PolicyRules(protected_paths=defaults.own_paths(home, config)), True))
    if agent is not None and agent not in user.names:
        # A run under a name that is one letter off would miss the rules of its agent.
        raise errors.BadValue("agent", f"there is no agent {agent!r}", hint=suggest(agent, user.names))
    if agent is not None and agent in user.broken:
        raise Problems(user.broken[agent])
    if agent is not None and agent in user.agents:
        layers += user.agents[agent].layers(f"agent:{agent}")
    project = read_project(cwd) if cwd else None
    if project is not None:
        layers += project.policy.layers("project")
    for path in policies:
        layers += policy_file.read_policy(path).layers(f"run:{path.name}")
    for rules in (*((values,) if values is not None else ()), *more):
        try:
            layers.append(Layer("run", rules_of(rules), True))
        except errors.BadValue as error:
            raise errors.BadValue("policy", error.message, hint=error.hint) from None
    return Sources(layers=tuple(layers), project=project, broken_agents=user.broken)
