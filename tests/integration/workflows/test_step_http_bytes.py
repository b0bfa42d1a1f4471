"""The http step and bytes: what is not text comes as base64 or as a file, and files go out as they are."""

from __future__ import annotations

import base64
import email
import email.policy
import json
from pathlib import Path
from typing import Any

import pytest

from http_peer import TOKEN, Seen, always, answer, echo, failure, serving, step
from leadrope.workflows.language import templates
from leadrope.workflows.steps.http import fetch
from leadrope.workflows.tools import http_answers
from step_place import Here

BYTES = bytes(range(256))
PNG = answer(BYTES, content_type="image/png")


def workflow(port: int, *lines: str, use: str) -> str:
    said = "\n".join(lines)
    return (
        f"# T\n## Steps\n### get\n- type: http\n- url: http://127.0.0.1:{port}/x.png\n"
        f"- allow_private: [127.0.0.1]\n{said}\n### use\n- type: note\n- text: {use}\n"
    )


# -- what comes back --------------------------------------------------------------------------------------------------


async def test_bytes_come_as_base64_with_their_type_and_size(tmp_path: Path) -> None:
    async with serving(always(PNG)) as server:
        done = await fetch(step(url=server.url()), Here(tmp_path))
    assert base64.b64decode(done.outputs["body_base64"]) == BYTES
    assert (done.outputs["media_type"], done.outputs["size"]) == ("image/png", 256)
    assert "body" not in done.outputs
    assert done.outputs["json"] is None
    assert done.warnings == ()
    assert "\ufffd" not in json.dumps(done.outputs)


async def test_a_step_that_wants_text_where_there_is_none_fails_and_is_told_the_ways(shop: Any) -> None:
    async with serving(always(PNG)) as server:
        result = await shop.run(workflow(server.port, use="got ${get.body}"))
        other = await shop.run(workflow(server.port, use="${get.body ?? get.body_base64}"))
    assert result.outcome == "failed"
    message = result.failures[0].error.message
    assert "256 bytes of image/png and not text" in message
    assert "`save_to`" in message
    assert "body_base64" in message
    assert other.outcome == "succeeded"
    assert base64.b64decode(other.last.result) == BYTES


@pytest.mark.parametrize(
    ("reply", "body", "has_base64"),
    [
        (answer("plain", content_type="application/octet-stream"), "plain", True),
        (answer("<svg/>", content_type="image/svg+xml"), "<svg/>", False),
        (answer("plain"), "plain", False),
        (answer("ü".encode("latin-1"), content_type="text/plain"), None, True),
        (answer("ü".encode("latin-1"), content_type='text/plain; charset="latin-1"'), "ü", False),
        (answer("ü", content_type="text/plain; charset=nobody-knows"), "ü", False),
        (answer("{}", content_type="application/pdf; charset=zlib"), "{}", True),
        (answer(b"", content_type="image/png"), "", True),
    ],
)
async def test_text_is_given_where_the_bytes_are_text(
    tmp_path: Path, reply: bytes, body: str | None, has_base64: bool
) -> None:
    async with serving(always(reply)) as server:
        outputs = (await fetch(step(url=server.url()), Here(tmp_path))).outputs
    assert outputs.get("body") == body
    assert ("body_base64" in outputs) == has_base64


async def test_json_that_is_not_text_is_a_soft_failure(tmp_path: Path) -> None:
    async with serving(always(answer(b"{\xff}", content_type="application/json"))) as server:
        done = await fetch(step(url=server.url()), Here(tmp_path))
    assert [caution.kind for caution in done.warnings] == ["bad_json"]
    assert base64.b64decode(done.outputs["body_base64"]) == b"{\xff}"


async def test_an_error_page_of_bytes_is_there_for_the_step_that_handles_it(tmp_path: Path) -> None:
    async with serving(always(answer(BYTES, 503, content_type="image/png"))) as server:
        wrong = await failure(step(url=server.url(), save_to="a.png"), Here(tmp_path))
    assert (wrong.kind, wrong.can_heal) == ("http_error", True)
    assert "256 bytes of image/png" in wrong.message
    assert base64.b64decode(wrong.outputs["body_base64"]) == BYTES
    assert not (tmp_path / "a.png").exists()


