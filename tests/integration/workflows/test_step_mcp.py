"""The mcp step against real servers: every way to reach one, what a call gives, and servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from leadrope.core.config import Config
from leadrope.core.request import McpServer
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import StepFailed
from leadrope.workflows.steps.mcp import KIND, Mcp
from step_place import Here

DATA = Path(__file__).parents[2] / "data"
PLAIN, TOOLS, ODD = (str(DATA / name) for name in ("mcp_server.py", "mcp_tools_server.py", "mcp_odd_server.py"))
FUTURE = "from __future__ import annotations\n"
SECRET = "token-of-the-server-4711"


class McpPlace(Here):
    """A step's place whose user has connections."""

    def __init__(self, folder: Path, servers: dict[str, McpServer], *policies: dict[str, Any]) -> None:
        super().__init__(folder / "ws", *policies, home=folder / "leadrope")
        for made in (self.workspace, self.home):
            made.mkdir(exist_ok=True)
        self.environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "SERVER_KEY": SECRET}
        self.service = SimpleNamespace(config=Config(source=str(folder / "config.toml"), connections=servers))


def process(*args: str) -> McpServer:
    return McpServer(command=sys.executable, args=args, env={"SERVER_TOKEN": "${SERVER_KEY}"})


def step(**values: Any) -> Mcp:
    return msgspec.convert({"server": "files", **values}, Mcp, strict=False)


async def failure(config: Mcp, here: McpPlace) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await KIND.run(config, here)
    wrong = caught.value
    assert SECRET not in f"{wrong} {wrong.args} {wrong.hint} {wrong.outputs} {here.said}"
    return wrong


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """Of real servers, by their kind."""
    kinds = ("http", "http-json", "sse")
    with contextlib.ExitStack() as stack:
        servers = {}
        for kind in kinds:
            server = subprocess.Popen([sys.executable, TOOLS, kind], stdout=subprocess.PIPE, text=True)
            servers[kind] = stack.enter_context(server)
            stack.callback(server.kill)
        yield {kind: str(server.stdout and server.stdout.readline().strip()) for kind, server in servers.items()}


@pytest.fixture
def connection(request: pytest.FixtureRequest, ports: dict[str, str]) -> McpServer:
    headers = {"X-Token": "${SERVER_KEY}"}
    match request.param:
        case "stdio":
            return process(TOOLS, "stdio")
        case "sse":
            return McpServer(type="sse", url=f"http://127.0.0.1:{ports['sse']}/sse", headers=headers)
        case kind:
            return McpServer(url=f"http://127.0.0.1:{ports[kind]}/mcp", headers=headers)


# -- servers made with the official package ------------------------------------------------------------------------


@pytest.mark.parametrize("connection", ["stdio", "http", "http-json", "sse"], indirect=True)
async def test_a_call_over_every_wire(tmp_path: Path, connection: McpServer) -> None:
    here = McpPlace(tmp_path, {"files": connection})
    added = await KIND.run(step(tool="add", arguments={"a": 19, "b": 23}), here)
    assert added.outputs["result"] == {"sum": 42}
    assert added.outputs["is_error"] is False
    assert set(added.outputs) == set(KIND.outputs)
    msgspec.json.encode(added.outputs)
    assert [(call.name, call.input) for call in here.asked] == [("mcp__files__add", {"a": 19, "b": 23})]

    wrong = await failure(step(tool="fail"), here)
    assert wrong.kind == "tool_failed"
    assert "the disk is on fire" in wrong.message
    assert wrong.outputs["is_error"] is True


@pytest.mark.parametrize("connection", ["http"], indirect=True)
async def test_a_text_that_is_json_is_opened_unless_the_tool_takes_a_text(
    tmp_path: Path, connection: McpServer
) -> None:
    here = McpPlace(tmp_path, {"files": connection})
    here.sources = {"arguments": {"data": "${a}", "rows": "${b}", "text": "${c}"}}
    given = {"data": '{"path": "a.txt"}', "rows": "[1, 2]", "text": '{ "kept":1 }'}
    kept = await KIND.run(step(tool="keep", arguments=given), here)
    assert kept.outputs["result"] == {"data": {"path": "a.txt"}, "rows": [1, 2], "text": '{ "kept":1 }'}
    (call,) = here.asked
    assert call.input["data"] == {"path": "a.txt"}, "rules see each text inside"


