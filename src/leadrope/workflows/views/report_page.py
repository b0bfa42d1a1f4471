"""Formats the report of one execution as Markdown, or as a self-contained page.

A report contains what agents, commands and strangers have written: in Markdown that is escaped or fenced, and the page
is inert: no script, no picture, no request, and a single style sheet inside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

import msgspec

from leadrope.core.secrets import redaction
from leadrope.core.text import rehearsal_label
from leadrope.regex import regex
from leadrope.runs.page.entries import span
from leadrope.runs.page.tags import Safe, joined, page_head, tag
from leadrope.runs.page.text import PageWriter
from leadrope.runtime.terminal_text import clean, one_line
from leadrope.version import __version__
from leadrope.workflows.report import answer_command
from leadrope.workflows.views.execution_report import Account, ChildReport, StepAccount

VALUE_CHARS = 1200
"""Per output in a report; the journal has the complete value."""
LINE_CHARS = 80
UNITS_SHOWN = 20
Redact = Callable[[str], str]
_STATES = {"left_out": "not taken", "not_run": "not run", "done_before": "done before"}
_MARKS = {"succeeded": "good", "degraded": "warn", "waiting": "warn", "failed": "bad", "blocked": "bad"}
_STYLE = """
.scroll td, .scroll th, .scroll td code { white-space: nowrap; overflow-wrap: normal; }
.inner p, summary { overflow-wrap: anywhere; }
.values { display: grid; grid-template-columns: fit-content(16rem) 1fr; gap: 4px 14px; margin: 6px 0; }
.values dt, .values dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
"""
_HEAD = ("step", "kind", "state", "time", "cost", "tokens", "retries", "units")


# -- texts
# --------------------------------------------------------------------------------------------------------------


def facts(told: Account) -> list[tuple[str, str]]:
    info = told.info
    found = [("outcome", outcome(told)), ("execution", info.id), ("started", _moment(info.created))]
    if told.took_s is not None:
        found.append(("took", span(told.took_s)))
    if not rehearsal_label.is_rehearsed(info.labels):
        found.append(("cost", f"{money(info.cost_usd)} (estimate at list prices)"))
    found.append(("tokens", f"{info.tokens:,}"))
    retries = sum(step.retries for step in told.steps)
    corrections = sum(step.corrections for step in told.steps)
    if retries:
        found.append(("retries", str(retries)))
    if corrections:
        found.append(("schema corrections", str(corrections)))
    found += [(name, value) for name, value in (("file", info.file), ("folder", info.cwd)) if value]
    if info.labels:
        found.append(("labels", ", ".join(f"{key}={value}" for key, value in info.labels.items())))
    found += [("warning", f"{notice.message} ({notice.kind})") for notice in told.notices]
    found += [("output without a value", line) for line in missing_outputs(told)]
    return found


def missing_outputs(told: Account) -> list[str]:
    """Returns the missing outputs with the reason, if the execution's version has recorded it."""
    whys = told.missing_reasons
    return [f"{name}: {whys[name]}" if name in whys else name for name in told.missing_outputs]


def outcome(told: Account) -> str:
    return told.outcome + (f" ({told.reason})" if told.reason else "")


def next_steps(told: Account) -> list[tuple[str, str]]:
    """Returns what can be done now: pairs of a reason and a command."""
    short = told.info.id[:8]
    found = []
    for one in told.approvals:
        more = f" (choices: {', '.join(one.choices)})" if one.choices else ""
        asked = f"{one.step} waits for a person: {one.detail or one.title}{more}"
        found.append((asked, answer_command(one)))
    if told.info.state == "interrupted" or told.outcome == "stopped":
        how = "stopped" if told.outcome == "stopped" else "cut off"
        found.append((f"It was {how}, and can be resumed", f"leadrope flow resume {short}"))
    if told.outcome == "failed" and told.failed and not rehearsal_label.is_rehearsed(told.info.labels):
        found.append((f"Continue from {told.failed[0].report.id}", f"leadrope flow resume {short}"))
    return found


def state(step: StepAccount) -> str:
    word = "failed, handled" if step.report.is_handled else _STATES.get(step.state, step.state)
    return f"{word}, done before" if step.done_before else f"{word}, from the cache" if step.report.is_cached else word


