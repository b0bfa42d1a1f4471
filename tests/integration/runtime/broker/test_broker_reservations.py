"""Many requests at once do not spend a budget many times: what those in flight may cost is set aside."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from leadrope import Secret, events
from leadrope.net import http1
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.limits.budget import Meter

OPUS = "claude-opus-4-5"
TOKENS = 27_600
EACH_USD = TOKENS * 5 / 1e6
"""0.138 USD."""


def ask(size: int, max_tokens: int | None, **more: Any) -> bytes:
    """A request of so many bytes."""
    body = {"model": OPUS, "stream": True, "messages": [{"role": "user", "content": ""}], **more}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    left = size - len(json.dumps(body))
    body["messages"][0]["content"] = "x" * max(0, left)
    return json.dumps(body).encode()


class Model:
    """Takes a moment for each answer, and notes how many it wrote at the same time."""

    def __init__(self, ends: Any, *, input_tokens: int = TOKENS) -> None:
        self._ends = ends
        self._input_tokens = input_tokens
        self.answered = 0
        self.now = 0
        self.most = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._ends.take(reader)
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.03)  # how long this model thinks; nothing waits for it
            self.answered += 1
            self.now -= 1
            body = self._ends.start(f"m{self.answered}", OPUS, input_tokens=self._input_tokens) + self._ends.event(
                "message_delta", usage={"output_tokens": 0}
            )
            writer.write(self._ends.STREAM + http1.chunk(body) + http1.LAST_CHUNK)
            await writer.drain()


async def statuses(ends: Any, broker: Broker, bodies: list[bytes], agent: str = "") -> list[int]:
    """One agent: its requests one after the other."""
    found = []
    for body in bodies:
        async with ends.calling(broker.url) as caller:
            found.append((await caller.ask(broker, body, x_claude_code_agent_id=agent)).status)
    return found


@pytest.mark.parametrize(
    ("agents", "each", "size", "max_tokens"),
    [
        pytest.param(60, 1, 111_000, 1000, id="60 requests at once"),
        pytest.param(60, 1, 111_000, 64_000, id="60 requests at once that may write much"),
        pytest.param(8, 6, 111_000, 32_000, id="8 subagents"),
        pytest.param(8, 6, 111_000, None, id="8 subagents that do not say how much they write"),
    ],
)
async def test_a_budget_is_overspent_by_one_request_at_the_most(
    ends: Any, agents: int, each: int, size: int, max_tokens: int | None
) -> None:
    model = Model(ends)
    meter = Meter(1.0)
    body = ask(size, max_tokens)
    async with ends.far_end(model.serve) as url, Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker:
        found = await asyncio.gather(*(statuses(ends, broker, [body] * each, f"a{n}") for n in range(agents)))
    told = [status for one in found for status in one]
    assert set(told) == {200, 402}
    assert meter.spent_usd == pytest.approx(model.answered * EACH_USD), "what was answered is what was counted"
    assert 1.0 <= meter.spent_usd <= 1.0 + EACH_USD, "the budget is used up, and by no more than one request too much"
    print(f"\noverspent {meter.spent_usd - 1.0:.3f} USD of 1.00 ({model.answered} answered, {model.most} at once)")


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
LINKED = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
UNSEEN: dict[str, dict[str, Any]] = {
    "images": {"messages": [{"role": "user", "content": [IMAGE] * 20}]},
    "a document that the server fetches": {"messages": [{"role": "user", "content": [LINKED]}]},
    "a document inside a tool's result": {
        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [LINKED]}]}]
    },
    "a file of the account": {
        "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]
    },
    "a tool of the server's own": {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    },
    "a server of tools": {
        "messages": [{"role": "user", "content": "x"}],
        "mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}],
    },
}


@pytest.mark.parametrize("kind", UNSEEN)
async def test_what_the_size_of_a_request_does_not_show_is_reserved_too(ends: Any, kind: str) -> None:
    """60 at once, each with a body of a few hundred bytes and a prompt of 0.138 USD."""
    model = Model(ends)
    meter = Meter(1.0)
    body = json.dumps({"model": OPUS, "stream": True, "max_tokens": 10, **UNSEEN[kind]}).encode()
    async with ends.far_end(model.serve) as url, Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker:
        await asyncio.gather(*(statuses(ends, broker, [body]) for _ in range(60)))
    assert 1.0 <= meter.spent_usd <= 1.0 + EACH_USD


async def test_without_reservations_it_would_be_overspent_by_all_of_them(ends: Any) -> None:
    """The measure of the test above: the same 60 requests without a cap are all in flight together."""
    model = Model(ends)
    meter = Meter(None)
    async with ends.far_end(model.serve) as url, Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker:
        await asyncio.gather(*(statuses(ends, broker, [ask(111_000, 1000)]) for _ in range(60)))
    assert meter.spent_usd == pytest.approx(60 * EACH_USD)
    assert model.most > 8


async def test_subagents_under_a_normal_budget_all_succeed_side_by_side(ends: Any) -> None:
    """Each estimate is about 1.15 USD, eight times what the request costs; four of them fit into five dollars."""
    model = Model(ends)
    meter = Meter(5.0)
    told: list[Any] = []
    body = ask(111_000, 32_000)
    async with (
        ends.far_end(model.serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter, notify=told.append) as broker,
    ):
        found = await asyncio.gather(*(statuses(ends, broker, [body] * 4, f"a{n}") for n in range(4)))
    assert [status for one in found for status in one] == [200] * 16
    assert model.most >= 3


async def test_near_the_end_of_a_budget_requests_take_turns_and_none_fails(ends: Any) -> None:
    model = Model(ends, input_tokens=1000)
    meter = Meter(0.5)
    told: list[events.Notice] = []
    body = ask(4_000, 32_000)
    async with (
        ends.far_end(model.serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter, notify=told.append) as broker,
    ):
        found = await asyncio.gather(*(statuses(ends, broker, [body] * 3, f"a{n}") for n in range(3)))
    assert [status for one in found for status in one] == [200] * 9
    assert model.most == 1, "each may write for 0.80 USD, more than there is"
    assert [(notice.level, notice.code) for notice in told] == [("info", "budget_reserved")], "said once"


async def test_counting_tokens_costs_nothing_and_does_not_wait(ends: Any) -> None:
    hanging = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await ends.take(reader)
        if request.target == "/v1/messages/count_tokens":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        hanging.set()
        await reader.read()

    meter = Meter(0.5)
    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker,
        ends.calling(broker.url) as first,
        ends.calling(broker.url) as second,
    ):
        await first.say(broker, ask(4_000, 32_000))
        await hanging.wait()
        answer = await second.ask(broker, start="POST /v1/messages/count_tokens HTTP/1.1")
        assert answer.status == 200


async def test_whoever_leaves_the_line_is_not_waited_for(ends: Any, until: Any) -> None:
    seen: list[bytes] = []
    may_answer = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await ends.take(reader)
            seen.append(dict(request.headers)["x-which"].encode())
            await may_answer.wait()
            writer.write(ends.STREAM + http1.chunk(ends.start(f"m{len(seen)}", input_tokens=10)) + http1.LAST_CHUNK)
            await writer.drain()

    body = ask(4_000, 32_000)
    async with (
        ends.far_end(serve) as url,
        Broker(url, Secret(ends.REAL), "api_key", meter=Meter(0.5)) as broker,
        ends.calling(broker.url) as first,
        ends.calling(broker.url) as third,
    ):
        await first.say(broker, body, more={"x-which": "first"})
        await until(lambda: seen == [b"first"])
        async with ends.calling(broker.url) as second:
            await second.say(broker, body, more={"x-which": "second"})
            await until(lambda: broker._reservations is not None and len(broker._reservations._waiting) == 1)
            await third.say(broker, body, more={"x-which": "third"})
            await until(lambda: broker._reservations is not None and len(broker._reservations._waiting) == 2)
        await until(lambda: broker._reservations is not None and len(broker._reservations._waiting) == 1)
        may_answer.set()
        assert (await first.hear()).status == 200
        assert (await third.hear()).status == 200
    assert seen == [b"first", b"third"]


# -- answers that were cut ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("moment", ["before the answer", "after its head", "within its content"])
async def test_what_nobody_reads_to_its_end_is_owed_all_the_same(
    ends: Any, until: Any, is_streamed: bool, moment: str
) -> None:
    """Else a program that hangs up early could send any number of prompts for nothing."""
    seen = 0
    kind = "text/event-stream" if is_streamed else "application/json"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 9000\r\n\r\n".encode()
    content = ends.start("m1", input_tokens=30_000)[:-20] if is_streamed else b'{"id":"m","content":['
    said = {"before the answer": b"", "after its head": head, "within its content": head + content}[moment]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        await ends.take(reader)
        writer.write(said)
        await writer.drain()
        seen += 1
        await reader.read()

    body = ask(40_000, 10)
    meter = Meter(0.2)
    async with ends.far_end(serve) as url, Broker(url, Secret(ends.REAL), "api_key", meter=meter) as broker:
        for number in range(5):
            async with ends.calling(broker.url) as caller:
                await caller.say(broker, body)
                if moment == "before the answer":
                    await until(lambda wanted=number + 1: seen == wanted or meter.is_over)
                else:
                    await caller.head()
            await until(lambda: broker._reservations is not None and broker._reservations.in_flight == 0)
            if meter.is_over:
                break
    assert meter.is_over
    assert seen == 4, "40,000 bytes are about 10,000 tokens, or 0.05 USD"
    assert meter.spent_usd == pytest.approx(0.2, abs=0.001)
