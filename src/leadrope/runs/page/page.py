"""Renders a run as one self-contained HTML file, without server, scripts or external hosts. Reads nothing.

The page contains untrusted texts, so its content security policy forbids scripts, images, frames, forms and all
requests, and allows only the style sheet that is embedded in it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import resources

import msgspec

from leadrope.core.events import Recorded
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.secrets import redaction
from leadrope.core.text.rehearsal_label import is_rehearsed
from leadrope.runs.page import diff as page_diff
from leadrope.runs.page import entries
from leadrope.runs.page.story import QuestionEntry, Story
from leadrope.runs.page.tags import Safe, joined, page_head, tag
from leadrope.runs.page.text import PageWriter
from leadrope.runs.records.values import RunInfo
from leadrope.runtime.terminal_text import exact
from leadrope.version import __version__

DIFF_LINES = 1500
"""Maximum diff lines of one file on the page."""
FILES = 300
ROWS = 500


def render(
    info: RunInfo,
    request: RunRequest | None,
    records: Iterable[Recorded],
    result: RunResult | None,
    *,
    diff: str | None = None,
    redact: Callable[[str], str] = redaction.redact,
) -> str:
    """Render the page. `diff` is git's diff of the folder; without it, the agent's edits are shown.

    Path("run.html").write_text(render(info, texts.request, store.read(info, 1, 10**9), texts.result))
    """
    story = Story(records)
    write = PageWriter(redact)
    sections = [
        _head(info, story, result, write),
        _failure(result, write),
        _answer(result, write),
        _task(request, write),
        entries.strip(story, write),
        entries.listing(story, write, run_id=info.id),
        _people(story, write),
        _files(story, diff, write),
        _money(info, result, write),
        _setting(info, request, story, write),
    ]
    style = _style()
    head = page_head(f"{write.line(info.title or info.id, 100)} · leadrope", style)
    foot = tag(
        "footer",
        f"Made by leadrope {__version__} from {story.events:,} events of run {info.id}. "
        "Costs are estimates at list prices. This page loads nothing and runs nothing.",
    )
    body = tag("body", tag("a", "Skip to the events", cls="skip", href="#story"), tag("main", *sections, foot))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


@functools.cache
def _style() -> str:
    return resources.files("leadrope.runs.page").joinpath("page.css").read_text(encoding="utf-8")


# -- the top ---------------------------------------------------------------------------------------------------------


def _head(info: RunInfo, story: Story, result: RunResult | None, write: PageWriter) -> Safe:
    outcome = result.outcome if result else info.outcome or info.state
    marks = {"succeeded": "good", "degraded": "warn", "parked": "warn", "stopped": "warn"}
    mark = marks.get(outcome, "bad" if result or info.outcome else "")
    usage = result.usage if result else None
    cost = f"${result.cost_usd if result else info.cost_usd:.4f}"
    cost_note = result.cost_note if result else info.cost_label
    if is_rehearsed(info.labels):
        cost, cost_note = "none", "rehearsal"
    began = info.started or story.first or info.created
    ended = info.ended or (story.last if info.state == "ended" else 0)
    took = result.duration_s if result else max(0.0, ended - began) if ended else 0.0
    tokens = usage.total_tokens if usage else info.tokens
    denied = sum(call.decided is not None and call.decided.decision == "deny" for call in story.calls.values())
    facts = [
        ("started", when(began), ""),
        ("took", entries.span(took) if took else "—", count(info.attempt, "attempt") if info.attempt > 1 else ""),
        ("cost", cost, cost_note),
        ("tokens", f"{tokens:,}", f"{usage.output_tokens:,} written" if usage else ""),
        ("tool calls", f"{len(story.calls):,}", f"{denied} denied" if denied else "none denied"),
        ("people asked", f"{len(story.asked):,}", ""),
        ("model", write.line(info.model or (result.model if result else "") or "—", 60), write.line(info.provider, 60)),
    ]
    cells = [
        tag("div", tag("dt", name), tag("dd", value, tag("small", more) if more else "")) for name, value, more in facts
    ]
    labels = " · ".join(f"{write.line(key, 40)}={write.line(value, 60)}" for key, value in info.labels.items())
    lines = [info.id, write.line(info.cwd, 200), write.line(info.agent, 60), labels]
    return joined(
        tag(
            "header",
            tag(
                "div",
                tag("h1", write.line(info.title or "(no title)")),
                tag("p", " · ".join(filter(None, lines)), cls="sub"),
            ),
            tag("span", outcome.replace("_", " "), cls=f"badge big {mark}".strip()),
            cls="top",
        ),
        tag("dl", *cells, cls="facts"),
    )


def _failure(result: RunResult | None, write: PageWriter) -> Safe:
    if result is None:
        return Safe()
    boxes = []
    if result.error is not None:
        error = result.error
        details = [
            f"clock: {write.line(error.clock, 40)}" if error.clock else "",
            f"HTTP status {error.api_status}" if error.api_status else "",
            f"exit code {error.exit_code}" if error.exit_code not in (None, 0) else "",
        ]
        told = " · ".join(filter(None, details))
        boxes.append(
            tag(
                "section",
                tag("p", tag("strong", error.kind.replace("_", " ")), ": ", write.line(error.message, 2000)),
                tag("p", "What to do: ", write.line(error.hint, 1000)) if error.hint else "",
                tag("p", told, cls="note") if told else "",
                _more("stderr", write.output("\n".join(error.stderr_tail))) if error.stderr_tail else "",
                cls="box bad",
            )
        )
    if result.schema_error:
        boxes.append(tag("section", tag("p", "Output: ", write.line(result.schema_error, 2000)), cls="box warn"))
    if result.warnings:
        lines = [
            tag("p", tag("strong", write.line(w.kind, 80)), ": ", write.line(w.message, 1000))
            for w in result.warnings[:50]
        ]
        boxes.append(tag("section", *lines, cls="box warn"))
    return joined(*boxes)


def _answer(result: RunResult | None, write: PageWriter) -> Safe:
    if result is None or not (result.text or result.output is not None):
        return Safe()
    parts = [tag("h2", "Answer")]
    if result.text:
        parts.append(tag("div", write.prose(result.text, 60_000), cls="card"))
    if result.output is not None:
        parts.append(_more("Structured output", write.block(_json(result.output), 60_000)))
    return tag("section", *parts)


def _task(request: RunRequest | None, write: PageWriter) -> Safe:
    if request is None:
        return Safe()
    return tag("section", tag("h2", "Task"), tag("div", write.prose(request.prompt, 30_000), cls="card"))


# -- below the story -------------------------------------------------------------------------------------------------


def _people(story: Story, write: PageWriter) -> Safe:
    if not story.asked:
        return Safe()
    rows = [_row("th", "", "asked for", "answer", "by", "why")]
    for asked in story.asked[:ROWS]:
        answer = entries.answer_badge(asked)
        waited = f"after {entries.span(asked.answered - asked.time)}" if asked.answered is not None else ""
        rows.append(
            _row("td", entries.clock(asked.time - (story.first or 0)), _subject(asked, write), answer,
                 joined(write.line(asked.by, 80), tag("div", waited, cls="note")), write.line(asked.why, 300))
        )  # fmt: skip
    return joined(
        tag("h2", "Approvals and questions", _small(f"{len(story.asked)}")), _table(rows), _rest(len(story.asked), ROWS)
    )


def _subject(asked: QuestionEntry, write: PageWriter) -> Safe:
    if asked.call is not None:
        words = entries.summary_of(asked.call, write)
        return joined(
            tag("strong", write.line(asked.call.call.name, 60)),
            " ",
            tag("code", words),
            tag("div", write.line(asked.reason, 300), cls="note"),
        )
    question = asked.question
    if question is None:
        return Safe()
    if question.kind == "plan":
        return _more("the plan", write.prose(question.plan, 8000))
    lines = [tag("div", write.line(item.question, 300)) for item in question.questions]
    answers = [tag("div", "→ ", write.line(text, 300), cls="note") for text in asked.answers.values()]
    return joined(*lines, *answers)


def _files(story: Story, diff: str | None, write: PageWriter) -> Safe:
    changes = page_diff.of_text(diff) if diff else story.changes(write.redact)
    if not changes:
        return Safe()
    shown = [_file(change, write) for change in changes[:FILES]]
    source = "as git tells it" if diff else "from the agent's edits; what commands changed is not in it"
    return joined(tag("h2", "Files changed", _small(f"{len(changes)}, {source}")), *shown, _rest(len(changes), FILES))


def _file(change: page_diff.FileDiff, write: PageWriter) -> Safe:
    lines = [_diff_line(line) for line in write.lines(change.lines[:DIFF_LINES])]
    unsure = tag("span", "not known whether it was done", cls="badge warn") if not change.is_certain else Safe()
    edits = f" · {count(change.edits, 'edit')}" if change.edits > 1 else ""
    more = (
        tag("p", f"{len(change.lines) - DIFF_LINES:,} more lines.", cls="note")
        if len(change.lines) > DIFF_LINES
        else Safe()
    )
    summary = tag(
        "summary",
        tag("span", write.line(exact(change.path), 300), cls="mono"),
        " ",
        tag("span", f"+{change.added}", cls="plus"),
        " ",
        tag("span", f"-{change.removed}", cls="minus"),
        tag("span", edits, cls="note"),
        " ",
        unsure,
    )
    return tag(
        "details", summary, tag("pre", *lines, cls="diff", tabindex="0"), more, cls="file", open=len(change.lines) <= 40
    )


def _diff_line(line: str) -> Safe:
    marks = {"+": "d-plus", "-": "d-minus", "@": "d-at"}
    return tag("span", line or " ", cls=marks.get(line[:1], ""))


def _money(info: RunInfo, result: RunResult | None, write: PageWriter) -> Safe:
    totals = result.totals if result else None
    if totals is None:
        return Safe()
    header = _row("th", "", "read", "of it cached", "written", "cost", numbers=True)
    rows = [header]
    for model, share in totals.models.items():
        usage = share.usage
        rows.append(
            _number_row(
                write.line(model, 80),
                usage.prompt_tokens,
                usage.cache_read_input_tokens,
                usage.output_tokens,
                f"${share.cost_usd:.4f}",
            )
        )
    if len(totals.agents) > 1:
        for agent, usage in list(totals.agents.items())[:ROWS]:
            rows.append(
                _number_row(
                    f"agent {write.line(agent, 60)}",
                    usage.prompt_tokens,
                    usage.cache_read_input_tokens,
                    usage.output_tokens,
                    "",
                )
            )
    rows.append(
        _number_row(
            "all", totals.input_tokens, totals.cache_read_input_tokens, totals.output_tokens, f"${totals.cost_usd:.4f}"
        )
    )
    source = "the agent's own estimate" if totals.cost_source == "cli" else "computed from tokens and list prices"
    label = "a rehearsal, not paid for" if is_rehearsed(info.labels) else totals.cost_label
    note = f"{label}, {source}; {count(totals.num_turns, 'model call')} in {count(totals.attempts, 'attempt')}"
    return joined(tag("h2", "Cost and tokens", _small(note)), _table(rows))


def _setting(info: RunInfo, request: RunRequest | None, story: Story, write: PageWriter) -> Safe:
    facts: dict[str, str] = {
        "run": info.id,
        "session": info.session_id or "",
        "folder": info.cwd,
        "retry of": info.parent or "",
    }
    if story.session is not None:
        session = story.session
        facts |= {
            "agent": f"{session.provider} {session.agent_version}".strip(),
            "tools": ", ".join(session.tools),
            "connections": ", ".join(f"{c.name} ({c.status})" for c in session.connections),
            "instructions": ", ".join(session.instructions),
            "sandbox": session.sandbox or "none",
        }
        if session.credential is not None:
            facts["paid by"] = f"{session.credential.source} ({session.credential.billing})"
    if request is not None:
        limits = msgspec.to_builtins(request.limits)
        facts |= {
            "mode": request.mode,
            # Names only: a value may be a secret that has no known shape.
            "variables": ", ".join(request.variables),
            "limits": ", ".join(f"{key} {value}" for key, value in limits.items() if value is not None),
        }
        facts["policy of the run"] = _json(request.policy) if request.policy else ""
    rows = [_row("td", name, write.line(value, 1500)) for name, value in facts.items() if value]
    return joined(tag("h2", "Set-up"), _more("How this run was set up", _table(rows)))


# -- pieces ----------------------------------------------------------------------------------------------------------


def when(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(epoch)) if epoch else "—"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _small(text: str) -> Safe:
    return tag("small", text)


def _more(title: str, body: Safe) -> Safe:
    return tag("details", tag("summary", title), tag("div", body, cls="inner"), cls="more")


def _rest(found: int, shown: int) -> Safe:
    return tag("p", f"{found - shown:,} more are not shown.", cls="note") if found > shown else Safe()


def _table(rows: Sequence[Safe]) -> Safe:
    return tag("div", tag("table", *rows), cls="scroll")


def _row(kind: str, *cells: str, numbers: bool = False) -> Safe:
    return tag("tr", *(tag(kind, cell, cls="n" if numbers and at else "") for at, cell in enumerate(cells)))


def _number_row(name: str, read: int, cached: int, written: int, cost: str) -> Safe:
    return _row("td", name, f"{read:,}", f"{cached:,}", f"{written:,}", cost, numbers=True)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