async def test_more_bytes_than_outputs_can_hold_need_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_answers, "MOST_BASE64", 255)
    async with serving(always(PNG)) as server:
        wrong = await failure(step(url=server.url()), Here(tmp_path))
        done = await fetch(step(url=server.url(), save_to="a.png"), Here(tmp_path))
    assert (wrong.kind, "save_to" in str(wrong.hint)) == ("too_large", True)
    assert done.outputs["size"] == 256


async def test_a_key_that_a_server_sends_back_among_bytes_is_masked_and_told(tmp_path: Path) -> None:
    reply = answer(b"\xff" + TOKEN.encode() + b"\xff", content_type="image/png")
    async with serving(always(reply)) as server:
        done = await fetch(step(url=server.url(), auth=TOKEN), Here(tmp_path))
        saved = await fetch(step(url=server.url(), auth=TOKEN, save_to="a.png"), Here(tmp_path))
    for found in (base64.b64decode(done.outputs["body_base64"]), (tmp_path / "a.png").read_bytes()):
        assert found == b"\xff[redacted]\xff"
    assert [[one.kind for one in each.warnings] for each in (done, saved)] == [["secret_masked"]] * 2


# -- into a file ------------------------------------------------------------------------------------------------------


async def test_an_answer_is_saved_as_it_came(shop: Any) -> None:
    async with serving(always(PNG)) as server:
        result = await shop.run(workflow(server.port, "- save_to: pictures/x.png", use="${get.path} ${get.size}"))
        wrong = await shop.run(workflow(server.port, "- save_to: pictures/x.png", use="${get.body}"))
    assert (result.outcome, result.last.result) == ("succeeded", "pictures/x.png 256")
    assert (shop.ws / "pictures/x.png").read_bytes() == BYTES
    assert "saved to pictures/x.png; read it with a `read-file` step" in wrong.failures[0].error.message


async def test_nothing_is_sent_where_the_file_may_not_be_written(here: Here, ws: Path) -> None:
    (ws / "out").symlink_to(ws.parent / "outside")
    async with serving(always(PNG)) as server:
        for path, kind in (("../a.png", "outside_workspace"), ("out/secret.txt", "outside_workspace")):
            wrong = await failure(step(url=server.url(), method="POST", save_to=path), here)
            assert wrong.kind == kind
        wrong = await failure(step(url=server.url(), method="POST", save_to=".git/hooks/pre-commit"), here)
        assert (wrong.kind, here.asked[-1].name) == ("denied", "Write")
        assert server.connections == 0
    assert (ws.parent / "outside/secret.txt").read_text() == "secret"


async def test_a_file_may_have_the_size_that_the_policy_says(ws: Path) -> None:
    async with serving(always(PNG)) as server:
        wrong = await failure(step(url=server.url(), save_to="a.png"), Here(ws, {"max_file_size": 255}))
        await fetch(step(url=server.url(), save_to="a.png"), Here(ws, {"max_file_size": 256}))
    assert (wrong.kind, "max_file_size" in wrong.message) == ("denied", True)
    assert (ws / "a.png").read_bytes() == BYTES


# -- what is sent -----------------------------------------------------------------------------------------------------


def parts(seen: Seen) -> list[tuple[str, str | None, str, bytes]]:
    """As a server reads them: name, file name, type, content."""
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + seen.body, policy=email.policy.HTTP)
    assert message.is_multipart()
    return [
        (
            str(part.get_param("name", header="content-disposition")),
            part.get_filename(),
            part.get_content_type(),
            part.get_payload(decode=True),  # type: ignore[misc]  # bytes, where the part is not multipart itself
        )
        for part in message.iter_parts()
    ]


async def test_files_and_values_go_out_in_one_form(here: Here, ws: Path) -> None:
    (ws / "x.png").write_bytes(BYTES)
    (ws / "notes.txt").write_text("ü\n")
    async with serving(always(answer("ok"))) as server:
        for _ in range(2):
            await fetch(
                step(
                    url=server.url(),
                    method="POST",
                    multipart={
                        "title": "größer",
                        "count": 3,
                        "none": None,
                        "picture": {"file": "x.png"},
                        "more": [
                            {"file": "notes.txt", "filename": 'a "b".txt'},
                            {"base64": "AP8=", "media_type": "a/b"},
                        ],
                        "meta": {"value": {"a": 1}},
                    },
                ),
                here,
            )
    assert parts(server.seen[0]) == [
        ("title", None, "text/plain", "größer".encode()),
        ("count", None, "text/plain", b"3"),
        ("picture", "x.png", "image/png", BYTES),
        ("more", "a %22b%22.txt", "text/plain", "ü\n".encode()),
        ("more", "more", "a/b", b"\x00\xff"),
        ("meta", None, "application/json", b'{"a":1}'),
    ]
    assert server.seen[0].body == server.seen[1].body, "an approval is for exactly these bytes"
    assert [call.name for call in here.asked[:3]] == ["Read", "Read", "WebFetch"]
    assert "bytes of multipart/form-data, SHA-256" in here.asked[2].input["body"]


