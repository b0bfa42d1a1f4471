"""Many secrets, planted in every way there is, and looked for in everything that leadrope writes or shows.

The agent is the real CLI. Its model repeats all the secrets, in pieces, in tool calls and in answers. Only what the
agent writes itself may hold them: its own record below LEADROPE_HOME/sessions/ID/config, and its worktree.
"""

from __future__ import annotations

import contextlib
import gzip
import html
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import database_file
from leadrope.rehearsal import ModelServer
from leadrope.runs import leases

SERVER = str(Path(__file__).parents[1] / "data" / "mcp_server.py")

# None of them has the shape of a key: they must be known, not guessed.
PLANTED = {
    "the credential": "sk-ant-mandolin-0471",
    "--secret NAME": "postgres://app:opensesame@db/app",
    "--secret DATABASE_URL": "mysql://root:xylophone@db/one",
    "--secret NAME=VALUE": "violet mountain railway",
    "--secret-file": "tangerine-window-circus",
    "of two lines, with quotes": 'first "half" of it\nsecond \\ half of it',
    "a variable API_TOKEN": "quiet-harbour-lantern",
    "[run] secret_variables": "copper-garden-whistle",
    "a connection's env": "marble-feather-station",
    "a connection's env by ${NAME}": "walnut-saddle-horizon",
    "a connection's header": "cinnamon-bicycle-tower",
    "a connection's header by ${NAME}": "lavender-anchor-puzzle",
    "a connection's argument": "juniper-compass-velvet",
    "a connection's --name=value": "saffron-glacier-button",
    "a connection's argument by ${NAME}": "pewter-meadow-cricket",
    "a connection's argument by its look": "Zq81kfL0ppW2mmxTr7",
    "a password in a connection's address": "orchid-thunder-basket",
}
PIECE = 10
"""Characters of a secret in a row that count as a leak: a text that is cut may hold the first half of one."""
SIGNED_WITH = "0123456789abcdef0123456789abcdef"


def config(url: str, listener: str, closed: int) -> str:
    return f"""
[run]
base_url = "{url}"
secret_variables = ["FROM_CONFIG"]
variables = {{ FROM_CONFIG = "{PLANTED["[run] secret_variables"]}" }}

[connections.local]
command = "{sys.executable}"
args = ["{SERVER}", "stdio", "seen.txt", "--token", "{PLANTED["a connection's argument"]}",
        "--api-key={PLANTED["a connection's --name=value"]}", "--password", "${{ARGUMENT}}",
        "{PLANTED["a connection's argument by its look"]}"]
env = {{ PLAIN = "{PLANTED["a connection's env"]}", SERVER_TOKEN = "${{GIVEN}}" }}

[connections.remote]
type = "http"
url = "http://me:{PLANTED["a password in a connection's address"]}@127.0.0.1:{closed}/mcp"
headers = {{ X-Key = "{PLANTED["a connection's header"]}", Authorization = "Bearer ${{HEADER}}" }}
required = false

[notify]
webhook = "{listener}/hook"

[service]
idle_s = 1
"""


