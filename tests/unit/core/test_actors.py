"""Who decided: one grammar for every `by`, and words of earlier versions are still read."""

from __future__ import annotations

import os
import pwd

import msgspec
import pytest

from leadrope.core import actors, events
from leadrope.runtime.gate.approvers import Answer, read_answer


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ("user:ann", "user:ann"),
        ("token:ci-7", "token:ci-7"),
        ("user", "user"),
        ("policy", "policy"),
        ("timeout", "timeout"),
        ("nobody", "nobody"),
        ("leadrope", "leadrope"),
        ("unknown", "unknown"),
        ("", ""),
        ("ann", "user:ann"),
        ("person", "user"),
        ("rule", "policy"),
        ("callback", "program"),
        ("supervisor", "leadrope"),
        ("recovery", "leadrope"),
        ("workflow", "leadrope"),
        ("a b:c", "user:a b:c"),
    ],
)
def test_words_of_earlier_versions_are_read(stored: str, read: str) -> None:
    assert actors.read(stored) == read
    assert actors.read(read) == read


@pytest.mark.parametrize(
    ("by", "is_answer"),
    [("user:ann", True), ("user", True), ("token:x", True), ("program", True)]
    + [(by, False) for by in ("policy", "timeout", "nobody", "leadrope", "unknown", "")],
)
def test_a_rule_a_clock_and_nobody_give_no_answer(by: str, is_answer: bool) -> None:
    assert actors.is_answer(by) is is_answer


def test_the_user_of_this_process_is_the_one_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    actors.system_user.cache_clear()
    assert actors.system_user() == f"user:{pwd.getpwuid(os.getuid()).pw_name}"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"tool.decided","call":{"id":"t","name":"Bash"},"decision":"allow","by":"person","rule":"approval"}',
        b'{"type":"approval.resolved","approval_id":"a","approved":true,"by":"person"}',
        b'{"type":"question.resolved","question_id":"q","answered":true,"by":"person"}',
        b'{"type":"grant.revoked","pattern":"Bash(ls *)","by":"person"}',
    ],
)
def test_a_log_of_an_earlier_version_says_who_in_todays_words(line: bytes) -> None:
    event = events.decoder().decode(line)
    assert event.by == "user"  # type: ignore[union-attr]
    assert msgspec.structs.replace(event, by="ann").by == "user:ann"  # type: ignore[union-attr]


def test_an_answer_says_who_in_the_same_words() -> None:
    assert Answer(approved=True).by == "user"
    assert Answer(approved=True, by="Jane").by == "user:Jane"
    assert read_answer(b'{"approved":true,"by":"person"}') == Answer(approved=True)


def test_the_stored_answer_to_a_question_of_an_earlier_version_is_read() -> None:
    stored = b'{"answered":true,"answers":{"Which?":"Red"},"by":"ann","reason":""}'
    assert read_answer(stored) == Answer(approved=True, answers={"Which?": "Red"}, by="user:ann")
