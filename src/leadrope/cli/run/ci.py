"""A run's outcome for a CI service: annotations, a job summary, a JUnit file. Made from its result; starts nothing.

An agent's text goes to the job's log, where GitHub reads lines that begin with `::` as commands. `fence` keeps them
from being obeyed, and everything here is escaped for the place it goes to.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from typing import Self, TextIO

import msgspec

from leadrope import errors
from leadrope.cli import values
from leadrope.cli.exits import DENIED, Demands, exit_code, explain
from leadrope.cli.screen.screen import PIPED_WIDTH, Screen
from leadrope.confined import appending_named
from leadrope.core.events import MessageDelta, Recorded, ThinkingDelta
from leadrope.core.result import RunResult
from leadrope.core.secrets import redaction
from leadrope.regex import regex
from leadrope.runs.page import diff
from leadrope.runs.page.story import Story
from leadrope.runs.records.values import RunInfo
from leadrope.runtime.terminal_text import clean, describe, one_line

MAX_ANNOTATIONS = 10
"""GitHub shows ten of a kind per step, and drops the rest without a word."""
MAX_SUMMARY = 200_000
"""Far below GitHub's limit of 1 MiB a step, above which it shows nothing at all."""
MAX_JUNIT = 100_000
MAX_RECORDS = 50_000
"""Kept of one run for its report; the result itself counts everything."""
# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = regex("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class CiReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that the three forms tell, cleaned of keys and of what an eye cannot see."""

    title: str
    run_id: str
    result: RunResult
    is_ok: bool
    verdict: str = ""
    """The outcome, or `denied` where a denied call makes the job fail."""
    model: str = ""
    tools: int = 0
    asked: int = 0
    denials: tuple[str, ...] = ()
    files: tuple[diff.FileDiff, ...] = ()
    text: str = ""
    error: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()
    schema: str | None = None
    """None when no schema was asked for; else what is wrong, or nothing."""


def report(
    title: str,
    result: RunResult,
    records: Iterable[Recorded] = (),
    *,
    demands: Demands = Demands(),  # noqa: B008  # frozen
    cwd: str = "",
) -> CiReport:
    """From a result and, where there are some, its events; `demands` as for the exit code."""
    story = Story(records)
    error = result.error
    code = exit_code(result, demands)
    why = explain(result, demands)
    asked_for_schema = result.output_rung is not None
    return CiReport(
        title=_line(title, 120) or result.run_id,
        run_id=result.run_id,
        result=result,
        is_ok=code == 0,
        verdict="denied" if code == DENIED else result.outcome,
        model=_line(result.model, 80),
        tools=len(story.calls),
        asked=len(story.asked),
        denials=tuple(
            _line(f"{denial.call.name} {describe(denial.call, cwd=cwd, width=100_000)}: {denial.reason}", 300)
            for denial in result.denials
        ),
        files=tuple(story.changes(redaction.redact)),
        text=_text(result.text),
        error=_line(f"{error.kind}: {error.message}" if error else why or "", 2000),
        hint=_line(error.hint or "", 1000) if error else "",
        warnings=tuple(_line(f"{warning.kind}: {warning.message}", 1000) for warning in result.warnings),
        schema=_line(result.schema_error or "", 1000) if asked_for_schema else None,
    )


def of_run(info: RunInfo, result: RunResult, records: Iterable[Recorded] = ()) -> CiReport:
    return report(info.title, result, records, cwd=info.cwd)


