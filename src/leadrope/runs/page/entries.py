"""The middle of a run's page: the timeline, and the list of events. Independent of files and stores."""

from __future__ import annotations

from leadrope.core.tools import ToolCall
from leadrope.runs.page.story import Call, QuestionEntry, Story, StoryEntry
from leadrope.runs.page.tags import Safe, joined, tag, titled
from leadrope.runs.page.text import PageWriter
from leadrope.runtime.terminal_text import describe, whole_input

MAX_ENTRIES = 3000
"""More entries take a browser seconds to lay out, and nobody reads them."""
STRIP_WIDTH = 1200


def strip(story: Story, write: PageWriter) -> Safe:
    """Render the timeline: what was said, what tools did, and how long a person was waited for."""
    if story.first is None:
        return Safe()
    whole = max(story.last - story.first, 0.001)
    drawn: dict[tuple[int, str, int], Safe] = {}

    def bar(begin: float, end: float, top: int, cls: str, title: str) -> None:
        x = STRIP_WIDTH * (begin - (story.first or 0)) / whole
        width = min(max(2.0, STRIP_WIDTH * (end - begin) / whole), STRIP_WIDTH - x + 2)
        # More than one mark per pixel cannot be seen.
        place = (int(x), cls, top)
        if place not in drawn or width > 2:
            rect = {"x": f"{min(x, STRIP_WIDTH - 2):.1f}", "y": str(top), "width": f"{width:.1f}", "height": "12"}
            drawn[place] = titled(title, {**rect, "class": cls})

    for entry in story.entries:
        if entry.kind == "message" and not entry.is_thought:
            bar(entry.time, entry.time, 4, "t-say", f"{entry.label} at {clock(entry.time - story.first)}")
        elif entry.call is not None:
            call = entry.call
            begin = call.decided_at or call.time
            title = f"{write.line(call.call.name, 40)} {_took(call)}".strip()
            bar(begin, call.done_at or begin, 21, f"t-{call.mark or 'none'}", title)
        elif entry.asked is not None:
            asked = entry.asked
            bar(
                asked.time,
                asked.answered or story.last,
                38,
                "t-wait",
                f"waited for a person at {clock(asked.time - story.first)}",
            )
    drawing = Safe(
        f'<svg class="strip" viewBox="0 0 {STRIP_WIDTH} 54" preserveAspectRatio="none" role="img" '
        f'aria-label="The run over time">{joined(*drawn.values())}</svg>'
    )
    axis = tag("div", *(tag("span", span(whole * part / 4)) for part in range(5)), cls="axis")
    names = (
        ("say", "said"),
        ("good", "tool"),
        ("bad", "tool failed"),
        ("warn", "denied"),
        ("wait", "waited for a person"),
    )
    legend = tag("div", *(tag("span", tag("i", cls=f"l-{mark}"), name) for mark, name in names), cls="legend")
    return joined(tag("h2", "Over time"), drawing, axis, legend)


def listing(story: Story, write: PageWriter, *, run_id: str) -> Safe:
    chosen = _chosen(story.entries)
    cwd = story.session.cwd if story.session else ""
    rows: list[Safe] = []
    before = -1
    for at in chosen:
        if at > before + 1:
            count = at - before - 1
            rows.append(
                tag("li", f"{count:,} entries are left out here; `leadrope events {run_id}` shows them all", cls="gap")
            )
        before = at
        rows.append(_entry(story.entries[at], story.first or 0.0, write, cwd))
    picks = (("all", "All"), ("tool", "Tools"), ("message", "Messages"), ("asked", "Asked"), ("problem", "Problems"))
    filters = [
        joined(
            tag("input", cls="pick", type="radio", name="pick", id=f"p-{key}", checked=key == "all"),
            tag("label", name, for_=f"p-{key}"),
        )
        for key, name in picks
    ]
    title = tag("h2", "What happened", tag("small", f"{len(story.entries):,} entries"), id="story")
    return tag("section", title, *filters, tag("ol", *rows, cls="story"))


def _chosen(entries: list[StoryEntry]) -> list[int]:
    """Return all entries, or the beginning, the end, and the important ones between."""
    if len(entries) <= MAX_ENTRIES:
        return list(range(len(entries)))
    third = MAX_ENTRIES // 3
    middle = (at for at in range(third, len(entries) - third) if entries[at].is_notable)
    notable = [at for _, at in zip(range(third), middle, strict=False)]
    return [*range(third), *notable, *range(len(entries) - third, len(entries))]


def _entry(entry: StoryEntry, start: float, write: PageWriter, cwd: str) -> Safe:
    state = entry.state
    classes = [f"k-{entry.kind}", f"s-{state}" if state else ""]
    if entry.asked is not None or (entry.call is not None and entry.call.asked is not None):
        classes.append("is-asked")
    if state in ("warn", "bad"):
        classes.append("is-problem")
    if entry.agent_id is not None:
        classes.append("sub-agent")
    if entry.is_thought:
        classes.append("thought")
    if entry.call is not None:
        title, body = summary_of(entry.call, write, cwd), _call_body(entry.call, write)
        badge = joined(tag("span", _who(entry.call, write), cls="by"), _fate(entry.call))
    elif entry.asked is not None:
        title, badge, body = (
            _asked_title(entry.asked, write),
            answer_badge(entry.asked),
            _asked_body(entry.asked, write),
        )
    elif entry.kind == "message":
        title = write.line(next(filter(str.strip, entry.text.split("\n")), ""), 160)
        body = write.prose(entry.text) if "\n" in entry.text or len(entry.text) > 90 else Safe()
        badge = tag("span", "error", cls="badge bad") if entry.mark == "bad" else Safe()
    else:
        title, badge = write.line(entry.title, 300), Safe()
        body = write.output(entry.text) if entry.text else Safe()
    row = tag(
        "div",
        tag("span", clock(entry.time - start), cls="at"),
        tag("span", write.line(entry.label, 60), cls="what"),
        tag("span", title, cls="said"),
        tag("span", badge, cls="end"),
        cls="row",
    )
    inner = tag("details", tag("summary", row), tag("div", body, cls="body")) if body else row
    return tag("li", inner, cls=" ".join(filter(None, classes)))


