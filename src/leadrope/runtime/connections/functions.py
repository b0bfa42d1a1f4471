"""Functions of the program as tools of the agent: their names, descriptions and parameters, and how one is called.

@leadrope.tool
def stock(product: str, shelf: Annotated[int, "counted from the door"] = 1) -> int:
"How many pieces are left."
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec

from leadrope import errors
from leadrope.core.output import output_types
from leadrope.core.tools import KNOWN_TOOLS
from leadrope.regex import regex
from leadrope.runtime.embedding import user_code

P = ParamSpec("P")
R = TypeVar("R")

SERVER = "functions"
"""The agent calls them `mcp__functions__NAME`."""
PREFIX = f"mcp__{SERVER}__"
_NAME = regex(r"[A-Za-z][A-Za-z0-9_]{0,47}")
"""The model's API takes 64 characters, the prefix included."""


class _Parameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Any
    schema: dict[str, Any]
    is_required: bool


class BadArguments(ValueError):
    """What the model gave does not fit the function; it reads why."""


class TookTooLong(TimeoutError):
    """The clock of a function has run out."""


class Function(Generic[P, R]):
    """A function that agents can call as a tool; `leadrope.tool` makes one. It can still be called as before."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        _check_function(function)
        _check_options(description, timeout_s)
        written = _written(function)
        # For `help` and `inspect.signature`; its own attributes are not copied, they could be named as ours.
        functools.update_wrapper(self, written, updated=())
        self.function = function
        self.name: str = name or getattr(written, "__name__", "") or type(written).__name__
        self.description = inspect.getdoc(written) or "" if description is None else description
        self.timeout_s = timeout_s
        self.__doc__ = self.description
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name in KNOWN_TOOLS:
            why = "is the name of a tool of the agent" if self.name in KNOWN_TOOLS else "cannot be the name of a tool"
            hint = 'Name it with `@leadrope.tool(name="…")`: up to 48 letters, digits and _.'
            raise errors.BadValue("tool", f"{self.name!r} {why}", hint=hint)
        self._parameters = tuple(_parameters(self.name, function))

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> R:
        """Call the function itself, past the agent and the gate."""
        return self.function(*args, **keywords)

    def __repr__(self) -> str:
        return f"<leadrope.tool {self.name}>"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its parameters, as the model sees it."""
        definitions: dict[str, Any] = {}
        properties = {}
        for one in self._parameters:
            shape = _distinct(one, definitions)
            definitions |= shape.pop("$defs", {})
            properties[one.name] = shape
        required = [one.name for one in self._parameters if one.is_required]
        found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return found | ({"required": required} if required else {}) | ({"$defs": definitions} if definitions else {})

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The model's arguments as values of the declared types, or BadArguments with all that is wrong."""
        known = {one.name: one for one in self._parameters}
        wrong = [f"{name}: there is no such parameter" for name in given if name not in known]
        wrong += [f"{one.name}: is missing" for one in self._parameters if one.is_required and one.name not in given]
        values = {}
        for name, value in given.items():
            if name not in known:
                continue
            try:
                values[name] = output_types.as_strict_type(value, known[name].kind)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
        if wrong:
            raise BadArguments("; ".join(wrong))
        return values

    async def call(self, given: Mapping[str, Any]) -> str:
        """Check the arguments, run the function, and give its result as text. Raises what the function raises."""
        values = self.arguments(given)
        try:
            async with asyncio.timeout(self.timeout_s) as clock:
                result = await user_code.call(functools.partial(self.function, **values), name=f"tool {self.name}")
        except TimeoutError:
            if not clock.expired():
                raise  # its own
            raise TookTooLong(f"{self.name} took longer than {self.timeout_s:g} s") from None
        return as_text(result)


@overload
def tool(function: Callable[P, R], /) -> Function[P, R]: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout_s: float | None = None
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
) -> Any:
    """Make a function a tool: pass it to a run with `functions=[...]`, and the agent can ask to call it.

    @leadrope.tool
    def add(a: int, b: Annotated[int, "the second summand"]) -> int:
        "Add two numbers."
        return a + b

    result = leadrope.run_sync("What is 2 + 3?", functions=[add], allow=("add",))

    Types become the JSON Schema of the parameters, and the docstring the description. A sync function runs in a thread
    of its own, an async one is awaited. `timeout_s` ends a call that takes longer; without it `limits.tool_s` does.
    """
    if function is not None:
        return Function(function)
    return lambda decorated: Function(decorated, name=name, description=description, timeout_s=timeout_s)


