"""`email`: one mail through the user's SMTP server. Its settings come only from LEADROPE_HOME/.env.

The environment is not read: an SMTP_HOST there was set for another program. Nor is the project, whose files may come
from a stranger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from leadrope.core import home as homes
from leadrope.core.tools import ToolCall
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Caution, Kind, StepConfig, StepContext, StepDone, StepFailed, brief
from leadrope.workflows.tools import file_calls, mail_message, smtp_client, workspace_files

if TYPE_CHECKING:
    import ssl

DEFAULT_S = 60.0
MOST_ADDRESSES = 50
MOST_SUBJECT = 255
MOST_BYTES = 5 * 1024 * 1024
"""Limit for texts and files together, before transfer encoding, which adds a third."""

Addresses = str | list[str]
_SHOWN = ("to", "cc", "bcc", "reply_to", "subject", "body", "html", "attachments")
"""What the approver of the mail sees and may change."""


class Email(StepConfig, frozen=True, kw_only=True):
    to: Annotated[Addresses, Meta(description="Addresses, as a list or with commas between them.")]
    subject: Annotated[str, Meta(description="At most 255 characters; line breaks become a space.")]
    body: Annotated[str, Meta(description="The text.")] = ""
    html: Annotated[str, Meta(description="The same as HTML, for readers that show it.")] = ""
    cc: Annotated[Addresses, Meta(description="They get a copy.")] = ""
    bcc: Annotated[Addresses, Meta(description="They get a copy, and nobody sees that.")] = ""
    sender: Annotated[str, Meta(description="Left out: SMTP_FROM, else SMTP_USER.")] = msgspec.field(
        name="from", default=""
    )
    reply_to: Annotated[Addresses, Meta(description="Where answers go.")] = ""
    attachments: Annotated[Addresses, Meta(description="Files inside the workspace.")] = ""
    timeout: Annotated[float, Meta(ge=1, le=300, description="Seconds for the whole.")] = DEFAULT_S


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = templates.settled(parameters)
    count = 0
    for name in ("from", "to", "cc", "bcc", "reply_to"):
        said = known.get(name)
        said = templates.as_text(said) if isinstance(said, bool | int | float) else said
        if isinstance(said, str) or (isinstance(said, list) and all(isinstance(one, str) for one in said)):
            try:
                found = mail_message.read_addresses(said, name)
            except mail_message.BadMail as error:
                yield name, str(error).removeprefix(f"{name}: ")
                continue
            count += len(found) if name in ("to", "cc", "bcc") else 0
    if count > MOST_ADDRESSES:
        yield "to", f"{count} addresses are more than {MOST_ADDRESSES}. Send several mails, or use a mailing list."
    subject = known.get("subject")
    if isinstance(subject, str) and not 0 < len(mail_message.read_subject(subject)) <= MOST_SUBJECT:
        yield "subject", f"it has {len(mail_message.read_subject(subject))} characters; it needs 1 to {MOST_SUBJECT}"
    if "body" not in parameters and "html" not in parameters:
        yield "type", "the mail says nothing; give it a body, or html"


async def run(config: Email, context: StepContext) -> StepDone:
    return await send(config, context)


async def send(config: Email, context: StepContext, *, tls: ssl.SSLContext | None = None) -> StepDone:
    """`tls` replaces the system's certificates."""
    if context.rehearsal is not None:
        raise context.rehearsal.refuse_network("the mail is not sent", context.key)
    settings = _settings(context)
    mail = _mail(config, settings)  # checked before approval is asked for
    allowed = await context.permit(ToolCall(id=str(context.key), name="SendEmail", input=_shown(config)))
    if allowed.input != _shown(config):
        config = _changed(config, allowed.input)
        mail = _mail(config, settings)
    mail = msgspec.structs.replace(mail, files=await _files(config, context))
    message_id, message = _composed(mail)
    context.say(f"to {brief(', '.join(mail.recipients), 80)}")
    progress = smtp_client.DeliveryProgress()
    try:
        async with asyncio.timeout(config.timeout):
            rejected = await smtp_client.deliver(
                settings,
                sender=mail.sender.address,
                recipients=mail.recipients,
                message=message,
                progress=progress,
                tls=tls,
            )
    except TimeoutError:
        told = f"{settings.host}:{settings.port} did not take the mail within {config.timeout:g} s"
        if progress.is_handed_over:
            told += "; whether it has it is not known"
        hint = "Try later, or give the step a longer timeout (at most 300 s)."
        raise StepFailed(told, kind="timed_out", hint=hint, can_heal=not progress.is_handed_over) from None
    except smtp_client.Undelivered as error:
        raise StepFailed(
            str(error),
            kind=error.kind,
            hint=_HINTS.get(error.kind),
            can_heal=error.is_passing,
            outputs={"sent": 0, "rejected": list(msgspec.to_builtins(error.rejected))},
        ) from None
    return _done(mail, message_id, rejected)


_HINTS = {
    "connection_failed": "Check SMTP_HOST and SMTP_PORT in LEADROPE_HOME/.env, and that the server can be reached.",
    "login_failed": "Check SMTP_USER and SMTP_PASS in LEADROPE_HOME/.env.",
    "not_secure": "Use a port with TLS (465), or say SMTP_SECURE=none if this network is safe.",
    "refused": "Check the sender (SMTP_FROM) and the addresses.",
    "unsure": "Look whether it has arrived before it is sent once more.",
}


