"""Whether a run goes on after an attempt, when and how: a table and pure functions. Starts nothing, never waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec

from leadrope.core.config import Config
from leadrope.core.events import RetryScheduled
from leadrope.core.request import RunRequest
from leadrope.core.result import SERVER_FAILED, RunResult

Reason = Literal["failure", "limit", "turns", "session", "schema"]

GO_ON = (
    "The last turn was cut off by an error that was not yours. Continue where you stopped; do not repeat what is done."
)
AFTER_LIMIT = "The usage limit of the account has been reset. Continue where you stopped; do not repeat what is done."
LESS_MEMORY = (
    "Your processes held more memory than this run may use, so all of them were ended, in the middle of what they did. "
    "Look at what is done, then continue in a way that needs less: fewer jobs at once, smaller pieces."
)
MORE_TURNS = "You had used up the turns of this piece of work. Continue where you stopped."

LONGEST_WAIT_S = 60.0
"""Between tries. A longer one looks like a hang; a service that is down for longer needs a person."""
MOST_TURNS = 100
"""In one piece of a run that goes on by itself, where neither caller nor config says how many."""
# How the agent program warns of used-up turns in a result.
MAX_TURNS = "max_turns"


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    first_wait_s: float
    hint: str
    """What is being done about it, for whoever watches."""
    prompt: str = GO_ON
    most: int | None = None
    """Tries in all for this kind, however many the request allows."""


HEALABLE: Mapping[str, Cure] = MappingProxyType(
    {
        "rate_limited": Cure(first_wait_s=5.0, hint="too many requests (429): slower, then again"),
        "overloaded": Cure(first_wait_s=2.0, hint="the model is at capacity (529): again in a moment"),
        "api_error": Cure(first_wait_s=1.0, hint="the service failed (5xx): again"),
        "connection_failed": Cure(first_wait_s=1.0, hint="the service was not reached: again"),
        "agent_died": Cure(first_wait_s=1.0, hint="the agent program ended by itself: started again"),
        "malformed_output": Cure(first_wait_s=1.0, hint="what came was not understood: started again"),
        "out_of_memory": Cure(
            first_wait_s=1.0, hint="too much memory was held: once more, with less", prompt=LESS_MEMORY, most=1
        ),
    }
)
"""Failures that another try may cure. A refused login, a bad request or a full prompt would only be refused again."""


class RetryState(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision rests on, beside the result."""

    attempts: int
    """Starts that the request allows for failures."""
    failures: int = 0
    """Tries that failures have cost so far."""
    same: int = 0
    """Those of them for the kind of failure that it is now."""
    waits: int = 0
    """For limits of the account so far."""
    continued: int = 0
    """For used-up turns so far."""
    auto_continue: int = 0
    wait_for_limit: bool = False
    has_worked: bool = False
    """A tool has run, or more than one prompt was answered: a start from the beginning would do things twice."""
    can_resume: bool = False
    can_rebuild: bool = False
    retry_after_s: float = 0.0
    """What the service itself has asked for, as far as it is known."""
    now: float = 0.0
    left_s: float | None = None
    """Until the run's own wall clock ends it; None: never."""
    chance: float = 0.5
    """0 to 1, for the jitter: runs that failed together should not come back together."""


class Again(msgspec.Struct, frozen=True, kw_only=True):
    reason: Reason
    delay_s: float
    prompt: str | None = None
    """Said in the session, which goes on; None: all begins anew with the request's own prompt."""
    told: str = ""


def backoff(number: int, first_wait_s: float, chance: float, *, least_s: float = 0.0) -> float:
    """The wait before try `number` (from 0): doubled each time, between half and all of it, never below `least_s`."""
    whole = min(LONGEST_WAIT_S, first_wait_s * 2.0 ** min(number, 16))
    return max(least_s, whole * (0.5 + chance / 2))


def again(result: RunResult, state: RetryState) -> Again | None:
    """How the run goes on, or None when this result is its last word."""
    kind = result.error.kind if result.error else ""
    if kind == "session_lost" and state.can_rebuild:
        return Again(reason="session", delay_s=0.0, told="the session's own record is gone; it is rebuilt from ours")
    if result.outcome == "parked":
        return _after_limit(result, state)
    if result.outcome in ("degraded", "denied"):
        return _more_turns(result, state)
    if result.error is not None and result.error.code == "MALFORMED_RESULT":
        return None  # the work is done and paid for; the same program would tell of it in the same way
    if result.error is not None and result.error.clock == "unreachable":
        return None  # it was tried for as long as it may be
    if result.error is not None and result.error.code == SERVER_FAILED:
        return None  # it would end in the same way
    cure = HEALABLE.get(kind)
    if result.outcome != "failed" or cure is None or state.failures + 1 >= state.attempts:
        return None
    if cure.most is not None and state.same >= cure.most:
        return None
    delay = backoff(state.failures, cure.first_wait_s, state.chance, least_s=state.retry_after_s)
    return _in_time(_where(state, Again(reason="failure", delay_s=delay, prompt=cure.prompt, told=cure.hint)), state)


