"""What an execution is started with beside its inputs, kept so that another process can continue it.

Kept are folders and languages of its environment, what was said for its models, and which accounts pay; never a
credential. Secret inputs are kept as references. What cannot be found again is told as NotHere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request import Billing, RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.secrets.secret_names import is_secret_name
from leadrope.runs.executions.queue import Given, NotHere
from leadrope.runs.executions.values import ExecutionTexts
from leadrope.runs.records import stored_environ
from leadrope.runs.records.stored_requests import account_of
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import model
from leadrope.workflows.steps import registry

if TYPE_CHECKING:
    from leadrope.runs.service import Service

OVERRIDES = "overrides"
ACCOUNTS = "accounts"
SECRET_INPUTS = "secret_inputs"  # noqa: S105  # the name of a setting
ON_ASK = "on_ask"
ACCESS = "access"
GRANTED = "granted"
"""The variables that its commands were given, of those that were set."""


class Overrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was said for one execution above the user's configuration."""

    model: str | None = None
    billing: str | None = None
    base_url: str | None = None

    def applied(self, config: configs.Config) -> configs.Config:
        said = {name: value for name in ("billing", "base_url") if (value := getattr(self, name)) is not None}
        run = msgspec.structs.replace(config.run, **said)
        return msgspec.structs.replace(config, run=run, step_model=self.model or config.step_model)

    def above(self, other: Overrides) -> Overrides:
        """These, and where they say nothing the others."""
        mine = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        return msgspec.structs.replace(other, **mine)


class ContinuedWith(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution is continued with."""

    environ: dict[str, str]
    config: configs.Config
    inputs: dict[str, Any]
    secrets: tuple[str, ...] = ()
    access: Access = Access()
    on_ask: Literal["wait", "deny"] = "wait"

    def __repr__(self) -> str:
        return "Around(…)"


def kept(
    workflows: Iterable[model.Workflow],
    values: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    config: configs.Config,
    overrides: Overrides,
    leadrope_home: Path,
    redactor: Redactor,
    access: Access,
    on_ask: str,
) -> dict[str, Any]:
    """For the settings of an execution."""
    own = home.load_env(leadrope_home)
    known = {**own, **environ}
    granted = [name for name in (*access.variables, *access.secrets) if name in known]
    plain = {name: known[name] for name in access.variables if name in environ and not is_secret_name(name)}
    return {
        ACCESS: msgspec.to_builtins(access),
        GRANTED: granted,
        stored_environ.KEY: {
            name: value
            for name, value in {**stored_environ.kept(environ), **plain}.items()
            if not _is_secret(value, redactor)
        },
        OVERRIDES: msgspec.to_builtins(overrides),
        ACCOUNTS: accounts(workflows, config, environ, own),
        SECRET_INPUTS: {name: _variable(value, own) for name, value in values.items() if _is_secret(value, redactor)},
        ON_ASK: on_ask,
    }


def overrides_of(settings: Mapping[str, Any]) -> Overrides:
    return msgspec.convert(settings.get(OVERRIDES, {}), Overrides)


def accounts(
    workflows: Iterable[model.Workflow],
    config: configs.Config,
    environ: Mapping[str, str],
    env_file: Mapping[str, str],
    *,
    done: Collection[str] = (),
) -> dict[str, str]:
    """Who pays for the steps that ask a model, by provider and way to pay; without the steps that are done."""
    found: dict[str, str] = {}
    for workflow in workflows:
        for step in workflow.every_step:
            if step.id in done or not _asks_a_model(step):
                continue
            billing = _billing(step, config)
            provider = step.parameters.get("provider")
            name = provider if isinstance(provider, str) and "$" not in provider else config.run.provider
            request = RunRequest(prompt="x", billing=billing)
            if isinstance(name, str):
                request = msgspec.structs.replace(request, provider=name)
            found[f"{request.provider} {billing}"] = account_of(request, environ, env_file)
    return found


def _asks_a_model(step: model.Step) -> bool:
    """Not so for a kind that is unknown: a called workflow with mistakes is told where it is called."""
    return step.type in registry.KINDS and "use_api_key" in registry.kind_of(step.type).config.__struct_fields__


def _billing(step: model.Step, config: configs.Config) -> Any:
    """As the agent step itself decides it."""
    if step.parameters.get("use_api_key") is True:
        return "api_key"
    usual = config.run.billing
    if "use_api_key" not in step.parameters and usual in get_args(Billing) and usual in ("api_key", "auto"):
        return usual
    return "subscription_only"


def restored(
    service: Service,
    texts: ExecutionTexts,
    workflows: Iterable[model.Workflow],
    given: Given | None,
    *,
    done: Collection[str] = (),
) -> ContinuedWith:
    """Of an execution that was handed to this process, what came with it; else what is stored and found here."""
    around = ContinuedWith(
        environ={},
        config=overrides_of(texts.settings).applied(service.config),
        inputs={},
        access=msgspec.convert(texts.settings.get(ACCESS, {}), Access),
        on_ask="deny" if texts.settings.get(ON_ASK) == "deny" else "wait",
    )
    if given is not None and given.inputs is not None:
        return replace(around, environ=given.environ, inputs=given.inputs, secrets=given.secrets)
    own = home.load_env(service.home)
    kept = stored_environ.restored(texts.settings, service.home)
    if given is not None:
        environ = {**given.environ, **(kept or {})}
    else:
        environ = dict(service.environ) if kept is None else kept
    lost = [name for name in texts.settings.get(GRANTED, ()) if name not in {**own, **environ}]
    if lost or "settings" in texts.redacted:
        told = f"the variable {lost[0]}" if len(lost) == 1 else f"the variables {', '.join(lost)}"
        raise NotHere(
            f"it needs {told if lost else 'a variable that it was given'}, and secrets are not stored",
            hint="A later start finds variables that are in the .env of LEADROPE_HOME.",
        )
    before = texts.settings.get(ACCOUNTS, {})
    # A person who continues it may pay for it in another way.
    now = accounts(workflows, around.config, environ, own, done=done) if given is None else {}
    if any(before.get(name, account) != account for name, account in now.items()):
        raise NotHere(
            "no credential of the account that it was started with was found here",
            hint="A later start finds a login, and what is in the .env of LEADROPE_HOME.",
        )
    return replace(around, environ=environ, inputs=_inputs(texts, own))


def _inputs(texts: ExecutionTexts, env_file: Mapping[str, str]) -> dict[str, Any]:
    """With the secrets that the store has only references of."""
    if "inputs" not in texts.redacted:
        return texts.inputs
    references: dict[str, str] = texts.settings.get(SECRET_INPUTS, {})
    lost = [f"its input {name}" for name, variable in references.items() if variable not in env_file]
    if not references:
        lost = ["one of its inputs"]
    if lost:
        raise NotHere(
            f"it needs {', '.join(lost)}, and secrets are not stored; start it anew",
            hint="A later start finds a secret input that is the value of a variable in the .env of LEADROPE_HOME.",
        )
    return {**texts.inputs, **{name: env_file[variable] for name, variable in references.items()}}


def _is_secret(value: Any, redactor: Redactor) -> bool:
    text = msgspec.json.encode(value).decode()
    return redactor.clean(text) != text


def _variable(value: Any, env_file: Mapping[str, str]) -> str:
    """The variable of leadrope's own .env that has this value; empty: there is none."""
    return next((name for name, known in env_file.items() if known == value), "")
