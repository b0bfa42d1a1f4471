"""Requests to the model that break off before the agent reports anything of them, and what each may have cost.

The agent program says only that it tries again, or that the turn has failed: not whether the model had read the prompt.
With a budget each such request counts as an estimate, unless the model's address could not be reached at all. A broker
sees every request itself, so nothing is estimated there.
"""

from __future__ import annotations

from leadrope import spelling
from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.providers import base
from leadrope.runtime.limits.budget import Meter

BYTES_PER_TOKEN = 4


class Unreported:
    """Belongs to one process of the agent."""

    def __init__(self, meter: Meter, launch: base.Start, prompt: str) -> None:
        self._meter = meter
        self._launch = launch
        self._first_tokens = launch.overhead_tokens + len(prompt.encode(errors="replace")) // BYTES_PER_TOKEN
        self._has_begun = False
        """The agent has reported an answer, or its beginning, since it last tried again."""
        self._known: set[str] = set()
        self._was_reached: bool | None = None
        """What was last known of the model's address; None before the first answer."""
        self._is_told = False

    def used(self, used: events.UsageUpdated) -> None:
        if used.message_id not in self._known:
            self._known.add(used.message_id)
            self._has_begun = True
        self._was_reached = True

    def tool_requested(self, message_id: str) -> None:
        """The answer is there, so the next request is another one, perhaps of a subagent.

        The tokens of a short answer are reported after its calls.
        """
        self._known.add(message_id)
        self._has_begun = False

    def is_lost(self, retry: events.RetryScheduled) -> bool:
        """Nothing is known of the request that the agent tries again."""
        has_begun, self._has_begun = self._has_begun, False
        return not has_begun and retry.by == "agent" and retry.api_status is None and self._counts

    def lost(self, *, is_reached: bool) -> list[events.Event]:
        """What to record of a lost request, once it is known whether the model can be reached."""
        # A network that goes away while the model answers can cost one request; while it stays away, none.
        was_reached, self._was_reached = self._was_reached, is_reached
        return self._estimate() if is_reached or was_reached else []

    def turn_ended(self, turn: events.TurnEnded) -> list[events.Event]:
        """What to record of the request with which the turn has failed.

        An agent whose streams are cut may end with a request that does not stream, and of which it reports nothing: so
        it counts even if the beginning of the last stream was reported.
        """
        self._has_begun = False
        is_cut = turn.is_error and turn.api_status is None and not turn.never_connected
        is_lost = is_cut and turn.problem is not None and turn.problem.kind in ("api_error", "connection_failed")
        return self._estimate() if is_lost and self._counts else []

    @property
    def _counts(self) -> bool:
        return self._meter.cap_usd is not None and not self._meter.sees_requests

    def _estimate(self) -> list[events.Event]:
        last = self._meter.last_message
        model = last.model if last is not None else self._launch.model
        usage = Usage(input_tokens=self._first_tokens)
        if last is not None:
            # Its answer is a part of the next prompt.
            read = last.usage - Usage(output_tokens=last.usage.output_tokens)
            usage = read + Usage(input_tokens=last.usage.output_tokens)
        cost = self._meter.price(model, usage)
        found: list[events.Event] = [events.UsageEstimated(model=model, usage=usage, cost_usd=cost)]
        if not self._is_told:
            self._is_told = True
            told = (
                f"a request broke off before the agent reported anything of it: it may have cost {cost:.2g} USD, which "
                f"counts against the budget. With {spelling.option('broker')} requests are counted as they are."
            )
            found.append(events.Notice(level="warning", code="usage_estimated", message=told))
        return found
