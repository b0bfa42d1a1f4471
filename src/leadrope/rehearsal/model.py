"""A scripted Messages API server on loopback: plays a script, records requests, and reports every deviation.

    async with ModelServer([{"text": "Hello."}]) as model:
        ...  # run an agent with ANTHROPIC_BASE_URL=model.url

It works with any agent, and never opens a connection itself.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

import msgspec

from leadrope.net import http1
from leadrope.rehearsal import http, sse
from leadrope.rehearsal.casting import Casting, Cue, NoTurn, RequestedResult, all_text, newest_results, side_request
from leadrope.rehearsal.script import (
    BadScript,
    Drip,
    HttpError,
    RehearsalError,
    Script,
    ScriptedAnswer,
    ScriptSource,
    load,
)

if TYPE_CHECKING:
    from leadrope.rehearsal.threaded import ModelThread


# The CLI (2.1.325) gives up on 417 at once. After a 400 or 422 it retries up to five times without a delay, each time
# with fewer of its beta features, and after a 404 once: every attempt would use up a turn.
_REFUSED = 417


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as received. Credential headers are kept, so that tests can check them."""

    method: str
    path: str
    headers: dict[str, str]
    """Names are in lower case."""
    body: Any
    """The decoded JSON; None if there was none."""
    place: str = ""
    """The turn that answered, for instance `turns[0]`; empty if none did."""
    step: str | None = None
    """The workflow step that sent the request, if its base_url is the server's `step_url`."""
    item: int | None = None

    @property
    def agent_id(self) -> str | None:
        """The subagent's id; None for the main agent."""
        return self.headers.get("x-claude-code-agent-id")

    @property
    def speaker(self) -> str:
        """Who sent the request, for messages; empty outside of workflows."""
        item = "" if self.item is None else f"[{self.item}]"
        return "" if self.step is None else f" of step {self.step}{item}"

    @property
    def model(self) -> str:
        return str(self.body.get("model", "")) if isinstance(self.body, dict) else ""

    @property
    def text(self) -> str:
        """Everything that a model would read: system prompt and messages."""
        return all_text(self.body) if isinstance(self.body, dict) else ""

    @property
    def tool_results(self) -> list[RequestedResult]:
        return newest_results(self.body) if isinstance(self.body, dict) else []