@pytest.mark.parametrize("connection", ["http"], indirect=True)
async def test_what_a_call_gives(tmp_path: Path, connection: McpServer) -> None:
    here = McpPlace(tmp_path, {"files": connection})
    rows = await KIND.run(step(tool="rows", arguments={"count": 2}), here)
    assert rows.outputs["result"] == [{"n": 0}, {"n": 1}], "a text that is JSON is read"
    text = await KIND.run(step(tool="greet", arguments={"name": "rope"}), here)
    assert text.outputs["result"] == "hello rope"
    assert [(part["type"], part["text"]) for part in text.outputs["content"]] == [("text", "hello rope")]
    wrong = await failure(step(tool="add", arguments={"a": "x"}), here)
    assert wrong.kind == "tool_failed"


@pytest.mark.parametrize("connection", ["http"], indirect=True)
async def test_a_block_of_json_in_the_text(tmp_path: Path, connection: McpServer) -> None:
    here = McpPlace(tmp_path, {"files": connection})
    block = 'you.\n```json\n{"n": 1}\n```\n'
    found = step(tool="greet", arguments={"name": block}, result_format="json_block")
    assert (await KIND.run(found, here)).outputs["result"] == {"n": 1}
    for name, why in (("you", "has none"), (block * 2, "has 2 of them"), (block.replace("1", "x"), "is not JSON")):
        wrong = await failure(step(tool="greet", arguments={"name": name}, result_format="json_block"), here)
        assert (wrong.kind, why in wrong.message) == ("bad_output", True), wrong.message


@pytest.mark.parametrize("connection", ["http"], indirect=True)
async def test_a_name_that_joins_connection_and_tool(tmp_path: Path, connection: McpServer) -> None:
    """`mcp-notes-box-add` of a pflow file: only the user's connections say where the tool begins."""
    kind = registry.kind_of("mcp", "pflow")
    here = McpPlace(tmp_path, {"notes": process(PLAIN, "no such way"), "notes-box": connection})
    config = msgspec.convert({"tool": "notes-box-add", "arguments": {"a": 1, "b": 2}}, kind.config)
    assert (await kind.run(config, here)).outputs["result"] == {"sum": 3}
    assert here.asked[-1].name == "mcp__notes-box__add", "the policy hears the tool's own name"
    wrong = await failure(msgspec.convert({"tool": "note-add"}, kind.config), here)
    assert "begins with no connection" in wrong.message
    assert "notes-box" in str(wrong.hint)


@pytest.mark.parametrize("connection", ["stdio"], indirect=True)
async def test_a_secret_of_the_connection_is_in_no_output(tmp_path: Path, connection: McpServer) -> None:
    done = await KIND.run(step(tool="confess"), McpPlace(tmp_path, {"files": connection}))
    assert done.outputs["result"] == "the token is [redacted]"
    assert SECRET not in str(done)


# -- the process: its place, its sandbox, its end --------------------------------------------------------------------


