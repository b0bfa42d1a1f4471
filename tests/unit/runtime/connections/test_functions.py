"""Functions as tools: what the model is told of them, what of its arguments is refused, and who may call them."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import inspect
from typing import Annotated, Any, Literal

import msgspec
import pytest

import leadrope
from leadrope import errors
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runtime.connections.function_server import FunctionServer
from leadrope.runtime.connections.functions import BadArguments, Function, as_text, collect, whole_names


class Item(msgspec.Struct):
    name: str
    price: float = 0.0


@dataclasses.dataclass
class Order:
    items: list[Item]
    note: str | None = None


@leadrope.tool
def order(
    what: Order, how: Literal["fast", "cheap"], times: Annotated[int, "how often", msgspec.Meta(ge=1)] = 1
) -> str:
    """Order something.

    Nothing is paid.
    """
    return f"{times} x {what.items[0].name} {how}"


def test_types_become_a_schema_and_the_docstring_a_description() -> None:
    assert order.name == "order"
    assert order.description == "Order something.\n\nNothing is paid."
    schema = order.schema
    assert schema["required"] == ["what", "how"]
    assert schema["properties"]["how"]["enum"] == ["cheap", "fast"]
    assert schema["properties"]["times"] == {"type": "integer", "minimum": 1, "description": "how often"}
    assert schema["additionalProperties"] is False
    assert "Item" in schema["$defs"]


async def test_arguments_become_values_of_the_types() -> None:
    given = {"what": {"items": [{"name": "tea"}]}, "how": "fast", "times": 2}
    assert order.arguments(given)["what"] == Order(items=[Item(name="tea")])
    assert await order.call(given) == "2 x tea fast"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["what: is missing", "how: is missing"]),
        ({"what": {"items": []}, "how": "slow"}, ["how: Invalid enum value 'slow'"]),
        ({"what": {"items": [{}]}, "how": "fast"}, ["what: Object missing required field `name`"]),
        ({"what": {"items": []}, "how": "fast", "times": 0}, ["times: Expected `int` >= 1"]),
        ({"what": {"items": []}, "how": "fast", "times": "2"}, ["times: Expected `int`, got `str`"]),
        ({"what": {"items": []}, "how": "fast", "more": 1}, ["more: there is no such parameter"]),
    ],
)
def test_wrong_arguments_are_all_told(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadArguments) as caught:
        order.arguments(given)
    for word in words:
        assert word in str(caught.value)


def test_a_tool_is_still_a_function() -> None:
    @leadrope.tool(name="double", description="Twice.", timeout_s=5)
    def twice(number: int) -> int:
        return 2 * number

    assert twice(4) == 8
    assert (twice.name, twice.description, twice.timeout_s) == ("double", "Twice.", 5)


def untyped(a) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001  # what is refused
    """x"""


def rest(*args: int) -> None:
    """x"""


def socket(where: asyncio.Event) -> None:
    """x"""


def Bash(command: str) -> None:  # noqa: N802  # what is refused
    """x"""


class Counter:
    """Not a function, and has a method."""

    def count(self, step: int) -> int:
        """Count on."""
        return step + 1


def pieces(a: int) -> Any:
    """x"""
    yield a


async def pieces_later(a: int) -> Any:
    """x"""
    yield a


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("text", "'text' is not a function"),
        (Counter, "is not a function"),
        (Counter.count, "parameter self has no type\nMake a tool of the method of an object"),
        (leadrope.tool(Counter().count), "is not a function\nDecorate a function once"),
        (pieces, "pieces is a generator\nReturn a list"),
        (pieces_later, "pieces_later is a generator"),
        (untyped, "parameter a has no type"),
        (rest, "cannot be given by name"),
        (socket, "parameter where: Event has no JSON Schema: type <class 'asyncio.locks.Event'> is not supported\n"),
        (Bash, "is the name of a tool of the agent"),
        (lambda: None, "cannot be the name of a tool"),
    ],
)
def test_what_no_schema_can_tell_is_refused_where_it_is_written(function: Any, words: str) -> None:
    with pytest.raises(errors.BadValue, match=words):
        leadrope.tool(function)


@pytest.mark.parametrize(
    "options", [{"timeout_s": "5"}, {"timeout_s": 0}, {"timeout_s": float("nan")}, {"description": 5}, {"name": 5}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.BadValue):
        leadrope.tool(**options)(Counter().count)


def test_help_and_signature_are_those_of_the_function() -> None:
    assert inspect.signature(order) == inspect.signature(order.function)
    assert (order.__name__, order.__module__) == ("order", __name__)
    assert leadrope.tool(Counter().count).schema["properties"] == {"step": {"type": "integer"}}


async def test_what_a_partial_fixes_is_not_the_models_to_choose() -> None:
    def search(text: str, most: int, token: str) -> str:
        """Search."""
        return f"{text} {most} {token}"

    made = leadrope.tool(functools.partial(functools.partial(search, token="t"), most=2))
    assert (made.name, made.description) == ("search", "Search.")
    assert list(made.schema["properties"]) == ["text"]
    assert await made.call({"text": "a"}) == "a 2 t"
    with pytest.raises(BadArguments, match="token: there is no such parameter"):
        made.arguments({"text": "a", "token": "b"})


def test_types_that_share_a_name_stay_apart() -> None:
    def kind_of(*values: str) -> Any:
        return enum.Enum("Kind", {value: value for value in values})

    def pick(one: Any, two: Any, three: Any) -> None: ...

    first: Any = kind_of("a")
    pick.__annotations__ = {"one": first, "two": list.__class_getitem__(kind_of("b")), "three": first}
    schema = leadrope.tool(pick).schema
    assert schema["properties"]["one"] == schema["properties"]["three"] == {"$ref": "#/$defs/Kind"}
    assert schema["properties"]["two"]["items"] == {"$ref": "#/$defs/two.Kind"}
    assert [schema["$defs"][name]["enum"] for name in ("Kind", "two.Kind")] == [["a"], ["b"]]


def test_two_functions_of_one_name_are_refused_and_plain_ones_taken() -> None:
    def plain(a: int) -> int:
        return a

    assert list(collect([plain, order])) == ["plain", "order"]
    with pytest.raises(errors.BadValue, match="two of them are named plain"):
        collect([plain, plain])
    with pytest.raises(errors.BadValue, match="is not a function"):
        collect(["plain"])  # type: ignore[list-item]  # what is refused
    assert whole_names(("plain", "Bash(git *)"), {"plain": 1}) == ("mcp__functions__plain", "Bash(git *)")


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (None, ""), (3, "3"), ({"a": [1]}, '{"a":[1]}'), (Item(name="x"), '{"name":"x","price":0.0}')],
)
def test_a_result_is_text_or_json(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_a_result_that_is_no_json_says_so() -> None:
    with pytest.raises(TypeError, match="is not JSON"):
        as_text(object())


class Table:
    """A server, and what it has answered."""

    def __init__(self, *functions: Any, allowed: dict[str, ToolCall]) -> None:
        self.answers: dict[str, Any] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.server = FunctionServer(
            collect(functions),
            allowed=allowed.get,
            spawn=self._spawn,
            send=self.answers.__setitem__,
            redactor=functools.partial(Redactor, ["hunter2"]),
        )

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    async def call(self, call_id: str | None, name: str = "add", **given: Any) -> Any:
        number = len(self.answers)
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
        self.server.take(f"r{number}", {**message, "params": {"name": name, "arguments": given}}, call_id or "")
        await asyncio.wait(self.tasks)
        return self.answers[f"r{number}"]["result"]


def _add_calls() -> tuple[Any, list[int]]:
    called: list[int] = []

    async def add(a: int) -> int:
        called.append(a)
        return a + 1

    return add, called


async def test_only_the_call_that_was_allowed_is_made_and_only_once() -> None:
    add, called = _add_calls()
    tools = {
        "one": ToolCall(id="one", name="mcp__functions__add", input={"a": 1}),
        "other": ToolCall(id="other", name="mcp__functions__sub", input={"a": 1}),
    }
    table = Table(add, allowed=tools)
    for call_id, given in ((None, 1), ("never", 1), ("other", 1), ("one", 2)):
        assert (await table.call(call_id, a=given))["isError"] is True
    assert called == []
    assert (await table.call("one", a=1)) == {"content": [{"type": "text", "text": "2"}]}
    assert (await table.call("one", a=1))["isError"] is True, "an approval is good for one call"
    assert called == [1]


async def test_messages_that_are_no_calls_are_answered() -> None:
    add, _ = _add_calls()
    table = Table(add, allowed={})
    for number, method in enumerate(
        ("initialize", "tools/list", "ping", "notifications/initialized", "resources/list")
    ):
        table.server.take(method, {"jsonrpc": "2.0", "id": number, "method": method})
    assert table.answers["initialize"]["result"]["serverInfo"]["name"] == "functions"
    assert [tool["name"] for tool in table.answers["tools/list"]["result"]["tools"]] == ["add"]
    assert table.answers["ping"]["result"] == {}
    assert table.answers["resources/list"]["error"]["code"] == -32601


async def test_a_call_that_the_agent_takes_back_is_cancelled() -> None:
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.sleep(600)

    call = ToolCall(id="one", name="mcp__functions__slow", input={})
    table = Table(slow, allowed={"one": call})
    params = {"name": "slow", "arguments": {}}
    table.server.take("r", {"id": 7, "method": "tools/call", "params": params}, "one")
    await started.wait()
    table.server.take("n", {"method": "notifications/cancelled", "params": {"requestId": 7}})
    await asyncio.wait(table.tasks)
    assert table.tasks[0].cancelled()
    assert "r" not in table.answers


def test_an_object_with_a_call_is_a_function() -> None:
    class Adder:
        def __call__(self, a: int) -> int:
            """Add one."""
            return a + 1

    made: Function[..., Any] = Function(Adder(), name="adder", description="Add one.")
    assert made.schema["properties"] == {"a": {"type": "integer"}}
