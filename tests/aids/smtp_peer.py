"""An SMTP server on loopback for the email step, and a place of a step that sends through it; no client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email
import email.policy
import ssl
from collections.abc import AsyncIterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core.tools import ToolCall
from leadrope.workflows.steps.base import StepFailed
from leadrope.workflows.steps.email import Email, send
from step_place import Here

PASSWORD = "pass-word-of-the-mail-4711"
HIDDEN = (PASSWORD, base64.b64encode(PASSWORD.encode()).decode())
LOGIN = {"SMTP_USER": "me", "SMTP_PASS": PASSWORD}


class MailPlace(Here):
    """A step's place whose home says which server mail goes through."""

    def __init__(self, folder: Path, port: int, *policies: dict[str, Any], **settings: str) -> None:
        super().__init__((folder / "ws").resolve(), *policies, home=folder / "leadrope")
        for made in (self.workspace, self.home):
            made.mkdir(exist_ok=True)
        # Another server in the environment and in the project: neither may be used.
        self.environ = {"SMTP_HOST": "environment.invalid", "SMTP_PASS": "x"}
        (self.workspace / ".env").write_text("SMTP_HOST=project.invalid\n")
        given = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(port), "SMTP_FROM": "me@example.com", **settings}
        (self.home / ".env").write_text("".join(f"{name}={value}\n" for name, value in given.items() if value))

    def edit_of(self, call: ToolCall) -> dict[str, Any]:
        """The mail is what is changed, and not the reading of its files."""
        return self.edit if call.name == "SendEmail" else {}


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    sender: str
    recipients: list[str]
    raw: bytes
    user: str
    was_encrypted: bool

    @property
    def message(self) -> EmailMessage:
        return email.message_from_bytes(self.raw, policy=email.policy.default)


class Server:
    """A small SMTP server. `says` replaces its answer to a command; `None` there is silence."""

    def __init__(self, *, says: dict[str, str | None] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.says = says or {}
        self.tls = tls
        self.extensions = ["8BITMIME", "SIZE 10000000", "AUTH PLAIN LOGIN"]
        self.letters: list[Letter] = []
        self.commands: list[str] = []
        self.connections = 0
        self.tasks: list[Any] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def say(text: str) -> None:
            writer.write(text.encode() + b"\r\n")
            await writer.drain()

        async def line() -> str:
            found = await reader.readuntil(b"\r\n")
            return found.decode("latin-1").rstrip("\r\n")

        sender, recipients, user = "", [], ""
        is_encrypted = writer.get_extra_info("ssl_object") is not None
        greeting = self.says.get("greeting", "220 ready")
        if greeting is None:
            await reader.read()
            return
        await say(greeting)
        while True:
            command = await line()
            word = command.split(" ", 1)[0].upper()
            self.commands.append(word)
            key = command.partition("<")[2].partition(">")[0] if word == "RCPT" else word
            if key in self.says or word in self.says:
                told = self.says.get(key, self.says.get(word))
                if told is None:
                    await reader.read()
                    return
                await say(told)
                if told.startswith("421"):
                    return
                continue
            if word == "EHLO":
                offered = [*self.extensions, *(["STARTTLS"] if self.tls and not is_encrypted else [])]
                await say("\r\n".join(["250-here", *(f"250-{one}" for one in offered[:-1]), f"250 {offered[-1]}"]))
            elif word == "STARTTLS" and self.tls is not None:
                await say("220 go on")
                await writer.start_tls(self.tls)
                is_encrypted = True
            elif word == "AUTH":
                given = command.split(" ")[2]
                if command.split(" ")[1].upper() != "PLAIN":
                    await say(f"535 not with {given} either")
                    continue
                _, user, password = base64.b64decode(given).decode().split("\0")
                is_right = password == PASSWORD
                await say("235 welcome" if is_right else f"535 {password} is wrong, and so is {given}")
            elif word == "MAIL":
                sender = command.partition("<")[2].partition(">")[0]
                await say("250 ok")
            elif word == "RCPT":
                recipients.append(key)
                await say("250 ok")
            elif word == "DATA":
                await say("354 go on")
                lines: list[str] = []
                while (content := await line()) != ".":
                    lines.append(content.removeprefix(".") if content.startswith(".") else content)
                told = self.says.get("content", "250 queued")
                if told is None:
                    await reader.read()
                    return
                if told == "close":
                    return
                if told.startswith("250"):
                    raw = "\r\n".join(lines).encode("latin-1")
                    self.letters.append(
                        Letter(sender=sender, recipients=recipients, raw=raw, user=user, was_encrypted=is_encrypted)
                    )
                await say(told)
            elif word == "QUIT":
                await say("221 bye")
                return
            else:
                await say("250 ok")


@contextlib.asynccontextmanager
async def smtp(
    *, says: dict[str, str | None] | None = None, starttls: ssl.SSLContext | None = None, tls: Any = None
) -> AsyncIterator[Server]:
    found = Server(says=says, tls=starttls)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        async with server:
            yield found
    finally:
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
        for writer in found.writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # one round of the loop, in which they close


def step(**values: Any) -> Email:
    told = {"to": "you@example.com", "subject": "Hello", "body": "text", **values}
    return msgspec.convert(told, Email, strict=False)


async def failure(config: Email, here: MailPlace, **seams: Any) -> StepFailed:
    with pytest.raises(StepFailed) as caught:
        await send(config, here, **seams)
    wrong = caught.value
    shown = f"{wrong} {wrong.args} {wrong.hint} {wrong.outputs} {here.said} {here.asked}"
    assert not any(word in shown for word in HIDDEN)
    return wrong