async def test_the_server_works_in_the_workspace_with_a_short_environment(tmp_path: Path) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "plain")})
    here.environ = {**here.environ, "OTHER_SECRET": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    done = await KIND.run(step(tool="read_file", arguments={"a": [1, None]}), here)
    told = done.outputs["result"]
    assert told["arguments"] == {"a": [1, None]}
    assert told["cwd"] == str(here.workspace.resolve())
    assert "SERVER_TOKEN" in told["env"]
    assert not {"OTHER_SECRET", "AWS_SECRET_ACCESS_KEY", "SERVER_KEY"} & set(told["env"])
    assert here.said == ["files: read_file"]


async def test_a_server_has_the_sandbox_of_an_agents_servers(tmp_path: Path) -> None:
    """What it writes outside of the workspace it writes into its own box, which is gone with it."""
    here = McpPlace(tmp_path, {"files": process(PLAIN, "stdio", "seen")}, {"sandbox": "required"})
    inside, outside = here.workspace / "made", tmp_path / "outside"
    try:
        await KIND.run(step(tool="touch", arguments={"path": str(inside)}), here)
    except StepFailed as error:
        if "sandbox that this run needs" in error.message:
            pytest.skip("there can be no sandbox on this machine")
        raise
    assert inside.exists()
    await KIND.run(step(tool="touch", arguments={"path": str(outside)}), here)
    assert not outside.exists()
    assert here.notices == []
    plants = f"open('.envrc', 'w').close()\n{Path(PLAIN).read_text().replace(FUTURE, '')}"
    (here.workspace / "server.py").write_text(plants)
    here = McpPlace(tmp_path, {"files": process("server.py", "stdio", "seen")}, {"sandbox": "required"})
    await KIND.run(step(tool="touch", arguments={"path": str(inside)}), here)
    (notice,) = here.notices
    assert (notice.code, str(here.workspace / ".envrc") in notice.message) == ("protected_made", True)


async def test_what_a_policy_forbids_starts_nothing(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    for policy in (
        {"mcp": {"allowed_servers": ["other"]}},
        {"mcp": {"allowed_tools": ["mcp__files__read"]}},
        {"disallowed_tools": ["mcp__files__*"]},
        {"permission_mode": "plan"},
        {"require_approval": ["mcp__files__touch"]},
    ):
        here = McpPlace(tmp_path, {"files": process(PLAIN, "stdio", str(seen))}, policy)
        wrong = await failure(step(tool="touch", arguments={"path": str(here.workspace / "made")}), here)
        assert wrong.kind == "denied"
    assert not seen.exists()


async def test_arguments_that_a_person_has_changed(tmp_path: Path) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "plain")})
    here.edit = {"path": "b"}
    done = await KIND.run(step(tool="read_file", arguments={"path": "a"}), here)
    assert done.outputs["result"]["arguments"] == {"path": "b"}


@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
async def test_a_server_that_hangs_is_named_and_ended_with_all_that_it_started(
    tmp_path: Path, method: str, marker: str, survivors: Callable[[], dict[int, str]]
) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, f"hang:{method}", marker)})
    wrong = await failure(step(tool="read_file", timeout=2 if method == "initialize" else 5), here)
    assert (wrong.kind, wrong.can_heal) == ("timed_out", True)
    assert "connection files" in wrong.message
    assert method in wrong.message
    assert survivors() == {}


async def test_a_cancelled_call_ends_its_server(
    tmp_path: Path, marker: str, survivors: Callable[[], dict[int, str]], until: Any
) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "hang:tools/call", marker)})
    task = asyncio.create_task(failure(step(tool="read_file"), here))
    await until(lambda: any("threading.Event" in argv for argv in survivors().values()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert survivors() == {}


# -- servers that misbehave ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["noisy", "asks", "plain"])
async def test_what_a_server_says_besides(tmp_path: Path, way: str) -> None:
    done = await KIND.run(step(tool="search_files"), McpPlace(tmp_path, {"files": process(ODD, way)}))
    assert done.outputs["result"]["arguments"] == {}


async def test_a_tool_on_a_later_page(tmp_path: Path) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "pages")})
    assert (await KIND.run(step(tool="tool_3"), here)).outputs["is_error"] is False


async def test_a_server_that_crashes_says_why(tmp_path: Path) -> None:
    wrong = await failure(step(tool="read_file"), McpPlace(tmp_path, {"files": process(ODD, "crash")}))
    assert (wrong.kind, wrong.can_heal) == ("connection_failed", True)
    assert "exit code 3" in wrong.message
    assert "cannot go on with [redacted]" in wrong.message


async def test_a_server_that_refuses_the_arguments(tmp_path: Path) -> None:
    wrong = await failure(step(tool="read_file"), McpPlace(tmp_path, {"files": process(ODD, "refuses")}))
    assert wrong.kind == "tool_failed"
    assert "bad arguments, says [redacted]" in wrong.message


async def test_a_server_that_says_too_much_at_once(tmp_path: Path) -> None:
    wrong = await failure(step(tool="read_file"), McpPlace(tmp_path, {"files": process(ODD, "loud")}))
    assert wrong.kind == "connection_failed"
    assert "bytes at once" in wrong.message