def summary_of(call: Call, write: PageWriter, cwd: str = "") -> str:
    shown = ToolCall(id="", name=call.call.name, input=dict(call.input))
    # Redacted before it is cut: half a key is still half a key.
    return write.line(describe(shown, cwd=cwd, width=100_000), 180)


def _who(call: Call, write: PageWriter) -> str:
    """Name who approved or denied the call."""
    if call.decided is None:
        return ""
    if call.asked is not None and call.asked.by:
        return write.line(call.asked.by, 24)
    return write.line(call.decided.rule, 24)


def _fate(call: Call) -> Safe:
    match call.mark:
        case "warn":
            return tag("span", "denied", cls="badge warn")
        case "bad":
            return tag("span", "failed", cls="badge bad")
        case "good":
            return tag("span", _took(call) or "done", cls="badge good")
        case _:
            return tag("span", "no result", cls="badge")


def _call_body(call: Call, write: PageWriter) -> Safe:
    parts: list[Safe] = [_decision(call, write)]
    if call.asked is not None:
        parts.append(_person(call.asked, write))
    edited = call.decided is not None and call.decided.edited is not None
    if edited:
        parts += [
            _label("The agent wanted"),
            write.block(whole_input(call.call.input), 4000),
            _label("A person made it"),
        ]
    else:
        parts.append(_label("Input"))
    parts.append(write.block(whole_input(dict(call.input)), 8000))
    if call.done is not None:
        ran = "" if call.done.executed else " (it never ran)"
        parts.append(_label(f"{'Error' if call.done.is_error else 'Result'}{ran}"))
        parts.append(write.output(call.done.text) if call.done.text else tag("p", "nothing", cls="note"))
    return joined(*parts)


def _decision(call: Call, write: PageWriter) -> Safe:
    decided = call.decided
    if decided is None:
        return tag("p", "Nothing was decided: the agent itself refused the call, or the record ends here.", cls="note")
    verb = "Allowed" if decided.decision == "allow" else "Denied"
    who = write.line(decided.by, 80)
    layer = f" of {write.line(decided.layer, 60)}" if decided.layer else ""
    why = joined(": ", write.line(decided.reason, 600)) if decided.reason else Safe()
    return tag(
        "p", tag("strong", verb), f" by {who}, ", tag("code", write.line(decided.rule, 120)), layer, why, cls="kv"
    )


def _person(asked: QuestionEntry, write: PageWriter) -> Safe:
    told = f"Asked because {write.line(asked.reason, 400)}" if asked.reason else "A person was asked"
    if asked.answered is None:
        return tag("p", f"{told}; no answer came.", cls="kv")
    if asked.question is not None and asked.question.kind == "question":
        answer = "answered" if asked.is_yes else "did not answer"
    else:
        answer = "approved it" if asked.is_yes else "denied it"
    scope = ", for the same call in the whole run" if asked.scope == "run" else ""
    why = f": {write.line(asked.why, 400)}" if asked.why else ""
    took = span(asked.answered - asked.time)
    return tag("p", f"{told}. {write.line(asked.by, 80) or 'Somebody'} {answer} after {took}{scope}{why}", cls="kv")


def _asked_title(asked: QuestionEntry, write: PageWriter) -> str:
    if asked.call is not None:
        return f"{write.line(asked.call.call.name, 60)}: {summary_of(asked.call, write)}"
    question = asked.question
    if question is None:
        return ""
    return write.line(
        question.plan if question.kind == "plan" else " / ".join(q.question for q in question.questions), 200
    )


def _asked_body(asked: QuestionEntry, write: PageWriter) -> Safe:
    parts = [_person(asked, write)]
    if asked.risk:
        parts.append(tag("p", tag("b", "risk"), asked.risk, cls="kv"))
    if asked.reading:
        parts.append(tag("p", tag("b", "it would start"), write.line(asked.reading, 600), cls="kv"))
    if asked.question is not None and asked.question.plan:
        parts.append(write.prose(asked.question.plan, 12_000))
    for question, answer in asked.answers.items():
        parts.append(tag("p", tag("b", write.line(question, 300)), write.line(answer, 600), cls="kv"))
    return joined(*parts)


def answer_badge(asked: QuestionEntry) -> Safe:
    if asked.is_yes is None:
        return tag("span", "no answer", cls="badge")
    if asked.question is not None and asked.question.kind == "question":
        return tag(
            "span", "answered" if asked.is_yes else "declined", cls=f"badge {'good' if asked.is_yes else 'warn'}"
        )
    return tag("span", "yes" if asked.is_yes else "no", cls=f"badge {'good' if asked.is_yes else 'warn'}")


def _label(text: str) -> Safe:
    return tag("div", text, cls="note")


def _took(call: Call) -> str:
    begin = call.decided_at or call.time
    return span(call.done_at - begin) if call.done_at is not None else ""


def span(seconds: float) -> str:
    """Format a duration in at most two units.

    >>> span(0.25), span(75), span(7300)
    ('250 ms', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def clock(seconds: float) -> str:
    """Format the time since the run began.

    >>> clock(75.31)
    '1:15.3'
    """
    tenths = int(max(0.0, seconds) * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest // 10:02}" if hours else f"{minutes}:{rest // 10:02}.{rest % 10}"
