"""A provider without a process through the door of every run: its clocks, stop, budget, events and result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import http_peer
import talker
from leadrope import Limits, RunRequest, Secret, errors, events, open_run
from leadrope.core.cost.prices import Prices
from leadrope.core.cost.usage import Usage
from leadrope.core.fold import fold
from leadrope.core.result import RunResult
from leadrope.core.tools import ToolCall
from leadrope.providers import base, registry
from leadrope.rehearsal import ModelServer, ModelStage, conformance
from leadrope.runtime.run import Run

KEY = "sk-talker-0000000000000000"
ANOTHERS = "sk-ant-not-for-the-talker-00000000"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talker.install(tmp_path / "site", monkeypatch)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Run]:
    (tmp_path / "ws").mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LEADROPE_HOME": str(tmp_path / "home"),
        "ANTHROPIC_API_KEY": ANOTHERS,
    }

    def run(url: str, *, keep_open: bool = False, **fields: Any) -> Run:
        given: dict[str, Any] = {"prompt": "go", "cwd": str(tmp_path / "ws"), "attempts": 1}
        reached = {"provider": talker.NAME, "base_url": url, "credential": Secret(KEY)}
        return open_run(RunRequest(**(given | reached | fields)), environ=environ, keep_open=keep_open)

    return run


async def play(run: Run) -> tuple[list[events.Event], RunResult]:
    async with run:
        recorded = [item async for item in run]
        result = await run.result()
    assert [item.seq for item in recorded] == list(range(1, len(recorded) + 1))
    assert fold(recorded[:-1]) == result
    return [item.event for item in recorded], result


async def until(run: Run, kind: type, times: int = 1) -> None:
    async for item in run:
        times -= isinstance(item.event, kind)
        if not times:
            return
    raise AssertionError(f"no {kind.__name__} came")


# -- what every provider must hold ------------------------------------------------------------------------------------


@pytest.fixture
def stage() -> ModelStage:
    return ModelStage(talker.NAME, {"PATH": os.environ["PATH"]}, attempts=1)


@pytest.mark.parametrize("name", [check.name for check in conformance.CHECKS])
async def test_it_conforms(name: str, stage: ModelStage, tmp_path: Path) -> None:
    if name in (left_out := conformance.left_out(talker.NAME)):
        pytest.skip(f"{name} needs {', '.join(left_out[name])}")
    (check,) = [check for check in conformance.checks(talker.NAME) if check.name == name]
    try:
        await check(stage, tmp_path / "scene")
    except conformance.CannotStage as error:
        pytest.skip(str(error))


def test_the_checks_of_tools_and_processes_are_left_out_by_name() -> None:
    assert conformance.left_out(talker.NAME) == {
        "argv-holds-no-secret": ("process",),
        "denied-call-has-no-effect": ("tools",),
        "allowed-call-runs-once": ("tools", "approvals"),
        "no-answer-is-a-no": ("tools", "approvals"),
        "asks-people": ("questions",),
        "resumes": ("sessions",),
        "hands-over-a-value": ("structured_output",),
        "takes-an-image": ("images",),
    }


# -- an answer --------------------------------------------------------------------------------------------------------


async def test_the_text_streams_and_its_tokens_are_paid_for(opened: Callable[..., Run]) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 200}
    text = "The answer is four, and it came in several pieces."
    async with ModelServer([{"text": text, "usage": usage}]) as model:
        told, result = await play(opened(model.url))
    pieces = [event.text for event in told if isinstance(event, events.MessageDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == result.text == text
    assert result.outcome == "succeeded"
    assert result.usage == Usage(input_tokens=1000, output_tokens=200)
    assert result.cost_usd == pytest.approx(Prices().price(talker.MODEL, result.usage).usd)
    assert result.cost_usd > 0


async def test_a_stream_that_comes_byte_by_byte_is_the_same(opened: Callable[..., Run]) -> None:
    async with ModelServer([{"text": "Größe: vier €", "drip": {"chunk": 1, "every_ms": 0}}]) as model:
        _, result = await play(opened(model.url))
    assert (result.outcome, result.text) == ("succeeded", "Größe: vier €")


async def test_only_its_own_key_is_sent_and_only_in_its_header(opened: Callable[..., Run]) -> None:
    async with ModelServer([{"text": "Four."}]) as model:
        told, _ = await play(opened(model.url, prompt=f"what about {KEY}?"))
    (request,) = model.requests
    assert request.headers["x-api-key"] == KEY
    assert request.headers["accept"] == "text/event-stream"
    assert ANOTHERS not in f"{request.headers} {request.body}"
    assert KEY not in repr(told)


async def test_it_has_no_process(opened: Callable[..., Run]) -> None:
    """No exit code, no stderr, no sandbox, no credential of the environment."""
    async with ModelServer([{"text": "Four."}]) as model:
        told, result = await play(opened(model.url, limits=Limits(memory_mb=64), sandbox="workspace"))
    (exited,) = [event for event in told if isinstance(event, events.AgentExited)]
    assert (exited.exit_code, exited.stderr_tail, exited.ended_by) == (None, (), "agent")
    (started,) = [event for event in told if isinstance(event, events.SessionStarted)]
    assert (started.sandbox, started.provider, started.credential) == ("", talker.NAME, None)
    assert result.outcome == "succeeded"


async def test_a_second_prompt_is_a_second_request(opened: Callable[..., Run]) -> None:
    async with (
        ModelServer([{"text": "Four."}, {"text": "Five."}]) as model,
        opened(model.url, keep_open=True) as run,
    ):
        await until(run, events.TurnEnded)
        await run.send("and one more?")
        await until(run, events.TurnEnded)
        run.finish()
        result = await run.result()
    assert (result.outcome, result.text, result.turns) == ("succeeded", "Five.", 2)
    said = [message["content"] for message in model.requests[1].body["messages"]]
    assert said == ["go", "Four.", "and one more?"]


# -- clocks and endings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before_headers", "mid_stream"])
async def test_a_silent_server_is_ended_by_the_idle_clock(opened: Callable[..., Run], where: str) -> None:
    async with ModelServer([{"text": "Four.", "hang": where}]) as model:
        _, result = await play(opened(model.url, limits=Limits(idle_s=0.3)))
    assert result.outcome == "timed_out"
    assert result.error is not None
    assert (result.error.clock, result.error.exit_code) == ("idle", None)


async def test_comments_alone_do_not_keep_it_alive(opened: Callable[..., Run]) -> None:
    async def drips(_: http_peer.Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while not writer.is_closing():
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with http_peer.serving(drips) as server:
        _, result = await play(opened(server.url("").rstrip("/"), limits=Limits(idle_s=0.3)))
    assert result.error is not None
    assert result.error.clock == "idle"


async def test_stop_ends_the_connection(opened: Callable[..., Run]) -> None:
    async with ModelServer([{"text": "Four.", "hang": "mid_stream"}]) as model:
        async with opened(model.url) as run:
            await until(run, events.MessageDelta)
            result = await run.stop("enough")
        assert result.outcome == "stopped"
        # The server has seen the end of the connection: it holds none any more when it is asked to close.
        await asyncio.wait_for(asyncio.gather(*model._connections), 5)


async def test_an_interrupt_ends_the_turn_and_not_the_run(opened: Callable[..., Run]) -> None:
    async with (
        ModelServer([{"text": "Four.", "hang": "mid_stream"}, {"text": "Five."}]) as model,
        opened(model.url, keep_open=True) as run,
    ):
        await until(run, events.MessageDelta)
        await run.interrupt()
        await until(run, events.TurnEnded)
        await run.send("again")
        await until(run, events.TurnEnded)
        run.finish()
        result = await run.result()
    assert (result.outcome, result.text) == ("succeeded", "Five.")


async def test_a_spent_budget_ends_the_run(opened: Callable[..., Run]) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 10}
    async with (
        ModelServer([{"text": "Four.", "usage": usage}, {"text": "Five.", "optional": True}]) as model,
        opened(model.url, keep_open=True, limits=Limits(budget_usd=0.01)) as run,
    ):
        recorded = [item async for item in run]
        result = await run.result()
    assert result.outcome == "over_budget"
    assert result.cost_usd > 0.01
    assert len(model.requests) == 1
    assert isinstance(recorded[-1].event, events.RunEnded)


# -- what is no answer ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "api_error"), (401, "not_authenticated"), (429, "rate_limited"), (500, "api_error"), (529, "overloaded")],
)
async def test_a_refused_request_is_a_failed_run(opened: Callable[..., Run], status: int, kind: str) -> None:
    async with ModelServer([{"error": {"status": status, "message": "not today"}}]) as model:
        _, result = await play(opened(model.url))
    assert (result.outcome, result.error and result.error.kind) == ("failed", kind)
    assert result.error is not None
    assert (result.error.api_status, result.error.message) == (status, f"{status}: not today")


async def test_a_cut_stream_is_a_failed_run_that_says_what_came(opened: Callable[..., Run]) -> None:
    async with ModelServer([{"text": "Four.", "cut": True}]) as model:
        told, result = await play(opened(model.url))
    assert result.outcome == "failed"
    assert result.error is not None
    assert "ended inside a body" in result.error.message
    assert [event.text for event in told if isinstance(event, events.MessageDelta)] == ["Four."]


async def test_an_error_in_the_stream_is_a_failed_run(opened: Callable[..., Run]) -> None:
    async with ModelServer([{"text": "Four.", "sse_error": {"message": "Overloaded"}}]) as model:
        _, result = await play(opened(model.url))
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.message == "Overloaded"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (http_peer.answer("<html>Log in to the network</html>", content_type="text/html"), "text/html and not text/ev"),
        (http_peer.answer("data: {}\n\n"), "of no type"),
        (http_peer.answer("x", content_type="text/event-stream", content_encoding="gzip"), "packed with gzip"),
        (http_peer.answer("data: {}\n\n", content_type="text/event-stream"), "before the model was done"),
        (http_peer.answer("", 302, location="http://127.0.0.1:1/"), "302"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not a status line"),
        (b"", "without an answer"),
    ],
)
async def test_what_is_no_answer_is_never_a_success(opened: Callable[..., Run], reply: bytes, says: str) -> None:
    """A captive portal answers 200 with a page, which a client that does not look takes for an empty success."""
    async with http_peer.serving(http_peer.always(reply)) as server:
        _, result = await play(opened(server.url("").rstrip("/")))
    assert result.outcome == "failed"
    assert result.error is not None
    assert says in result.error.message


async def test_an_address_that_nobody_serves_is_named(opened: Callable[..., Run]) -> None:
    async with http_peer.serving(http_peer.echo) as server:
        url = server.url("").rstrip("/")
    _, result = await play(opened(url))
    assert result.error is not None
    assert result.error.kind == "connection_failed"
    assert url.removeprefix("http://") in result.error.message
    assert "connection refused" in result.error.message


# -- what is refused before anything is sent --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("binary", "/bin/true"),
        ("resume", "00000000-0000-0000-0000-000000000000"),
        ("agent_sandbox", {"enabled": True}),
        ("attachments", ("a.txt",)),
        ("extra_dirs", ("/tmp",)),
    ],
)
async def test_what_it_cannot_do_is_refused(opened: Callable[..., Run], field: str, value: Any) -> None:
    with pytest.raises(errors.BadValue, match=f"the provider {talker.NAME} has no"):
        async with opened("http://127.0.0.1:1", **{field: value}):
            raise AssertionError("it was started")


async def test_a_line_break_in_a_credential_is_no_second_header(opened: Callable[..., Run]) -> None:
    with pytest.raises(errors.BadValue, match="x-api-key holds what no header can hold"):
        async with opened("http://127.0.0.1:1", credential=Secret("a\r\nHost: evil")):
            raise AssertionError("it was started")


@pytest.mark.parametrize(
    ("promised", "says"),
    [
        (base.Capabilities(), "its capabilities say otherwise"),
        (base.Capabilities(process=False, tools=True), "it promises tools"),
    ],
)
async def test_a_provider_whose_parts_do_not_fit_is_refused(
    opened: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, promised: base.Capabilities, says: str
) -> None:
    """Else its process would run unsupervised, or its tools would run where nobody holds them."""
    monkeypatch.setattr(talker.Talker, "capabilities", promised)
    with pytest.raises(errors.BadProvider, match=says):
        async with opened("http://127.0.0.1:1"):
            raise AssertionError("it was started")


CALL = ToolCall(id="c", name="Bash", input={"command": "true"})


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        (base.CallHeld(request_id="r", call=CALL), "gate_unsupported"),
        (base.PermissionAsked(request_id="r", call=CALL), "gate_unsupported"),
        (events.ToolCompleted(call_id="c"), "gate_bypassed"),
    ],
)
async def test_a_tool_call_over_a_connection_ends_the_run(
    opened: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, item: Any, kind: str
) -> None:
    """Nobody could hold it: a provider that lets one through is stopped, whatever its capabilities say."""

    class Calling(talker.TalkerSession):
        def receive(self, lines: Sequence[Any]) -> list[events.Event | base.Signal]:
            return [*super().receive(lines), *([item] if isinstance(lines[-1], base.AnswerEnded) else [])]

    monkeypatch.setattr(talker.Talker, "session", lambda _, __, launch: Calling(launch))
    async with ModelServer([{"text": "Four."}]) as model:
        _, result = await play(opened(model.url))
    assert (result.outcome, result.error and result.error.kind) == ("failed", kind)


def test_it_is_found_by_its_name() -> None:
    assert registry.provider(talker.NAME).capabilities.endpoint
