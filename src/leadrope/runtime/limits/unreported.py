"""Estimates the cost of model requests that fail before the agent reports any usage for them.

The agent reports only that it retries, or that the turn failed, not whether the model had read the prompt. With a
budget, each such request counts with an estimate unless the model's address could not be reached at all. A broker sees
every request itself, so nothing is estimated there.
"""

from __future__ import annotations

from leadrope import spelling
from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.providers import base
from leadrope.runtime.limits.budget import Meter

BYTES_PER_TOKEN = 4


class Unreported:
    """Tracks one process of the agent."""

    def __init__(self, meter: Meter, launch: base.Start, prompt: str) -> None:
        self._meter = meter
        self._launch = launch
        self._first_tokens = launch.overhead_tokens + len(prompt.encode(errors="replace")) // BYTES_PER_TOKEN
        self._has_begun = False
        """Whether the agent has reported an answer, or its beginning, since its last retry."""
        self._known: set[str] = set()
        self._was_reached: bool | None = None
        """Whether the model's address was last reachable; None before the first answer."""
        self._is_told = False

    def used(self, used: events.UsageUpdated) -> None:
        if used.message_id not in self._known:
            self._known.add(used.message_id)
            self._has_begun = True
        self._was_reached = True

    def tool_requested(self, message_id: str) -> None:
        """Note that an answer is complete, so the next request is another one, perhaps a subagent's.

        The tokens of a short answer are reported after its calls.
        """
        self._known.add(message_id)
        self._has_begun = False

    def is_lost(self, retry: events.RetryScheduled) -> bool:
        """Return whether nothing was reported for the request that the agent retries."""
        has_begun, self._has_begun = self._has_begun, False
        return not has_begun and retry.by == "agent" and retry.api_status is None and self._counts

    def lost(self, *, is_reached: bool) -> list[events.Event]:
        """Return the events for a lost request, once it is known whether the model can be reached."""
        # A network that fails while the model answers can cost one request; while it stays down, none.
        was_reached, self._was_reached = self._was_reached, is_reached
        return self._estimate() if is_reached or was_reached else []

    def turn_ended(self, turn: events.TurnEnded) -> list[events.Event]:
        """Return the events for the request with which the turn failed.

        An agent whose streams are cut off may end with a request that is not streamed and never reported, so it counts
        even if the beginning of the last stream was reported.
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
            # Its answer is part of the next prompt.
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