class _Gate:
    """One name of `wait:`; the request and the test may reach it in either order."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()


class ModelServer:
    """Serves one script. `requests` has the conversation, `other_requests` all other requests."""

    def __init__(
        self,
        script: ScriptSource,
        *,
        variables: Mapping[str, str] | None = None,
        strict: bool = True,
        port: int = 0,
    ) -> None:
        self.script: Script = load(script, variables=variables)
        self.strict = strict
        self.requests: list[ModelRequest] = []
        self.other_requests: list[ModelRequest] = []
        self.problems: list[str] = []
        self.url = ""
        self._port = port
        self._casting = Casting(self.script)
        self._gates: dict[str, _Gate] = {}
        self._names = {answer.wait for answer in _answers(self.script) if answer.wait}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @classmethod
    @contextmanager
    def in_thread(
        cls,
        script: ScriptSource,
        *,
        variables: Mapping[str, str] | None = None,
        strict: bool = True,
        port: int = 0,
    ) -> Iterator[ModelThread]:
        """Starts the same server for code without an event loop; its thread ends with the block."""
        from leadrope.rehearsal.threaded import ModelThread  # noqa: PLC0415  # it builds on this module

        server = cls(script, variables=variables, strict=strict, port=port)
        with ModelThread(server) as thread:
            yield thread

    async def __aenter__(self) -> Self:
        self._gates = {name: _Gate() for name in self._names}
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, limit=http1.HEAD_LIMIT)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        self.check(error)

    async def close(self) -> None:
        """Stops serving and closes every connection, including held ones."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()

    @property
    def unused(self) -> list[str]:
        """Describes the turns that were not used yet."""
        return self._casting.unused()

    def check(self, error: BaseException | None = None) -> None:
        """Raises RehearsalError if the script was not followed, or adds it as a note to the test's own `error`."""
        unused = self.unused
        if not self.strict or not (self.problems or unused):
            return
        failure = RehearsalError(self.problems, unused)
        if error is None:
            raise failure
        error.add_note(str(failure))

    def step_url(self, step: str, item: int | None = None) -> str:
        """Returns the base_url for a workflow step, which identifies the step's requests."""
        return f"{self.url}/step/{quote(step, safe='')}/{'-' if item is None else item}"

    def release(self, name: str) -> None:
        """Releases every turn with `wait: name`, including later ones."""
        self._gate(name).released.set()

    async def held(self, name: str) -> None:
        """Returns when a turn with `wait: name` was requested and is held."""
        await self._gate(name).reached.wait()

    def _gate(self, name: str) -> _Gate:
        try:
            return self._gates[name]
        except KeyError:
            known = ", ".join(sorted(self._gates)) or "none"
            raise BadScript(f"wait: {name}", f"no turn of the script waits for it (known: {known})") from None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a connection is served outside of a task")
        if self._server is None:
            # Accepted while closing: nobody would end this connection any more.
            writer.close()
            return
        self._connections.add(task)
        try:
            while (request := await http.read_request(reader, writer)) is not None:
                keep = await self._serve(request, reader, writer)
                if request.wants_close or not keep:
                    break
        except http1.BadHttp as error:
            self.problems.append(f"bad HTTP: {error}")
        except ConnectionError:
            pass  # the client went away, as killed clients do; the script decides whether that matters
        except asyncio.CancelledError:
            pass  # only close() cancels, and it waits for this task
        finally:
            writer.close()
            self._connections.discard(task)

    async def _serve(
        self, request: http.HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answers one request; False if the connection is finished."""
        body = _decoded(request.body)
        step, item, path = _step_of(request.path)
        seen = ModelRequest(method=request.method, path=path, headers=request.headers, body=body, step=step, item=item)
        # With nonessential traffic on, the CLI begins with HEAD /api/hello; others probe the root. They use no turn.
        if request.method in ("HEAD", "GET") and path in ("", "/", "/api/hello"):
            self.other_requests.append(seen)
            writer.write(http.answer(200, b"{}", {}, with_body=request.method == "GET"))
        elif request.method == "POST" and path == "/v1/messages/count_tokens":
            self.other_requests.append(seen)
            writer.write(http.answer(200, msgspec.json.encode({"input_tokens": max(1, len(request.body) // 4)}), {}))
        elif request.method == "POST" and path == "/v1/messages":
            return await self._message(seen, reader, writer)
        else:
            self.other_requests.append(seen)
            self._refuse(writer, f"unexpected request: {request.method} {request.path}", status=404)
        await writer.drain()
        return True

    async def _message(self, seen: ModelRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if not isinstance(seen.body, dict):
            self.other_requests.append(seen)
            self._refuse(writer, f"{seen.method} {seen.path} without a JSON object as its body")
            return True
        if (side := side_request(seen.body)) is not None:
            self.other_requests.append(seen)
            return await self._play(
                Cue(place="", answer=side), seen, f"side_{len(self.other_requests):04}", reader, writer
            )
        number = len(self.requests) + 1
        speaker = seen.speaker
        match self._casting.take(seen.body, seen.agent_id, step=seen.step, item=seen.item):
            case NoTurn(reason=reason):
                self.requests.append(seen)
                self._refuse(writer, f"request {number}{speaker} was not expected: {reason}; it ends {_tail(seen)!r}")
                return True
            case Cue() as cue:
                seen = msgspec.structs.replace(seen, place=cue.place)
                self.requests.append(seen)
                if cue.failed:
                    self._refuse(writer, f"request {number}{speaker} does not fit {cue.place}: {'; '.join(cue.failed)}")
                    return True
                # The length of the conversation keeps ids distinct when a session is resumed on a new server.
                message_id = f"{len(seen.body.get('messages') or []):03}_{number:04}"
                return await self._play(cue, seen, message_id, reader, writer)

    async def _play(
        self, cue: Cue, seen: ModelRequest, number: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        answer = cue.answer
        headers = {"request-id": f"req_rehearsal_{number}", **answer.headers}
        if answer.wait is not None:
            gate = self._gate(answer.wait)
            gate.reached.set()
            if not await _first(gate.released.wait(), http.client_gone(reader)):
                return False
        if answer.hang == "before_headers":
            await http.client_gone(reader)
            return False
        if answer.error is not None:
            body = sse.error_body(answer.error)
            writer.write(http.answer(answer.error.status, body, {**headers, **answer.error.headers}))
            await writer.drain()
            return True
        message_id = f"msg_rehearsal_{number}"
        if not seen.body.get("stream"):
            if answer.cut or answer.hang or answer.bad_sse or answer.sse_error:
                self._refuse(writer, f"{cue.place} fails in mid-stream, and the request did not ask for a stream")
                return True
            body = msgspec.json.encode(sse.message(answer, message_id=message_id, model=seen.model))
            writer.write(http.answer(200, body, headers))
            await writer.drain()
            return True
        writer.write(
            http.head(
                200,
                {"content-type": "text/event-stream", "cache-control": "no-cache", "transfer-encoding": "chunked"}
                | headers,
            )
        )
        return await _stream(answer, list(sse.events(answer, message_id=message_id, model=seen.model)), reader, writer)

    def _refuse(self, writer: asyncio.StreamWriter, problem: str, *, status: int = _REFUSED) -> None:
        self.problems.append(problem)
        body = sse.error_body(HttpError(status=status, message=f"rehearsal: {problem}"))
        writer.write(http.answer(status, body, {"x-should-retry": "false"}))


async def _stream(
    answer: ScriptedAnswer, events: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    if answer.cut or answer.hang:
        # All of the content but not its end, so that the client has something to lose.
        events = events[: max(1, len(events) - 3)]
    if answer.drip is not None:
        for index, piece in enumerate(_drops(events, answer.drip)):
            if index:
                await asyncio.sleep(answer.drip.every_ms / 1000)
            writer.write(http1.chunk(piece))
            await writer.drain()
    else:
        for event in events:
            writer.write(http1.chunk(event))
            await writer.drain()
    if answer.hang:
        await http.client_gone(reader)
        return False
    if answer.cut:
        return False
    writer.write(http1.LAST_CHUNK)
    await writer.drain()
    return True


def _drops(events: list[bytes], drip: Drip) -> Iterator[bytes]:
    if drip.chunk == "event":
        yield from events
        return
    whole = b"".join(events)
    for start in range(0, len(whole), drip.chunk):
        yield whole[start : start + drip.chunk]


async def _first(wanted: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> bool:
    """Waits for either; True if `wanted` completed. Neither is left running."""
    tasks = [asyncio.ensure_future(wanted), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _answers(script: Script) -> Iterator[ScriptedAnswer]:
    lists = [script.turns, *script.subagents]
    for step in script.steps.values():
        lists += [step.turns, *step.items, *step.subagents]
    for turn in (turn for turns in lists for turn in turns):
        yield turn
        if turn.if_error is not None:
            yield turn.if_error


_STEP = re.compile(r"/step/(?P<step>[^/]+)/(?P<item>-|[0-9]+)(?P<path>/.*|)")


def _step_of(path: str) -> tuple[str | None, int | None, str]:
    """Returns the step and item that a path names, and the rest of the path."""
    found = _STEP.fullmatch(path)
    if found is None:
        return None, None, path
    return unquote(found["step"]), None if found["item"] == "-" else int(found["item"]), found["path"]


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except msgspec.DecodeError:
        return None


def _tail(request: ModelRequest) -> str:
    return request.text[-160:]


async def _serve_forever(server: ModelServer) -> None:
    import signal  # noqa: PLC0415  # only when started from a shell

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    async with server:
        print(server.url, flush=True)
        await stop.wait()


def main(argv: list[str] | None = None) -> int:
    """Prints the URL and serves: `python -m leadrope.rehearsal.model SCRIPT.yaml [--port N] [--var NAME=VALUE]`."""
    import argparse  # noqa: PLC0415  # only when started from a shell

    parser = argparse.ArgumentParser(
        prog="python -m leadrope.rehearsal.model",
        description="Serve a scripted model on loopback until interrupted; exit 1 when the script was not followed.",
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="a {{NAME}} of the script")
    options = parser.parse_args(argv)
    variables = dict(item.partition("=")[::2] for item in options.var)
    try:
        asyncio.run(_serve_forever(ModelServer(options.script, variables=variables, port=options.port)))
    except BadScript as error:
        print(error, file=sys.stderr)
        return 2
    except RehearsalError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
