"""The person at the terminal, as a workflow asks: for its own steps, and for the calls of its agents."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from leadrope.runtime.approvals import Approver
from leadrope.runtime.console import Console
from leadrope.runtime.shown import exact, one_line, whole_input
from leadrope.workflows.host import People
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps.base import Asked, Word

LATER_MEANS = "puts the workflow aside; `leadrope flow resume` goes on with it"


def people_at(person: Approver, place: Callable[[str], str]) -> People | None:
    """None where nobody is there: what needs a person then waits for one. `place` names the step that a token is of."""
    return AtTerminal(person, place) if isinstance(person, Console) else None


class AtTerminal:
    def __init__(self, console: Console, place: Callable[[str], str]) -> None:
        self._console = console
        self._place = place

    @property
    def approver(self) -> Approver:
        return self._console

    async def ask(self, asked: Asked, token: str) -> Word | None:
        async with self._console.asking():
            try:
                return await self._asked(asked, self._place(token))
            except EOFError:
                return None  # the terminal was closed: whoever comes next answers

    async def _asked(self, asked: Asked, place: str) -> Word | None:
        answers = Answers(asked.choices)
        console = self._console
        everything = False
        while True:
            console.say()
            console.say(console.bold(f"? {exact(title_of(asked, place))}"))
            text = text_of(asked)
            is_cut = bool(text) and console.show(text, everything=everything)
            if asked.reason:
                console.say(console.dim(f"  asked because {exact(asked.reason)}"))
            for line in answers.lines():
                console.say(f"    {line}")
            console.say(console.dim(f"  {answers.how()}" + ("; s shows all of it" if is_cut else "")))
            while (said := await console.ask("  > ")).lower() not in ("s", "show") or not is_cut:
                try:
                    word = answers.read(said)
                except NotOffered as error:
                    console.say(f"  {error}")
                    continue
                if word is not None and not word.approved and not word.reason:
                    return msgspec.structs.replace(word, reason=await self._why())
                return word
            everything = True

    async def _why(self) -> str:
        try:
            return await self._console.ask("  Why? (Enter for no reason): ")
        except EOFError:
            return ""  # the no was said


class NotOffered(ValueError):
    """What was typed is no answer; the text says what is."""


class Answers:
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
        about = {self._later[0]: f": {LATER_MEANS}"}
        return [
            f"{mark} {exact(label)}{about.get(label, '')}" for mark, label in zip(marks, self._offered, strict=True)
        ]

    def how(self) -> str:
        what = "a number or a word" if self._is_numbered else "the words"
        short = [word for word in (*self._yes, *self._no, *self._later) if len(word) == 1]
        enough = f" ({', '.join(short)} will do)" if short else ""
        return f"type {what} of this list{enough}; `{self._no[0]}: why` says no with a reason"

    def _numbered(self, number: int) -> Word | None:
        if number == len(self._offered):
            return None
        if number == len(self._offered) - 1:
            return Word(approved=False)
        return Word(approved=True, choice=self._choices[number - 1] if self._choices else "")

    def read(self, said: str) -> Word | None:
        """None for later; NotOffered for all that is not clearly one of the answers."""
        if self._is_numbered and said.isdecimal():
            if not 1 <= int(said) <= len(self._offered):
                raise NotOffered(f"There is no {said}; type 1 to {len(self._offered)}, or a word of the list.")
            return self._numbered(int(said))
        if said in self._choices:
            return Word(approved=True, choice=said)
        folded = said.lower()
        alike = [choice for choice in self._choices if choice.strip().lower() == folded]
        if len(alike) == 1:
            return Word(approved=True, choice=alike[0])
        if folded in self._yes:
            return Word(approved=True)
        if folded in self._later:
            return None
        no, colon, reason = said.partition(":")
        if no.strip().lower() in self._no:
            return Word(approved=False, reason=reason.strip() if colon else "")
        if not said:
            raise NotOffered(f"Nothing was typed, and that is no answer; {self.how()}.")
        near = nearest(said, self._offered)
        meant = f"did you mean {exact(near)}? Nothing is decided yet" if near else self.how()
        raise NotOffered(f"'{one_line(exact(said), 60)}' is no answer to this; {meant}.")


def _free(taken: set[str], *ways: tuple[str, ...]) -> tuple[str, ...]:
    """The first way to say it that no choice has taken, and the longer words behind it."""
    free = [way for way in ways if not taken.intersection(way)] or [ways[-1]]
    return tuple(word for way in free for word in way)


def title_of(asked: Asked, place: str) -> str:
    """With the place of the step: those of workflows inside and of the items of a batch look alike else."""
    step = place.rpartition("/")[2].partition("[")[0]
    return place + asked.title.removeprefix(step) if asked.title.startswith(step) else f"{place}: {asked.title}"


def text_of(asked: Asked) -> str:
    """All that is answered, to the letter."""
    parts = [exact(asked.detail), whole_input(asked.values) if asked.values else ""]
    return "\n".join(part for part in parts if part)
