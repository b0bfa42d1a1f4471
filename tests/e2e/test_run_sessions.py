"""Sessions as people use them: going on elsewhere, after a loss, on another machine, after a limit, after an error."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope import Limits, Secret, errors, events, open_run
from leadrope.rehearsal import ModelServer
from leadrope.runtime.sessions.files import Sessions

TOKEN = Secret("sk-ant-oat-rehearsal-000000000000")
LEAKED = "sk-ant-api03-abcdefghijklmnopqrstuvwx"


def sessions_of(stage: Any) -> Sessions:
    return Sessions.of(stage.environ)


def native(stage: Any, session_id: str) -> Path:
    (found,) = (sessions_of(stage).folder / session_id / "config").rglob(f"{session_id}.jsonl")
    return found


def notices(played: Any) -> list[str]:
    return [notice.code for notice in played.of(events.Notice)]


def hit_limit(resets_at: float) -> dict[str, Any]:
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": int(resets_at),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-overage-status": "rejected",
    }
    return {"error": {"status": 429, "headers": headers}}


# -- what is kept ----------------------------------------------------------------------------------------------------


async def test_a_session_keeps_what_was_said_and_no_key(stage: Any) -> None:
    show = {"name": "Bash", "input": {"command": f"echo {LEAKED}", "description": "show"}}
    played = await stage.play([{"tool": show}, {"text": "That was it."}], prompt="show it", mode="full")
    info = sessions_of(stage).find(played.result.session_id)
    assert (info.cwd, info.title, info.provider, info.runs) == (
        str(stage.ws),
        "show it",
        "claude-code",
        (played.result.run_id,),
    )
    assert (info.turns, info.outcome) == (played.result.turns, "succeeded")
    assert info.cost_usd == pytest.approx(played.result.cost_usd)
    said = [(entry.role, entry.text) for entry in sessions_of(stage).transcript(info.id)]
    assert [role for role, _ in said] == ["user", "tool", "tool", "assistant"]
    assert said[0][1] == "show it"
    assert said[-1][1] == "That was it."
    folder = sessions_of(stage).folder / info.id
    path = folder / "transcript.jsonl"
    assert path.stat().st_mode & 0o077 == 0
    assert LEAKED not in path.read_text()
    assert "[redacted]" in path.read_text()
    assert not (folder / "runs").exists(), "events are the caller's, or the run store's"


# -- going on --------------------------------------------------------------------------------------------------------


async def test_a_session_goes_on_in_its_own_folder_by_the_beginning_of_its_id(
    stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await stage.play([{"text": "noted"}], prompt="remember 42")
    monkeypatch.chdir(tmp_path)
    second = await stage.play(
        [{"text": "42", "expect": {"contains": "remember 42"}}],
        prompt="which one?",
        cwd=None,
        resume=first.result.session_id[:8],
    )
    started = second.one(events.SessionStarted)
    assert (started.session_id, started.origin, started.cwd) == (first.result.session_id, "resumed", str(stage.ws))
    info = sessions_of(stage).find(first.result.session_id)
    assert info.runs == (first.result.run_id, second.result.run_id)
    assert info.title == "remember 42"


async def test_a_session_follows_to_another_folder_and_back(stage: Any, tmp_path: Path) -> None:
    first = await stage.play([{"text": "noted"}], prompt="remember 42")
    session = first.result.session_id
    (tmp_path / "other").mkdir()
    other = await stage.play(
        [{"text": "here", "expect": {"contains": "remember 42"}}],
        prompt="we have moved",
        resume=session,
        cwd=str(tmp_path / "other"),
    )
    assert other.one(events.SessionStarted).cwd == str(tmp_path / "other")
    back = await stage.play(
        [{"text": "ok", "expect": {"contains": ["remember 42", "we have moved"]}}], prompt="and back", resume=session
    )
    assert back.result.outcome == "succeeded"


async def test_a_session_outlives_its_folder(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    first = await stage.play([{"text": "noted"}], prompt="remember 42", cwd=str(gone))
    shutil.rmtree(gone)
    monkeypatch.chdir(stage.ws)
    second = await stage.play(
        [{"text": "42", "expect": {"contains": "remember 42"}}], cwd=None, resume=first.result.session_id
    )
    assert second.one(events.SessionStarted).cwd == str(stage.ws)
    assert "session_folder_gone" in notices(second)
    assert sessions_of(stage).find(first.result.session_id).cwd == str(stage.ws)


async def test_a_fork_says_where_it_comes_from(stage: Any) -> None:
    first = await stage.play([{"text": "noted"}], prompt="remember 42")
    fork = await stage.play(
        [{"text": "ok", "expect": {"contains": "remember 42"}}], resume=first.result.session_id, fork=True
    )
    info = sessions_of(stage).find(fork.result.session_id)
    assert info.forked_from == first.result.session_id
    assert [i.id for i in sessions_of(stage).listing()] == [fork.result.session_id, first.result.session_id]
    last = sessions_of(stage).last(stage.ws)
    assert last is not None
    assert last.id == fork.result.session_id


async def test_one_run_at_a_time_in_a_session(stage: Any) -> None:
    async with stage.opened([{"text": "I think.", "hang": "mid_stream"}], strict=False) as (run, model):
        async for item in run:
            if isinstance(item.event, events.MessageDelta):
                break
        session = run.request.session_id
        with pytest.raises(errors.BadValue, match="is in use by another run"):
            async with open_run(stage.request(model, resume=session), environ=stage.environ):
                pass
        result = await run.stop()
    again = await stage.play([{"text": "ok"}], resume=result.session_id)
    assert again.result.outcome == "succeeded"


@pytest.mark.parametrize("session", ["00000000-0000-4000-8000-000000000000", "nobody"])
async def test_an_id_that_nobody_knows_is_a_clear_error(stage: Any, session: str) -> None:
    with pytest.raises(errors.BadValue, match="no session"):
        async with open_run(stage.request(resume=session), environ=stage.environ):
            pass


# -- after a loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["the file", "the folder", "its content"])
async def test_a_lost_session_is_rebuilt_from_our_transcript(stage: Any, loss: str) -> None:
    first = await stage.play([{"text": "I noted 42."}], prompt="remember my number")
    session = first.result.session_id
    path = native(stage, session)
    if loss == "the file":
        path.unlink()
    elif loss == "the folder":
        shutil.rmtree(sessions_of(stage).folder / session / "config")
    else:
        path.write_bytes(b"\0\xff{" * 1000)
    second = await stage.play(
        [{"text": "42", "expect": {"contains": ["remember my number", "I noted 42.", "which one?"]}}],
        prompt="which one?",
        resume=session,
    )
    started = second.one(events.SessionStarted)
    assert (started.origin, started.session_id) == ("rebuilt", session), "whoever wrote the id down can go on using it"
    assert "session_rebuilt" in notices(second)
    assert sessions_of(stage).find(session).rebuilt == 1
    said = [entry.text for entry in sessions_of(stage).transcript(session)]
    assert said == ["remember my number", "I noted 42.", "which one?", "42"], "the added words are not said again"
    third = await stage.play([{"text": "ok", "expect": {"contains": "I noted 42."}}], resume=session)
    assert third.one(events.SessionStarted).origin == "resumed"


async def test_a_session_that_only_the_agent_finds_lost_is_rebuilt_too(stage: Any) -> None:
    first = await stage.play([{"text": "I noted 42."}], prompt="remember my number")
    session = first.result.session_id
    native(stage, session).write_text('{"type":"user"}\n')
    second = await stage.play(
        [{"text": "42", "expect": {"contains": ["I noted 42.", "which one?"]}}], prompt="which one?", resume=session
    )
    assert second.result.outcome == "succeeded"
    assert second.of(events.SessionStarted)[-1].origin == "rebuilt"
    assert (sessions_of(stage).folder / session / "config.lost").is_dir()


async def test_a_fork_of_a_lost_session_leaves_it_as_it_is(stage: Any) -> None:
    first = await stage.play([{"text": "I noted 42."}], prompt="remember my number")
    native(stage, first.result.session_id).unlink()
    fork = await stage.play(
        [{"text": "42", "expect": {"contains": "I noted 42."}}], resume=first.result.session_id, fork=True
    )
    started = fork.one(events.SessionStarted)
    assert started.origin == "rebuilt"
    assert started.session_id != first.result.session_id


async def test_what_nobody_has_kept_cannot_be_rebuilt(stage: Any) -> None:
    first = await stage.play([{"text": "ok"}])
    folder = sessions_of(stage).folder / first.result.session_id
    shutil.rmtree(folder / "config")
    (folder / "transcript.jsonl").unlink()
    with pytest.raises(errors.SessionLost, match="missing or broken"):
        async with open_run(stage.request(resume=first.result.session_id), environ=stage.environ):
            pass


# -- on another machine ----------------------------------------------------------------------------------------------


async def test_an_exported_session_goes_on_elsewhere(stage: Any) -> None:
    first = await stage.play([{"text": "noted"}], prompt=f"remember 42, not {LEAKED}")
    exported = b"".join(sessions_of(stage).export(first.result.session_id[:10]))
    assert LEAKED.encode() not in exported
    assert json.loads(exported.splitlines()[0])["info"]["id"] == first.result.session_id
    stage.environ["LEADROPE_HOME"] = str(stage.home / "elsewhere")
    info = sessions_of(stage).import_(exported.splitlines(keepends=True))
    assert info.id == first.result.session_id
    second = await stage.play([{"text": "42", "expect": {"contains": "remember 42"}}], resume=info.id)
    assert second.one(events.SessionStarted).origin == "resumed"
    with pytest.raises(errors.BadValue, match="is here already"):
        sessions_of(stage).import_(exported.splitlines(keepends=True))


# -- trying again ----------------------------------------------------------------------------------------------------


async def test_after_a_tool_has_run_the_session_goes_on(stage: Any) -> None:
    """From the beginning it would do things twice."""
    script = [
        {"tool": stage.touch},
        {"error": {"status": 500}},
        {"text": "And so it ended.", "expect": {"contains": ["do the thing", "Continue where you stopped"]}},
    ]
    played = await stage.play(script, prompt="do the thing", attempts=2, approver=lambda _: True)
    assert (played.result.outcome, played.result.text) == ("succeeded", "And so it ended.")
    assert played.result.attempts == 2
    assert [s.origin for s in played.of(events.SessionStarted)] == ["new", "resumed"]
    assert len({s.session_id for s in played.of(events.SessionStarted)}) == 1
    assert len(played.of(events.ToolDecided)) == 1


async def test_a_service_that_names_a_wait_gets_it_from_us_too(stage: Any) -> None:
    """Our own first wait for an overloaded model is two seconds at most."""
    busy = {"error": {"status": 529, "headers": {"retry-after": 3}}, "repeat": 2}
    async with stage.opened([busy], api_retries=1, attempts=2) as (run, _):
        waits = []
        async for item in run:
            if isinstance(item.event, events.RetryScheduled):
                waits.append((item.event.by, item.event.delay_s))
                if item.event.by == "supervisor":
                    break
        await run.stop()
    assert waits == [("agent", 3.0), ("supervisor", 3.0)]


async def test_a_usage_limit_is_waited_for(stage: Any) -> None:
    reset = int(time.time()) + 2
    script = [{"tool": stage.touch}, hit_limit(reset), {"text": "Done.", "expect": {"contains": "has been reset"}}]
    played = await stage.play(script, credential=TOKEN, mode="full", wait_for_limit=True)
    assert (played.result.outcome, played.result.text) == ("succeeded", "Done.")
    assert time.time() >= reset
    (wait,) = [r for r in played.of(events.RetryScheduled) if r.by == "supervisor"]
    assert "usage limit" in wait.error
    assert [s.origin for s in played.of(events.SessionStarted)] == ["new", "resumed"]
    assert played.result.attempts == 2


async def test_a_limit_at_the_first_word_begins_anew_after_it(stage: Any) -> None:
    script = [hit_limit(time.time() + 1), {"text": "Done.", "expect": {"contains": "do it", "lacks": "has been reset"}}]
    played = await stage.play(script, prompt="do it", credential=TOKEN, wait_for_limit=True)
    assert (played.result.outcome, played.result.text) == ("succeeded", "Done.")
    assert len({s.session_id for s in played.of(events.SessionStarted)}) == 1
    assert [entry.text for entry in sessions_of(stage).transcript(played.result.session_id)] == ["do it", "Done."]


async def test_without_it_the_run_is_parked(stage: Any) -> None:
    reset = int(time.time()) + 2
    played = await stage.play([hit_limit(reset)], credential=TOKEN)
    assert (played.result.outcome, played.result.resets_at, played.result.attempts) == ("parked", reset, 1)


async def test_a_policy_can_forbid_the_wait(stage: Any) -> None:
    """It is said at the start: else whoever asked for it would learn of it from a run that has ended."""
    reset = int(time.time()) + 3600
    policy = {"wait_for_limit": False}
    async with asyncio.timeout(60):
        played = await stage.play([hit_limit(reset)], credential=TOKEN, wait_for_limit=True, policy=policy)
    assert (played.result.outcome, played.result.resets_at, played.result.attempts) == ("parked", reset, 1)
    (notice,) = [n for n in played.of(events.Notice) if n.code == "no_waiting"]
    assert "policy (run)" in notice.message


async def test_a_policy_that_forbids_the_wait_is_silent_where_nobody_asked(stage: Any) -> None:
    played = await stage.play([{"text": "ok"}], policy={"wait_for_limit": False})
    assert not [n for n in played.of(events.Notice) if n.code == "no_waiting"]


async def test_a_limit_that_lies_behind_the_wall_clock_is_not_waited_for(stage: Any) -> None:
    limits = Limits(wall_s=600)
    played = await stage.play([hit_limit(time.time() + 3600)], credential=TOKEN, wait_for_limit=True, limits=limits)
    assert played.result.outcome == "parked"


async def test_a_run_that_waits_can_be_stopped(stage: Any) -> None:
    async with stage.opened([hit_limit(time.time() + 3600)], credential=TOKEN, wait_for_limit=True) as (run, _):
        async for item in run:
            if isinstance(item.event, events.RetryScheduled) and item.event.by == "supervisor":
                break
        result = await run.stop()
    assert result.outcome == "stopped"
    assert "while it waited" in result.error.message


def turns_of(stage: Any, number: int) -> list[dict[str, Any]]:
    look = {"name": "Read", "input": {"file_path": str(stage.ws / "a.txt")}}
    return [{"tool": look} for _ in range(number)]


async def test_used_up_turns_go_on_by_themselves(stage: Any) -> None:
    from leadrope.core import config

    (stage.ws / "a.txt").write_text("a")
    async with ModelServer([*turns_of(stage, 3), {"text": "Done."}]) as model:
        request = stage.request(model, auto_continue=5)
        settings = config.parse("[run]\nmax_turns = 1\n")
        async with open_run(request, environ=stage.environ, config=settings) as run:
            found = [item.event async for item in run]
            result = await run.result()
    assert (result.outcome, result.text) == ("succeeded", "Done.")
    assert result.attempts == 4
    assert len([e for e in found if isinstance(e, events.RetryScheduled)]) == 3
    assert sessions_of(stage).find(result.session_id or "").turns >= 4


async def test_turns_that_the_caller_has_counted_are_kept_to(stage: Any) -> None:
    (stage.ws / "a.txt").write_text("a")
    played = await stage.play(turns_of(stage, 1), max_turns=1, auto_continue=5)
    assert played.result.outcome == "degraded"
    assert played.result.warnings[0].kind == "max_turns"
    assert played.result.attempts == 1


async def test_a_budget_is_one_for_all_attempts(stage: Any) -> None:
    dear = {"input_tokens": 100_000, "output_tokens": 10}
    script = [{"tool": stage.touch, "usage": dear}, {"error": {"status": 500}}, {"tool": stage.touch, "usage": dear}]
    played = await stage.play(
        script, strict=False, attempts=3, mode="full", model="claude-sonnet-4-5", limits=Limits(budget_usd=0.5)
    )
    assert played.result.outcome == "over_budget"
    assert played.result.attempts == 2
