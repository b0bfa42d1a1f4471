"""What every provider must hold, as named checks that its author runs against his own agent. Knows no agent.

    @pytest.mark.parametrize("check", conformance.checks("my-agent"), ids=str)
    async def test_my_agent(check, tmp_path):
        await check(MyStage(), tmp_path)

The checks open real runs, with the gate and the clocks of every run; a stage (`leadrope.rehearsal`) says how the agent
is brought to play a scene.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import msgspec

from leadrope import errors
from leadrope.confined import read_named
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.fold import fold
from leadrope.core.request import Limits, RunRequest
from leadrope.core.result import RunResult
from leadrope.providers import base, registry
from leadrope.rehearsal.scenes import (
    KEY,
    Act,
    Asks,
    CannotStage,
    Fails,
    Hands,
    Mutters,
    Says,
    Scene,
    Stage,
    Touches,
    Waits,
)
from leadrope.runtime.gate.approvers import Answer, Callback
from leadrope.runtime.run import Run, open_run
from leadrope.runtime.rundir import RunDir

PROMPT = "a prompt that nobody else would write"
WALL_S = 120.0
"""A hang is a failure with a name."""

_AMBIENT = "CONFORMANCE_AMBIENT"
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}
# The smallest image that is one: a transparent pixel.
_IMAGE = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b")


class NotConforming(AssertionError):
    """What the provider, or its agent, did not hold."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Call it with a stage and an empty folder; it raises NotConforming, or CannotStage where the agent cannot be
    brought to do what is looked at.
    """

    name: str
    about: str
    needs: tuple[str, ...]
    """Capabilities without which it says nothing; `endpoint` is the lack of a process."""
    look: Callable[[Stage, Path], Awaitable[None]]

    async def __call__(self, stage: Stage, folder: Path) -> None:
        (folder / "work").mkdir(parents=True, exist_ok=True)
        (folder / "home").mkdir(exist_ok=True)
        await self.look(stage, folder)

    def __str__(self) -> str:
        return self.name


def checks(provider: str) -> tuple[Check, ...]:
    """Those that the provider's own capabilities promise."""
    able = registry.provider(provider).capabilities
    return tuple(check for check in CHECKS if all(getattr(able, need) for need in check.needs))


def left_out(provider: str) -> dict[str, tuple[str, ...]]:
    """The names of the others, each with the capabilities that it would need."""
    able = registry.provider(provider).capabilities
    lacking = {check.name: tuple(need for need in check.needs if not getattr(able, need)) for check in CHECKS}
    return {name: needs for name, needs in lacking.items() if needs}


def _hold(holds: object, what: str) -> None:
    if not holds:
        raise NotConforming(what)


# -- playing a scene ------------------------------------------------------------------------------------------------


class _Played(msgspec.Struct, frozen=True, kw_only=True):
    events: list[events.Event]
    result: RunResult

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]


async def _play(
    stage: Stage,
    folder: Path,
    *acts: Act,
    approver: Any = None,
    on: Callable[[Run, events.Event], Awaitable[None]] | None = None,
    **fields: Any,
) -> _Played:
    """One run from its first event to its last, with what holds for each of them."""
    scene = Scene(folder=folder, acts=acts)
    async with stage.play(scene) as staged:
        request = staged.request(scene, PROMPT, **{"limits": Limits(wall_s=WALL_S), **fields})
        recorded: list[events.Recorded] = []
        async with open_run(request, approver=approver, environ=staged.environ) as run:
            async for item in run:
                recorded.append(item)
                if on is not None:
                    await on(run, item.event)
            result = await run.result()
    _hold([item.seq for item in recorded] == list(range(1, len(recorded) + 1)), "events are numbered without a gap")
    _hold(isinstance(recorded[-1].event, events.RunEnded), "run.ended comes last")
    _hold(fold(recorded[:-1]) == result, "the log alone gives the result")
    _hold(result.outcome != "timed_out", f"the scene ended in time: {result.error}")
    return _Played(events=[item.event for item in recorded], result=result)


def _succeeded(played: _Played) -> None:
    _hold(played.result.outcome == "succeeded", f"the run succeeded: {played.result.outcome}, {played.result.error}")


async def _prepared(stage: Stage, folder: Path, **fields: Any) -> tuple[base.Provider, RunRequest, base.Start]:
    """What the provider would start, and the request; nothing is started."""
    scene = Scene(folder=folder, acts=())
    provider = registry.provider(stage.provider)
    run_dir = RunDir()
    try:
        async with stage.play(scene) as staged:
            request = staged.request(scene, PROMPT, broker=False, **fields)
            environ = {**staged.environ, _AMBIENT: "1"}
            place = base.StartContext(
                run_id="conformance",
                environ=environ,
                ambient=environ,
                settings={},
                home=home.leadrope_home(environ),
                run_dir=run_dir.agent,
                launch_dir=run_dir.new_launch(),
                config=configs.Config(),
            )
            launch = await provider.prepare(request, place, attempt=1)
    finally:
        run_dir.remove()
    return provider, request, launch


