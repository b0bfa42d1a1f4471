"""An approver that asks a person at a terminal, one question after another. No threads; a closed terminal is a no."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from leadrope import errors, spelling
from leadrope.core import actors
from leadrope.core.events import ApprovalRequested, Question, QuestionRequested
from leadrope.core.secrets.redacted_json import clean_value
from leadrope.runtime.gate import call_preview
from leadrope.runtime.gate.approvers import Answer
from leadrope.runtime.gate.terminal import open_terminal
from leadrope.runtime.terminal_text import clean, exact

# Around the call on a screen: the headline, how it is read, why it is asked, the choices.
OTHER_ROWS = 12
# Above this a screen is taller than anybody reads before answering.
MOST_ROWS = 40
READING_ROWS = 6
# For the fields beside a command or a diff.
REST_ROWS = 3
_INDENT = "    "
_READ_BYTES = 64 * 1024
_YES, _ALWAYS, _PATTERN, _NO = ("y", "yes"), ("a", "always"), ("p", "pattern"), ("n", "no")


class Editor(Protocol):
    """Changes a text at the terminal. None: nothing was changed. Raises RequestError if that cannot be done."""

    @property
    def has_program(self) -> bool: ...

    async def line(self, label: str, text: str, *, suffix: str = "") -> str | None: ...

    async def text(self, text: str, *, suffix: str = "") -> str | None: ...


class Console:
    """Asks on the terminal of the process.

    with Console() as console:
        async with open_run(request, approver=console) as run:
            ...
    """

    def __init__(
        self,
        terminal: int | None = None,
        *,
        colour: bool = False,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """`terminal` is a file descriptor to read and write, by default the process's own terminal; Console closes it.

        `before` and `after` surround each question, so that nothing else is written into it.
        """
        self._fd = open_terminal() if terminal is None else terminal
        self._colour = colour
        self._before = before
        self._after = after
        self.clean: Callable[[str], str] = str
        """Takes the run's secrets out of what is shown; set by whoever knows them. The call itself stays as it is."""
        self.editor: Editor | None = None
        """Opens a call to be edited; without one it is typed anew."""
        # One pair of eyes: requests that come together are asked one after another.
        self._turn = asyncio.Lock()
        self._typed = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def terminal(self) -> int:
        """The file descriptor of the terminal."""
        return self._fd

    def close(self) -> None:
        """Close the terminal."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- Approver ---------------------------------------------------------------------------------------------------

    async def approve(self, asked: ApprovalRequested) -> Answer:
        """Show the call and ask for it."""
        since = asyncio.get_running_loop().time()
        async with self._turn, _Asking(self):
            try:
                return signed(await self._approve(asked, since))
            except EOFError:
                return signed(Answer(approved=False, reason="the terminal was closed"))

    async def answer(self, asked: QuestionRequested) -> Answer:
        """Ask the agent's question, or show its plan."""
        since = asyncio.get_running_loop().time()
        async with self._turn, _Asking(self):
            try:
                if asked.kind == "plan":
                    return signed(await self._plan(asked, since))
                return signed(await self._questions(asked, since))
            except EOFError:
                return signed(Answer(approved=False, reason="the terminal was closed"))

    def _exact(self, text: str) -> str:
        return exact(self.clean(text))

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """For questions of another kind, by `say` and `ask`: nobody else asks or writes meanwhile."""
        async with self._turn, _Asking(self):
            yield

    # -- approvals --------------------------------------------------------------------------------------------------

    async def _approve(self, asked: ApprovalRequested, since: float) -> Answer:
        edited: dict[str, Any] | None = None
        everything = False
        while True:
            is_cut = self._show_call(asked, edited, everything=everything)
            why = f"{self._reason(asked.reason)} · {asked.risk} risk"
            self.say_wrapped(f"{why}{_time_left(asked.expires_s, since)}")
            pattern = asked.pattern if edited is None else ""
            choices = ["[y]es", "[a]lways this exact call"]
            if pattern:
                choices.append(f"[p]attern: any {_any_of(self.clean(pattern))} in this run")
            choices += ["[n]o", "[e]dit", *(["[s]how all"] if is_cut else [])]
            said = (await self.ask(self.prompt("  Allow? ", choices))).lower()
            if said in _YES:
                return Answer(approved=True, edited=edited)
            if said in _ALWAYS:
                # The same call to the letter, not every call of this tool.
                told = "exactly this call is allowed until this run ends; `leadrope runs revoke` ends it"
                self.say_wrapped(spelling.runnable(told))
                return Answer(approved=True, edited=edited, scope="run")
            if said in _PATTERN and pattern:
                told = f"{self._exact(pattern)} is allowed until this run ends; `leadrope runs revoke` ends it"
                self.say_wrapped(spelling.runnable(told))
                return Answer(approved=True, pattern=pattern)
            if said in _NO:
                return Answer(approved=False, reason=await self._why())
            if said in ("e", "edit"):
                edited = await self._edit(asked, edited)
            elif said in ("s", "show", "show all"):
                everything = True
            else:
                self.say(f"  Please type {'y, a, p, n or e' if pattern else 'y, a, n or e'}.")

    def _show_call(self, asked: ApprovalRequested, edited: dict[str, Any] | None, *, everything: bool) -> bool:
        """True when not all of it is shown."""
        who = " (a subagent)" if asked.call.agent_id else ""
        change = ", edited by you" if edited is not None else ""
        self.say()
        wants = "wants to run" if "command" in asked.call.input else "needs your approval"
        self.say(self.bold(f"? {self._exact(asked.call.name)}{who} {wants}{change}:"))
        if edited is not None and not everything:
            self._show_change(asked, edited)
            return True
        input_ = asked.call.input if edited is None else edited
        shown = call_preview.parts(asked.call.name, clean_value(input_, self.clean))
        main, rest = map(self.clean, shown)
        # Fitted apart: a long description must not push the end of the command off the screen.
        below = self._fitted(rest, REST_ROWS, least=REST_ROWS, everything=everything)
        is_cut = self.show(
            main, everything=everything, is_diff=call_preview.is_edit(asked.call.name), below=len(below.lines)
        )
        for line in below.lines:
            self.say(_INDENT + line)
        is_cut = is_cut or bool(below.hidden)
        if asked.reading and edited is None:
            self._show_reading(self.clean(asked.reading), everything=everything)
        return is_cut

    def _show_change(self, asked: ApprovalRequested, edited: dict[str, Any]) -> None:
        """What the person has changed; all of the call is one key away."""
        before, after = (clean_value(input_, self.clean) for input_ in (asked.call.input, edited))
        changed = "\n".join(call_preview.change(asked.call.name, before, after))
        self.show(self.clean(changed), everything=False, is_diff=True)

    def _show_reading(self, reading: str, *, everything: bool) -> None:
        """How the command is read, in a few lines: what a long line does may stand far from its beginning."""
        lines = exact(reading).split("\n")
        if len(lines) > READING_ROWS and not everything:
            lines = _summed_up(lines)
        width = self._size().columns - len(_INDENT)
        for line in lines:
            self.say(self.dim(f"  {line if everything or len(line) <= width else line[: width - 1] + '…'}"))

    def show(self, text: str, *, everything: bool, is_diff: bool = False, below: int = 0) -> bool:
        """True when not all of it is shown. What is left out is in the middle: the end stands above the question.

        `below` rows follow it that belong to the same call.
        """
        fitted = self._fitted(text, min(self._size().lines - OTHER_ROWS, MOST_ROWS) - below, everything=everything)
        for line in fitted.lines:
            self.say(_INDENT + (self._coloured(line) if is_diff else line))
        return bool(fitted.hidden)

    def _fitted(
        self, text: str, rows: int, *, everything: bool, least: int = call_preview.LEAST_ROWS
    ) -> call_preview.Fitted:
        if everything or not text:
            return call_preview.Fitted(text.split("\n") if text else [], 0)
        return call_preview.fit(text, rows=rows, columns=self._size().columns - len(_INDENT), least=least)

    def _coloured(self, line: str) -> str:
        """Added and removed lines of a diff."""
        colour = {"+": "32", "-": "31", "@": "36"}.get(line[:1]) if self._colour else None
        return f"\x1b[{colour}m{line}\x1b[0m" if colour else line

    def _size(self) -> os.terminal_size:
        with contextlib.suppress(OSError, ValueError):
            found = os.get_terminal_size(self._fd)
            if found.columns and found.lines:
                return found
        return os.terminal_size((80, 24))

    def say_wrapped(self, text: str, *, is_dim: bool = True) -> None:
        """A remark, broken between words."""
        for line in textwrap.wrap(text, max(20, self._size().columns - 2)):
            self.say(self.dim(f"  {line}") if is_dim else f"  {line}")

    def prompt(self, head: str, choices: Sequence[str]) -> str:
        """The choices, on a further line where the screen is too narrow for all of them."""
        lines, width = [head], self._size().columns - 2
        for place, choice in enumerate(choices):
            piece = choice if place == 0 else f" · {choice}"
            if place and len(lines[-1]) + len(piece) > width:
                indent = " " * len(head)
                lines += textwrap.wrap(choice, max(20, width), initial_indent=indent, subsequent_indent=indent + "  ")
            else:
                lines[-1] += piece
        return "\n".join(lines) + ": "

    def _reason(self, reason: str) -> str:
        return f"asked because {clean(self.clean(reason))}" if reason else "asked by the policy"

    async def _why(self) -> str:
        said = await self.ask("  Why? (Enter for no reason): ")
        return said or "the user said no"

    async def _edit(self, asked: ApprovalRequested, edited: dict[str, Any] | None) -> dict[str, Any] | None:
        """A command, or the text that is written, as it is; any other input as JSON."""
        now = asked.call.input if edited is None else edited
        field = call_preview.editable(asked.call.name, now)
        text = str(now[field]) if field else msgspec.json.format(msgspec.json.encode(now)).decode()
        try:
            said = await self._edited(text, field, now)
        except errors.LeadropeError as error:
            self.say_wrapped(error.message, is_dim=False)
            return edited
        if not said or said == text:
            self.say("  Nothing was changed.")
            return edited
        if field:
            return {**now, field: said}
        try:
            found = msgspec.json.decode(said, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            self.say_wrapped(f"That is not a JSON object: {error}", is_dim=False)
            return edited
        return found if found != now else edited

    async def _edited(self, text: str, field: str | None, input_: dict[str, Any]) -> str | None:
        has_secret = self.clean(text) != text
        is_plain = exact(text) == text and "\t" not in text
        path = input_.get("file_path")
        suffix = ".sh" if field == "command" else PurePath(path).suffix if field and isinstance(path, str) else ".json"
        if self.editor is not None and not has_secret:
            if "\n" in text and self.editor.has_program:
                return await self.editor.text(text, suffix=suffix)
            if is_plain:
                line = text if field else msgspec.json.encode(input_).decode()
                how = "Enter accepts, Ctrl-C keeps it" + (", Ctrl-X opens $EDITOR" * self.editor.has_program)
                self.say(self.dim(f"  {how}"))
                return await self.editor.line("  Edit: ", line, suffix=suffix)
            if self.editor.has_program:
                return await self.editor.text(text, suffix=suffix)
        if has_secret:
            self.say("  It holds a secret, which is not shown; type all of it again to change it.")
        if field == "command":
            return await self.ask("  New command (Enter keeps it): ")
        if field:
            return await self.ask(f"  New {field} on one line (Enter keeps it): ")
        return await self.ask("  New input as JSON on one line (Enter keeps it): ")

    # -- questions --------------------------------------------------------------------------------------------------

    async def _questions(self, asked: QuestionRequested, since: float) -> Answer:
        answers: dict[str, str] = {}
        for question in asked.questions:
            self.say()
            header = f"[{self._exact(question.header)}] " if question.header else ""
            self.say(self.bold(f"? {header}{self._exact(question.question)}"))
            for number, option in enumerate(question.options, start=1):
                about = f": {self._exact(option.description)}" if option.description else ""
                self.say(f"    {number}. {self._exact(option.label)}{self.dim(about)}")
            how = "numbers like 1,3" if question.multi_select else "a number"
            left = _time_left(asked.expires_s, since)
            self.say(self.dim(f"  {how if question.options else 'an answer'}, or your own words; Enter for none{left}"))
            answer = await self._choice(question)
            if not answer:
                return Answer(approved=False, reason="the user did not answer")
            answers[question.question] = answer
        return Answer(approved=True, answers=answers)

    async def _choice(self, question: Question) -> str:
        while True:
            said = await self.ask("  > ")
            try:
                return chosen(question, said)
            except ValueError as error:
                self.say_wrapped(str(error), is_dim=False)

    async def _plan(self, asked: QuestionRequested, since: float) -> Answer:
        self.say()
        self.say(self.bold("? The agent has a plan:"))
        for line in self._exact(asked.plan or "(it says nothing)").split("\n"):
            self.say(f"    {line}")
        if asked.allowed_prompts:
            self.say("  It would like to run, and will still ask for each:")
            for prompt in asked.allowed_prompts:
                self.say(f"    · {self._exact(prompt)}")
        self.say(
            self.dim(f"  approving lets it begin; what it does is still asked for{_time_left(asked.expires_s, since)}")
        )
        while True:
            said = (await self.ask("  Continue with this plan? [y]es / [n]o: ")).lower()
            if said in _YES:
                return Answer(approved=True)
            if said in _NO:
                return Answer(approved=False, reason=await self._why())
            self.say("  Please say y or n.")

    # -- the terminal -----------------------------------------------------------------------------------------------

    def say(self, text: str = "") -> None:
        """Write one line."""
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        # A terminal that has gone away: the read that follows finds it closed and answers no.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]

    def bold(self, text: str) -> str:
        """The text in bold, where colours are on."""
        return f"\x1b[1m{text}\x1b[0m" if self._colour else text

    def dim(self, text: str) -> str:
        """The text dimmed, where colours are on."""
        return f"\x1b[2m{text}\x1b[0m" if self._colour and text else text

    async def ask(self, prompt: str) -> str:
        """One line, without its white space at the ends; EOFError when the terminal is closed."""
        self._write(prompt)
        loop = asyncio.get_running_loop()
        while b"\n" not in self._typed:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._fd, _wake, readable)
            try:
                await readable
            finally:
                loop.remove_reader(self._fd)
            # In a terminal's line mode this returns what there is, a whole line as a rule, and does not block.
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:
                data = b""  # hung up
            if not data:
                self.say()
                raise EOFError
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").strip()

    def begin(self) -> None:
        """Before a question: nothing else writes from here on."""
        if self._before:
            self._before()
        # What was typed before the question was seen is not an answer to it.
        self._typed = b""
        if sys.platform != "win32":
            import termios  # noqa: PLC0415  # POSIX alone has it

            with contextlib.suppress(OSError, termios.error):
                termios.tcflush(self._fd, termios.TCIFLUSH)

    def end(self, error: BaseException | None) -> None:
        """After a question."""
        if isinstance(error, asyncio.CancelledError):
            self.say()
            self.say("  (no longer asked)")
        if self._after:
            self._after()