class Machine:
    """A user's machine with all the secrets in place, and what everything on it has written and shown."""

    def __init__(self, claude: str, folder: Path, model: str, listener: Listener) -> None:
        self.listener = listener
        self.project, self.home = folder / "project", folder / "home"
        self.leadrope_home = self.home / "leadrope"
        for path in (self.project, self.leadrope_home, self.home / ".config" / "leadrope"):
            path.mkdir(parents=True)
        (self.home / ".config/leadrope/config.toml").write_text(config(model, listener.url, closed=9))
        (self.leadrope_home / ".env").write_text(f"ANTHROPIC_API_KEY={PLANTED['the credential']}\n")
        self.files = {"FROM_FILE": "--secret-file", "TWO_LINES": "of two lines, with quotes"}
        for name, key in self.files.items():
            (self.home / name).write_text(PLANTED[key] + "\n")
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LEADROPE_HOME": str(self.leadrope_home),
            "LANG": "C.UTF-8",
            "LEADROPE_CLAUDE_BIN": claude,
            "LEADROPE_DEBUG_SPAWN": "1",
            "LEADROPE_WEBHOOK_SECRET": SIGNED_WITH,
            "OTEL_EXPORTER_OTLP_ENDPOINT": listener.url,
            "LEADROPE_OTEL_CONTENT": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "DSN": PLANTED["--secret NAME"],
            "DATABASE_URL": PLANTED["--secret DATABASE_URL"],
            "API_TOKEN": PLANTED["a variable API_TOKEN"],
            "GIVEN": PLANTED["a connection's env by ${NAME}"],
            "HEADER": PLANTED["a connection's header by ${NAME}"],
            "ARGUMENT": PLANTED["a connection's argument by ${NAME}"],
        }
        self.flags = [
            *("--secret", "DSN", "--secret", "DATABASE_URL", "--var", "API_TOKEN"),
            *("--secret", f"SHOWN={PLANTED['--secret NAME=VALUE']}"),
            *(word for name in self.files for word in ("--secret-file", f"{name}={self.home / name}")),
            *("--mcp-server", "local", "--mcp-server", "remote", "--billing", "api_key", "--worktree"),
            *("--attempts", "1", "--label", f"team={PLANTED['--secret NAME']}"),
        ]
        self.shown: dict[str, bytes] = {}
        self.summary, self.junit = folder / "summary.md", folder / "junit.xml"

    def leadrope(self, *words: str, name: str = "", stdin: str = "", ok: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            input=stdin.encode(),
            env=self.environ,
            cwd=self.project,
            capture_output=True,
            timeout=120,
            check=False,
            start_new_session=True,
        )
        assert done.returncode in ok, (words, done.stdout.decode(), done.stderr.decode())
        self.shown[name or " ".join(words[:3])] = done.stdout + done.stderr
        return done.stdout.decode()

    def look(self, run_id: str) -> None:
        """Every command that shows a run, its session or its files."""
        run = json.loads(self.leadrope("runs", "show", run_id, "-o", "json"))["run"]
        session = run["session_id"]
        for words in (
            ("runs", "list"),
            ("runs", "list", "-o", "json"),
            ("runs", "show", run_id),
            ("runs", "logs", run_id),
            ("runs", "logs", run_id, "-o", "stream-json"),
            ("runs", "export", run_id),
            ("runs", "export", run_id, "--html"),
            ("events", run_id),
            ("events", run_id, "--universal"),
            ("stats", "--by", "label:team"),
            ("approvals", "list"),
            ("sessions", "list"),
            ("sessions", "show", session),
            ("sessions", "export", session),
        ):
            self.leadrope(*words, name=f"{' '.join(words).replace(run_id, 'RUN').replace(session, 'SESSION')} {run_id}")

    def written(self) -> dict[str, bytes]:
        """Every file of LEADROPE_HOME but what the agent itself has written, and the .env of the user."""
        found = {
            str(path.relative_to(self.leadrope_home)): path.read_bytes()
            for path in self.leadrope_home.rglob("*")
            if path.is_file() and path.name != ".env"
        }
        return {name: data for name, data in found.items() if "/config/" not in name and not is_work(name)}


def is_work(name: str) -> bool:
    return name.startswith("worktrees/")


class Listener:
    """What a collector and a webhook's receiver get."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.url = ""

    def of(self, start: str) -> bytes:
        return b"\n".join(body for path, body in self.got if path.startswith(start))


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    found = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.got.append((self.path, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def until(holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < give_up, "the state never came"
        time.sleep(0.1)


def is_free(lock: Path) -> bool:
    with leases.Exclusive(lock) as free:
        return free


@pytest.fixture(scope="module")
def machine(claude: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One run at a terminal, one in the background that asks for an approval; then all that there is to see."""
    text = " | ".join(PLANTED.values())
    one_line = " ".join(f"'{value}'" for value in PLANTED.values() if "\n" not in value)
    command = f'printf "%s\\n" {one_line} "$TWO_LINES" > leak.txt; cat leak.txt'
    leak = {"name": "Bash", "input": {"command": command, "description": f"show {PLANTED['--secret NAME']}"}}
    turns: list[dict[str, Any]] = [
        {"thinking": text, "text": f"I will use {text}", "tool": leak},
        {"text": f"These were {text}"},
    ]
    with listening() as listener, ModelServer.in_thread([*turns, *turns]) as model:
        found = Machine(claude, tmp_path_factory.mktemp("secrets"), model.url, listener)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
        for words in (["init", "-q"], ["commit", "-qm", "first", "--allow-empty"]):
            subprocess.run([*git, *words], cwd=found.project, check=True)
        reports = ("--ci", "--junit", str(found.junit), "--output", "json")
        first = json.loads(
            found.leadrope(
                *("run", "-", "--mode", "full", *found.flags, *reports), name="run at a terminal", stdin=f"use {text}"
            )
        )["run_id"]
        second = found.leadrope("run", "-", "--mode", "edit", "--detach", *found.flags, stdin=f"use {text}").strip()
        try:
            until(lambda: found.leadrope("approvals", "list", "-o", "json", name="approvals that wait"))
            waiting = json.loads(found.leadrope("approvals", "list", "-o", "json"))["id"]
            found.leadrope("approvals", "show", waiting, name="approvals show")
            until(lambda: listener.of("/hook"))
            # Words for a run in another process go through the store.
            found.leadrope(
                "runs", "send", second, "use " + PLANTED["a connection's argument"], name="runs send", ok=(2,)
            )
            found.leadrope("approvals", "approve", waiting)
            found.leadrope("runs", "logs", "-f", second, name="runs logs -f")
        except BaseException:
            found.leadrope("runs", "stop", second)
            raise
        finally:
            until(lambda: is_free(found.leadrope_home / "background" / "owner.lock"))
        for run_id in (first, second):
            found.look(run_id)
        yield found