class CiJob:
    """The CI job around one run: what the run prints is fenced, and what happened is kept for the report.

    with Job(environ, is_ci=True, output="text", junit_file=None) as job:
        ...  # job.screen shows it, job.see is given every event
    """

    def __init__(self, environ: Mapping[str, str], *, is_ci: bool, output: str, junit_file: str | None) -> None:
        self._environ = environ if is_ci else {}
        self._junit_file = junit_file
        self._records: list[Recorded] = []
        self._end = ""
        # What a program reads stays what it is: a result, or a file that the answer goes to.
        self._out = sys.stderr if output != "text" or _is_file(sys.stdout) else sys.stdout
        self.screen = Screen.of_process(environ)
        if is_github(self._environ) and self._out is sys.stdout:
            # One stream, one order: on two, the end of the fence could overtake the last words of the agent.
            self.screen = Screen(sys.stdout, sys.stdout, colour=False, width=PIPED_WIDTH, is_live=False)

    def __enter__(self) -> Self:
        if is_github(self._environ):
            begin, self._end = fence()
            self._say(begin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._end:
            self.screen.end_line()
            self._say(self._end)

    def see(self, recorded: Recorded) -> None:
        if not isinstance(recorded.event, MessageDelta | ThinkingDelta) and len(self._records) < MAX_RECORDS:
            self._records.append(recorded)

    def tell(self, title: str, result: RunResult, *, demands: Demands, cwd: str) -> None:
        """After the block: annotations are commands, and inside of it no command is obeyed."""
        found = report(title, result, self._records, demands=demands, cwd=cwd)
        write(found, self._environ, self._out, junit_file=self._junit_file)

    def _say(self, line: str) -> None:
        sys.stdout.flush()
        self._out.write(line + "\n")
        self._out.flush()


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False  # closed, or a stream of a test


# -- GitHub's log ----------------------------------------------------------------------------------------------------


def fence(token: str | None = None) -> tuple[str, str]:
    """Two lines: between them GitHub obeys no command. The token is random, so that no agent can end the fence."""
    token = token or f"leadrope-{secrets.token_hex(16)}"
    return f"::stop-commands::{token}", f"::{token}::"


def commands(found: CiReport) -> list[str]:
    """Workflow commands: the failure, then warnings and denials."""
    lines = []
    if not found.is_ok:
        told = found.error or f"the run ended {found.verdict}"
        lines.append(_command("error", f"leadrope: {found.verdict}", "\n".join(filter(None, (told, found.hint)))))
    warned = [*found.warnings, *(f"denied: {denial}" for denial in found.denials)]
    if found.schema:
        warned.insert(0, f"output: {found.schema}")
    lines += [_command("warning", "leadrope", text) for text in warned[:MAX_ANNOTATIONS]]
    return lines


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# -- the job's summary -----------------------------------------------------------------------------------------------


def summary(found: CiReport) -> str:
    """Markdown. Texts of the run stand in code blocks: a picture in an answer would else be fetched by who reads it."""
    result = found.result
    mark = "✅" if found.is_ok else "❌"
    took, cost, tokens = f"{result.duration_s:.1f} s", f"${result.cost_usd:.4f}", f"{result.usage.total_tokens:,}"
    figures = (result.outcome, took, cost, tokens, str(found.tools), str(found.asked))
    parts = [
        f"### {mark} leadrope: {_cell(found.title)}",
        "",
        f"| outcome | took | cost ({result.cost_label}, {result.cost_source}) | tokens | tool calls | people asked |",
        "|---|---|---|---|---|---|",
        f"| {' | '.join(figures)} |",
        "",
        f"run `{found.run_id}`, model {_cell(found.model) or 'not known'}",
    ]
    if found.error:
        parts += ["", f"**{_cell(found.error)}**"]
        parts += ["", f"What to do: {_cell(found.hint)}"] if found.hint else []
    if found.schema:
        parts += ["", f"Output: {_cell(found.schema)}"]
    for name, lines in (("Warnings", found.warnings), ("Denied", found.denials)):
        if lines:
            parts += ["", f"#### {name}", "", *(f"- {_cell(line)}" for line in lines[:50])]
    if found.text:
        parts += ["", "#### Answer", "", _block(found.text[:20_000])]
    if found.files:
        parts += ["", "#### Files changed", "", "| file | + | - |", "|---|---|---|"]
        parts += [
            f"| {_cell(_line(change.path, 300))} | {change.added} | {change.removed} |" for change in found.files[:200]
        ]
    whole = "\n".join(parts) + "\n\n"
    return whole if len(whole) <= MAX_SUMMARY else whole[: MAX_SUMMARY - 40] + "\n\n(cut here)\n\n"


def _cell(text: str) -> str:
    """One line in which Markdown and HTML mean nothing."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&@:$-])", lambda found: f"&#{ord(found[1])};", " ".join(text.split()))


def _block(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence_ = "`" * max(3, longest + 1)
    return f"{fence_}text\n{text.rstrip()}\n{fence_}"


# -- JUnit -----------------------------------------------------------------------------------------------------------


def junit(found: CiReport) -> str:
    """One suite: the run, and its output against the schema where one was asked for."""
    result = found.result
    is_failure = not found.is_ok and result.outcome not in ("stopped", "parked")
    cases = 1 + (found.schema is not None)
    failures = int(is_failure) + bool(found.schema)
    errors_ = int(not found.is_ok and not is_failure)
    suite = ET.Element(
        "testsuite",
        name="leadrope",
        tests=str(cases),
        failures=str(failures),
        errors=str(errors_),
        skipped="0",
        time=f"{result.duration_s:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    told = {
        "run_id": found.run_id,
        "outcome": result.outcome,
        "model": found.model,
        "session_id": _line(result.session_id or "", 80),
        "cost_usd": f"{result.cost_usd:.6f}",
        "cost_label": result.cost_label,
        "cost_source": result.cost_source,
        "tokens": str(result.usage.total_tokens),
        "tool_calls": str(found.tools),
    }
    for name, value in told.items():
        ET.SubElement(properties, "property", name=name, value=_xml(value))
    case = ET.SubElement(
        suite, "testcase", classname="leadrope.run", name=_xml(found.title), time=f"{result.duration_s:.3f}"
    )
    if not found.is_ok:
        kind = result.error.kind if result.error else found.verdict
        message = found.error or f"the run ended {found.verdict}"
        problem = ET.SubElement(case, "failure" if is_failure else "error", type=kind, message=_xml(message))
        problem.text = _xml("\n".join(filter(None, (message, found.hint))))
    if found.text:
        ET.SubElement(case, "system-out").text = _xml(found.text[:MAX_JUNIT])
    beside = [*found.warnings, *(f"denied: {denial}" for denial in found.denials)]
    if beside:
        ET.SubElement(case, "system-err").text = _xml("\n".join(beside)[:MAX_JUNIT])
    if found.schema is not None:
        fits = ET.SubElement(suite, "testcase", classname="leadrope.run", name="the answer fits its schema")
        if found.schema:
            ET.SubElement(fits, "failure", type="schema", message=_xml(found.schema))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("", text)


# -- writing ---------------------------------------------------------------------------------------------------------


def is_github(environ: Mapping[str, str]) -> bool:
    return environ.get("GITHUB_ACTIONS") == "true"


def write(found: CiReport, environ: Mapping[str, str], out: TextIO, *, junit_file: str | None = None) -> None:
    """Annotations to `out` and the summary to its file, where this is GitHub; the JUnit file where one was named."""
    if is_github(environ):
        out.writelines(line + "\n" for line in commands(found))
        out.flush()
    target = environ.get("GITHUB_STEP_SUMMARY", "")
    if target:
        try:
            with appending_named(target, workspaces=values.workspaces()) as file:
                file.write(summary(found).encode())
        except (OSError, errors.UnsafeFile) as error:
            # The run's own outcome counts, not whether its summary could be written.
            why = error.reason if isinstance(error, errors.UnsafeFile) else error.strerror
            out.write(_command("warning", "leadrope", f"the job summary cannot be written: {why}") + "\n")
    if junit_file is not None:
        values.write_file("--junit", junit_file, junit(found).encode(), mode=0o644, makes=True)


def _line(text: str, width: int) -> str:
    return one_line(clean(redaction.redact(text)), width)


def _text(text: str) -> str:
    return clean(redaction.redact(text))
