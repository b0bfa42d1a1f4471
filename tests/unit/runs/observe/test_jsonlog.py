"""Logs for machines: one object a line, with its run, without keys."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.secrets.redaction import Redactor, Secret
from leadrope.runs.observe import jsonlog

KEY = "sk-ant-api03-planted-planted-planted-0000"


class Log:
    def __init__(self, redactor: Redactor | None = None) -> None:
        self._out = io.StringIO()
        self._handler = logging.StreamHandler(self._out)
        self._handler.setFormatter(jsonlog.JsonFormatter(redactor))
        self.logger = logging.Logger("leadrope.test")  # noqa: LOG001  # of this test alone
        self.logger.addHandler(self._handler)

    @property
    def raw(self) -> str:
        return self._out.getvalue()

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.raw.splitlines()]


def test_what_is_logged_about_a_run_passes_the_redactor_of_that_run() -> None:
    log, text = Log(), jsonlog.TextFormatter()
    record = logging.LogRecord("leadrope.test", logging.INFO, "", 0, "it is opensesame", None, None)
    with jsonlog.about("a" * 32, lambda: Redactor(["opensesame"])):
        log.logger.warning("it is opensesame", extra={"more": ["opensesame"]})
        assert text.format(record) == "it is [redacted]"
    assert "opensesame" not in log.raw
    assert text.format(record) == "it is opensesame"


@pytest.fixture
def log() -> Log:
    return Log(Redactor(["a known secret"]))


def test_a_line_has_time_level_logger_message_and_extra(log: Log) -> None:
    log.logger.warning("run %s is slow", "r1", extra={"run_id": "r1", "waited_s": 2.5, "where": {"host": "a"}})
    (line,) = log.lines
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "leadrope.test",
        "message": "run r1 is slow",
        "run_id": "r1",
        "waited_s": 2.5,
        "where": {"host": "a"},
    }


async def test_what_is_logged_inside_belongs_to_its_run_also_in_tasks(log: Log) -> None:
    async def work(run_id: str) -> None:
        with jsonlog.about(run_id):
            await asyncio.sleep(0)
            log.logger.info("working for %s", run_id)
            await asyncio.gather(asyncio.create_task(deeper(run_id)))

    async def deeper(run_id: str) -> None:
        log.logger.info("deeper for %s", run_id)

    await asyncio.gather(work("r1"), work("r2"))
    log.logger.info("outside")
    assert all(line["run_id"] == line["message"].rpartition(" ")[2] for line in log.lines[:-1])
    assert len(log.lines) == 5
    assert "run_id" not in log.lines[-1]


@pytest.mark.parametrize("planted", [KEY, "a known secret"])
def test_keys_are_in_no_part_of_a_line(log: Log, planted: str) -> None:
    try:
        raise ValueError(f"bad {planted}")
    except ValueError:
        log.logger.exception("said %s", planted, extra={"deep": [{planted: (planted,)}], "own": Secret(planted)})
    log.logger.info("%s %s", "x" * (jsonlog.MAX_TEXT - 10), planted)
    assert planted not in log.raw
    assert planted[:12] not in log.raw
    assert log.lines[0]["error"]["type"] == "builtins.ValueError"


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines",
        'a "quote" \\',
        "\x1b[31m\u2028\ud800",
        '{"k": "-----BEGIN PRIVATE KEY-----\\nMIIE"}',
        "x" * 1_000_000,
    ],
)
def test_whatever_is_said_is_one_line_of_json(log: Log, text: str) -> None:
    log.logger.info(text)
    assert log.raw.count("\n") == 1
    assert len(log.lines) == 1
    assert len(log.raw) < 20_000


def test_values_that_json_does_not_know_are_written_in_words(log: Log) -> None:
    inner: list[Any] = []
    inner.append(inner)
    log.logger.info("x", extra={"thing": object(), "loop": inner, "some": {1, 2}, "nan": float("nan")})
    (line,) = log.lines
    assert line["thing"].startswith("<object")
    assert sorted(line["some"]) == [1, 2]


def test_an_extra_cannot_take_the_place_of_a_field(log: Log) -> None:
    log.logger.info("true", extra={"level": "forged", "logger": "forged", "time": "forged"})
    assert log.lines[0]["level"] == "info"
    assert "forged" not in log.raw


def test_the_variable_asks_for_it() -> None:
    assert jsonlog.is_wanted({"LEADROPE_LOG": "json"})
    assert not jsonlog.is_wanted({})
    assert not jsonlog.is_wanted({"LEADROPE_LOG": "text"})
    with pytest.raises(errors.BadConfig, match="LEADROPE_LOG"):
        jsonlog.is_wanted({"LEADROPE_LOG": "xml"})


def test_lines_for_people_hold_no_keys_either() -> None:
    key = "sk-ant-api03-planted-planted-planted-0000"
    record = logging.LogRecord("leadrope.x", logging.WARNING, "", 0, "it said %s", (key,), None)
    assert jsonlog.TextFormatter("%(name)s: %(message)s").format(record) == "leadrope.x: it said [redacted]"
