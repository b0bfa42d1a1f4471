"""Lines and credentials of a scripted agent, and input that is refused before anything is started."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leadrope import Limits, Secret, errors, events

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

KEY = "sk-ant-rehearsal-0000000000000000"
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def of(found: list[events.Event], kind: type) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


async def test_lines_that_are_not_understood_are_kept_and_the_run_goes_on(stage: Stage) -> None:
    steps = [{"lines": ["no JSON", {"type": "from_the_future"}, "[1, 2]"]}, {"raw": b"\xff\xfe broken \n"}]
    found, result = await stage.play([*OPEN, *steps, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"
    assert len(of(found, events.Unrecognised)) == 4


async def test_a_line_too_long_is_spooled_and_the_run_goes_on(stage: Stage) -> None:
    size = 65 * 1024 * 1024
    found, result = await stage.play([*OPEN, {"flood": {"lines": 1, "size": size}}, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"
    told = of(found, events.Unrecognised)
    assert [(t.reason, t.size) for t in told] == [("line_too_long", size - 1)] or told[0].size >= size - 1
    path = Path(told[0].path)
    assert path.stat().st_size == told[0].size
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Not logged in · Please run /login", "not_authenticated"),
        ("API Error: 401 invalid x-api-key", "not_authenticated"),
        ("--dangerously-skip-permissions cannot be used with root/sudo privileges", "spawn_failed"),
    ],
)
@pytest.mark.parametrize("where", ["line", "stderr"])
async def test_plain_text_that_explains_gives_the_same_kind_as_the_event_would(
    stage: Stage, where: str, text: str, kind: str
) -> None:
    _, result = await stage.play([{where: f"{text}\n" if where == "stderr" else text}, {"exit": 1}])
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == kind


async def test_a_failed_run_logs_one_line(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="leadrope.run"):
        await stage.play([{"line": f"what is {KEY}"}, {"stderr": "bad things\n"}, {"exit": 3}], prompt="12345")
    (line,) = [record.getMessage() for record in caplog.records]
    for part in ("exit=3", "mode=default", "prompt=5", "text=0", "bad things", "unrecognised:1", "what is"):
        assert part in line
    assert KEY not in line


async def test_no_line_of_a_log_can_steer_a_terminal(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Log lines come to the terminal as they are; an agent's stderr could set the clipboard with one."""
    stage.environ["LEADROPE_DEBUG_SPAWN"] = "1"
    title, clipboard = "\x1b]0;title\x07", "\x1b]52;c;ZXZpbA==\x07"
    steps = [*OPEN, {"line": f"{title}plain \x1b[2Jwords"}, {"stderr": f"{clipboard}bad\u202e things\n"}, {"exit": 3}]
    with caplog.at_level(logging.INFO, logger="leadrope"):
        await stage.play(steps)
    told = [record.getMessage() for record in caplog.records]
    assert any("stdout plain words" in line for line in told)
    assert "stderr=bad things unread=plain words" in told[-1]
    assert not [line for line in told if "\x1b" in line or "\x07" in line or "\u202e" in line]