def cells(step: StepAccount, told: Account) -> tuple[str, ...]:
    """Returns a row of the table of steps, after `step` and `kind`."""
    cost = 0.0 if rehearsal_label.is_rehearsed(told.info.labels) else step.report.cost_usd
    report = step.report
    has_run = step.state in ("succeeded", "degraded", "failed")
    return (
        state(step),
        span(report.duration_s) if has_run else "",
        money(cost) if cost else "",
        f"{report.tokens:,}" if report.tokens else "",
        str(step.retries) if step.retries else "",
        f"{report.units} {step.word}{_of_cache(step)}" if step.word else "",
    )


def _of_cache(step: StepAccount) -> str:
    """Says how many units came from the cache, if only some did; otherwise the state says so."""
    return f", {step.cached} from the cache" if step.cached and not step.report.is_cached else ""


def money(usd: float) -> str:
    return "$0" if not usd else f"${usd:.4f}" if usd < 0.01 else f"${usd:.2f}"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value)).decode()


def _has_more(step: StepAccount) -> bool:
    report = step.report
    return bool(report.error or report.warnings or report.run_ids or step.failed_units or _shown(step))


def _shown(step: StepAccount) -> dict[str, Any]:
    """Returns the outputs worth showing; what agents have used is already in the table."""
    return {
        name: value
        for name, value in step.outputs.items()
        if name not in ("llm_usage", "session_id")
        and value not in (None, "", [], {})
        and (value or name not in ("truncated", "leftovers"))
    }


def _inside(told: Account) -> list[tuple[ChildReport, str]]:
    """Returns the workflows that steps have run, each with the command that shows more."""
    return [(child, f"leadrope flow report {child.id[:8]}") for child in told.children[:UNITS_SHOWN]]


def _unit(step: StepAccount, iteration: int, item: int | None) -> str:
    if item is None:
        return f"turn {iteration + 1}"
    place = f"item {item} (counted from 0)"
    return f"turn {iteration + 1}, {place}" if step.word.startswith("items in turns") else place


# -- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(told: Account, *, redact: Redact = redaction.redact) -> str:
    """Formats the report for a pull request, a chat or a terminal."""

    def say(text: str, width: int = 300) -> str:
        return _escaped(one_line(clean(redact(text)), width))

    lines = [f"# {say(told.title) or 'Workflow'}", ""]
    lines += [f"- {name}: {say(value)}" for name, value in facts(told)]
    for why, command in next_steps(told):
        lines += ["", f"{say(why)}:", "", *_fenced(clean(redact(command)), "sh")]
    lines += ["", "## Steps", "", f"| {' | '.join(_HEAD)} |", "|---|---|---|--:|--:|--:|--:|--:|"]
    for step in told.steps:
        row = (f"`{step.report.id}`", say(step.report.type, 40), *(say(cell, 60) for cell in cells(step, told)))
        lines.append(f"| {' | '.join(row)} |")
    for step in filter(_has_more, told.steps):
        lines += ["", f"### {step.report.id}", "", *_step_markdown(step, say, redact)]
    for name, values in (("Inputs", told.inputs), ("Outputs", told.outputs)):
        if values:
            lines += ["", f"## {name}", "", *_values_markdown(values, say, redact)]
    if told.children:
        lines += ["", "## Inside", ""]
        lines += [f"- `{child.name}`: {child.outcome}, `{command}`" for child, command in _inside(told)]
    return "\n".join(lines) + "\n"


def _step_markdown(step: StepAccount, say: Callable[..., str], redact: Redact) -> Iterator[str]:
    report = step.report
    if report.error is not None:
        yield f"- **failed**: {say(report.error.message, 2000)} ({say(report.error.kind, 60)})"
        if report.error.hint:
            yield f"- what to do: {say(report.error.hint, 1000)}"
    for warning in report.warnings:
        yield f"- warning: {say(warning.message, 2000)} ({say(warning.kind, 100)})"
    if step.retries:
        yield f"- tried again: {step.retries}"
    if step.corrections:
        yield f"- corrected towards its schema: {step.corrections}"
    for run in report.run_ids[:UNITS_SHOWN]:
        yield f"- run: `leadrope runs show {_plain(run)[:8]}`"
    if len(report.run_ids) > UNITS_SHOWN:
        yield f"- and {len(report.run_ids) - UNITS_SHOWN} more runs"
    for one in step.failed_units[:UNITS_SHOWN]:
        why = one.error.message if one.error is not None else "failed"
        yield f"- {_unit(step, one.iteration, one.item)} failed: {say(why, 500)}"
    if len(step.failed_units) > UNITS_SHOWN:
        yield f"- and {len(step.failed_units) - UNITS_SHOWN} more failed"
    yield from _values_markdown(_shown(step), say, redact)