async def test_bytes_go_out_from_base64_and_from_a_file(here: Here, ws: Path) -> None:
    (ws / "x.png").write_bytes(BYTES)
    text = base64.encodebytes(BYTES).decode()
    async with serving(always(answer("ok"))) as server:
        await fetch(step(url=server.url(), method="PUT", body_base64=text), here)
        await fetch(step(url=server.url(), method="PUT", body_file="x.png"), here)
        typed = {"Content-Type": "image/x-own"}
        await fetch(step(url=server.url(), method="PUT", body_file="x.png", headers=typed), here)
    assert [seen.body for seen in server.seen] == [BYTES] * 3
    kinds = ["application/octet-stream", "image/png", "image/x-own"]
    assert [seen.headers["content-type"] for seen in server.seen] == kinds


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"body": "a", "body_file": "x"}, "body and body_file are both given"),
        ({"body_base64": "no base64!"}, "body_base64: not base64"),
        ({"body_file": "missing.png"}, "missing.png does not exist"),
        ({"body_file": "../outside/secret.txt"}, "outside of the workspace"),
        ({"multipart": {"a": {"file": "link"}}}, "outside of the workspace"),
        ({"multipart": {"a": {"file": "x", "base64": "AA=="}}}, "multipart.a: file and base64 are both given"),
        ({"multipart": {"a": {"value": "x", "media_type": "a\r\nX: y"}}}, "not a media type"),
        ({"body": "\ud800"}, "cannot be sent as UTF-8"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_anything_is(
    here: Here, ws: Path, values: dict[str, Any], told: str
) -> None:
    (ws / "link").symlink_to(ws.parent / "outside/secret.txt")
    async with serving(echo) as server:
        wrong = await failure(step(url=server.url(), method="POST", **values), here)
        assert server.connections == 0
    assert told in wrong.message


# -- files ------------------------------------------------------------------------------------------------------------


async def test_bytes_pass_from_a_request_to_a_file_and_back_unchanged(shop: Any) -> None:
    """Downloaded, written, read, sent: the same bytes at every place."""
    text = """# T
## Steps
### get
- type: http
- url: http://127.0.0.1:PORT/
- allow_private: true
### write
- type: write-file
- file_path: a.png
- content: ${get.body_base64}
- encoding: base64
### copy
- type: copy-file
- source: a.png
- destination: b.png
### read
- type: read-file
- file_path: b.png
### send
- type: http
- url: http://127.0.0.1:PORT/
- allow_private: true
- method: PUT
- body_base64: ${read.content_base64}
"""
    async with serving(always(PNG)) as server:
        result = await shop.run(text.replace("PORT", str(server.port)))
    assert result.outcome == "succeeded", result.failures
    assert (shop.ws / "b.png").read_bytes() == server.seen[1].body == BYTES


async def test_a_file_that_is_not_text_has_no_text(shop: Any) -> None:
    (shop.ws / "a.png").write_bytes(BYTES)
    text = "# T\n## Steps\n### f\n- type: read-file\n- file_path: a.png\n### use\n- type: note\n- text: ${f.content}\n"
    result = await shop.run(text)
    message = result.failures[0].error.message
    assert "a.png is 256 bytes of image/png and not utf-8 text; use content_base64" in message
    asked = await shop.run(text.replace("a.png\n", "a.png\n- encoding: base64\n"))
    assert base64.b64decode(asked.last.result) == BYTES


def test_why_an_output_is_not_there_is_said_where_it_is_used() -> None:
    scope = {"get": {"status": 200, templates.ABSENT: {"body": "it is a picture"}}}
    with pytest.raises(templates.Unresolved) as caught:
        templates.resolve("${get.body}", scope)
    assert "get has no 'body': it is a picture" in caught.value.message
    assert templates.resolve("${get.body ?? 'none'}", scope) == "none"