@pytest.mark.parametrize(
    "key", ["ghp_aB3dE6gH9jK2mN5pQ8sT1vW4", "AKIAIOSFODNN7EXAMPLE", "sk-proj-aB3dE6gH9jK2mN5pQ8sT1vW4"]
)
async def test_no_line_of_a_log_holds_text_in_the_shape_of_a_key(
    stage: Stage, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    """Of a key that nobody told leadrope of: in the trace, and in the line about a run that failed."""
    stage.environ["LEADROPE_DEBUG_SPAWN"] = "1"
    steps = [*OPEN, {"line": f"the line {key}"}, {"text": f"the text {key}"}, {"stderr": f"bad {key}\n"}, {"exit": 3}]
    with caplog.at_level(logging.DEBUG, logger="leadrope"):
        await stage.play(steps, prompt=f"what is {key}?")
    told = [record.getMessage() for record in caplog.records]
    for words in ("the line [redacted]", "the text [redacted]", "stderr=bad [redacted]"):
        assert any(words in line for line in told), words
    assert [line for line in told if key in line] == []


async def test_tracing_shows_each_line_and_masks_the_credential(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.environ["LEADROPE_DEBUG_SPAWN"] = "true"
    with caplog.at_level(logging.INFO, logger="leadrope.spawn"):
        await stage.play([*OPEN, {"text": f"your key is {KEY}"}, *CLOSE])
    text = caplog.text
    assert "--permission-prompt-tool" in text
    assert "your key is [redacted]" in text
    assert KEY not in text
    assert "given with the request" in text


# -- credentials -----------------------------------------------------------------------------------------------------


async def test_a_key_that_we_did_not_give_ends_the_run(stage: Stage) -> None:
    steps = [{"initialize": True}, {"await_user": True}, {"init": {"apiKeySource": "project settings"}}, {"hang": True}]
    _, result = await stage.play(steps)
    assert result.error is not None
    assert result.error.kind == "not_authenticated"
    assert "project settings" in result.error.message


def retry(status: int) -> dict[str, Any]:
    return {"line": {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": status, "error": "x"}}


async def test_the_agents_own_login_is_used_in_place(stage: Stage) -> None:
    """Nothing to forward: no credential and no private folder, and only the second refusal ends the run."""
    steps = [{"initialize": True}, {"await_user": True}, {"init": {"apiKeySource": "none"}}]
    steps += [retry(401), {"text": "refreshed"}, retry(401), {"hang": True}]
    stage.answers = {"auth status": {"stdout": '{"loggedIn": true, "authMethod": "claude.ai"}'}}
    found, result = await stage.play(steps, credential=None)
    (start,) = [json.loads(line) for line in stage.started.read_text().splitlines()]
    assert not [name for name in start["env"] if name.startswith(("ANTHROPIC_", "CLAUDE_CONFIG", "CLAUDE_CODE_OAUTH"))]
    assert of(found, events.SessionStarted)[0].credential.kind == "own_login"
    assert [e.text for e in of(found, events.MessageCompleted)] == ["refreshed"]
    assert result.error is not None
    assert result.error.kind == "not_authenticated"


async def test_nothing_at_all_is_an_error_that_says_what_to_do(stage: Stage) -> None:
    stage.answers = {"auth status": {"stdout": '{"loggedIn": false}', "exit": 1}}
    with pytest.raises(errors.NotAuthenticated, match="leadrope login"):
        await stage.play(OPEN, credential=None)
    assert not stage.started.exists()


async def test_a_forwarded_credential_gets_no_second_chance(stage: Stage) -> None:
    _, result = await stage.play([*OPEN, retry(403), {"hang": True}])
    assert result.error is not None
    assert (result.error.kind, result.error.api_status) == ("not_authenticated", 403)


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"prompt": "  \n"}, errors.EmptyPrompt, "empty"),
        ({"prompt": "caf\udce9"}, errors.BadValue, "prompt: holds bytes that are not UTF-8"),
        ({"cwd": "/no/such/place"}, errors.BadDirectory, "does not exist"),
        ({"cwd": __file__}, errors.BadDirectory, "not a directory"),
        *[({"cwd": cwd}, errors.BadDirectory, "system") for cwd in ("/", "/etc", "/usr/lib", "/bin", "/proc/self")],
        ({"extra_dirs": ("/no/such",)}, errors.BadDirectory, "/no/such"),
        ({"extra_dirs": ("/etc",)}, errors.BadDirectory, "system"),
        ({"max_turns": 0}, errors.BadValue, "max_turns"),
        ({"max_turns": 101}, errors.BadValue, "max_turns"),
        ({"max_thinking_tokens": 999}, errors.BadValue, "max_thinking_tokens"),
        ({"schema_retries": 6}, errors.BadValue, "schema_retries"),
        ({"limits": Limits(idle_s=-1)}, errors.BadValue, "idle_s"),
        ({"mode": "yolo"}, errors.BadValue, "yolo"),
        ({"billing": "free"}, errors.BadValue, "billing"),
        ({"provider": "nobody"}, errors.BadValue, "nobody"),
        ({"tools": "Bash"}, errors.BadValue, "tools"),
        ({"max_turns": "3"}, errors.BadValue, "max_turns"),
        ({"connections": {"x": {"nonsense": 1}}}, errors.BadValue, "connections"),
        ({"connections": {"x": {"command": "a", "url": "http://b"}}}, errors.BadValue, "connections.x"),
        *[
            ({"variables": {name: "1"}}, errors.VariableRefused, name)
            for name in ("LD_PRELOAD", "PATH", "ANTHROPIC_BASE_URL", "claude_code_simple", "DATABASE_URL", "BASH_ENV")
        ],
        ({"resume": "11111111-1111-4111-8111-111111111111"}, errors.BadValue, "resume"),
        ({"resume": "../../etc"}, errors.BadValue, "resume"),
        ({"fork": True}, errors.BadValue, "fork"),
        ({"binary": "/no/such/claude"}, errors.CliNotFound, "/no/such/claude"),
        ({"output_schema": {"type": "object"}, "max_turns": 1}, errors.BadValue, "max_turns"),
        ({"agent_sandbox": {"enabld": True}}, errors.BadValue, "agent_sandbox"),
        ({"policy": {"permission_mod": "plan"}}, errors.RequestError, "permission_mod"),
        ({"policy": {"max_budget_usd": -1}}, errors.RequestError, "max_budget_usd"),
        ({"policy_files": ("/no/such.toml",)}, errors.RequestError, "no/such.toml"),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_started(
    stage: Stage, fields: dict[str, Any], error: type[errors.LeadropeError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        async with stage.open([{"touch": str(stage.marker)}], **fields):
            pass
    assert not stage.started.exists()
    assert isinstance(caught.value, errors.RequestError | errors.InstallError)


async def test_a_folder_whose_name_is_no_text_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name would stand in events, which are UTF-8."""
    folder = Path(os.fsdecode(os.fsencode(stage.ws) + b"/caf\xe9"))
    folder.mkdir()
    monkeypatch.chdir(folder)
    link = stage.ws / "link"
    link.symlink_to(folder)
    for fields in ({"cwd": None}, {"cwd": str(link)}, {"extra_dirs": (str(link),)}):
        with pytest.raises(errors.BadDirectory, match="not UTF-8 text"):
            await stage.play([], **fields)
    assert not stage.started.exists()


async def test_a_folder_that_is_gone_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = stage.ws / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(errors.BadDirectory, match="is gone"):
        await stage.play([], cwd=None)
    assert not stage.started.exists()


async def test_a_refused_variable_is_told_before_the_agent_is_asked_for_its_login(stage: Stage) -> None:
    stage.answers = {"auth status": {"stdout": '{"loggedIn": false}', "exit": 1}}
    with pytest.raises(errors.VariableRefused, match="NODE_OPTIONS"):
        await stage.play(OPEN, credential=None, variables={"NODE_OPTIONS": "--require=x"})


async def test_a_long_text_lies_in_a_file_of_the_user_alone(stage: Stage) -> None:
    async with stage.open([*OPEN, {"text": "ok"}, {"hang": True}], append_system_prompt="x" * 40_000) as run:
        async for recorded in run:
            if isinstance(recorded.event, events.MessageCompleted):
                break
        start = json.loads(stage.started.read_text())
        (word,) = [word for word in start["argv"] if word.startswith("--append-system-prompt-file=")]
        file = Path(word.partition("=")[2])
        # Where root works for another user that user has to read it; then a folder above is closed to everybody else.
        assert any(not place.stat().st_mode & 0o077 for place in (file, *file.parents[:2]))
        with pytest.raises(errors.EmptyPrompt):
            await run.send(" \n")
    assert not file.exists()


def test_run_sync_from_a_plain_program(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    import leadrope

    stage.open([*OPEN, {"text": "hello"}, *CLOSE])
    for name, value in stage.environ.items():
        monkeypatch.setenv(name, value)
    result = leadrope.run_sync(prompt="go", cwd=str(stage.ws), credential=Secret(KEY))
    assert result.raise_for_outcome().text == "hello"


async def test_a_field_that_does_not_exist_is_a_bad_request(stage: Stage) -> None:
    import leadrope

    for given in ((), (stage.request(),)):
        with pytest.raises(errors.RequestError, match="nonsense"):
            await leadrope.run(*given, nonsense=1)  # type: ignore[call-overload]  # what mypy refuses too


async def test_run_sync_in_async_code_says_what_to_do(stage: Stage) -> None:
    import leadrope

    with pytest.raises(errors.RunClosed, match="await"):
        leadrope.run_sync(prompt="x")