class _Asking:
    """Around each request: clears the line before, and says so when the request is taken back."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def __aenter__(self) -> None:
        self._console.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._console.end(error)


def signed(answer: Answer) -> Answer:
    """With the name of whoever sits at the terminal."""
    return msgspec.structs.replace(answer, by=actors.system_user())


def chosen(question: Question, said: str) -> str:
    """Numbers as the labels they stand for, several joined by ", "; anything else is an answer in its own words."""
    parts = [part.strip() for part in said.split(",") if part.strip()]
    if not question.options or not parts or not all(part.isdecimal() for part in parts):
        return said
    if len(parts) > 1 and not question.multi_select:
        raise ValueError("Please choose one.")
    labels: list[str] = []
    for part in parts:
        number = int(part)
        if not 1 <= number <= len(question.options):
            raise ValueError(f"There is no {number}; choose 1 to {len(question.options)}.")
        if question.options[number - 1].label not in labels:
            labels.append(question.options[number - 1].label)
    return ", ".join(labels)


def _summed_up(lines: list[str]) -> list[str]:
    """A long reading in few lines. What is done once comes first and in full: a long line may hide it in its middle."""
    names = [" ".join(line.split(" ", 2)[:2]) if line.startswith("runs ") else line for line in lines]
    counts = Counter(names)
    once = [line for line, name in zip(lines, names, strict=True) if counts[name] == 1]
    often = [f"{name} ({count} times)" for name, count in counts.items() if count > 1]
    found = [*once, *often]
    left = len(found) - READING_ROWS
    return found if left <= 0 else [*found[: READING_ROWS - 1], f"… {left + 1} more …"]


def _time_left(expires_s: float, since: float) -> str:
    if not expires_s:
        return ""
    left = max(0.0, expires_s - (asyncio.get_running_loop().time() - since))
    words = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
    return f" · denied in {words} without an answer"


def _any_of(pattern: str) -> str:
    """`Bash(npm test *)` as `"npm test …"`; a tool's name stands for itself."""
    inner = pattern.partition("(")[2].removesuffix(")") or pattern
    return f'"{exact(inner.removesuffix(" *"))}{" …" if inner.endswith(" *") else ""}"'


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
