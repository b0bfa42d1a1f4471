"""Notifications that really go out: to a receiver that checks the signature, to a program, to a terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pty
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core import events
from leadrope.core.events import Recorded
from leadrope.core.secrets.redaction import Redactor, Secret
from leadrope.core.tools import ToolCall
from leadrope.runs.observe import notify, webhook

SECRET = "0123456789abcdef0123456789abcdef"
KEY = "sk-ant-api03-planted-planted-planted-0000"


def word(command: str = f"echo {KEY}; $(touch marker) `id` \"quoted\" 'x' --option") -> notify.Notification:
    call = ToolCall(id="t1", name="Bash", input={"command": command})
    event = events.ApprovalRequested(approval_id="a1", call=call, reason="it is a command", expires_s=300)
    found = notify.word_of(Recorded("run-1", 1, 7, 1000.0, "supervisor", event), Redactor())
    assert found is not None
    return found


class Receiver:
    """A receiver as a user would write one: it takes what verifies, and each delivery once."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.taken: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.verified: list[bool] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.headers.append({"request": lines[0], **headers})
        is_ours = webhook.verify_webhook(
            SECRET, headers["x-leadrope-timestamp"], body, headers["x-leadrope-signature"], time.time()
        )
        self.verified.append(is_ours)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.startswith(b"HTTP/1.1 2"):
            self.taken.append(json.loads(body))
        writer.write(answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiver(*answers: str, secure: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    found = Receiver([f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode() for answer in answers])
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=secure)
    found.port = server.sockets[0].getsockname()[1]
    async with server:
        yield found


def target(port: int, **fields: Any) -> webhook.WebhookTarget:
    given: dict[str, Any] = {"url": f"http://127.0.0.1:{port}/hook?a=1", "secret": Secret(SECRET)}
    return webhook.WebhookTarget(**(given | fields))


class Pauses:
    """The time between tries, written down and not waited for."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


async def test_a_signed_webhook_is_verified_by_its_receiver() -> None:
    async with receiver("204 No Content") as there:
        found = notify.NotifySettings(webhook=target(there.port))
        async with notify.Notifier(found) as notifier:
            notifier.tell(word())
    assert there.verified == [True]
    (taken,) = there.taken
    assert taken["type"] == "approval.needed"
    assert taken["run_id"] == "run-1"
    assert KEY not in json.dumps(taken)
    headers = there.headers[0]
    assert headers["request"] == "POST /hook?a=1 HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert headers["host"] == f"127.0.0.1:{there.port}"


async def test_a_receiver_that_is_not_ready_is_tried_again_with_a_longer_pause_each_time() -> None:
    pauses = Pauses()
    async with receiver("503 Busy", "429 Slow down", "200 OK") as there:
        body = msgspec.json.encode(word())
        done = await webhook.send(target(there.port), body, delivery_id="d1", pause=pauses)
    assert done == webhook.Delivery(ok=True, tries=3)
    assert pauses.taken == [1.0, 2.0]
    assert there.verified == [True, True, True], "each try is signed for its own time"
    assert {headers["x-leadrope-delivery"] for headers in there.headers} == {"d1"}, "so that it is taken once"


@pytest.mark.parametrize(
    "answer", ["302 Found\r\nlocation: http://127.0.0.1:{port}/other", "307 Temporary\r\nlocation: /x"]
)
async def test_a_redirect_is_not_followed(answer: str) -> None:
    async with receiver("200 OK") as other, receiver(answer.format(port=other.port)) as there:
        done = await webhook.send(target(there.port), b"{}", delivery_id="d", pause=Pauses())
        assert not done.ok
        assert done.tries == 1
        assert "redirects are not followed" in done.detail
        assert len(there.headers) == 1
        assert other.headers == []


async def test_a_no_is_a_no() -> None:
    async with receiver("400 Bad Request") as there:
        done = await webhook.send(target(there.port), b"{}", delivery_id="d", pause=Pauses())
    assert (done.ok, done.tries, done.detail) == (False, 1, "HTTP status 400")


async def test_nobody_there_is_told_after_the_tries() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    pauses = Pauses()
    done = await webhook.send(target(port), b"{}", delivery_id="d", pause=pauses)
    assert not done.ok
    assert done.tries == 4
    assert pauses.taken == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 2", b"SSH-2.0-hello\r\n", b"x" * 100_000])
async def test_a_receiver_that_hangs_or_speaks_nonsense_is_left(said: bytes) -> None:
    """It keeps the connection open: only our own clock ends the wait."""
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        left.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hasty = target(port, timeout_s=0.3, tries=1)
        done = await webhook.send(hasty, b"{}", delivery_id="d", pause=Pauses())
        async with asyncio.timeout(30):
            await left.wait()
    assert not done.ok


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost")
    try:
        subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)  # noqa: ASYNC221  # short
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(cert, key)
    async with receiver("200 OK", secure=secure) as there:
        url = f"https://localhost:{there.port}/"
        done = await webhook.send(target(0, url=url, tries=1), b"{}", delivery_id="d", pause=Pauses())
    assert not done.ok
    assert "certificate" in done.detail.lower()
    assert there.headers == []


async def test_a_command_gets_title_and_body_as_words_and_no_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = tmp_path / "said.json"
    script = f"import json, os, sys; open({str(said)!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))"
    command = (sys.executable, "-c", script, "--", "{title}", "{body}")
    environ = {"PATH": os.environ["PATH"], "DISPLAY": ":1", "ANTHROPIC_API_KEY": KEY, "LEADROPE_WEBHOOK_SECRET": SECRET}
    async with notify.Notifier(notify.NotifySettings(command=command), environ=environ) as notifier:
        notifier.tell(word())
    argv, given = json.loads(said.read_text())
    assert argv == ["--", "leadrope: approval needed", word().body]
    assert "$(touch marker) `id`" in argv[2]
    assert KEY not in argv[2]
    assert given["DISPLAY"] == ":1"
    assert not {"ANTHROPIC_API_KEY", "LEADROPE_WEBHOOK_SECRET"} & given.keys()
    assert not (tmp_path / "marker").exists()


async def test_what_goes_wrong_is_logged_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    missing = notify.NotifySettings(command=("/no/such/program", "{title}"))
    failing = notify.NotifySettings(command=(sys.executable, "-c", "raise SystemExit(3)"))
    with caplog.at_level(logging.WARNING, "leadrope.notify"):
        for found in (missing, failing):
            async with notify.Notifier(found) as notifier:
                notifier.tell(word())
    assert "cannot be started" in caplog.text
    assert "ended with 3" in caplog.text


async def test_leaving_ends_what_is_still_on_its_way(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, until: Callable[..., Any]
) -> None:
    """A command that hangs, and a receiver that never answers: the way out is bounded and nothing stays behind."""
    started = tmp_path / "started"
    script = f"import time; open({str(started)!r}, 'w').close(); time.sleep(600)"
    async with receiver("503 Busy") as there:
        stuck = notify.NotifySettings(command=(sys.executable, "-c", script), webhook=target(there.port))

        async def forever(_: float) -> None:
            await asyncio.Event().wait()

        with caplog.at_level(logging.WARNING, "leadrope.notify"):
            async with notify.Notifier(stuck, grace_s=0.1, pause=forever) as notifier:
                notifier.tell(word())
                await until(started.exists)
                await until(lambda: len(there.headers) == 1)
    assert "2 notifications were not sent in time" in caplog.text


async def test_too_many_at_once_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async with receiver("200 OK") as there:
        found = notify.NotifySettings(webhook=target(there.port))
        with caplog.at_level(logging.WARNING, "leadrope.notify"):
            async with notify.Notifier(found) as notifier:
                for _ in range(notify.WAITING + 3):
                    notifier.tell(word())
    assert len(there.taken) == notify.WAITING
    assert caplog.text.count("is left out") == 3


async def test_the_bell_rings_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, "w") as terminal, (tmp_path / "file").open("w") as file:
            for out in (terminal, file, None):
                async with notify.Notifier(notify.NotifySettings(bell=True), terminal=out) as notifier:
                    notifier.tell(word())
            assert os.read(master, 100) == b"\a"
        assert (tmp_path / "file").read_text() == ""
    finally:
        os.close(master)
