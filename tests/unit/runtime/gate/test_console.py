"""The person at the terminal: a real pseudo-terminal on one side, the approver on the other."""

from __future__ import annotations

import asyncio
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core.events import ApprovalRequested, Option, Question, QuestionRequested
from leadrope.core.tools import ToolCall
from leadrope.runtime.gate.approvers import Answer, Approver
from leadrope.runtime.gate.console import MOST_ROWS, Console, chosen, signed


class Person:
    """Sits at the other end of the terminal: reads until something is shown, then types."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.seen = ""
        self._read = 0
        """Up to where earlier calls have looked."""

    async def reads(self, text: str) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(10):
            while text not in self.seen[self._read :]:
                ready: asyncio.Future[None] = loop.create_future()
                loop.add_reader(self._fd, ready.set_result, None)
                try:
                    await ready
                finally:
                    loop.remove_reader(self._fd)
                self.seen += os.read(self._fd, 65536).decode()
        self._read = self.seen.index(text, self._read) + len(text)

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())


class Terminal:
    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.person = Person(self.master)
        self.console = Console(self.slave)

    def close(self) -> None:
        self.console.close()
        os.close(self.master)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def asked(name: str = "Bash", expires_s: float = 300, **input_: object) -> ApprovalRequested:
    call = ToolCall(id="t", name=name, input=input_ or {"command": "make test"})
    return ApprovalRequested(approval_id="a", call=call, reason="it is a command", expires_s=expires_s, risk="high")


def test_it_is_an_approver(terminal: Terminal) -> None:
    assert isinstance(terminal.console, Approver)


@pytest.mark.parametrize("word", ["y", "Y", "yes", " YES "])
async def test_yes_approves_what_was_shown(terminal: Terminal, word: str) -> None:
    answer = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    assert "Bash wants to run" in terminal.person.seen
    assert "    make test\r\n" in terminal.person.seen
    assert "asked because it is a command · high risk · denied in 5 min without an answer" in terminal.person.seen
    terminal.person.types(f"{word}\n")
    assert await answer == signed(Answer(approved=True))


async def test_always_stands_for_the_same_call_in_this_run(terminal: Terminal) -> None:
    answering = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    terminal.person.types("a\n")
    answer = await answering
    assert (answer.approved, answer.scope) == (True, "run")


async def test_an_offered_pattern_is_shown_in_full_and_given_back(terminal: Terminal) -> None:
    question = msgspec.structs.replace(asked(), pattern="Bash(make test *)")
    answering = asyncio.create_task(terminal.console.approve(question))
    await terminal.person.reads("Allow?")
    await terminal.person.reads('[p]attern: any "make test …" in this run')
    terminal.person.types("p\n")
    await terminal.person.reads("Bash(make test *) is allowed until this run ends")
    assert await answering == signed(Answer(approved=True, pattern="Bash(make test *)"))


async def test_without_an_offered_pattern_p_is_no_answer(terminal: Terminal) -> None:
    answering = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    terminal.person.types("p\n")
    await terminal.person.reads("Please type y, a, n or e.")
    terminal.person.types("n\n\n")
    assert (await answering).approved is False


async def test_the_question_says_how_the_command_is_read(terminal: Terminal) -> None:
    question = msgspec.structs.replace(asked(command="x=1; touch MARK"), reading="runs touch MARK\nwrites MARK")
    answering = asyncio.create_task(terminal.console.approve(question))
    await terminal.person.reads("  runs touch MARK\r\n  writes MARK\r\n")
    await terminal.person.reads("Allow?")
    terminal.person.types("y\n")
    await answering


async def test_an_edit_is_shown_as_a_diff(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    question = asked("Write", file_path=str(tmp_path / "a.py"), content="one\n2\nthree\n")
    answering = asyncio.create_task(terminal.console.approve(question))
    await terminal.person.reads("Allow?")
    assert "     one\r\n    -two\r\n    +2\r\n     three\r\n" in terminal.person.seen
    terminal.person.types("y\n")
    await answering


async def test_no_denies_with_the_reason_that_the_agent_reads(terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    terminal.person.types("n\n")
    await terminal.person.reads("Why?")
    terminal.person.types("use pytest\n")
    assert await answer == signed(Answer(approved=False, reason="use pytest"))


@pytest.mark.parametrize("word", ["", "maybe", "yess", "ye", "1"])
async def test_anything_else_is_asked_again_and_never_a_yes(terminal: Terminal, word: str) -> None:
    answer = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    terminal.person.types(f"{word}\n")
    await terminal.person.reads("Please type y, a, n or e.")
    await terminal.person.reads("Allow?")
    terminal.person.types("n\n\n")
    assert (await answer).approved is False


async def test_an_edited_command_is_shown_again_and_runs_instead(terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.console.approve(asked(command="rm -rf build", timeout=5)))
    await terminal.person.reads("Allow?")
    terminal.person.types("e\n")
    await terminal.person.reads("New command")
    terminal.person.types("rm -rf build/tmp\n")
    await terminal.person.reads("Allow?")
    assert re.search(
        r"edited by you:\r\n(    .*\r\n)?    -rm -rf .*\r\n    \+rm -rf build/tmp\r\n", terminal.person.seen
    )
    terminal.person.types("y\n")
    assert await answer == signed(Answer(approved=True, edited={"command": "rm -rf build/tmp", "timeout": 5}))


async def test_another_tools_input_is_edited_as_json(terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.console.approve(asked("Other", file_path="/x", content="y")))
    await terminal.person.reads("Allow?")
    terminal.person.types("e\n")
    await terminal.person.reads("as JSON")
    terminal.person.types("nonsense\n")
    await terminal.person.reads("not a JSON object")
    await terminal.person.reads("Allow?")
    terminal.person.types("e\n")
    await terminal.person.reads("as JSON")
    terminal.person.types('{"file_path": "/z"}\n')
    await terminal.person.reads("Allow?")
    terminal.person.types("y\n")
    assert await answer == signed(Answer(approved=True, edited={"file_path": "/z"}))


async def test_a_closed_terminal_is_a_no(terminal: Terminal) -> None:
    """Ctrl-D at the start of a line is the end of input."""
    answer = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    terminal.person.types("\x04")
    assert await answer == signed(Answer(approved=False, reason="the terminal was closed"))


async def test_a_terminal_that_hangs_up_is_a_no() -> None:
    master, slave = pty.openpty()
    with Console(slave) as console:
        answer = asyncio.create_task(console.approve(asked()))
        await Person(master).reads("Allow?")
        os.close(master)
        assert (await answer).approved is False


async def test_what_was_typed_before_the_question_is_no_answer(terminal: Terminal) -> None:
    terminal.person.types("y\n")
    answer = asyncio.create_task(terminal.console.approve(asked()))
    await terminal.person.reads("Allow?")
    terminal.person.types("n\n")
    await terminal.person.reads("Why?")
    terminal.person.types("\n")
    assert await answer == signed(Answer(approved=False, reason="the user said no"))


async def test_requests_are_asked_one_after_another(terminal: Terminal) -> None:
    first = asyncio.create_task(terminal.console.approve(asked(command="first")))
    await terminal.person.reads("Allow?")
    second = asyncio.create_task(terminal.console.approve(asked(command="second")))
    terminal.person.types("what\n")
    await terminal.person.reads("Allow?")
    assert "second" not in terminal.person.seen
    terminal.person.types("y\n")
    await terminal.person.reads("second")
    await terminal.person.reads("Allow?")
    terminal.person.types("n\n\n")
    assert (await first).approved is True
    assert (await second).approved is False


async def test_a_request_that_is_taken_back_says_so_and_frees_the_terminal(terminal: Terminal) -> None:
    first = asyncio.create_task(terminal.console.approve(asked(command="first")))
    await terminal.person.reads("Allow?")
    first.cancel()
    await terminal.person.reads("no longer asked")
    second = asyncio.create_task(terminal.console.approve(asked(command="second")))
    await terminal.person.reads("Allow?")
    terminal.person.types("y\n")
    assert (await second).approved is True


async def test_hidden_characters_are_written_out(terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.console.approve(asked(command="ls \x1b[8m; rm x\x1b[0m \u202e#")))
    await terminal.person.reads("Allow?")
    assert "ls <U+001B>[8m; rm x<U+001B>[0m <U+202E>#" in terminal.person.seen
    assert "\x1b" not in terminal.person.seen
    terminal.person.types("\x04")
    await answer


async def test_of_a_long_call_the_end_is_seen_and_the_middle_on_demand(terminal: Terminal) -> None:
    lines = [f"echo {number}" for number in range(MOST_ROWS * 2)]
    answer = asyncio.create_task(terminal.console.approve(asked(command="\n".join([*lines, "rm -rf /"]))))
    await terminal.person.reads("[s]how all")
    assert "echo 0\r\n" in terminal.person.seen
    assert "are not shown" in terminal.person.seen
    assert f"echo {MOST_ROWS}\r\n" not in terminal.person.seen
    assert "rm -rf /" in terminal.person.seen
    terminal.person.types("s\n")
    await terminal.person.reads(f"echo {MOST_ROWS}\r\n")
    await terminal.person.reads("Allow?")
    terminal.person.types("n\n\n")
    assert (await answer).approved is False


QUESTIONS = QuestionRequested(
    question_id="q",
    kind="question",
    questions=(
        Question(
            question="Which colour?",
            header="Colour",
            options=(Option(label="Red", description="like fire"), Option(label="Blue")),
        ),
        Question(question="Which sizes?", multi_select=True, options=(Option(label="S"), Option(label="L"))),
        Question(question="Your name?"),
    ),
)


async def test_questions_are_numbered_and_answered_in_order(terminal: Terminal) -> None:
    reply = asyncio.create_task(terminal.console.answer(QUESTIONS))
    await terminal.person.reads("> ")
    assert "? [Colour] Which colour?\r\n    1. Red: like fire\r\n    2. Blue\r\n" in terminal.person.seen
    terminal.person.types("2\n")
    await terminal.person.reads("> ")
    terminal.person.types("1,2\n")
    await terminal.person.reads("> ")
    terminal.person.types("Ada\n")
    assert await reply == signed(
        Answer(approved=True, answers={"Which colour?": "Blue", "Which sizes?": "S, L", "Your name?": "Ada"})
    )


async def test_an_empty_answer_turns_the_question_down(terminal: Terminal) -> None:
    reply = asyncio.create_task(terminal.console.answer(QUESTIONS))
    await terminal.person.reads("> ")
    terminal.person.types("\n")
    assert (await reply).approved is False


async def test_a_plan_is_shown_with_what_it_would_like_to_run(terminal: Terminal) -> None:
    plan = QuestionRequested(
        question_id="q", kind="plan", plan="1. Look\n2. Edit", allowed_prompts=("Bash: run tests",), expires_s=60
    )
    reply = asyncio.create_task(terminal.console.answer(plan))
    await terminal.person.reads("[n]o")
    assert "    1. Look\r\n    2. Edit\r\n" in terminal.person.seen
    assert "will still ask for each:\r\n    · Bash: run tests" in terminal.person.seen
    terminal.person.types("y\n")
    assert await reply == signed(Answer(approved=True))


@pytest.mark.parametrize(
    ("said", "multi", "answer"),
    [
        ("1", False, "Red"),
        ("2, 1", True, "Blue, Red"),
        ("1,1", True, "Red"),
        ("a blue one", False, "a blue one"),
        ("1 and a half", False, "1 and a half"),
        ("", False, ""),
        ("3", False, None),
        ("0", True, None),
        ("1,2", False, None),
    ],
)
def test_numbers_stand_for_labels(said: str, multi: bool, answer: str | None) -> None:
    question = Question(question="?", multi_select=multi, options=(Option(label="Red"), Option(label="Blue")))
    if answer is None:
        with pytest.raises(ValueError):
            chosen(question, said)
    else:
        assert chosen(question, said) == answer


@pytest.mark.parametrize("field", ["description", "note"])
async def test_nothing_beside_a_command_pushes_its_end_off_the_screen(terminal: Terminal, field: str) -> None:
    command = "\n".join(f"echo {number}" for number in range(50)) + "\ntouch THE-END"
    given: dict[str, Any] = {"command": command, field: "x\n" * 500}
    request = asked(**given)
    answer = asyncio.create_task(terminal.console.approve(request))
    await terminal.person.reads("Allow?")
    shown = terminal.person.seen.splitlines()
    assert len(shown) <= 24, "the pseudo-terminal counts as one of 24 rows"
    assert "    touch THE-END" in shown
    assert "[s]how all" in terminal.person.seen
    terminal.person.types("s\n")
    await terminal.person.reads("Allow?")
    assert terminal.person.seen.count("    echo 25\r\n") == 1
    terminal.person.types("y\n")
    assert (await answer).approved


async def test_a_long_reading_names_what_is_done_once(terminal: Terminal) -> None:
    lines = [f"runs echo {number}" for number in range(60)]
    reading = "\n".join([*lines[:30], "runs curl https://a.b", *lines[30:], "writes out"])
    answer = asyncio.create_task(terminal.console.approve(msgspec.structs.replace(asked(), reading=reading)))
    await terminal.person.reads("Allow?")
    assert "  runs curl https://a.b\r\n  writes out\r\n  runs echo (60 times)\r\n" in terminal.person.seen
    terminal.person.types("y\n")
    await answer


async def test_the_choices_are_wrapped_between_two_of_them(terminal: Terminal) -> None:
    request = msgspec.structs.replace(asked(), pattern="Bash(make test *)")
    answer = asyncio.create_task(terminal.console.approve(request))
    await terminal.person.reads(
        "  Allow? [y]es · [a]lways this exact call\r\n"
        '         [p]attern: any "make test …" in this run · [n]o · [e]dit: '
    )
    terminal.person.types("p\n")
    assert await answer == signed(Answer(approved=True, pattern="Bash(make test *)"))