@pytest.mark.parametrize(
    "server",
    [
        McpServer(command="/no/such/server"),
        McpServer(command="no-such-server-anywhere"),
        McpServer(command=sys.executable, args=("-c", "raise SystemExit(3)")),
        McpServer(url="http://127.0.0.1:1/mcp"),
        McpServer(type="sse", url="http://127.0.0.1:1/sse"),
    ],
    ids=["missing", "missing-name", "ends", "http-refused", "sse-refused"],
)
async def test_a_server_that_is_not_there(tmp_path: Path, server: McpServer) -> None:
    wrong = await failure(step(tool="x"), McpPlace(tmp_path, {"files": server}))
    assert wrong.kind == "connection_failed"
    assert "connection files" in wrong.message
    assert wrong.hint


@contextlib.asynccontextmanager
async def answering(reply: bytes) -> AsyncIterator[str]:
    """The url of a server that says this and nothing else to each request; with nothing to say it stays silent."""
    tasks: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        if reply:
            writer.write(reply)
        else:
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "reply", "told"),
    [
        ("http", b"HTTP/1.1 401 No\r\nContent-Length: 7\r\n\r\nno key!", "status 401: no key!"),
        ("http", b"HTTP/1.1 302 X\r\nLocation: http://127.0.0.1/\r\n\r\n", "redirects"),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not an MCP message"),
        ("http", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: nothing\n\n", "stream ended"),
        ("http", b"what?\r\n\r\n", "not HTTP"),
        ("sse", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nx", "no stream of events"),
        ("sse", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: x\n\n", "before it named"),
        (
            "sse",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: http://127.0.0.2/m\n\n",
            "another server",
        ),
    ],
)
async def test_what_is_no_mcp_server(tmp_path: Path, kind: Any, reply: bytes, told: str) -> None:
    async with answering(reply) as url:
        connection = McpServer(type=kind, url=url, headers={"Authorization": "Bearer ${SERVER_KEY}"})
        wrong = await failure(step(tool="x"), McpPlace(tmp_path, {"files": connection}))
    assert wrong.kind == "connection_failed"
    assert told in wrong.message


async def test_a_silent_url_is_left_in_time(tmp_path: Path) -> None:
    async with answering(b"") as url:
        wrong = await failure(step(tool="x", timeout=1), McpPlace(tmp_path, {"files": McpServer(url=url)}))
    assert wrong.kind == "timed_out"
    assert "initialize" in wrong.message


# -- bad input ---------------------------------------------------------------------------------------------------------


async def test_a_connection_and_a_tool_that_are_not_there(tmp_path: Path) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "plain")})
    wrong = await failure(step(server="file", tool="x"), here)
    assert (wrong.kind, here.asked) == ("bad_input", [])
    assert "did you mean files?" in wrong.message
    wrong = await failure(step(tool="serch_files"), here)
    assert wrong.kind == "bad_input"
    assert "did you mean search_files?" in wrong.message
    assert "read_file" in str(wrong.hint)


async def test_a_tool_that_is_no_name(tmp_path: Path) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "plain")})
    assert (await failure(step(tool="a b"), here)).kind == "bad_input"
    assert here.asked == []


async def test_a_secret_that_is_not_set_is_named_and_nothing_starts(tmp_path: Path) -> None:
    here = McpPlace(tmp_path, {"files": process(ODD, "plain")})
    here.environ = {name: value for name, value in here.environ.items() if name != "SERVER_KEY"}
    wrong = await failure(step(tool="read_file"), here)
    assert wrong.kind == "bad_input"
    assert "SERVER_KEY" in wrong.message
    (here.home / ".env").write_text(f"SERVER_KEY={SECRET}\n")
    done = await KIND.run(step(tool="read_file"), here)
    assert "SERVER_TOKEN" in done.outputs["result"]["env"]


@pytest.mark.parametrize("values", [{"timeout": 0}, {"timeout": 301}, {"arguments": [1]}, {"toool": "x"}])
def test_types_refuse_what_they_can(values: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        step(**{"tool": "x", **values})
