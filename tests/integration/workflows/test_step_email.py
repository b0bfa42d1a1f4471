"""The email step against a real SMTP server on loopback: what arrives, and what is refused before it is sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope.workflows.steps.email import KIND
from leadrope.workflows.tools.mail_message import BadMail, Mailbox, read_addresses, read_subject
from smtp_peer import LOGIN, PASSWORD, MailPlace, failure, smtp, step

# -- what arrives ------------------------------------------------------------------------------------------------------


async def test_a_mail_with_everything(tmp_path: Path) -> None:
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port, **LOGIN)
        (here.workspace / "report.csv").write_text("a,b\n1,2\n")
        (here.workspace / "straße.bin").write_bytes(bytes(range(256)))
        done = await KIND.run(
            step(
                to=["Jane Doe <jane@example.com>", '"Doe, John" <john@example.com>'],
                cc="kim@example.com, jane@example.com",
                bcc=["hidden@example.com"],
                reply_to="answers@example.com",
                subject="Grüße 🎉",
                body="Hällo\n.\n..dots\n" + "long " * 500,
                html="<p>Hällo</p>",
                attachments=["report.csv", "straße.bin"],
            ),
            here,
        )
    (letter,) = server.letters
    message = letter.message
    assert letter.sender == "me@example.com"
    assert letter.user == "me"
    assert letter.recipients == ["jane@example.com", "john@example.com", "kim@example.com", "hidden@example.com"]
    assert message["To"] == 'Jane Doe <jane@example.com>, "Doe, John" <john@example.com>'
    assert message["Cc"] == "kim@example.com, jane@example.com"
    assert message["Reply-To"] == "answers@example.com"
    assert message["Subject"] == "Grüße 🎉"
    assert message["Message-ID"] == done.outputs["message_id"]
    assert message["Bcc"] is None
    assert b"hidden@example.com" not in letter.raw
    assert letter.raw.isascii()
    assert max(map(len, letter.raw.split(b"\r\n"))) < 998
    text, html = message.get_body(("plain",)), message.get_body(("html",))
    assert text is not None
    assert html is not None
    assert text.get_content().replace("\r\n", "\n") == "Hällo\n.\n..dots\n" + "long " * 500 + "\n"
    assert html.get_content().strip() == "<p>Hällo</p>"
    files = {part.get_filename(): part.get_content() for part in message.iter_attachments()}
    assert files["straße.bin"] == bytes(range(256))
    assert files["report.csv"].replace("\r\n", "\n") == "a,b\n1,2\n"
    assert done.outputs["sent"] == 4
    assert done.outputs["rejected"] == []
    assert set(done.outputs) == set(KIND.outputs)
    assert not done.warnings
    assert server.commands[-1] == "QUIT"


async def test_only_html_and_another_sender(tmp_path: Path) -> None:
    async with smtp() as server:
        config = step(**{"body": "", "html": "<b>x</b>", "from": "Other <other@example.com>"})
        await KIND.run(config, MailPlace(tmp_path, server.port))
    message = server.letters[0].message
    assert message.get_content_type() == "text/html"
    assert message["From"] == "Other <other@example.com>"
    assert server.letters[0].sender == "other@example.com"


async def test_line_breaks_in_a_subject_become_a_space(tmp_path: Path) -> None:
    async with smtp() as server:
        subject = "Hello\r\nBcc: victim@example.com\r\n\r\nbody\u2028x\0y"
        await KIND.run(step(subject=subject), MailPlace(tmp_path, server.port))
    message = server.letters[0].message
    assert message["Subject"] == "Hello Bcc: victim@example.com body x y"
    assert message["Bcc"] is None
    assert server.letters[0].recipients == ["you@example.com"]


async def test_a_name_cannot_bring_a_header(tmp_path: Path) -> None:
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port)
        for field in ("to", "cc", "bcc", "reply_to", "from"):
            wrong = await failure(step(**{field: "X\r\nBcc: victim@example.com <a@example.com>"}), here)
            assert wrong.kind == "bad_input"
            assert field in wrong.message
        (here.workspace / "a\r\nX: y").write_text("z")
        await KIND.run(step(attachments=["a\r\nX: y"]), here)
    message = server.letters[0].message
    assert [part.get_filename() for part in message.iter_attachments()] == ["a__X: y"]
    assert message["X"] is None


# -- what is refused before anything is sent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"to": ""},
        {"to": []},
        {"to": "nobody"},
        {"to": "a@b@c"},
        {"to": "a b@example.com"},
        {"to": "a@-example.com"},
        {"to": ".a@example.com"},
        {"to": "ä@example.com"},
        {"to": "a@exämple.com"},
        {"to": "x" * 65 + "@example.com"},
        {"to": "a@" + "x" * 300 + ".com"},
        {"to": "<a@example.com"},
        {"cc": "nobody"},
        {"bcc": "nobody"},
        {"reply_to": "nobody"},
        {"from": "nobody"},
        {"from": "a@example.com, b@example.com"},
        {"to": [f"a{n}@example.com" for n in range(30)], "cc": [f"b{n}@example.com" for n in range(21)]},
        {"subject": ""},
        {"subject": " \r\n "},
        {"subject": "x" * 256},
        {"body": " ", "html": ""},
    ],
)
async def test_bad_input(tmp_path: Path, values: dict[str, Any]) -> None:
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port)
        wrong = await failure(step(**values), here)
    assert wrong.kind == "bad_input"
    assert wrong.hint
    assert not wrong.can_heal
    assert (server.connections, here.asked) == (0, [])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("missing.txt", "not_found"),
        ("../outside.txt", "outside_workspace"),
        ("/etc/hostname", "outside_workspace"),
        ("link.txt", "outside_workspace"),
        ("linked/outside.txt", "outside_workspace"),
        ("folder", "not_a_file"),
        ("pipe", "not_a_file"),
    ],
)
async def test_a_file_that_cannot_go_along(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port)
        (here.workspace / "link.txt").symlink_to(tmp_path / "outside.txt")
        (here.workspace / "linked").symlink_to(tmp_path)
        (here.workspace / "folder").mkdir()
        os.mkfifo(here.workspace / "pipe")
        wrong = await failure(step(attachments=name), here)
    assert wrong.kind == kind
    assert wrong.hint
    assert server.connections == 0


async def test_fifty_addresses_and_255_characters_are_enough(tmp_path: Path) -> None:
    async with smtp() as server:
        config = step(to=[f"a{n}@example.com" for n in range(50)], subject="x" * 255)
        assert (await KIND.run(config, MailPlace(tmp_path, server.port))).outputs["sent"] == 50


@pytest.mark.parametrize("where", ["body", "html", "file", "files"])
async def test_more_than_five_megabytes(tmp_path: Path, where: str) -> None:
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port)
        for name, size in (("big", 5 * 1024 * 1024), ("half", 3 * 1024 * 1024)):
            (here.workspace / name).write_bytes(b"x" * size)
        values: dict[str, Any] = {"file": {"attachments": "big"}, "files": {"attachments": ["half", "half"]}}
        wrong = await failure(step(**values.get(where, {where: "x" * (5 * 1024 * 1024 + 1)})), here)
    assert wrong.kind == "too_large"
    assert server.connections == 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"SMTP_HOST": ""}, "SMTP_HOST"),
        ({"SMTP_PORT": "99999"}, "SMTP_PORT"),
        ({"SMTP_PORT": "abc"}, "SMTP_PORT"),
        ({"SMTP_SECURE": "perhaps"}, "SMTP_SECURE"),
        ({"SMTP_PASS": PASSWORD}, "SMTP_USER"),
        ({"SMTP_USER": "me"}, "SMTP_PASS"),
    ],
)
async def test_settings_that_cannot_be_used_are_named(tmp_path: Path, settings: dict[str, str], told: str) -> None:
    wrong = await failure(step(), MailPlace(tmp_path, 25, **settings))
    assert wrong.kind == "not_configured"
    assert told in wrong.message
    assert str(tmp_path / "leadrope" / ".env") in wrong.message


async def test_without_a_sender(tmp_path: Path) -> None:
    wrong = await failure(step(), MailPlace(tmp_path, 25, SMTP_FROM=""))
    assert wrong.kind == "bad_input"
    assert "SMTP_FROM" in str(wrong.hint)


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        {"disallowed_tools": ["SendEmail"]},
        {"allowed_tools": ["Bash"]},
        {"require_approval": ["SendEmail"]},
        {"permission_mode": "plan"},
        {"blocked_paths": ["private.csv"]},
        {"blocked_paths": ["report.csv"]},
    ],
)
async def test_what_a_policy_forbids_is_not_sent(tmp_path: Path, policy: dict[str, Any]) -> None:
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port, policy)
        (here.workspace / "private.csv").write_text("x")
        (here.workspace / "report.csv").symlink_to("private.csv")
        wrong = await failure(step(attachments="report.csv"), here)
    assert wrong.kind == "denied"
    assert server.connections == 0


async def test_a_person_sees_the_mail_and_may_change_it(tmp_path: Path) -> None:
    async with smtp() as server:
        here = MailPlace(tmp_path, server.port)
        here.edit = {"to": ["other@example.com"], "subject": "Changed"}
        await KIND.run(step(bcc="third@example.com"), here)
        here.edit = {"to": ["nobody"]}
        assert (await failure(step(), here)).kind == "bad_input"
    assert here.asked[0].name == "SendEmail"
    assert here.asked[0].input == {
        "to": ["you@example.com"],
        "bcc": "third@example.com",
        "subject": "Hello",
        "body": "text",
    }
    (letter,) = server.letters
    assert letter.recipients == ["other@example.com", "third@example.com"]
    assert letter.message["Subject"] == "Changed"


# -- addresses and subjects, as texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("a@example.com", [("a@example.com", "")]),
        (" a@example.com ; b@example.com,", [("a@example.com", ""), ("b@example.com", "")]),
        (["Ann <a@example.com>", "b@example.com"], [("a@example.com", "Ann"), ("b@example.com", "")]),
        ('"Doe, \\"J\\"" <j+x@sub.example.com>', [("j+x@sub.example.com", 'Doe, "J"')]),
        ("Zoë <z@localhost>", [("z@localhost", "Zoë")]),
        ("", []),
    ],
)
def test_addresses(value: Any, found: list[tuple[str, str]]) -> None:
    assert read_addresses(value, "to") == tuple(Mailbox(address=one, name=name) for one, name in found)


@pytest.mark.parametrize("text", ["a@b\r\nc", "a\0@example.com", "X <a@example.com> y", '"X <a@example.com>'])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadMail):
        read_addresses(text, "to")


def test_a_subject_on_one_line() -> None:
    assert read_subject("  a \r\n\t b\n\n\nc ") == "a b c"
