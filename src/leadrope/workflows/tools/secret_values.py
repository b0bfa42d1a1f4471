"""Values of `${secret.NAME}`: looked up each time a step's templates are resolved, so none has to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from leadrope import errors
from leadrope.runtime.sandboxing import access as accesses
from leadrope.workflows.steps.base import StepFailed


class SecretValues(Mapping[str, str]):
    def __init__(self, allowed: Iterable[str], environ: Mapping[str, str], leadrope_home: Path) -> None:
        """`allowed`: the variables that the user lets this workflow use."""
        self._allowed = tuple(dict.fromkeys(allowed))
        self._environ = environ
        self._home = leadrope_home
        self.used: list[str] = []
        """The values that were looked up."""

    def __getitem__(self, name: str) -> str:
        """Raise StepFailed, not KeyError, for a missing value: it has a reason, and `??` must not hide it."""
        if name not in self._allowed:
            raise StepFailed(
                f"the secret {name} was not given to this workflow",
                kind="bad_input",
                hint=f"Give it with --secret {name}, or list it in forward_env of your config.toml.",
            )
        try:
            value = accesses.secret_values((name,), self._environ, self._home)[name]
        except errors.BadValue as error:
            raise StepFailed(error.message, kind="bad_input", hint=error.hint) from None
        self.used.append(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._allowed)

    def __len__(self) -> int:
        return len(self._allowed)


def spellings(secrets: Iterable[str]) -> list[str]:
    """Return the secrets verbatim and as encoded in a URL or a form."""
    return list(dict.fromkeys(text for one in secrets for text in (one, quote(one, safe=""), quote_plus(one))))
