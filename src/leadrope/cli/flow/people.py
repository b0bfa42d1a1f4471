"""The person at the terminal, as a workflow asks: for its own steps, and for the calls of its agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope import spelling
from leadrope.runs.approvals import forms
from leadrope.runs.approvals.forms import FormField
from leadrope.runtime.gate.approvers import Answer, Approver
from leadrope.runtime.gate.console import Console, signed
from leadrope.runtime.terminal_text import exact, one_line, whole_input
from leadrope.workflows.engine.execution_context import People
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps.base import StepQuestion

LATER_MEANS = "puts the workflow aside; `leadrope approvals` answers it"


def people_at(person: Approver, place: Callable[[str], str]) -> People | None:
    """None where nobody is there: what needs a person then waits for one. `place` names the step of an approval."""
    return AtTerminal(person, place) if isinstance(person, Console) else None


class AtTerminal:
    def __init__(self, console: Console, place: Callable[[str], str]) -> None:
        self._console = console
        self._place = place

    @property
    def approver(self) -> Approver:
        return self._console

    async def ask(self, asked: StepQuestion, approval_id: str) -> Answer | None:
        async with self._console.asking():
            try:
                answer = await self._asked(asked, self._place(approval_id))
                return signed(answer) if answer is not None else None
            except EOFError:
                return None  # the terminal was closed: whoever comes next answers

    async def _asked(self, asked: StepQuestion, place: str) -> Answer | None:
        answers = TypedAnswers(asked.choices)
        console = self._console
        everything = False
        while True:
            console.say()
            console.say(console.bold(f"? {exact(title_of(asked, place))}"))
            text = text_of(asked)
            is_cut = bool(text) and console.show(text, everything=everything)
            if asked.reason:
                rule = f" (rule {exact(asked.rule)})" if asked.kind == "tool_call" and asked.rule else ""
                console.say_wrapped(f"asked because {exact(asked.reason)}{rule}")
            prompt = "  > "
            if asked.choices:
                for line in answers.lines():
                    console.say(f"    {line}")
                console.say_wrapped(answers.how() + ("; s shows all of it" if is_cut else ""))
            else:
                console.say_wrapped(f"`no: why` denies with a reason; later {spelling.runnable(LATER_MEANS)}")
                offered = ["[y]es", "[n]o", "[l]ater", *(["[s]how all"] if is_cut else [])]
                prompt = console.prompt("  Continue? " if asked.kind == "step" else "  Allow? ", offered)
            while (said := await console.ask(prompt)).lower() not in ("s", "show", "show all") or not is_cut:
                try:
                    answer = answers.read(said)
                except NotOffered as error:
                    console.say_wrapped(str(error), is_dim=False)
                    continue
                if answer is not None and not answer.approved and not answer.reason:
                    return msgspec.structs.replace(answer, reason=await self._why())
                if answer is not None and answer.approved and asked.fields:
                    return msgspec.structs.replace(answer, answers=await self._filled(asked.fields))
                return answer
            everything = True

    async def _filled(self, fields: Sequence[FormField]) -> dict[str, Any]:
        """A form, one field after the other."""
        found: dict[str, Any] = {}
        for field in fields:
            for number, choice in enumerate(field.choices, start=1):
                self._console.say(f"    {number}. {exact(choice)}")
            while True:
                said = await self._console.ask(f"  {exact(field.title)} ({exact(_how(field))}): ")
                try:
                    value = typed(field, said)
                except ValueError as error:
                    self._console.say_wrapped(exact(str(error)), is_dim=False)
                    continue
                if value is not UNSET:
                    found[field.name] = value
                break
        return found

    async def _why(self) -> str:
        try:
            return await self._console.ask("  Why? (Enter for no reason): ")
        except EOFError:
            return ""  # the no was said


def typed(field: FormField, said: str) -> Any:
    """What was typed for a field; UNSET where Enter leaves it out. ValueError says what is wrong with it."""
    if not said:
        if field.is_needed:
            raise ValueError(f"{field.title} is required.")
        return UNSET
    if field.type == "choice" and said.isdecimal() and said not in field.choices:
        if not 1 <= int(said) <= len(field.choices):
            raise ValueError(f"There is no {said}; type 1 to {len(field.choices)}, or a word of the list.")
        said = field.choices[int(said) - 1]
    return forms.value_of(field, said)


def _how(field: FormField) -> str:
    if field.default is not UNSET:
        default = field.default if isinstance(field.default, str) else msgspec.json.encode(field.default).decode()
        return f"{field.hint}; Enter for {default}"
    return field.hint if field.required else f"{field.hint}; Enter for none"


class NotOffered(ValueError):
    """What was typed is not an answer; the text says what is."""


class TypedAnswers:
    """What can be typed, and what it means. A no must be said: a slip of the fingers is neither a yes nor a no."""

    def __init__(self, choices: tuple[str, ...]) -> None:
        self._choices = choices
        # A choice is what it says: where one is called `No`, a no to all of them needs another word.
        taken = {choice.strip().lower() for choice in choices}
        self._yes = () if choices else ("yes", "y")
        self._no = _free(taken, ("no", "n"), ("deny",), ("denied",))
        self._later = _free(taken, ("later", "l"), ("put aside",))
        # Beside choices that are numbers, the number of a choice would be another choice.
        self._is_numbered = not any(choice.strip().isdecimal() for choice in choices)

    @property
    def _offered(self) -> tuple[str, ...]:
        return (*(self._choices or self._yes[:1]), self._no[0], self._later[0])

    def lines(self) -> list[str]:
        marks = [f"{number}." if self._is_numbered else "·" for number in range(1, len(self._offered) + 1)]
        about = {self._later[0]: f": {spelling.runnable(LATER_MEANS)}"}
        return [
            f"{mark} {exact(label)}{about.get(label, '')}" for mark, label in zip(marks, self._offered, strict=True)
        ]

    def how(self) -> str:
        no = f"`{self._no[0]}: why` denies with a reason"
        if not self._choices:
            return f"type y, n or l; {no}"
        what = "a number or a word" if self._is_numbered else "the words"
        short = [word for word in (*self._no, *self._later) if len(word) == 1]
        enough = f" (or {', '.join(short)})" if short else ""
        return f"type {what} of this list{enough}; `WORD: text` adds a text to the answer"

    def _numbered(self, number: int) -> Answer | None:
        if number == len(self._offered):
            return None
        if number == len(self._offered) - 1:
            return Answer(approved=False)
        return Answer(approved=True, choice=self._choices[number - 1] if self._choices else "")

    def _with_text(self, said: str) -> Answer | None:
        """`revise: shorter`: a choice, or a yes, and what is said with it."""
        for word in sorted((*self._choices, *self._yes), key=len, reverse=True):
            if said.lower().startswith(f"{word.strip().lower()}:"):
                text = said[len(word.strip()) + 1 :].strip()
                return Answer(approved=True, choice=word if word in self._choices else "", reason=text)
        return None

    def read(self, said: str) -> Answer | None:
        """None for later; NotOffered for all that is not clearly one of the answers."""
        if self._is_numbered and said.isdecimal():
            if not 1 <= int(said) <= len(self._offered):
                raise NotOffered(f"There is no {said}; type 1 to {len(self._offered)}, or a word of the list.")
            return self._numbered(int(said))
        if said in self._choices:
            return Answer(approved=True, choice=said)
        folded = said.lower()
        alike = [choice for choice in self._choices if choice.strip().lower() == folded]
        if len(alike) == 1:
            return Answer(approved=True, choice=alike[0])
        if folded in self._yes:
            return Answer(approved=True)
        if folded in self._later:
            return None
        word, colon, text = (part.strip() for part in said.partition(":"))
        if word.lower() in self._no:
            return Answer(approved=False, reason=text)
        if colon and word and (chosen := self._with_text(said)) is not None:
            return chosen
        if not said:
            raise NotOffered(f"Nothing was typed, which is not an answer; {self.how()}.")
        near = nearest(said, self._offered)
        meant = f"did you mean {exact(near)}? Nothing is decided yet" if near else self.how()
        raise NotOffered(f"'{one_line(exact(said), 60)}' is not an answer to this; {meant}.")


def _free(taken: set[str], *ways: tuple[str, ...]) -> tuple[str, ...]:
    """The first way to say it that no choice has taken, and the longer words behind it."""
    free = [way for way in ways if not taken.intersection(way)] or [ways[-1]]
    return tuple(word for way in free for word in way)


def title_of(asked: StepQuestion, place: str) -> str:
    """With the place of the step: those of workflows inside and of the items of a batch look alike else."""
    step = place.rpartition("/")[2].partition("[")[0]
    return place + asked.title.removeprefix(step) if asked.title.startswith(step) else f"{place}: {asked.title}"


def text_of(asked: StepQuestion) -> str:
    """All that is answered, to the letter."""
    parts = [exact(asked.detail), whole_input(asked.values) if asked.values else ""]
    return "\n".join(part for part in parts if part)
