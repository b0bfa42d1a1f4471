"""Composes a mail: checks addresses, prevents header injection, attaches files. Sends nothing."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence

import msgspec

from leadrope.regex import regex

_ADDRESS = regex(
    r"(?=.{3,254}\Z)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
_LONGEST_LOCAL = 64
_NAMED = regex(r"""\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^"<>]*?))\s*<(?P<address>[^<>]*)>\s*""")
_CONTROL = regex(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


class BadMail(Exception):
    """The mail is invalid; the message is for its author."""


class Mailbox(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    name: str = ""


class File(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    content: bytes


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    sender: Mailbox
    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...] = ()
    bcc: tuple[Mailbox, ...] = ()
    """Recipients that appear in no header."""
    reply_to: tuple[Mailbox, ...] = ()
    subject: str = ""
    text: str = ""
    html: str = ""
    files: tuple[File, ...] = ()

    @property
    def recipients(self) -> list[str]:
        return list(dict.fromkeys(box.address for box in (*self.to, *self.cc, *self.bcc)))


def read_addresses(value: str | Sequence[str], field: str) -> tuple[Mailbox, ...]:
    """Parse `a@example.com` or `Name <a@example.com>`, as a list or separated by commas."""
    texts = [value] if isinstance(value, str) else list(value)
    return tuple(_read(one, field) for text in texts for one in split(text) if one.strip())


def read_subject(text: str) -> str:
    """Check that a subject is one line: a line break would start another header."""
    return re.sub(rf"\s*{_CONTROL.pattern}+\s*", " ", text).strip()


def compose(mail: Mail, *, message_id: str, date: str) -> bytes:
    """Encode the mail for transfer, in ASCII; long lines and single dots are handled."""
    import email.policy  # noqa: PLC0415  # 25 ms, and few workflows send mail
    from email.headerregistry import Address  # noqa: PLC0415
    from email.message import EmailMessage  # noqa: PLC0415

    def boxes(found: Sequence[Mailbox]) -> tuple[Address, ...]:
        return tuple(Address(display_name=box.name, addr_spec=box.address) for box in found)

    message = EmailMessage(policy=email.policy.SMTP.clone(cte_type="7bit"))
    try:
        message["From"] = boxes([mail.sender])
        for name, found in (("To", mail.to), ("Cc", mail.cc), ("Reply-To", mail.reply_to)):
            if found:
                message[name] = boxes(found)
        message["Subject"] = mail.subject
        message["Date"] = date
        message["Message-ID"] = message_id
        if mail.text or not mail.html:
            message.set_content(mail.text)
            if mail.html:
                message.add_alternative(mail.html, subtype="html")
        else:
            message.set_content(mail.html, subtype="html")
    except ValueError as error:
        raise BadMail(f"the mail cannot be written: {error}") from None
    for file in mail.files:
        kind, packing = mimetypes.guess_type(file.name)
        main, _, sub = (kind if kind and not packing else "application/octet-stream").partition("/")
        if main in ("message", "multipart"):  # these types contain parts, which a file does not
            main, sub = "application", "octet-stream"
        message.add_attachment(file.content, maintype=main, subtype=sub, filename=_CONTROL.sub("_", file.name))
    return message.as_bytes()


def split(text: str) -> list[str]:
    """Split at commas and semicolons outside of quotes."""
    parts, quoted, at = [""], False, 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quoted:
            parts[-1] += text[at : at + 2]
            at += 2
            continue
        quoted ^= letter == '"'
        if letter in ",;" and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
        at += 1
    return parts


def _read(text: str, field: str) -> Mailbox:
    named = _NAMED.fullmatch(text)
    address = (named["address"] if named else text).strip(" ")
    name = ""
    if named:
        name = re.sub(r"\\(.)", r"\1", named["quoted"]) if named["quoted"] is not None else named["plain"]
    if _CONTROL.search(address + name):
        raise BadMail(f"{field}: an address holds a line break or a control character")
    if not address.isascii():
        raise BadMail(f"{field}: {address[:80]!r} is not plain ASCII; write its host in the xn-- form")
    if not _ADDRESS.fullmatch(address) or len(address.partition("@")[0]) > _LONGEST_LOCAL:
        raise BadMail(f"{field}: {address[:80]!r} is not a mail address")
    return Mailbox(address=address, name=name.strip())
