"""The email step and its server: what the server says, a server that says nothing, encryption and the password."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from leadrope.workflows.steps.email import KIND, send
from leadrope.workflows.tools.smtp_client import BadSettings, read_settings
from smtp_peer import LOGIN, PASSWORD, MailPlace, failure, smtp, step

# -- what the server says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "kind", "can_heal"),
    [
        ({"greeting": "554 go away"}, "refused", False),
        ({"greeting": "421 too busy"}, "refused", True),
        ({"MAIL": "550 not you"}, "refused", False),
        ({"MAIL": "451 later"}, "refused", True),
        ({"you@example.com": "550 unknown"}, "refused", False),
        ({"you@example.com": "450 mailbox busy"}, "refused", True),
        ({"DATA": "552 full"}, "refused", False),
        ({"content": "554 looks like spam"}, "refused", False),
        ({"content": "452 no room now"}, "refused", True),
        ({"MAIL": "421 shutting down"}, "refused", True),
        ({"content": "close"}, "unsure", False),
    ],
)
async def test_a_server_that_refuses_is_quoted(
    tmp_path: Path, says: dict[str, str | None], kind: str, can_heal: bool
) -> None:
    async with smtp(says=says) as server:
        wrong = await failure(step(), MailPlace(tmp_path, server.port))
    assert (wrong.kind, wrong.can_heal) == (kind, can_heal)
    assert wrong.outputs["sent"] == 0
    (told,) = says.values()
    if kind == "refused":
        assert str(told)[:3] in wrong.message
        assert str(told)[4:] in wrong.message
    assert server.letters == []


async def test_some_recipients_are_refused(tmp_path: Path) -> None:
    async with smtp(says={"gone@example.com": "550 no such user"}) as server:
        done = await KIND.run(step(to="you@example.com, gone@example.com"), MailPlace(tmp_path, server.port))
    assert done.outputs["sent"] == 1
    assert done.outputs["rejected"] == [{"address": "gone@example.com", "code": 550, "reason": "no such user"}]
    assert [caution.kind for caution in done.warnings] == ["recipients_refused"]
    assert server.letters[0].recipients == ["you@example.com"]


async def test_a_wrong_password_is_repeated_by_nobody(tmp_path: Path) -> None:
    """This server quotes what it was given, in both spellings."""
    wrong_word = "wrong-word-of-the-mail-0815"
    async with smtp() as server:
        wrong = await failure(step(), MailPlace(tmp_path, server.port, SMTP_USER="me", SMTP_PASS=wrong_word))
    assert (wrong.kind, wrong.can_heal) == ("login_failed", False)
    assert "535" in wrong.message
    assert wrong_word not in str(wrong)
    assert base64.b64encode(f"\0me\0{wrong_word}".encode()).decode() not in str(wrong)
    assert server.letters == []


async def test_nobody_listens(tmp_path: Path) -> None:
    async with smtp() as server:
        port = server.port
    wrong = await failure(step(), MailPlace(tmp_path, port))
    assert (wrong.kind, wrong.can_heal) == ("connection_failed", True)
    assert f"127.0.0.1:{port}" in wrong.message


@pytest.mark.parametrize(
    ("says", "can_heal"),
    [({"greeting": None}, True), ({"EHLO": None}, True), ({"RCPT": None}, True), ({"content": None}, False)],
)
async def test_a_silent_server_is_left_in_time_and_so_is_its_thread(
    tmp_path: Path, until: Any, says: dict[str, str | None], can_heal: bool
) -> None:
    async with smtp(says=says) as server:
        wrong = await failure(step(timeout=1), MailPlace(tmp_path, server.port))
        assert not _workers_in_our_code()
        await until(_workers_are_idle)
    assert (wrong.kind, wrong.can_heal) == ("timed_out", can_heal)
    assert ("not known" in wrong.message) == (not can_heal)


async def test_a_cancelled_mail_ends_its_thread(tmp_path: Path, until: Any) -> None:
    async with smtp(says={"RCPT": None}) as server:
        task = asyncio.create_task(send(step(), MailPlace(tmp_path, server.port)))
        await until(lambda: "RCPT" in server.commands)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not _workers_in_our_code()
        await until(_workers_are_idle)


def _workers() -> list[FrameType]:
    """Where each thread of the loop's pool is at the moment."""
    frames = sys._current_frames()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]
    return [frames[thread.ident] for thread in threads if thread.ident in frames]


