"""Hands one mail to one SMTP server, in a thread that ends with the step.

The password never appears in a message, not even if a server echoes it. Without encryption there is no login, except on
this machine itself or with `SMTP_SECURE=none`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadrope.core.secrets.redaction import Secret
from leadrope.net.resolver import ask_system
from leadrope.workflows.tools.step_redactor import KnownSecrets

if TYPE_CHECKING:
    import smtplib
    import ssl

Security = Literal["auto", "tls", "starttls", "none"]
_WORDS: Mapping[str, Security] = {
    **dict.fromkeys(("", "auto", "false", "no", "0"), "auto"),
    **dict.fromkeys(("true", "yes", "1", "tls", "ssl"), "tls"),
    "starttls": "starttls",
    "none": "none",
}
NAMES = ("SMTP_HOST", "SMTP_PORT", "SMTP_USER", "SMTP_PASS", "SMTP_FROM", "SMTP_SECURE")
TLS_PORT, SUBMISSION_PORT = 465, 587


class BadSettings(Exception):
    """The SMTP_* settings are invalid."""


class Undelivered(Exception):
    """The server did not accept the mail. `is_passing`: it may accept it later."""

    def __init__(self, message: str, *, kind: str, is_passing: bool, rejected: tuple[Rejected, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_passing = is_passing
        self.rejected = rejected


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    code: int
    reason: str


class SmtpSettings(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    user: str = ""
    password: Secret = Secret("")
    sender: str = ""
    security: Security = "auto"

    @property
    def begins_with_tls(self) -> bool:
        return self.security == "tls" or (self.security == "auto" and self.port == TLS_PORT)

    def may_log_in(self, *, is_secure: bool, far: str) -> bool:
        """Return whether the password may be sent to the address `far`: never unencrypted over a network."""
        return is_secure or self.security == "none" or ipaddress.ip_address(far).is_loopback

    @property
    def secrets(self) -> KnownSecrets:
        """Return a redactor for the password in every encoding used on the wire."""
        word = self.password.reveal()
        raw = (word, f"\0{self.user}\0{word}")
        return KnownSecrets([word, *(base64.b64encode(text.encode()).decode() for text in raw)] if word else [])


def read_settings(values: Mapping[str, str]) -> SmtpSettings:
    """Parse SMTP_*; BadSettings names what is missing or wrong, but no value that may be a secret."""
    found = {name: values.get(name, "").strip() for name in NAMES}
    if not found["SMTP_HOST"]:
        raise BadSettings("SMTP_HOST is not set")
    security = _WORDS.get(found["SMTP_SECURE"].lower())
    if security is None:
        raise BadSettings("SMTP_SECURE must be true, false, starttls or none")
    port = found["SMTP_PORT"] or str(TLS_PORT if security == "tls" else SUBMISSION_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadSettings("SMTP_PORT is not a port")
    if bool(found["SMTP_USER"]) != bool(values.get("SMTP_PASS", "")):
        raise BadSettings("SMTP_USER and SMTP_PASS are set together, or neither of them")
    return SmtpSettings(
        host=found["SMTP_HOST"],
        port=int(port),
        user=found["SMTP_USER"],
        password=Secret(values.get("SMTP_PASS", "")),
        sender=found["SMTP_FROM"] or found["SMTP_USER"],
        security=security,
    )


class DeliveryProgress:
    """How far a delivery got, for whoever cancels it."""

    is_handed_over = False
    """Once True, the server may have the mail, even if it never confirms it."""


async def deliver(
    settings: SmtpSettings,
    *,
    sender: str,
    recipients: list[str],
    message: bytes,
    progress: DeliveryProgress,
    tls: ssl.SSLContext | None = None,
) -> tuple[Rejected, ...]:
    """Deliver a mail and return the rejected recipients, if not all were; raises Undelivered. The caller sets the
    timeout.
    """
    connection = await _reach(settings)
    # A duplicate of the handle: TLS replaces the socket object, but the connection is the same.
    handle = connection.dup()
    work = asyncio.ensure_future(
        asyncio.to_thread(_deliver, settings, connection, tls, sender, recipients, message, progress)
    )
    try:
        return await asyncio.shield(work)
    finally:
        with contextlib.suppress(OSError):
            handle.shutdown(socket.SHUT_RDWR)  # unblocks the thread, wherever it waits
        handle.close()
        await _returned(work)


async def _returned(work: asyncio.Future[Any]) -> None:
    """Wait for the thread, so that it is never left behind: with its connection shut down it ends at once."""
    while not work.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    if not work.cancelled():
        work.exception()  # retrieved, so that asyncio does not log it as lost


async def _reach(settings: SmtpSettings) -> socket.socket:
    """Connect in the event loop, because a connecting thread cannot be cancelled."""
    loop = asyncio.get_running_loop()
    where, told = f"{settings.host}:{settings.port}", "it has no address"
    try:
        found: Sequence[str] = await ask_system(settings.host, settings.port)
    except (OSError, UnicodeError) as error:
        found, told = (), getattr(error, "strerror", None) or str(error)
    for address in found:
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, (address, settings.port))
        except OSError as error:
            connection.close()
            told = error.strerror or str(error)
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise Undelivered(f"{where} cannot be reached: {told}", kind="connection_failed", is_passing=True)


def _deliver(
    settings: SmtpSettings,
    connection: socket.socket,
    tls: ssl.SSLContext | None,
    sender: str,
    recipients: list[str],
    message: bytes,
    progress: DeliveryProgress,
) -> tuple[Rejected, ...]:
    """Deliver the mail; runs in the thread."""
    import smtplib  # noqa: PLC0415  # 30 ms, and few workflows send mail
    import ssl  # noqa: PLC0415

    clean = settings.secrets.text
    where = f"{settings.host}:{settings.port}"
    connection.setblocking(True)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        try:
            client = _client(settings, connection, tls or ssl.create_default_context())
            stack.callback(client.close)
            rejected = _offer(client, settings, sender, recipients, message, clean)
            progress.is_handed_over = True
            code, told = client.data(message)
            if code != 250:
                raise smtplib.SMTPDataError(code, told)
        except smtplib.SMTPAuthenticationError as error:
            words = f"{where} refused the login of SMTP_USER: {_said(error, clean)}"
            raise Undelivered(words, kind="login_failed", is_passing=_is_passing(error.smtp_code)) from None
        except smtplib.SMTPResponseException as error:
            words = f"{where} refused the mail: {_said(error, clean)}"
            raise Undelivered(words, kind="refused", is_passing=_is_passing(error.smtp_code)) from None
        except ssl.SSLCertVerificationError as error:
            words = f"the certificate of {where} is not trusted: {error.verify_message}"
            raise Undelivered(words, kind="not_secure", is_passing=False) from None
        except (smtplib.SMTPException, OSError, UnicodeError) as error:
            if progress.is_handed_over:
                words = f"{where} broke off before it said whether it has the mail: {clean(str(error))}"
                raise Undelivered(words, kind="unsure", is_passing=False) from None
            is_passing = isinstance(error, (OSError, smtplib.SMTPServerDisconnected))
            words = f"the conversation with {where} failed: {clean(str(error))}"
            raise Undelivered(words, kind="connection_failed", is_passing=is_passing) from None
        with contextlib.suppress(smtplib.SMTPException, OSError):
            client.quit()  # it has the mail, however it says goodbye
    return rejected


def _client(settings: SmtpSettings, connection: socket.socket, trust: ssl.SSLContext) -> smtplib.SMTP:
    """Greet the server, start encryption as far as possible, and log in."""
    import smtplib  # noqa: PLC0415

    class Given(smtplib.SMTP):
        """Uses an existing connection."""

        def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
            if settings.begins_with_tls:
                return trust.wrap_socket(connection, server_hostname=host)
            return connection

    here, far = str(connection.getsockname()[0]), str(connection.getpeername()[0])
    # An address literal: smtplib would look up this machine's name on the network and send it to the server.
    name = f"[IPv6:{here}]" if ":" in here else f"[{here}]"
    client = Given(settings.host, settings.port, local_hostname=name)
    try:
        client.ehlo_or_helo_if_needed()
        is_secure = settings.begins_with_tls
        if not is_secure and settings.security != "none" and client.has_extn("starttls"):
            client.starttls(context=trust)
            client.ehlo_or_helo_if_needed()
            is_secure = True
        if settings.security == "starttls" and not is_secure:
            raise Undelivered(
                f"{settings.host} offers no encryption (STARTTLS), which SMTP_SECURE asks for",
                kind="not_secure",
                is_passing=False,
            )
        if settings.user:
            if not settings.may_log_in(is_secure=is_secure, far=far):
                raise Undelivered(
                    f"{settings.host} offers no encryption, and the password is not sent unencrypted",
                    kind="not_secure",
                    is_passing=False,
                )
            client.login(settings.user, settings.password.reveal())
    except BaseException:
        client.close()
        raise
    return client


def _offer(
    client: smtplib.SMTP,
    settings: SmtpSettings,
    sender: str,
    recipients: list[str],
    message: bytes,
    clean: Callable[[str], str],
) -> tuple[Rejected, ...]:
    """Send the envelope and return the rejected recipients, if not all were rejected."""
    import smtplib  # noqa: PLC0415

    code, told = client.mail(sender, [f"size={len(message)}"] if client.has_extn("size") else [])
    if code != 250:
        raise smtplib.SMTPSenderRefused(code, told, sender)
    rejected: list[Rejected] = []
    for address in recipients:
        code, told = client.rcpt(address)
        if code not in (250, 251):
            rejected.append(Rejected(address=address, code=code, reason=clean(_text(told))))
    if len(rejected) == len(recipients):
        shown = "; ".join(f"{one.address}: {one.code} {one.reason}" for one in rejected[:3])
        raise Undelivered(
            f"{settings.host} refused every recipient: {shown}",
            kind="refused",
            is_passing=all(_is_passing(one.code) for one in rejected),
            rejected=tuple(rejected),
        )
    return tuple(rejected)


def _is_passing(code: int) -> bool:
    return 400 <= code < 500


def _said(error: smtplib.SMTPResponseException, clean: Callable[[str], str]) -> str:
    return f"{error.smtp_code} {clean(_text(error.smtp_error))}"


def _text(told: bytes | str) -> str:
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else told
    return " ".join(text.split())[:300]
