"""What a chat is told in each case, by real runs of a scripted agent and by the one-shot form: one table for both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import leadrope
from leadrope import Context, Limits, Message, Secret, errors
from leadrope.providers.claude_code.oneshot import decode_oneshot
from leadrope.rehearsal import write_executable

KEY = Secret("sk-ant-rehearsal-0000000000000000")
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": {"model": "claude-m"}}]
CLOSE = {"await_eof": True}

HISTORY = (Message(role="user", text="one"), Message(role="assistant", text="two"))
CONTEXT = Context(message="three", system_prompt="Be kind.", history=HISTORY)


class Chat:
    def __init__(self, folder: Path) -> None:
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.claude = folder / "claude"
        self.stdin = folder / "stdin.jsonl"
        self.started = folder / "started.jsonl"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "home"),
            "LEADROPE_CLAUDE_BIN": str(self.claude),
        }

    def script(self, *steps: dict[str, Any]) -> None:
        files = {"stdin_file": str(self.stdin), "start_file": str(self.started)}
        write_executable(self.claude, {"steps": [*OPEN, *steps], **files})

    async def ask(
        self, context: Context | str = "go", claude: leadrope.Completer | None = None, **fields: Any
    ) -> leadrope.Reply:
        claude = claude or leadrope.provider("claude-code")
        # Without a sandbox: the stand-in writes down what it is told beside its workspace.
        given = {"cwd": str(self.ws), "credential": KEY, "attempts": 1, "sandbox": "off", **fields}
        return await claude.complete(context, environ=self.environ, **given)

    def prompts(self) -> list[str]:
        said = [json.loads(line) for line in self.stdin.read_text().splitlines()]
        return [line["message"]["content"] for line in said if line["type"] == "user"]

    def argv(self) -> list[str]:
        words: list[str] = json.loads(self.started.read_text().splitlines()[-1])["argv"]
        return words


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path)


# -- what the agent answers: the same result object, over the stream and in the one-shot form ------------------------

ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    # case, result object, text, a word of the warning
    ("answered", {"result": "Four."}, "Four.", ""),
    ("turns used up", {"subtype": "error_max_turns", "result": "Half"}, "Half", "turns"),
    (
        "turns used up, as an error",
        {"subtype": "error_max_turns", "result": "Half", "is_error": True},
        "Half",
        "turns",
    ),
    (
        "turns used up, no text, as an error",
        {"subtype": "error_max_turns", "is_error": True},
        "Error from Claude: error_max_turns",
        "turns",
    ),
    (
        "an error without words",
        {"subtype": "error_during_execution", "is_error": True},
        "Error from Claude: error_during_execution",
        "",
    ),
    ("nothing said", {"result": ""}, "(No response text returned)", ""),
    ("no result at all", {"result": None}, "(No response text returned)", ""),
]


@pytest.mark.parametrize(("case", "told", "text", "warned"), ROWS, ids=[row[0] for row in ROWS])
async def test_the_text_of_an_answer(chat: Chat, case: str, told: dict[str, Any], text: str, warned: str) -> None:
    result = {"subtype": "success", "is_error": False, "result": None, **told}
    chat.script({"result": {**result, "errors": []}}, CLOSE)
    done = await chat.ask()
    assert done.text == text
    assert warned in " ".join(done.warnings)
    assert (done.provider, done.model, done.reply_target) == ("claude-code", "claude-m", None)
    assert done.processing_time_ms > 0

    once = decode_oneshot(json.dumps({"type": "result", "model": "claude-m", **result}), "", 0)
    assert (once.text, once.model) == (text, "claude-m")
    assert warned in " ".join(warning.message for warning in once.warnings)


async def test_output_that_is_not_understood_is_the_answer_as_it_is(chat: Chat) -> None:
    """Plain words after the prompt, a good exit: a warning, and the words."""
    chat.script({"line": "  Just words,"}, {"line": "and more."}, {"exit": 0})
    done = await chat.ask()
    assert done.text == "Just words,\nand more."
    assert any("malformed_output" in warning for warning in done.warnings)
    once = decode_oneshot("  Just words,\nand more.\n", "", 0)
    assert (once.text, once.model) == ("Just words,\nand more.", None)
    assert once.warnings


async def test_words_before_the_prompt_are_no_answer(chat: Chat) -> None:
    write_executable(chat.claude, [{"line": "Welcome!"}, {"exit": 0}])
    with pytest.raises(errors.RunFailed):
        await chat.ask()


async def test_a_bad_exit_is_an_error_with_its_code_and_stderr(chat: Chat) -> None:
    chat.script({"stderr": "Error: it is broken\n"}, {"exit": 3})
    with pytest.raises(errors.RunFailed, match=r"^claude CLI exited with code 3: Error: it is broken") as caught:
        await chat.ask()
    assert caught.value.result.outcome == "failed"
    once = decode_oneshot("", "Error: it is broken\n", 3)
    assert (once.is_error, once.text) == (True, "claude CLI exited with code 3: Error: it is broken")


async def test_a_program_that_is_not_there_cannot_be_run(chat: Chat) -> None:
    with pytest.raises(errors.CliNotFound, match=r"^failed to run claude CLI: .*does not exist") as caught:
        await chat.ask()
    assert "npm install" in (caught.value.hint or "")


async def test_a_program_that_cannot_be_started_cannot_be_run(chat: Chat) -> None:
    chat.claude.write_bytes(b"\x7fELF nonsense")
    chat.claude.chmod(0o755)
    with pytest.raises(errors.SpawnFailed, match=r"^failed to run claude CLI: "):
        await chat.ask()


async def test_a_clock_that_ran_out_is_an_error_that_says_so(chat: Chat) -> None:
    chat.script({"hang": True})
    with pytest.raises(errors.RunFailed, match=r"longer than 0\.5 s") as caught:
        await chat.ask(claude=leadrope.provider(timeout_secs=0.5))
    assert "Raise the limit" in (caught.value.hint or "")


async def test_a_clock_of_the_call_comes_before_the_one_of_the_chat(chat: Chat) -> None:
    chat.script({"hang": True})
    with pytest.raises(errors.RunFailed) as failed:
        await chat.ask(limits=Limits(wall_s=0.5))
    assert failed.value.result.outcome == "timed_out"


async def test_a_completion_takes_the_keywords_of_a_run(chat: Chat) -> None:
    seen: list[str] = []
    chat.script({"result": {"result": "Four."}}, CLOSE)
    await chat.ask(config=None, mode="plan", max_turns=3, on_event=lambda one: seen.append(type(one.event).__name__))
    argv = chat.argv()
    assert "--max-turns=3" in argv
    assert "TurnEnded" in seen


def test_turns_used_up_without_a_text_and_without_an_error() -> None:
    """Only older versions of the one-shot form say so; over the stream such a reason is an error by its name."""
    once = decode_oneshot('{"type": "result", "subtype": "error_max_turns", "is_error": false}', "", 0)
    assert (once.text, [warning.kind for warning in once.warnings]) == ("(No response text returned)", ["max_turns"])


# -- how it is asked -------------------------------------------------------------------------------------------------


def test_the_settings_a_chat_begins_with() -> None:
    claude = leadrope.provider()
    assert (claude.id, claude.requires_api_key) == ("claude-code", False)
    assert (claude.max_turns, claude.allowed_tools) == (10, ("Bash", "Read", "Write", "Edit"))
    assert (claude.timeout_secs, claude.session_id) == (600, None)
    assert claude.capabilities.sessions


def test_settings_from_a_configuration() -> None:
    claude = leadrope.provider("claude-code").from_config(5, ["Bash"], 300)
    assert (claude.max_turns, claude.allowed_tools, claude.timeout_secs) == (5, ("Bash",), 300)
    assert claude == leadrope.provider("claude-code", max_turns=5, allowed_tools=["Bash"], timeout_secs=300)


def test_an_unknown_provider_is_refused_at_once() -> None:
    with pytest.raises(errors.BadValue, match="'nobody' is not known"):
        leadrope.provider("nobody")


async def test_a_context_is_one_prompt_and_never_an_argument(chat: Chat) -> None:
    chat.script({"text": "ok"}, {"result": True}, CLOSE)
    done = await chat.ask(CONTEXT)
    assert chat.prompts() == ["[System]\nBe kind.\n\n[User]\none\n\n[Assistant]\ntwo\n\n[User]\nthree"]
    assert "--max-turns=10" in chat.argv()
    assert "Be kind." not in " ".join(chat.argv())
    assert done.tokens == 110


@pytest.mark.parametrize(("tools", "runs"), [(("Bash",), True), (("Read",), False)])
async def test_the_tools_of_a_chat_need_no_yes_and_others_do(chat: Chat, tools: tuple[str, ...], runs: bool) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "touch it"}, "touch": str(chat.ws / "it")}
    chat.script({"call": call}, {"text": "ok"}, {"result": True}, CLOSE)
    await chat.ask(claude=leadrope.provider().from_config(5, tools, 60))
    assert (chat.ws / "it").exists() is runs


async def test_a_resumed_session_only_hears_the_message(chat: Chat) -> None:
    chat.script({"text": "ok"}, {"result": True}, CLOSE)
    again = leadrope.provider("scripted").in_session("the-session-before")
    done = await chat.ask(CONTEXT, claude=again, binary=str(chat.claude))
    assert chat.prompts() == ["three"]
    assert chat.argv()[chat.argv().index("--resume") + 1] == done.session_id == "the-session-before"


async def test_a_run_can_be_opened_with_its_events(chat: Chat) -> None:
    chat.script({"text": "ok"}, {"result": True}, CLOSE)
    request = leadrope.RunRequest(prompt="go", cwd=str(chat.ws), credential=KEY, provider="scripted")
    async with leadrope.provider("claude-code").open(request, environ=chat.environ) as run:
        told = [item.event async for item in run]
    assert [e.provider for e in told if isinstance(e, leadrope.events.SessionStarted)] == ["claude-code"]


async def test_available_or_why_not(chat: Chat) -> None:
    missing = await leadrope.provider().is_available(chat.environ)
    assert not missing
    assert "does not exist" in missing.reason
    chat.script()
    there = await leadrope.provider().is_available(chat.environ)
    assert there
    assert (there.version, there.reason) == ("2.1.325", "")
    write_executable(chat.claude, {"steps": [], "version": "2.9.0 (Claude Code)"})
    assert "untested" in (await leadrope.provider().is_available(chat.environ)).reason
    write_executable(chat.claude, {"steps": [], "version": "1.0.0 (Claude Code)"})
    assert not await leadrope.provider().is_available(chat.environ)
    scripted = await leadrope.provider("scripted").is_available({"LEADROPE_SCRIPTED_BIN": str(chat.claude)})
    assert scripted
    assert not await leadrope.provider("scripted").is_available({})