def _workers_in_our_code() -> list[str]:
    """Exact at any moment: a thread tells its loop that it is done when nothing of ours is on its stack any more."""
    stacks = ([frame for frame, _ in traceback.walk_stack(worker)] for worker in _workers())
    called = ((frame.f_globals.get("__name__", ""), frame.f_code.co_name) for stack in stacks for frame in stack)
    return [f"{module}.{name}" for module, name in called if module.startswith("leadrope.")]


def _workers_are_idle() -> bool:
    """To be waited for: a thread that has told its loop is still on its way back to the pool's queue."""
    return all(worker.f_code.co_name == "_worker" for worker in _workers())


# -- encryption --------------------------------------------------------------------------------------------------------


class Certificates(msgspec.Struct, frozen=True):
    server: Any
    trusting: Any


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing, and makes the certificate of this test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return Certificates(server, ssl.create_default_context(cafile=str(cert)))


async def test_starttls_is_used_where_it_is_offered(tmp_path: Path, certificates: Certificates) -> None:
    async with smtp(starttls=certificates.server) as server:
        await send(step(), MailPlace(tmp_path, server.port, **LOGIN), tls=certificates.trusting)
    assert server.letters[0].was_encrypted
    assert server.commands.index("STARTTLS") < server.commands.index("AUTH")


async def test_tls_from_the_first_byte(tmp_path: Path, certificates: Certificates) -> None:
    async with smtp(tls=certificates.server) as server:
        await send(step(), MailPlace(tmp_path, server.port, SMTP_SECURE="true", **LOGIN), tls=certificates.trusting)
    assert server.letters[0].was_encrypted
    assert "STARTTLS" not in server.commands


@pytest.mark.parametrize("secure", ["true", "starttls"])
async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path, certificates: Certificates, secure: str) -> None:
    seams = {"tls": certificates.server} if secure == "true" else {"starttls": certificates.server}
    async with smtp(**seams) as server:
        wrong = await failure(step(), MailPlace(tmp_path, server.port, SMTP_SECURE=secure, **LOGIN))
    assert (wrong.kind, wrong.can_heal) == ("not_secure", False)
    assert "AUTH" not in server.commands
    assert server.letters == []


async def test_encryption_that_was_asked_for_and_is_not_offered(tmp_path: Path) -> None:
    async with smtp() as server:
        wrong = await failure(step(), MailPlace(tmp_path, server.port, SMTP_SECURE="starttls", **LOGIN))
    assert wrong.kind == "not_secure"
    assert "AUTH" not in server.commands


# -- settings, as values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "port", "begins"),
    [
        ({}, 587, False),
        ({"SMTP_PORT": "465"}, 465, True),
        ({"SMTP_SECURE": "true"}, 465, True),
        ({"SMTP_SECURE": "true", "SMTP_PORT": "2465"}, 2465, True),
        ({"SMTP_SECURE": "false", "SMTP_PORT": "25"}, 25, False),
        ({"SMTP_SECURE": "none", "SMTP_PORT": "465"}, 465, False),
    ],
)
def test_ports_and_encryption(values: dict[str, str], port: int, begins: bool) -> None:
    settings = read_settings({"SMTP_HOST": "mail.example.com", **values})
    assert (settings.port, settings.begins_with_tls) == (port, begins)


@pytest.mark.parametrize(
    ("secure", "is_secure", "far", "may"),
    [
        ("auto", False, "93.184.216.34", False),
        ("starttls", False, "10.0.0.1", False),
        ("auto", True, "93.184.216.34", True),
        ("none", False, "93.184.216.34", True),
        ("auto", False, "127.0.0.1", True),
        ("auto", False, "::1", True),
        ("auto", False, "fe80::1%eth0", False),
    ],
)
def test_the_password_is_not_sent_where_others_can_read_it(secure: str, is_secure: bool, far: str, may: bool) -> None:
    settings = read_settings({"SMTP_HOST": "h", "SMTP_SECURE": secure, **LOGIN})
    assert settings.may_log_in(is_secure=is_secure, far=far) == may


def test_settings_do_not_print_the_password() -> None:
    settings = read_settings({"SMTP_HOST": "h", **LOGIN})
    assert PASSWORD not in repr(settings)
    with pytest.raises(BadSettings):
        read_settings({})