# -- the checks -----------------------------------------------------------------------------------------------------


async def _describes_itself(stage: Stage, folder: Path) -> None:
    provider = registry.provider(stage.provider)
    _hold(provider.id == stage.provider, "its id is the name it is found by")
    _hold(provider.label, "people have a name for it")
    _hold(isinstance(provider.capabilities, base.Capabilities), "its capabilities are data")
    nowhere = await provider.is_available({"PATH": "/nonexistent", "HOME": str(folder)})
    _hold(isinstance(nowhere, base.Availability), "is_available gives an Availability")
    _hold(nowhere or nowhere.reason, "an agent that is not available says why")


async def _keeps_secrets_and_prompt_out(stage: Stage, folder: Path) -> None:
    _, _, launch = await _prepared(stage, folder)
    _hold(isinstance(launch, base.Launch), "what starts a process is a Launch")
    assert isinstance(launch, base.Launch)  # noqa: S101  # held above
    line = "\0".join(launch.argv)
    _hold(PROMPT not in line, "the prompt is not an argument: every user of the machine reads those")
    _hold(KEY not in line, "the credential is not an argument")
    _hold(not any(PROMPT in value for value in launch.env.values()), "the prompt is not a variable")
    _hold(KEY not in repr(launch), "a launch can be printed")
    _hold(os.path.isabs(launch.argv[0]), "the program is named by its whole path")  # noqa: PTH117  # a text
    _hold(_AMBIENT not in launch.env, "the environment is not inherited")


async def _address_holds_no_secret(stage: Stage, folder: Path) -> None:
    _, _, endpoint = await _prepared(stage, folder)
    _hold(isinstance(endpoint, base.Endpoint), "what is reached over HTTP is an Endpoint")
    assert isinstance(endpoint, base.Endpoint)  # noqa: S101  # held above
    _hold(KEY not in endpoint.url, "the credential is not in the address, which is shown and logged")
    _hold(KEY not in repr(endpoint), "an endpoint can be printed")
    _hold(any(KEY in value for _, value in endpoint.headers), "the credential is in a header")
    _hold(PROMPT not in f"{endpoint.url} {endpoint.headers}", "the prompt is in the body alone")


async def _names_how_an_answer_ends(stage: Stage, folder: Path) -> None:
    provider, request, endpoint = await _prepared(stage, folder)
    _hold("whole" in get_args(base.AnswerEnd), "there are ways to end")
    for how in get_args(base.AnswerEnd):
        session = provider.session(request, endpoint)
        session.prompt(PROMPT)
        heard = session.receive([base.RequestSent(), base.AnswerEnded(how=how)])
        ended = [item for item in heard if isinstance(item, events.TurnEnded)]
        _hold(len(ended) == 1, f"an answer that ends {how!r} ends its turn, once")
        # Nothing was said in it, so not even `whole` is a success.
        _hold(ended[0].is_error and ended[0].problem is not None, f"and says what was wrong: {ended[0]}")
        is_stopped = ended[0].problem is not None and ended[0].problem.outcome == "stopped"
        _hold(is_stopped is (how == "cancelled"), f"only a cancelled answer is stopped, not one that ends {how!r}")


async def _session_is_sans_io(stage: Stage, folder: Path) -> None:
    provider, request, launch = await _prepared(stage, folder)
    session = provider.session(request, launch)
    if isinstance(session, base.AgentSession):
        _hold(session.open().endswith(b"\n"), "the opening is whole lines")
    noise = (b"plain words", b'{"type":"never_heard_of_it"}', b"{", b"[]", b"null", b'"', b"\xff\xfe")
    for line in noise:
        heard = session.receive([line])
        ends = [item for item in heard if isinstance(item, events.TurnEnded | base.Ready | base.CallHeld)]
        _hold(not ends, f"{line!r} neither ends a turn nor opens the gate nor is a call")
    heard = session.receive([b"plain words"])
    _hold(any(isinstance(item, events.Unrecognised) for item in heard), "what is not understood is kept, not lost")
    _hold(
        session.prompt("two\nlines").count(b"\n") == session.prompt("one").count(b"\n"), "a prompt cannot end its line"
    )