def collect(functions: Sequence[Function[..., Any] | Callable[..., Any]]) -> dict[str, Function[..., Any]]:
    """The functions of a run by name; a plain function is taken as `tool` would."""
    found: dict[str, Function[..., Any]] = {}
    for one in functions:
        if not callable(one):
            raise errors.BadValue("functions", f"{one!r} is not a function", hint="Pass functions, or @leadrope.tool.")
        function = one if isinstance(one, Function) else Function(one)
        if function.name in found:
            raise errors.BadValue("functions", f"two of them are named {function.name}", hint="Rename one of them.")
        found[function.name] = function
    return found


def whole_names(entries: Sequence[str], functions: Mapping[str, Any]) -> tuple[str, ...]:
    """Lists of tools with `add` written as `mcp__functions__add`, as the rules know it."""
    return tuple(f"{PREFIX}{entry}" if entry in functions else entry for entry in entries)


def as_text(result: Any) -> str:
    """What a function returned, as the model reads it: a text as it is, anything else as JSON."""
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    return msgspec.json.encode(result, enc_hook=_pydantic).decode()


def _pydantic(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} is not JSON; return a text, a number, a list, a dict or a dataclass")


def _check_function(function: Any) -> None:
    if not callable(function) or inspect.isclass(function) or isinstance(function, Function):
        hint = "Decorate a function once, or pass one: leadrope.tool(function)."
        raise errors.BadValue("tool", f"{function!r} is not a function", hint=hint)
    written = _written(function)
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        name = written.__name__
        raise errors.BadValue("tool", f"{name} is a generator", hint="Return a list: a call has one result.")


def _check_options(description: Any, timeout_s: Any) -> None:
    if description is not None and not isinstance(description, str):
        raise errors.BadValue("description", f"{description!r} is not a text")
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s > 0):  # not a number is not above zero either
        raise errors.BadValue("timeout_s", f"{timeout_s!r} is not a number above zero")


def _distinct(parameter: _Parameter, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter; a type that only shares its name with one in `definitions` is given another name."""
    shape = dict(parameter.schema)
    for name, definition in parameter.schema.get("$defs", {}).items():
        if definitions.get(name, definition) != definition:
            old, new = msgspec.json.encode(f"#/$defs/{name}"), msgspec.json.encode(f"#/$defs/{parameter.name}.{name}")
            shape = msgspec.json.decode(msgspec.json.encode(shape).replace(old, new))
            shape["$defs"][f"{parameter.name}.{name}"] = shape["$defs"].pop(name)
    return shape


def _parameters(name: str, function: Callable[..., Any]) -> list[_Parameter]:
    try:
        hints = get_type_hints(_typed(function), include_extras=True)
    except NameError as error:
        raise errors.BadValue("tool", f"{name}: a type cannot be found: {error}") from None
    found = []
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    for one in inspect.signature(function).parameters.values():
        if one.name in fixed:
            continue  # the program's choice, not the model's
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise errors.BadValue("tool", f"{name}: {one} cannot be given by name", hint="Declare each parameter.")
        if one.name not in hints:
            hint = f"Write {one.name}: str, for instance."
            if one.name in ("self", "cls"):
                hint = f"Make a tool of the method of an object: leadrope.tool(thing.{name})."
            raise errors.BadValue("tool", f"{name}: parameter {one.name} has no type", hint=hint)
        kind, text = _described(hints[one.name])
        schema = output_types.schema_of(kind, field=f"tool {name}: parameter {one.name}")
        if text:
            schema = {**schema, "description": text}
        found.append(_Parameter(name=one.name, kind=kind, schema=schema, is_required=one.default is one.empty))
    return found


def _written(function: Callable[..., Any]) -> Any:
    """The function that a `functools.partial` or a decorator is around."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _typed(function: Callable[..., Any]) -> Any:
    """Where the types are written: on the function, or on the `__call__` of an object."""
    found = _written(function)
    return found if inspect.isroutine(found) else type(found).__call__


def _described(hint: Any) -> tuple[Any, str]:
    """`Annotated[int, "text"]`: the type, and the text as its description."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    kind, *notes = get_args(hint)
    texts = [note for note in notes if isinstance(note, str)]
    others = tuple(note for note in notes if not isinstance(note, str))
    return (Annotated[(kind, *others)] if others else kind), " ".join(texts)