def _values_markdown(values: Mapping[str, Any], say: Callable[..., str], redact: Redact) -> Iterator[str]:
    """Lists first what fits into a line; formats the rest in blocks."""
    texts = {name: clean(redact(_text(value))).strip("\n") for name, value in values.items()}
    short = [name for name, text in texts.items() if len(text) <= LINE_CHARS and "\n" not in text]
    for name in short:
        yield f"- `{_plain(name)}`: {say(texts[name])}"
    for name, text in texts.items():
        if name not in short:
            yield ""
            yield f"`{_plain(name)}`:" + (f" ({len(text):,} characters in all)" if len(text) > VALUE_CHARS else "")
            yield ""
            yield from _fenced(text[:VALUE_CHARS], "" if isinstance(values[name], str) else "json")


def _fenced(text: str, language: str) -> list[str]:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", text.rstrip("\n"), fence]


_MARK = regex(r"([\\`*\[\]<>|~#])")
_CODE = regex(r"(`[^`]+`)")
_UNFIT_FOR_CODE = regex(r"[\\|<>]")


def _escaped(text: str) -> str:
    """Escapes a text; parts that are already between backticks (`timeout`) stay, since they are harmless."""
    return "".join(
        part if number % 2 and not _UNFIT_FOR_CODE.search(part) else _MARK.sub(r"\\\1", part)
        for number, part in enumerate(_CODE.split(text))
    )


def _plain(text: str) -> str:
    """Prepares a text to be put between backticks."""
    return one_line(clean(text).replace("`", "'"), 100)


# -- the page ---------------------------------------------------------------------------------------------------------