async def _answers(stage: Stage, folder: Path) -> None:
    played = await _play(stage, folder, Says(text="The answer is four."))
    _succeeded(played)
    _hold(played.result.text == "The answer is four.", f"the answer is the result's text: {played.result.text!r}")
    (started, *more) = played.of(events.SessionStarted) or [None]
    _hold(started is not None and not more, "session.started comes once")
    _hold(started.provider == stage.provider and started.session_id, "the session says whose it is, and its id")
    _hold(played.result.session_id == started.session_id, "the result knows its session")
    _hold(played.of(events.TurnEnded), "the turn ends")
    said = [event.text for event in played.of(events.MessageCompleted)]
    _hold("The answer is four." in said, "what was said is an event, too")


async def _streams(stage: Stage, folder: Path) -> None:
    played = await _play(stage, folder, Says(text="The answer is four."))
    pieces = "".join(event.text for event in played.of(events.MessageDelta))
    _hold(pieces == "The answer is four.", f"the pieces make up the text: {pieces!r}")


async def _denied_call_has_no_effect(stage: Stage, folder: Path) -> None:
    marker = folder / "work" / "marker"
    played = await _play(stage, folder, Touches(path=str(marker)), Says(text="Then not."))
    _hold(not marker.exists(), "a denied call has no effect")
    decided = [event.decision for event in played.of(events.ToolDecided)]
    _hold(decided == ["deny"], f"the call was decided once, with a no: {decided}")
    _hold(len(played.result.denials) == 1, "the result lists the denial")
    _hold(not any(event.executed for event in played.of(events.ToolCompleted)), "the call is not told to have run")
    _hold(played.result.outcome == "denied", f"a run that was allowed nothing is denied: {played.result.outcome}")
    _hold(played.result.text == "Then not.", "the agent continues after a denial")


async def _allowed_call_runs_once(stage: Stage, folder: Path) -> None:
    marker = folder / "work" / "marker"
    early: list[bool] = []

    def approve(asked: events.ApprovalRequested) -> bool:
        early.append(marker.exists())
        return True

    played = await _play(stage, folder, Touches(path=str(marker)), Says(text="Done."), approver=approve)
    _succeeded(played)
    _hold(early == [False], f"the call was held, once, until it was decided: {early}")
    _hold(marker.exists(), "an allowed call runs")
    _hold(len(read_named(marker).decode().splitlines()) <= 1, "it runs once")
    ran = [event.call_id for event in played.of(events.ToolCompleted) if event.executed]
    decided = [event.call.id for event in played.of(events.ToolDecided)]
    requested = [event.call.id for event in played.of(events.ToolRequested)]
    _hold(ran == decided == requested, f"request, decision and result name one call: {requested} {decided} {ran}")


async def _no_answer_is_a_no(stage: Stage, folder: Path) -> None:
    marker = folder / "work" / "marker"
    acts = (Touches(path=str(marker)), Says(text="Then not."))
    limits = Limits(wall_s=WALL_S, approval_s=0.3)

    async def silent(asked: events.ApprovalRequested) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    played = await _play(stage, folder, *acts, approver=silent, limits=limits)
    _hold(not marker.exists(), "a call that nobody decides does not run")
    _hold([event.by for event in played.of(events.ToolDecided)] == ["timeout"], "silence is a denial by the clock")


async def _asks_people(stage: Stage, folder: Path) -> None:
    question = "Which colour?"

    def answer(asked: events.QuestionRequested) -> Answer:
        return Answer(approved=True, answers={question: "Blue"})

    approver = Callback(lambda _: False, answer)
    acts = (Asks(question=question, options=("Red", "Blue")), Says(text="Blue it is."))
    played = await _play(stage, folder, *acts, approver=approver)
    _succeeded(played)
    asked = played.of(events.QuestionRequested)
    _hold([q.question for event in asked for q in event.questions] == [question], "the question is shown as it is")
    labels = [option.label for event in asked for q in event.questions for option in q.options]
    _hold(labels == ["Red", "Blue"], f"with its options: {labels}")
    resolved = played.of(events.QuestionResolved)
    _hold([event.answers for event in resolved] == [{question: "Blue"}], "and the answer is told")


async def _is_interrupted(stage: Stage, folder: Path) -> None:
    interrupted = False

    async def on(run: Run, event: events.Event) -> None:
        nonlocal interrupted
        if isinstance(event, events.SessionStarted) and not interrupted:
            interrupted = True
            await run.interrupt()

    played = await _play(stage, folder, Waits(), on=on)
    _hold(interrupted, "a session was started")
    _hold(played.result.outcome == "stopped", f"an interrupted turn is stopped: {played.result.outcome}")
    _hold(played.of(events.TurnEnded), "the agent itself ended the turn")


