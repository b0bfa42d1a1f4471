"""What an option of a run means and who may set it, stated once beside its type: `Annotated[int, RequestOption(...)]`.

The flags of `leadrope run`, the keys of `[run]` and of saved agents, the parameters of agent steps, the keywords in
Python, error messages and the reference pages are all made from it.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

Section = Literal[
    "task", "agent", "safety", "connections", "session", "output", "limits", "billing", "workspace", "screen"
]
"""Where the flag stands in `leadrope run --help`."""
Form = Literal["plain", "choice", "texts", "list", "pairs", "variables", "json", "budget", "secret_file"]
"""How the text of a flag becomes a value; `texts` and `list` can be repeated, and `list` is split at commas."""
Remote = Literal["yes", "lower", "named", "upload", "no"]
"""What a caller over HTTP may set: any value, only a stricter one, only names of what this machine has, only ids of
files that were uploaded, or nothing."""


class RequestOption(msgspec.Struct, frozen=True):
    """One option of a run. Its name, its type and its built-in default are those of the field."""

    help: str
    """One or two sentences, without the default; shown everywhere."""
    section: Section
    terminal: str = ""
    """Shown by `--help` in place of `help`, where the flag takes something else than the field."""
    see: str = ""
    """The page that says more, for the reference: `run.md#modes`."""
    default: str = ""
    """The default in words, where it is not the field's own value."""
    flag: str | None = ""
    """All spellings, with a space between; empty: `--` and the field's name with dashes. None: there is no flag."""
    old: tuple[str, ...] = ()
    """Spellings of earlier versions."""
    value: str = ""
    """What stands for the value in the help: `FILE`, `N`."""
    form: Form = "plain"
    low: int | None = None
    high: int | None = None
    """The smallest and the largest value."""
    if_empty: str = ""
    """An empty text is refused with this hint."""
    grows: Literal["", "merged", "joined"] = ""
    """A stronger layer adds to this table or list; otherwise it replaces the value."""
    config: bool = True
    """`[run]`, `[profiles.NAME]` and `[agents.NAME]` of the user's config.toml may set it."""
    config_type: str = ""
    """The type there, where it is another one."""
    agent: bool = True
    """`leadrope agents new` offers it, if `config` holds; a saved agent is not about one run, nor about secrets."""
    project: bool = False
    """`[run]` of a project's leadrope.toml may set it: model and prompts."""
    step: bool = False
    """A workflow's agent step has this very parameter."""
    remote: Remote = "no"

    def sentences(self) -> str:
        """The help with the range and with a default that the field's own value does not show."""
        return " ".join((self.in_range(self.help), *((f"Default: {self.default}.",) if self.default else ())))

    def in_range(self, text: str) -> str:
        """The text with the range of values that the option takes."""
        if self.low is None:
            return text
        start = f"{text.removesuffix('.')}," if ". " not in text and "; " not in text else text
        return f"{start} {self.low:,} to {self.high:,}."

    def flags(self, field: str, *, is_switch: bool = False) -> tuple[str, ...]:
        """The spellings as click takes them."""
        if self.flag is None:
            return ()
        plain = f"--{field.replace('_', '-')}"
        return tuple(self.flag.split()) or ((f"{plain}/--no-{plain[2:]}",) if is_switch else (plain,))


def options_of(kind: type) -> dict[str, RequestOption]:
    """The options of a class by field. Its module must not defer its annotations: they are read at every start."""
    found: dict[str, RequestOption] = {}
    for name, annotation in kind.__annotations__.items():
        for said in getattr(annotation, "__metadata__", ()):
            if isinstance(said, RequestOption):
                found[name] = said
    return found


def type_of(kind: type[msgspec.Struct], field: str) -> Any:
    """The type of an option without what is said about it and without None."""
    annotation = kind.__annotations__[field]
    inner = getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
    kinds = [one for one in get_args(inner) if one is not type(None)]
    return kinds[0] if type(None) in get_args(inner) and len(kinds) == 1 else inner
