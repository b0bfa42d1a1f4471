"""Files in pflow's words, run: its names for what steps give, and the meanings that differ from a `.flow.md`."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from http_peer import Seen, answer, serving
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library
from leadrope.workflows.report import ExecutionResult


def steps(*entries: str, outputs: dict[str, str] | None = None) -> str:
    """A file with these steps: the id, and what it says."""
    lines = ["# Test", "", "## Steps", ""]
    for entry in entries:
        name, _, said = entry.partition("\n")
        lines += [f"### {name}", "", "Does it.", "", said, ""]
    lines += ["## Outputs", ""] if outputs else []
    for name, source in (outputs or {}).items():
        lines += [f"### {name}", "", "What came out.", "", f"- source: {source}", ""]
    return "\n".join(lines)


async def run(shop: Any, text: str, inputs: dict[str, Any] | None = None, **options: Any) -> ExecutionResult:
    result: ExecutionResult = await shop.run(text, inputs, name="test.pflow.md", **options)
    return result


async def test_newlines_at_the_end_of_what_a_command_says(shop: Any) -> None:
    text = steps(
        "all\n- type: shell\n- command: printf 'a\\n\\n\\n'",
        "kept\n- type: shell\n- strip_newline: false\n- command: printf 'a\\n\\n'",
        outputs={"all": "<${all.stdout}>", "kept": "<${kept.stdout}>"},
    )
    assert (await run(shop, text)).outputs == {"all": "<a>", "kept": "<a\n\n>"}


async def test_booleans_of_the_environment_are_pythons(shop: Any) -> None:
    text = steps(
        "flag\n- type: code\n\n```python code\nresult: bool = False\n```",
        'use\n- type: shell\n- env:\n    A: true\n    B: ${flag.result}\n    C: "true"\n- command: echo $A $B $C',
        outputs={"said": "${use.stdout}"},
    )
    assert (await run(shop, text)).outputs == {"said": "True False true"}


async def test_bytes_that_a_command_says_are_base64(shop: Any) -> None:
    text = steps(
        "raw\n- type: shell\n- command: printf '\\377\\000x'",
        "keep\n- type: write-file\n- file_path: raw.bin\n- content: ${raw.stdout}\n"
        "- content_is_binary: ${raw.stdout_is_binary}",
        outputs={"raw": "${raw.stdout}", "is_binary": "${raw.stdout_is_binary}", "error": "${raw.stderr_is_binary}"},
    )
    result = await run(shop, text)
    assert result.outcome == "succeeded"
    assert result.outputs == {"raw": base64.b64encode(b"\xff\0x").decode(), "is_binary": True, "error": False}
    assert (shop.ws / "raw.bin").read_bytes() == b"\xff\0x"


async def test_names_for_the_templates_of_a_step(shop: Any) -> None:
    text = steps(
        "read\n- type: shell\n- command: echo text",
        'use\n- type: shell\n- inputs:\n    raw: ${read.stdout}\n    tone: it\'s\n- command: echo "${raw}; ${tone}"',
        outputs={"said": "${use.stdout}"},
    )
    assert (await run(shop, text)).outputs == {"said": "text; it's"}


async def test_bytes_from_one_file_to_another(shop: Any) -> None:
    (shop.ws / "a.bin").write_bytes(bytes(range(256)))
    text = steps(
        "read\n- type: read-file\n- file_path: a.bin",
        "write\n- type: write-file\n- file_path: b.bin\n- content: ${read.content}\n"
        "- content_is_binary: ${read.content_is_binary}",
    )
    assert (await run(shop, text)).outcome == "succeeded"
    assert (shop.ws / "b.bin").read_bytes() == bytes(range(256))


async def test_files(shop: Any) -> None:
    (shop.ws / "a.txt").write_text("one\n")
    text = steps(
        "add\n- type: write-file\n- file_path: a.txt\n- content: two\n- append: true",
        "copy\n- type: copy-file\n- source_path: a.txt\n- dest_path: b.txt",
        "move\n- type: move-file\n- source_path: b.txt\n- dest_path: c.txt",
        "read\n- type: read-file\n- file_path: c.txt",
        outputs={
            "done": "${add.written} ${copy.copied} ${move.moved}",
            "text": "${read.content}",
            "path": "${read.file_path}",
            "is_binary": "${read.content_is_binary}",
        },
    )
    result = await run(shop, text)
    assert result.outputs["text"] == "one\ntwo"
    assert result.outputs["done"].lower() == "true true true"
    assert (result.outputs["path"], result.outputs["is_binary"]) == ("c.txt", False)


async def respond(seen: Seen, _: asyncio.StreamWriter) -> bytes:
    if seen.path == "/missing":
        return answer("no", status=404)
    if seen.path == "/text":
        return answer("plain", content_type="text/plain")
    told = {"method": seen.method, "key": seen.headers.get("x-service-key", ""), "sent": seen.body.decode()}
    return answer(json.dumps(told), content_type="application/json")


async def test_what_a_request_gives(shop: Any) -> None:
    async with serving(respond) as server:
        reach = f"- allow_private: 127.0.0.1\n- url: {server.url()}"
        text = steps(
            f"post\n- type: http\n{reach}json\n- body: {{q: 1}}\n- api_key: k-1\n- api_key_header: X-Service-Key",
            f"text\n- type: http\n{reach}text",
            f"bad\n- type: http\n{reach}missing\n- on-error: mend",
            "unseen\n- type: shell\n- command: echo unseen\n- next: end",
            "mend\n- type: shell\n- command: echo mended\n- next: end",
            outputs={
                "method": "${post.response.method}",
                "key": "${post.response.key}",
                "sent": "${post.response.sent}",
                "text": "${text.response}",
                "status": "${text.status_code}",
                "type": "${text.response_headers.content-type}",
                "is_binary": "${text.response_is_binary}",
                "mended": "${bad.response ?? mend.stdout}",
            },
        )
        result = await run(shop, text)
    took = result.outputs
    assert (took["method"], took["sent"], took["key"]) == ("POST", '{"q":1}', "k-1")
    assert (took["text"], took["status"], took["type"], took["is_binary"]) == ("plain", 200, "text/plain", False)
    assert [step.state for step in result.steps] == ["succeeded", "succeeded", "failed", "left_out", "succeeded"]


async def test_a_loop_may_have_more_turns(shop: Any) -> None:
    text = steps(
        "count\n- type: shell\n- command: printf x >> n; test $(wc -c < n) -lt 12; echo $?\n"
        "- loop: {until: ${count.stdout}}",
        outputs={"turns": "${count.iterations}"},
    )
    assert (await run(shop, text)).outputs == {"turns": 12}, "a `.flow.md` would have ended it after ten"


async def test_what_a_loop_of_a_command_carries(shop: Any) -> None:
    text = steps(
        'grow\n- type: shell\n- inputs:\n    text: a\n    turn: ${__iteration__}\n- command: echo "${text}${turn}"\n'
        "- loop:\n    carry:\n      text: ${grow.stdout}\n    while: ${grow.stdout}\n    max_iterations: 3",
        outputs={"text": "${grow.stdout}", "why": "${grow.loop_stopped}"},
    )
    assert (await run(shop, text)).outputs == {"text": "a123", "why": "max_iterations"}


async def test_an_execution_is_taken_up_in_its_own_words(shop: Any) -> None:
    text = steps(
        "read\n- type: shell\n- command: printf 'a\\n\\n'",
        'ask\n- type: shell\n- inputs: {raw: "${read.stdout}"}\n- command: echo "<${raw}>"\n- approval: required',
        outputs={"said": "${ask.stdout}"},
    )
    waiting = await run(shop, text)
    assert waiting.outcome == "waiting"
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert result.outputs == {"said": "<a>"}


async def test_texts_from_files_have_the_templates_of_the_step(shop: Any) -> None:
    """In the place of a text, as in pflow; the execution keeps the text itself."""
    (shop.ws / "texts").mkdir()
    (shop.ws / "texts/count.sh").write_text("printf '%s' \"${words}\" | wc -w | tr -d ' '\n")
    (shop.ws / "texts/double.py").write_text("number: str\n\nresult: int = int(number) * 2\n")
    text = steps(
        "count\n- type: shell\n- inputs:\n    words: it's two $(echo more)\n- command: ./texts/count.sh",
        "double\n- type: code\n- inputs:\n    number: ${count.stdout}\n- code: texts/double.py",
        outputs={"double": "${double.result}"},
    )
    result = await run(shop, text)
    assert (result.outcome, result.outputs) == ("succeeded", {"double": 8})
    async with shop.service() as service:
        kept = (await service.executions.texts(result.execution_id)).text
    assert "texts/" not in kept
    assert "wc -w" in kept


def test_what_is_wrong_with_a_file_is_told_in_pflows_words(shop: Any) -> None:
    (shop.ws / "bare.sh").write_text("for word in ${words}; do echo $word; done\n")
    (shop.ws / "schema.yaml").write_text("type: [object\n")
    text = steps(
        "bare\n- type: shell\n- inputs: {words: a b}\n- command: ./bare.sh",
        "gone\n- type: llm\n- prompt: ./gone.md",
        "out\n- type: llm\n- prompt: ../out.md",
        "schema\n- type: llm\n- prompt: x\n- output_schema: ./schema.yaml",
    )
    _, problems = library.judged(shop.write(text, "test.pflow.md"), leadrope_home=None)
    assert [(one.kind, one.severity) for one in problems] == [
        ("pflow_quoting", "warning"),
        *[("bad_file", "error")] * 3,
    ], [str(one) for one in problems]
    told = [one.message for one in problems if one.kind == "bad_file"]
    assert told[0] == "prompt: there is no file ./gone.md beside the workflow"
    assert told[1].startswith("prompt: '../out.md' leads out of the folder")
    assert told[2].startswith("output_schema: ./schema.yaml is not YAML")