async def _is_stopped(stage: Stage, folder: Path) -> None:
    scene = Scene(folder=folder, acts=(Waits(),))
    async with stage.play(scene) as staged:
        request = staged.request(scene, PROMPT, limits=Limits(wall_s=WALL_S))
        async with open_run(request, environ=staged.environ) as run:
            async for item in run:
                if isinstance(item.event, events.SessionStarted):
                    break
        result = await run.result()
    _hold(result.outcome == "stopped", f"leaving the block stops the run: {result.outcome}")


async def _resumes(stage: Stage, folder: Path) -> None:
    first = await _play(stage, folder, Says(text="First."))
    _succeeded(first)
    session = first.result.session_id
    again = await _play(stage, folder, Says(text="Second."), resume=session)
    _succeeded(again)
    _hold(again.result.session_id == session, "a resumed session keeps its id")
    _hold(again.of(events.SessionStarted)[0].origin == "resumed", "and says that it was resumed")


async def _hands_over_a_value(stage: Stage, folder: Path) -> None:
    played = await _play(stage, folder, Hands(value={"answer": 4}), output_schema=_SCHEMA)
    _succeeded(played)
    _hold(played.result.output == {"answer": 4}, f"the value is the result's output: {played.result.output!r}")


async def _takes_an_image(stage: Stage, folder: Path) -> None:
    image = folder / "work" / "pixel.gif"
    image.write_bytes(_IMAGE)
    provider, request, launch = await _prepared(stage, folder, attachments=("pixel.gif",))
    said = provider.session(request, launch).prompt(PROMPT)
    _hold(b64encode(_IMAGE) in said or _IMAGE in said, "the image is said with the prompt")
    image.unlink()
    try:
        await _prepared(stage, folder, attachments=("pixel.gif",))
    except errors.BadAttachment:
        pass
    else:
        raise NotConforming("a file that is not there is refused before anything starts")
    image.write_bytes(_IMAGE)
    _succeeded(await _play(stage, folder, Says(text="A pixel."), attachments=("pixel.gif",)))


async def _a_failure_is_failed(stage: Stage, folder: Path) -> None:
    played = await _play(stage, folder, Fails())
    error = played.result.error
    _hold(played.result.outcome == "failed", f"a refused request is a failed run: {played.result.outcome}")
    _hold(error is not None and error.message and error.hint, "with what happened, and what to do next")


async def _unknown_lines_do_not_end_it(stage: Stage, folder: Path) -> None:
    played = await _play(stage, folder, Mutters(), Says(text="Still here."))
    _succeeded(played)
    _hold(played.result.text == "Still here.", "the answer comes all the same")
    _hold(played.of(events.Unrecognised), "and the lines are kept")


def _check(name: str, about: str, look: Callable[[Stage, Path], Awaitable[None]], *needs: str) -> Check:
    return Check(name=name, about=about, needs=needs, look=look)


CHECKS: tuple[Check, ...] = (
    _check("describes-itself", "id, label, capabilities and availability are there", _describes_itself),
    _check(
        "argv-holds-no-secret", "neither prompt nor credential is an argument", _keeps_secrets_and_prompt_out, "process"
    ),
    _check("address-holds-no-secret", "neither prompt nor credential is in it", _address_holds_no_secret, "endpoint"),
    _check(
        "names-how-an-answer-ends", "a cut, a refusal, a wrong type end the turn", _names_how_an_answer_ends, "endpoint"
    ),
    _check("session-is-sans-io", "any line can be received, and none of noise means anything", _session_is_sans_io),
    _check("answers", "a text, with its session and its turn", _answers),
    _check("streams", "the text comes in pieces", _streams, "partial_text"),
    _check("denied-call-has-no-effect", "a no holds", _denied_call_has_no_effect, "tools"),
    _check(
        "allowed-call-runs-once",
        "held until it is approved, then run once",
        _allowed_call_runs_once,
        "tools",
        "approvals",
    ),
    _check("no-answer-is-a-no", "silence does not let a call run", _no_answer_is_a_no, "tools", "approvals"),
    _check("asks-people", "a question is shown and answered", _asks_people, "questions"),
    _check("is-interrupted", "the turn ends, by the agent's own word", _is_interrupted),
    _check("is-stopped", "leaving the block ends everything", _is_stopped),
    _check("resumes", "a second run continues the session of the first", _resumes, "sessions"),
    _check("hands-over-a-value", "a schema is answered with a value", _hands_over_a_value, "structured_output"),
    _check("takes-an-image", "a file goes with the prompt, or is refused", _takes_an_image, "images"),
    _check("a-failure-is-failed", "with a kind, words and a hint", _a_failure_is_failed),
    _check("unknown-lines-do-not-end-it", "what is not understood is kept", _unknown_lines_do_not_end_it),
)

__all__ = ["CHECKS", "CannotStage", "Check", "NotConforming", "checks", "left_out"]
