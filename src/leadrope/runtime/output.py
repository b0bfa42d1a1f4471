"""Whether an answer fits the schema that was asked for, and what the agent is told when it does not. Starts nothing.

The ladder: the value that the agent handed over; else one that stands in its text; else the same with scalars brought
to their declared type; else another turn of the same process, in which the agent is told what was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from leadrope.core import ending_text, events
from leadrope.core.output import coercion, json_in_text, schema, schema_copy
from leadrope.core.request import RunRequest
from leadrope.core.result import Rung
from leadrope.core.tools import ToolCall

OUTPUT_TOOL = "StructuredOutput"
"""The tool by which an agent hands over its answer. A call of it that the agent program refused is judged too: its own
reader knows no conversion, and gives up after a few tries."""

TEXTS_LIMIT = 20
"""Texts of one turn that are searched, from the last: an agent that is asked again often says only `done`."""

NO_CORRECTION = "no_correction"
"""The code of the notice that an answer could have been corrected, had the agent been there."""


WayOut = Literal["open", "closed", "ending"]
"""Whether the agent can be told anything more; `ending` where the run is ended for a reason of its own."""


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    checked: events.OutputChecked
    correction: str | None = None
    """What to tell the agent next."""
    told: Sequence[events.Event] = ()


class Judge:
    """Judges the turns of one process; made only where a schema was asked for."""

    def __init__(self, request: RunRequest, *, made: int = 0, can_resume: bool = False) -> None:
        """`made`: corrections of earlier processes. `can_resume`: what this one cannot hear waits for the next."""
        self._schema = schema.read(request.output_schema)
        self._copy = schema_copy.copy_of(self._schema)
        self._retries = request.schema_retries
        self._made = 0
        self._made_before = made
        self._can_resume = can_resume
        self._last_told = ""
        self.due: str | None = None
        """What the next process must be told: this one went before it could hear it."""
        self._texts: list[str] = []
        self._offered: Any = msgspec.UNSET
        self._postponed: events.TurnEnded | None = None
        self._is_correcting = False
        """A corrective turn was asked for and has not ended."""

    # -- what happens in a turn -------------------------------------------------------------------------------------

    def prompted(self) -> None:
        """The caller's next prompt goes to the agent: its answer has tries of its own."""
        self._made, self._made_before = self._made_before, 0
        self._forget()

    def heard(self, message: events.MessageCompleted) -> None:
        if message.agent_id is None and not message.is_error:
            self._texts = [*self._texts[1 - TEXTS_LIMIT :], message.text]

    def requested(self, call: ToolCall) -> None:
        if call.name == OUTPUT_TOOL and call.agent_id is None:
            self._offered = call.input

    # -- its end ------------------------------------------------------------------------------------------------------

    def rule(
        self, turn: events.TurnEnded, emit: Callable[[events.Event], None], *, agents: int, way_out: WayOut
    ) -> str | None:
        """Tell what a turn's end is worth; what the agent must hear about it, if anything."""
        ruling = self.ended(turn, agents=agents, way_out=way_out)
        if ruling is None:
            return None
        emit(ruling.checked)
        for told in ruling.told:
            emit(told)
        return ruling.correction

    def ended(self, turn: events.TurnEnded, *, agents: int, way_out: WayOut) -> Ruling | None:
        """None for a turn that is not to be judged: a failed one, one that was interrupted, or not the last word yet.

        So many `agents` still work in the background.
        """
        has_output = turn.output is not msgspec.UNSET
        if turn.background and not has_output and (self._postponed is None or agents):
            return None
        if not self._is_answer(turn, has_output):
            self._forget()
            return None
        found = self._climb(turn)
        if not found.valid and agents and not turn.is_error:
            # The report of its agents opens another turn, and may bring what is missing.
            self._postponed = turn
            return None
        self._forget()
        may_try = (
            not found.valid and self._made < self._retries and (not turn.is_error or ending_text.is_schema_miss(turn))
        )
        if not may_try or way_out == "ending":
            return Ruling(checked=found)
        told = self._told(found.errors)
        if way_out == "closed":
            return Ruling(checked=found, told=self._owed(told, "its input is closed"))
        self._made += 1
        self._is_correcting = True
        self._last_told = told
        return Ruling(checked=msgspec.structs.replace(found, retrying=True), correction=told)

    def left_over(self) -> list[events.Event]:
        """The process is gone: the judgement that still waited, and that nobody was there for a corrective turn."""
        if self._postponed is not None:
            found = self._climb(self._postponed)
            return [found, *(self._owed(self._told(found.errors), "it has ended") if not found.valid else ())]
        return self._owed(self._last_told, "it ended before it had answered") if self._is_correcting else []

    def _owed(self, told: str, why: str) -> list[events.Event]:
        """Kept for the next process of the session; where there will be none, that is said."""
        if not self._can_resume:
            return [_no_correction(why)]
        if not self._is_correcting:
            self._made += 1
        self.due = told
        return []

    @property
    def made(self) -> int:
        return self._made

    def _is_answer(self, turn: events.TurnEnded, has_output: bool) -> bool:
        if turn.problem is None:
            # A command of the agent program itself asks no model and answers nothing.
            return not turn.is_error and (turn.steps > 0 or bool(turn.text) or has_output)
        return turn.problem.outcome == "degraded" or (has_output and turn.problem.outcome == "failed")

    def _forget(self) -> None:
        self._texts = []
        self._offered = msgspec.UNSET
        self._postponed = None
        self._is_correcting = False

    # -- the ladder ---------------------------------------------------------------------------------------------------

    def _climb(self, turn: events.TurnEnded) -> events.OutputChecked:
        seen = []
        for rung, value in self._candidates(turn):
            if self._schema.is_valid(value):
                return events.OutputChecked(rung=rung, valid=True, value=value, correction=self._made)
            seen.append(value)
        if self._retries:
            for value in seen[:TEXTS_LIMIT]:
                found = coercion.coerce(self._schema, value)
                if found is not msgspec.UNSET:
                    return events.OutputChecked(rung="coerced", valid=True, value=found, correction=self._made)
        wrong = self._schema.errors(seen[0]) if seen else ("the answer holds no JSON value",)
        return events.OutputChecked(rung="none", valid=False, errors=wrong, correction=self._made)

    def _candidates(self, turn: events.TurnEnded) -> Iterator[tuple[Rung, Any]]:
        """In the order of trust; a text is searched only when what was handed over does not do."""
        handed = turn.output if turn.output is not msgspec.UNSET else self._offered
        if handed is not msgspec.UNSET:
            yield "structured", self._copy.unwrap(handed)
        for text in dict.fromkeys((turn.text, *reversed(self._texts))):
            for value in json_in_text.values_in(text) if text else ():
                yield "text", value
                inner = self._copy.unwrap(value)
                if inner is not value:
                    yield "text", inner

    def _told(self, wrong: tuple[str, ...]) -> str:
        where = f" as the property `{schema_copy.WRAPPED_IN}`" if self._copy.is_wrapped else ""
        listed = "\n".join(f"- {one}" for one in wrong)
        document = msgspec.json.format(msgspec.json.encode(self._schema.document), indent=2).decode()
        return (
            f"Your answer does not fit the JSON Schema that was asked for.\n\nWhat is wrong:\n{listed}\n\n"
            f"The schema:\n```json\n{document}\n```\n\n"
            f"Hand over the whole answer once more, corrected, with the tool {OUTPUT_TOOL}{where}; without it, as "
            "a json block. Do no other work."
        )


def _no_correction(why: str) -> events.Notice:
    told = f"the answer does not fit the schema, and the agent could not be asked to correct it: {why}"
    return events.Notice(level="warning", code=NO_CORRECTION, message=told)