def page(told: Account, *, redact: Redact = redaction.redact) -> str:
    """Formats the report as an HTML page that loads nothing."""
    write = PageWriter(redact)
    style = resources.files("leadrope.runs.page").joinpath("page.css").read_text(encoding="utf-8") + _STYLE
    title = write.line(told.title, 100) or "Workflow"
    head = page_head(f"{title} · leadrope", style)
    foot = (
        f"Made by leadrope {__version__}. Costs are estimates at list prices. This page loads nothing and runs nothing."
    )
    main = tag(
        "main",
        _top(told, title, write),
        *(_failed_box(step, write) for step in told.failed),
        *(_next_box(why, command, write) for why, command in next_steps(told)),
        tag("h2", "Steps"),
        _table(told, write),
        *(_details(step, write) for step in told.steps if _has_more(step)),
        *(
            joined(tag("h2", name), tag("div", _values(values, write, VALUE_CHARS * 4), cls="card"))
            for name, values in (("Outputs", told.outputs), ("Inputs", told.inputs))
            if values
        ),
        tag("h2", "Inside") if told.children else "",
        *(tag("p", f"{child.name}: {child.outcome}, ", _code(command)) for child, command in _inside(told)),
        tag("footer", foot),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', main), lang='en')}\n"


def _top(told: Account, title: str, write: PageWriter) -> Safe:
    info = told.info
    known = dict(facts(told))
    shown: list[tuple[str, str]] = [
        (name, write.line(known[name].removesuffix(" (estimate at list prices)"), 80))
        for name in ("started", "took", "cost", "tokens", "retries", "schema corrections")
        if name in known
    ]
    done = sum(step.state in ("succeeded", "degraded", "failed", "skipped") for step in told.steps)
    shown.insert(2, ("steps", f"{done} of {len(told.steps)} done"))
    lines = [info.id, info.file, info.cwd, known.get("labels", "")]
    missing = [f"output without a value: {line}" for line in missing_outputs(told)]
    about = " · ".join(write.line(line, 200) for line in (*lines, *missing) if line)
    return joined(
        tag(
            "header",
            tag("div", tag("h1", title), tag("p", about, cls="sub")),
            tag("span", write.line(outcome(told), 80), cls=f"badge big {_mark(told.outcome)}".strip()),
            cls="top",
        ),
        tag("dl", *(_fact(name, value) for name, value in shown), cls="facts"),
    )


def _fact(name: str, value: str) -> Safe:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", "estimate") if name == "cost" else ""))


def _next_box(why: str, command: str, write: PageWriter) -> Safe:
    return tag("section", tag("p", write.line(why, 600)), tag("p", _code(write.line(command, 400))), cls="box warn")


def _failed_box(step: StepAccount, write: PageWriter) -> Safe:
    error = step.report.error
    if error is None:
        return Safe()
    return tag(
        "section",
        tag("p", tag("strong", step.report.id), ": ", write.line(error.message, 2000)),
        tag("p", "What to do: ", write.line(error.hint, 1000)) if error.hint else "",
        cls="box bad",
    )


def _table(told: Account, write: PageWriter) -> Safe:
    rows = [tag("tr", *(tag("th", name, cls="n" if number > 2 else "") for number, name in enumerate(_HEAD)))]
    for step in told.steps:
        word, *numbers = cells(step, told)
        rows.append(
            tag(
                "tr",
                tag("td", tag("code", step.report.id)),
                tag("td", write.line(step.report.type, 40)),
                tag("td", tag("span", word, cls=f"badge {_mark(step.state)}".strip())),
                *(tag("td", number, cls="n") for number in numbers),
            )
        )
    return tag("div", tag("table", *rows), cls="scroll")


def _details(step: StepAccount, write: PageWriter) -> Safe:
    report = step.report
    told: list[Safe] = []
    if report.error is not None:
        told.append(tag("p", tag("strong", "failed"), f" ({write.line(report.error.kind, 60)}): "))
        told.append(write.output(report.error.message))
        if report.error.hint:
            told.append(tag("p", "What to do: ", write.line(report.error.hint, 1000)))
    told += [
        tag("p", tag("strong", "warning"), f" ({write.line(one.kind, 100)}): {write.line(one.message, 2000)}")
        for one in report.warnings
    ]
    if step.retries:
        told.append(tag("p", f"Tried again: {step.retries}."))
    if step.corrections:
        told.append(tag("p", f"Corrected towards its schema: {step.corrections}."))
    told += [tag("p", _code(f"leadrope runs show {run[:8]}")) for run in report.run_ids[:UNITS_SHOWN]]
    if len(report.run_ids) > UNITS_SHOWN:
        told.append(tag("p", f"and {len(report.run_ids) - UNITS_SHOWN} more runs"))
    for one in step.failed_units[:UNITS_SHOWN]:
        why = write.line(one.error.message if one.error is not None else "failed", 500)
        told.append(tag("p", f"{_unit(step, one.iteration, one.item)} failed: {why}"))
    if len(step.failed_units) > UNITS_SHOWN:
        told.append(tag("p", f"and {len(step.failed_units) - UNITS_SHOWN} more failed"))
    told.append(_values(_shown(step), write, VALUE_CHARS))
    summary = tag("summary", tag("strong", step.report.id), f" {write.line(report.type, 40)} · {state(step)}")
    return tag(
        "details", summary, tag("div", *told, cls="inner"), cls="more", open=step.state in ("failed", "degraded")
    )


def _values(values: Mapping[str, Any], write: PageWriter, limit: int) -> Safe:
    """Lists first what fits into a line; formats the rest in blocks."""
    texts = {name: _text(value) for name, value in values.items()}
    short = [name for name, text in texts.items() if len(text) <= LINE_CHARS and "\n" not in text]
    rows = [(tag("dt", tag("code", write.line(name, 100))), tag("dd", write.line(texts[name], 300))) for name in short]
    blocks = [
        joined(tag("p", tag("code", write.line(name, 100))), write.output(text, limit))
        for name, text in texts.items()
        if name not in short
    ]
    return joined(tag("dl", *(part for row in rows for part in row), cls="values") if rows else "", *blocks)


def _code(text: str) -> Safe:
    return tag("code", text)


def _mark(word: str) -> str:
    return _MARKS.get(word, "")
