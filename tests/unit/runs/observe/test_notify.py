"""What a notification says, who may ask for one, and when a signature holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core import events
from leadrope.core.events import Recorded
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runs.observe import notify, webhook

SECRET = "0123456789abcdef0123456789abcdef"
KEY = "sk-ant-api03-planted-planted-planted-0000"
ENV = {"LEADROPE_WEBHOOK_SECRET": SECRET}


def asked(name: str = "Bash", **given: Any) -> Recorded:
    call = ToolCall(id="t1", name=name, input=given or {"command": "npm test"})
    event = events.ApprovalRequested(approval_id="a1", call=call, reason="it is a command", expires_s=300, risk="low")
    return Recorded("run-1", 1, 7, 1000.0, "supervisor", event)


def test_a_signature_holds_for_its_body_time_and_secret_only() -> None:
    signature = webhook.sign_webhook(SECRET, "1000", b"{}")
    assert webhook.verify_webhook(SECRET, "1000", b"{}", signature, 1000.0)
    assert webhook.verify_webhook(SECRET, "1000", b"{}", signature, 1299.0)
    assert not webhook.verify_webhook(SECRET, "1000", b"{ }", signature, 1000.0)
    assert not webhook.verify_webhook(SECRET, "1001", b"{}", signature, 1000.0)
    assert not webhook.verify_webhook(SECRET + "x", "1000", b"{}", signature, 1000.0)
    assert not webhook.verify_webhook(SECRET, "1000", b"{}", signature.upper(), 1000.0)


@pytest.mark.parametrize("now", [1301.0, 699.0, 10_000_000.0])
def test_an_old_or_future_message_is_a_replay(now: float) -> None:
    assert not webhook.verify_webhook(SECRET, "1000", b"{}", webhook.sign_webhook(SECRET, "1000", b"{}"), now)


@pytest.mark.parametrize(
    "timestamp", ["", "now", "-5", "1e3", "1000.0", "\u0661\u0660\u0660\u0660", "9" * 40, "1000\n", " 1000"]
)
def test_an_odd_time_is_no_time(timestamp: str) -> None:
    assert not webhook.verify_webhook(SECRET, timestamp, b"{}", webhook.sign_webhook(SECRET, timestamp, b"{}"), 1000.0)


@pytest.mark.parametrize("signature", ["", "v1=", "v2=00", "é", "\ud800"])
def test_an_odd_signature_is_a_no_and_not_an_error(signature: str) -> None:
    assert not webhook.verify_webhook(SECRET, "1000", b"{}", signature, 1000.0)


def test_the_parts_of_a_signature_cannot_be_moved() -> None:
    """Time and body are told apart: `1` + `0.{}` is not `10` + `{}`."""
    assert webhook.sign_webhook(SECRET, "1", b"0.{}") != webhook.sign_webhook(SECRET, "10", b"{}")


def test_a_word_names_run_tool_and_what_it_would_do() -> None:
    word = notify.word_of(asked(), Redactor(), cwd="/ws", labels={"team": "web"})
    assert word is not None
    assert word.type == "approval.needed"
    assert word.title == "leadrope: approval needed"
    assert word.body == "Run run-1: Bash npm test"
    assert (word.run_id, word.asked_id, word.risk, word.expires_s) == ("run-1", "a1", "low", 300)
    assert word.labels == {"team": "web"}


def test_questions_and_plans_have_words_too_and_nothing_else_has() -> None:
    question = events.QuestionRequested(
        question_id="q", kind="question", questions=(events.Question(question="Which one?"),)
    )
    plan = events.QuestionRequested(question_id="q", kind="plan", plan="# First\nthen")
    words = [notify.word_of(Recorded("r", 1, 1, 1.0, "agent", event), Redactor()) for event in (question, plan)]
    assert [word.body for word in words if word] == ["Run r: Which one?", "Run r: # First then"]
    assert notify.word_of(Recorded("r", 1, 1, 1.0, "agent", events.TurnStarted(turn=1)), Redactor()) is None


def test_no_word_holds_a_key_or_an_escape() -> None:
    planted = f"\x1b]0;x\x07\u202e {'x' * 270} {KEY} --evil"
    known = Redactor(["a known secret"])
    for given in ({"command": planted}, {"url": planted}, {"other": {"deep": [planted, "a known secret"]}}):
        word = notify.word_of(asked(planted, **given), known, cwd=planted, labels={planted: planted})
        assert word is not None
        for text in (word.body, word.tool, word.cwd, str(word.labels), word.reason):
            assert "planted" not in text
            assert "a known secret" not in text
        assert "\x1b" not in word.body
        assert word.body.startswith("Run "), "never a dash of the agent's"


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"command": ["notify-send", "x {title}"]}, "among other text"),
        ({"command": ["sh", "-c", "{body}"]}, "for a program"),
        ({"command": ["/bin/bash", "-c", "echo", "{title}"]}, "for a program"),
        ({"command": "notify-send {title}"}, "notify"),
        ({"webhook": "http://example.com/x"}, "not encrypted"),
        ({"webhook": "https://user:pass@example.com/x"}, "password"),
        ({"webhook": "ftp://example.com"}, "only http and https"),
        ({"webhook": "https://example.com/\r\nX: y"}, "control character"),
        ({"webhook": "https://example.com:no/"}, "invalid host or port"),
        ({"webhook": "https://example.com", "webhook_tries": 1000}, "webhook_tries"),
        ({"webhok": "https://example.com"}, "webhok"),
    ],
)
def test_settings_that_could_do_harm_are_refused(table: Any, told: str) -> None:
    with pytest.raises(errors.BadConfig, match=told):
        notify.settings(table, ENV)


def test_an_error_does_not_tell_the_webhooks_path() -> None:
    """The path of many a webhook is its password."""
    with pytest.raises(errors.BadConfig) as caught:
        notify.settings({"webhook": "http://example.com/services/T000/B000/verysecret"}, ENV)
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize("secret", ["", "short"])
def test_a_webhook_is_signed_or_it_is_not(secret: str) -> None:
    with pytest.raises(errors.BadConfig, match="secret"):
        notify.settings({"webhook": "https://example.com/x"}, {"LEADROPE_WEBHOOK_SECRET": secret})


def test_only_the_users_own_config_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository cannot choose where word of a run is sent, nor which program is started."""
    project = tmp_path / "project"
    project.mkdir()
    evil = '[notify]\nbell = true\ncommand = ["evil"]\nwebhook = "https://evil.example/x"\n'
    (project / "leadrope.toml").write_text(evil)
    (project / "config.toml").write_text(evil)
    monkeypatch.chdir(project)
    environ = {"HOME": str(tmp_path), "LEADROPE_HOME": str(tmp_path / "lh"), **ENV}
    assert notify.load(environ).is_silent
    config = tmp_path / ".config/leadrope/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[run]\nmodel = "opus"\n[notify]\nbell = true\n')
    assert notify.load(environ) == notify.NotifySettings(bell=True)


def test_the_secret_may_stand_in_leadropes_own_env_file(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "LEADROPE_HOME": str(tmp_path / "lh")}
    (tmp_path / "lh").mkdir()
    (tmp_path / "lh/.env").write_text(f"LEADROPE_WEBHOOK_SECRET={SECRET}\n")
    config = tmp_path / ".config/leadrope/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[notify]\nwebhook = "https://example.com/x"\n')
    found = notify.load(environ)
    assert found.webhook is not None
    assert found.webhook.secret.reveal() == SECRET
    assert SECRET not in repr(found)


def test_a_broken_config_is_told(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "LEADROPE_CONFIG": str(tmp_path / "c.toml")}
    (tmp_path / "c.toml").write_text("[notify\n")
    with pytest.raises(errors.BadConfig, match=r"c\.toml"):
        notify.load(environ)