def _after_limit(result: RunResult, state: RetryState) -> Again | None:
    if not state.wait_for_limit or result.resets_at is None:
        return None
    delay = until_reset(result.resets_at, now=state.now, waits=state.waits, chance=state.chance)
    told = "usage limit of the account; waiting for its reset"
    return _in_time(_where(state, Again(reason="limit", delay_s=delay, prompt=AFTER_LIMIT, told=told)), state)


def until_reset(resets_at: float, *, now: float, waits: int, chance: float) -> float:
    """Seconds to wait for a limit's reset after so many waits.

    The jitter grows with each of them, so that a reset time that does not hold cannot make a busy loop.
    """
    return max(0.0, resets_at - now) + backoff(waits, 1.0, chance)


def _more_turns(result: RunResult, state: RetryState) -> Again | None:
    used_up = any(warning.kind == MAX_TURNS for warning in result.warnings)
    if not used_up or not state.can_resume or state.continued >= state.auto_continue:
        return None
    told = f"the turns are used up; continuing in the session ({state.continued + 1} of {state.auto_continue})"
    delay = backoff(state.continued, 1.0, state.chance)
    return _in_time(Again(reason="turns", delay_s=delay, prompt=MORE_TURNS, told=told), state)


def _where(state: RetryState, planned: Again) -> Again | None:
    """In the session once something was done; from the beginning while nothing was. Else not at all."""
    if not state.has_worked:
        return msgspec.structs.replace(planned, prompt=None)
    return planned if state.can_resume else None


def _in_time(planned: Again | None, state: RetryState) -> Again | None:
    if planned is None or (state.left_s is not None and planned.delay_s >= state.left_s):
        return None
    return planned


def corrected(told: str) -> Again:
    """The agent ended before it could be told what is wrong with its answer: it is told in its session."""
    return Again(reason="schema", delay_s=0.0, prompt=told, told="the answer is corrected in the session")


class AttemptEnd(Protocol):
    """What an attempt tells of itself when it is over."""

    tool_ran: bool
    prompts_sent: int
    last_retry: RetryScheduled | None


class Tries:
    """Counts a run's tries by their reason."""

    def __init__(self) -> None:
        self._made: dict[Reason, int] = {"failure": 0, "limit": 0, "turns": 0, "session": 0, "schema": 0}
        self._kinds: Counter[str] = Counter()
        self._has_worked = False
        self.turns = 0
        """That earlier attempts have taken."""

    def plan(
        self,
        result: RunResult,
        request: RunRequest,
        tried: AttemptEnd,
        *,
        auto_continue: int,
        can_resume: bool,
        now: float,
        left_s: float | None,
        chance: float,
    ) -> Again | None:
        asked = tried.last_retry
        self._has_worked = self._has_worked or tried.tool_ran or tried.prompts_sent > 1
        return again(
            result,
            RetryState(
                attempts=request.attempts,
                failures=self._made["failure"],
                same=self._kinds[result.error.kind] if result.error else 0,
                waits=self._made["limit"],
                continued=self._made["turns"],
                auto_continue=auto_continue,
                wait_for_limit=request.wait_for_limit,
                has_worked=self._has_worked,
                can_resume=can_resume,
                can_rebuild=request.resume is not None and not self._made["session"],
                # The agent program follows the service's retry-after, and tells how long it waits.
                retry_after_s=asked.delay_s if asked and asked.api_status in (429, 503, 529) else 0.0,
                now=now,
                left_s=left_s,
                chance=chance,
            ),
        )

    def schema_left(self, request: RunRequest) -> bool:
        """An agent that ends each time before it has corrected its answer must not be asked for ever."""
        return self._made["schema"] < request.schema_retries

    def made(self, planned: Again, result: RunResult) -> None:
        self._made[planned.reason] += 1
        if result.error:
            self._kinds[result.error.kind] += 1
        # What was begun in an earlier process is not begun again by a later one.
        self._has_worked = self._has_worked or planned.prompt is not None
        self.turns += result.turns if planned.prompt is not None else 0


def divided(request: RunRequest, config: Config) -> tuple[RunRequest, int]:
    """How often the run may go on by itself, and the request for one piece of it.

    Only where the caller has not said himself how many turns he wants; a number in [run] of the config is a default.
    """
    if not request.auto_continue or request.max_turns is not None:
        return request, 0
    said = config.run.max_turns
    most = said if isinstance(said, int) else MOST_TURNS
    return msgspec.structs.replace(request, max_turns=most), request.auto_continue