def _done(mail: mail_message.Mail, message_id: str, rejected: tuple[smtp_client.Rejected, ...]) -> StepDone:
    warnings: tuple[Caution, ...] = ()
    if rejected:
        shown = "; ".join(f"{one.address}: {one.code} {one.reason}" for one in rejected[:5])
        told = f"{len(rejected)} of {len(mail.recipients)} recipients were refused: {shown}"
        warnings = (Caution(kind="recipients_refused", message=told),)
    outputs = {
        "sent": len(mail.recipients) - len(rejected),
        "message_id": message_id,
        "rejected": list(msgspec.to_builtins(rejected)),
    }
    return StepDone(outputs=outputs, warnings=warnings)


def _settings(context: StepContext) -> smtp_client.SmtpSettings:
    path = context.home / ".env"
    try:
        return smtp_client.read_settings(homes.load_env(context.home))
    except smtp_client.BadSettings as error:
        raise StepFailed(
            f"mail cannot be sent: {error} ({path})",
            kind="not_configured",
            hint=f"Set {', '.join(smtp_client.NAMES)} in {path}; the environment and the project are not looked at.",
        ) from None


def _mail(config: Email, settings: smtp_client.SmtpSettings) -> mail_message.Mail:
    try:
        subject = mail_message.read_subject(config.subject)
        senders = mail_message.read_addresses([config.sender or settings.sender], "from")
        mail = mail_message.Mail(
            sender=senders[0] if len(senders) == 1 else mail_message.Mailbox(address=""),
            to=mail_message.read_addresses(config.to, "to"),
            cc=mail_message.read_addresses(config.cc, "cc"),
            bcc=mail_message.read_addresses(config.bcc, "bcc"),
            reply_to=mail_message.read_addresses(config.reply_to, "reply_to"),
            subject=subject,
            text=config.body,
            html=config.html,
        )
    except mail_message.BadMail as error:
        raise _bad(str(error), "Write name@example.com, or Name <name@example.com>.") from None
    if not mail.sender.address:
        raise _bad("from: there is not one sender", "Set SMTP_FROM in LEADROPE_HOME/.env, or say `from`.")
    if not mail.to:
        raise _bad("to: there is no address", "Name at least one.")
    count = len((*mail.to, *mail.cc, *mail.bcc))
    if count > MOST_ADDRESSES:
        raise _bad(f"{count} addresses are more than {MOST_ADDRESSES}", "Send several mails, or use a mailing list.")
    if not subject or len(subject) > MOST_SUBJECT:
        raise _bad(f"the subject has {len(subject)} characters", f"It needs 1 to {MOST_SUBJECT}.")
    if not (config.body.strip() or config.html.strip()):
        raise _bad("the mail says nothing", "Give it a body, or html.")
    if len(config.body.encode("utf-8", "replace")) + len(config.html.encode("utf-8", "replace")) > MOST_BYTES:
        raise _too_large()
    return mail


def _shown(config: Email) -> dict[str, Any]:
    told = {name: value for name in _SHOWN if (value := getattr(config, name))}
    return told | {"to": _each(config.to)} | ({"from": config.sender} if config.sender else {})


def _each(value: Addresses) -> list[str]:
    words = [value] if isinstance(value, str) else value
    return [part.strip() for word in words for part in mail_message.split(word) if part.strip()]


def _changed(config: Email, given: dict[str, Any]) -> Email:
    """Apply a person's edits; what was removed is empty."""
    told = {name: given.get(name, "") for name in (*_SHOWN, "from")}
    try:
        return msgspec.convert({**told, "timeout": config.timeout}, Email)
    except msgspec.ValidationError as error:
        raise _bad(f"the mail as it was changed cannot be sent: {error}", "Correct it.") from None


async def _files(config: Email, context: StepContext) -> tuple[mail_message.File, ...]:
    """Read the attachments. Each is permitted like any read, so that a policy's blocked paths cannot be mailed."""
    left = MOST_BYTES - len(config.body.encode("utf-8", "replace")) - len(config.html.encode("utf-8", "replace"))
    found: list[mail_message.File] = []
    names = _each(config.attachments) if isinstance(config.attachments, str) else config.attachments
    for name in names:
        place = workspace_files.find(context.workspace, name, parameter="attachments")
        place = await file_calls.may_read(context, place, parameter="attachments")
        try:
            content = workspace_files.read(place, left).data
        except StepFailed as failed:
            raise _too_large() if failed.kind == "too_large" else failed from None
        left -= len(content)
        found.append(mail_message.File(name=place.parts[-1], content=content))
    return tuple(found)


def _composed(mail: mail_message.Mail) -> tuple[str, bytes]:
    from email.utils import formatdate, make_msgid  # noqa: PLC0415  # 15 ms, and few workflows send mail

    message_id = make_msgid(domain=mail.sender.address.rpartition("@")[2])
    try:
        return message_id, mail_message.compose(mail, message_id=message_id, date=formatdate())
    except mail_message.BadMail as error:
        raise _bad(str(error), "Check addresses and names.") from None


def _bad(message: str, hint: str) -> StepFailed:
    return StepFailed(message, kind="bad_input", hint=hint)


def _too_large() -> StepFailed:
    return StepFailed(
        f"texts and attachments together are larger than {MOST_BYTES} bytes",
        kind="too_large",
        hint="Send less, or a link to where it lies.",
    )


KIND = Kind(
    name="email",
    summary="Sends one mail.",
    config=Email,
    outputs={
        "sent": {"type": "integer"},
        "message_id": {"type": "string"},
        "rejected": {"type": "array", "items": {"type": "object"}},
    },
    run=run,
    default_timeout_s=DEFAULT_S,
    ends_itself=True,
    mistakes=mistakes,
)
