"""The person at the terminal, as a workflow asks: for its own steps, and for the calls of its agents."""

from __future__ import annotations

import msgspec

from leadrope.core.events import Option, Question, QuestionRequested
from leadrope.runtime.approvals import Approver, DenyAll
from leadrope.workflows.host import People
from leadrope.workflows.steps.base import Asked, Word

YES, NO, LATER = "yes", "no", "later"


def people_at(person: Approver) -> People | None:
    """None where nobody is there: what needs a person then waits for one."""
    return None if isinstance(person, DenyAll) else AtTerminal(person)


class AtTerminal:
    def __init__(self, person: Approver) -> None:
        self.approver: Approver | None = person

    async def ask(self, asked: Asked, token: str) -> Word | None:
        if self.approver is None:
            return None
        question = Question(question=text_of(asked), options=options_of(asked))
        reply = await self.approver.answer(
            QuestionRequested(question_id=token, kind="question", questions=(question,), expires_s=0)
        )
        said = reply.answers.get(question.question, "").strip() if reply.answered else ""
        return word_of(asked, said)


def text_of(asked: Asked) -> str:
    parts = [asked.title, asked.detail, f"(asked because {asked.reason})" if asked.reason else ""]
    if asked.values:
        parts.append(msgspec.json.format(msgspec.json.encode(asked.values)).decode())
    return "\n".join(part for part in parts if part)


def options_of(asked: Asked) -> tuple[Option, ...]:
    yes = tuple(Option(label=choice) for choice in asked.choices) or (Option(label=YES),)
    later = Option(label=LATER, description="put the workflow aside; the token goes on with it")
    return (*yes, Option(label=NO), later)


def word_of(asked: Asked, said: str) -> Word | None:
    """What was typed as an answer; None for later. Words of one's own are a no with that reason, never a yes."""
    if said in asked.choices:
        return Word(approved=True, choice=said)
    match said.lower():
        case "" | "later" | "l":
            return None
        case "yes" | "y" if not asked.choices:
            return Word(approved=True)
        case "no" | "n":
            return Word(approved=False)
        case _:
            return Word(approved=False, reason=said)