def spellings(secret: str) -> set[bytes]:
    """As it is, as a terminal's one line writes it, and both as JSON does."""
    plain = {secret, " ".join(secret.split())}
    for _ in range(3):
        plain |= {json.dumps(text)[1:-1] for text in plain}
    return {text.encode() for text in plain}


def leaks(data: bytes, *, piece: int = 0) -> list[str]:
    """The secrets that stand in it; with `piece` also those of which so many characters in a row do."""
    data += html.unescape(data.decode(errors="replace")).encode()
    return [name for name, secret in PLANTED.items() if any(text in data for text in _sought(secret, piece))]


def _sought(secret: str, piece: int) -> set[bytes]:
    texts = spellings(secret)
    return {text[at : at + piece] for text in texts for at in range(len(text) - piece + 1)} if piece else texts


def test_the_agent_itself_had_them_all(machine: Machine) -> None:
    """Otherwise the rest would show nothing."""
    records = [path for path in (machine.leadrope_home / "sessions").rglob("*.jsonl") if "config" in path.parts]
    assert set(leaks(b"".join(path.read_bytes() for path in records))) == set(PLANTED)
    work = [path.read_bytes() for path in machine.leadrope_home.rglob("leak.txt")]
    assert len(work) == 2
    assert all(set(leaks(data)) == set(PLANTED) for data in work)


def test_no_file_of_leadrope_holds_one(machine: Machine) -> None:
    files = machine.written()
    assert {"leadrope.db", "machine.key"} <= set(files)
    assert any(name.endswith("/secrets.json") for name in files)
    assert any(name.endswith("/transcript.jsonl") for name in files)
    found = {name: found for name, data in files.items() if (found := leaks(data, piece=PIECE))}
    assert found == {}


def test_no_row_holds_one_that_is_packed(machine: Machine) -> None:

    with database_file.opened(machine.leadrope_home / "leadrope.db") as db:
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            for row in db.execute(f'select * from "{table}"'):
                for value in row:
                    data = value if isinstance(value, bytes) else str(value).encode()
                    with contextlib.suppress(zlib.error):
                        data += zlib.decompress(data)
                    assert leaks(data, piece=PIECE) == [], table


def test_nothing_that_is_shown_or_exported_holds_one(machine: Machine) -> None:
    exports = {name: data for name, data in machine.shown.items() if name.startswith("sessions export")}
    # The agent's program cuts texts itself, and what is left of a secret there cannot be told.
    found = {name: leaks(data, piece=0 if name in exports else PIECE) for name, data in machine.shown.items()}
    assert {name: leaked for name, leaked in found.items() if leaked} == {}
    for name, data in machine.shown.items():
        if name.startswith(("runs logs", "runs export", "sessions export", "events", "run at a terminal")):
            assert b"[redacted]" in data, name
    assert len(exports) == 2
    assert all(b"config/projects" in data for data in exports.values()), "with the agent's own record"


def test_words_for_a_run_in_the_background_are_not_stored_with_a_secret(machine: Machine) -> None:
    assert b"secrets are not stored" in machine.shown["runs send"]


def test_no_report_of_a_ci_job_holds_one(machine: Machine) -> None:
    for path in (machine.summary, machine.junit):
        assert b"[redacted]" in path.read_bytes()
        assert leaks(path.read_bytes(), piece=PIECE) == []


def test_no_span_and_no_webhook_holds_one(machine: Machine) -> None:
    spans, hooks = machine.listener.of("/v1/traces"), machine.listener.of("/hook")
    assert b"These were" in spans, "content is on"
    assert b"[redacted]" in spans
    assert leaks(spans, piece=PIECE) == []
    assert b"approval.needed" in hooks
    assert leaks(hooks, piece=PIECE) == []


def test_the_debug_trace_holds_no_piece_of_one(machine: Machine) -> None:
    """What streams comes in pieces of a few characters, one a line; put together again they must not make a secret."""
    trace = machine.shown["run at a terminal"].decode()
    assert '"stream_event"' in trace
    assert "text_delta" in trace
    assert "input_json_delta" in trace
    assert leaks(trace.encode(), piece=8) == []
    pieces = [line.partition("stdout ")[2] for line in trace.splitlines() if '"stream_event"' in line]
    texts = [json.loads(piece)["event"].get("delta", {}).get("text", "") for piece in pieces]
    assert leaks("".join(texts).encode()) == []
    assert all(text == "" or text.endswith(" characters)") for text in texts)
