"""The report of an execution: what the journal knows, in a table, honest about what has not run, and never mark-up."""

from __future__ import annotations

import html.parser
import re
from typing import Any

import msgspec
import pytest

from leadrope.runs.executions.values import STEP_TOTAL, ExecutionInfo, Remark, UnitOutcome, UnitProblem
from leadrope.workflows import library
from leadrope.workflows.engine.journal_mapping import recordable
from leadrope.workflows.engine.step_attempt import UnitResult
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.report import PendingApproval
from leadrope.workflows.steps.base import StepDone
from leadrope.workflows.views import report_page
from leadrope.workflows.views.execution_report import Account, ChildReport, account

TEXT = """# Nightly

## Steps

### fetch
- type: http
- url: https://example.org
- retry: {max: 2}

### each
- type: agent
- prompt: look at ${item}
- batch: {items: [a, b, c], error_handling: continue}

### decide
- type: condition
- value: ${each.count}
- next: {"yes": good, "no": poor}

### good
- type: note

### poor
- type: note

### last
- type: approval
- message: Go on?
- after: [good, poor]

### tail
- type: note
"""
HOSTILE = (
    "</code></pre><script>x()</script><img src=https://e.org/x>|`` ```\n# head\n~~~ \x1b[31m\u202e**b** sk-ant-api03-"
    + "A" * 90
)
FETCHED = UnitOutcome(
    step="fetch", status="succeeded", attempts=3, started=1000.0, ended=1002.5, outputs={"status": 200}
)


def execution(state: Any = "ended", outcome: Any = None, **more: Any) -> ExecutionInfo:
    return ExecutionInfo(n=1, id="f" * 32, digest="d", created=999.0, state=state, outcome=outcome, **more)


def unit(item: int, status: Any = "succeeded", **more: Any) -> UnitOutcome:
    usage = {"retries": [{"reason": "correction"}] * (item == 1)}
    return UnitOutcome(
        step="each",
        item=item,
        status=status,
        run_id=f"{item}abcdef0123",
        cost_usd=0.25,
        tokens=1000,
        started=1003.0,
        ended=1004.0,
        outputs={"result": f"r{item}", "llm_usage": usage},
        **more,
    )


BATCH = [
    unit(0),
    unit(1),
    unit(2, "failed", error=UnitProblem(kind="timed_out", message="took too long", hint="Give it more time.")),
    UnitOutcome(
        step="each",
        iteration=STEP_TOTAL,
        status="degraded",
        outputs={"count": 3, "errors": []},
        warnings=(Remark(kind="batch.items_failed", message="1 of 3 items failed"),),
        started=1003.0,
        ended=1010.0,
        is_sum=True,
    ),
]
CHOSEN = UnitOutcome(step="decide", status="succeeded", branch="yes", started=1010.0, ended=1010.1)


def told(info: ExecutionInfo, outcomes: list[UnitOutcome], **more: Any) -> Account:
    return account(info, library.parsed(TEXT), outcomes, **more)


def test_the_results_of_a_batch_are_put_together_from_its_items() -> None:
    (each,) = [step for step in told(execution("running"), [FETCHED, *BATCH]).steps if step.report.id == "each"]
    assert [(one["item"], one["index"], one.get("result")) for one in each.outputs["results"]] == [
        ("a", 0, "r0"),
        ("b", 1, "r1"),
        ("c", 2, None),
    ]
    assert each.outputs["results"][2]["error"]["message"] == "took too long"


def states(of: Account) -> dict[str, str]:
    return {step.report.id: step.state for step in of.steps}


def rows(text: str) -> dict[str, list[str]]:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in found}


def test_each_step_has_its_time_cost_tokens_retries_and_units() -> None:
    of = told(execution("ended", "degraded", ended=1020.0, cost_usd=0.75, tokens=3000), [FETCHED, *BATCH, CHOSEN])
    text = report_page.markdown(of)
    table = rows(text)
    assert table["fetch"] == ["http", "succeeded", "2.5 s", "", "", "2", ""]
    assert table["each"] == ["agent", "degraded", "7.0 s", "$0.75", "3,000", "", "3 items"]
    assert table["poor"][1] == "not taken"
    for words in (
        "- outcome: degraded",
        "- took: 21.0 s",
        "- cost: $0.75 (estimate at list prices)",
        "- tokens: 3,000",
        "- retries: 2",
        "- schema corrections: 1",
        "- warning: 1 of 3 items failed (batch.items_failed)",
        "- corrected towards its schema: 1",
        "- run: `leadrope runs show 2abcdef0`",
        "- item 2 (counted from 0) failed: took too long",
    ):
        assert words in text, words
    assert "item 2 (counted from 0) failed: took too long" in report_page.page(of)


def test_an_agent_that_was_started_again_was_not_corrected() -> None:
    """A step without a schema cannot be corrected; entries of older versions do not tell what they were."""
    retries = [{"reason": "restart"}, {"reason": "restart"}, {"reason": "correction"}, {"reason": None}, {}]
    done = msgspec.structs.replace(FETCHED, attempts=2, outputs={"result": 1, "llm_usage": {"retries": retries}})
    of = told(execution("ended", "succeeded", ended=1020.0), [done])
    text = report_page.markdown(of)
    assert rows(text)["fetch"][5] == "3"
    for words in ("- retries: 3", "- schema corrections: 1", "- tried again: 3", "- corrected towards its schema: 1"):
        assert words in text, words


def from_cache(one: UnitOutcome) -> UnitOutcome:
    """As recordable makes it."""
    done = StepDone(outputs=one.outputs, is_cached=True)
    found = recordable(Key(one.step, one.iteration, one.item), UnitResult(done=done), one.started)
    assert found.status == "succeeded"
    return msgspec.structs.replace(found, ended=one.ended)


def test_what_came_from_the_cache_is_told_and_its_old_corrections_are_not() -> None:
    used = {"retries": [{"reason": "correction"}, {"reason": "restart"}]}
    fetched = from_cache(msgspec.structs.replace(FETCHED, outputs={"duration_ms": 900, "llm_usage": used}))
    of = told(execution("ended", "succeeded", ended=1020.0), [fetched, from_cache(BATCH[0]), BATCH[1], *BATCH[2:]])
    fetch, each = of.steps[:2]
    assert (fetch.report.is_cached, fetch.report.warnings, fetch.retries, fetch.corrections) == (True, (), 0, 0)
    assert (each.report.is_cached, each.cached) == (False, 1)
    assert {one.kind for one in each.report.warnings} == {"batch.items_failed"}
    text = report_page.markdown(of)
    assert rows(text)["fetch"][1] == "succeeded, from the cache"
    assert rows(text)["each"][1] == "degraded"
    assert rows(text)["each"][6] == "3 items, 1 from the cache"
    assert "cache.hit" not in text
    assert "succeeded, from the cache" in report_page.page(of)
    every = told(execution("ended", "succeeded", ended=1020.0), [*map(from_cache, BATCH[:2]), BATCH[3]])
    assert every.steps[1].report.is_cached
    assert rows(report_page.markdown(every))["each"][6] == "2 items"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("running", {"good": "succeeded", "poor": "left_out", "last": "running", "tail": "not_run"}),
        ("interrupted", {"good": "succeeded", "poor": "left_out", "last": "not_run", "tail": "not_run"}),
        ("waiting", {"good": "succeeded", "poor": "left_out", "last": "waiting", "tail": "not_run"}),
    ],
)
def test_an_execution_that_has_not_ended_is_told_from_its_journal(state: Any, expected: dict[str, str]) -> None:
    good = UnitOutcome(step="good", status="succeeded", started=1011.0, ended=1011.0)
    approvals = [_asked("last")] if state == "waiting" else []
    of = told(execution(state), [FETCHED, *BATCH, CHOSEN, good], approvals=approvals)
    assert {name: states(of)[name] for name in expected} == expected
    text = report_page.markdown(of)
    assert f"- outcome: {state}" in text
    commands = {
        "interrupted": "leadrope flow resume ffffffff",
        "waiting": "leadrope approvals approve token234 --choose 'go on'",
    }
    if state in commands:
        assert commands[state] in text
        assert commands[state].replace("'", "&#x27;") in report_page.page(of)


def test_a_step_that_was_begun_and_has_no_outcome_is_not_told_as_one_that_never_ran() -> None:
    of = told(execution("ended", "stopped", ended=1012.0), [FETCHED, *BATCH, CHOSEN], begun={"good"})
    assert (states(of)["good"], states(of)["tail"]) == ("unfinished", "not_run")


def test_a_batch_that_was_cut_off_tells_the_items_that_are_done() -> None:
    of = told(execution("interrupted", ended=1005.0), [FETCHED, BATCH[0], BATCH[2]])
    assert states(of)["each"] == "unfinished"
    assert rows(report_page.markdown(of))["each"] == ["agent", "unfinished", "", "$0.50", "2,000", "", "2 items so far"]


def test_a_failure_stops_those_behind_it_and_says_where_to_begin_again() -> None:
    failed = UnitOutcome(
        step="fetch",
        status="failed",
        error=UnitProblem(kind="http_status", message="fetch: 503 from example.org", hint="Try later."),
        started=1000.0,
        ended=1001.0,
    )
    result: dict[str, Any] = {
        "execution_id": "f" * 32,
        "name": "nightly",
        "outcome": "failed",
        "missing_outputs": ["all", "some"],
        "missing_reasons": {"some": "the step 'each' did not run"},
    }
    of = told(execution("ended", "failed", ended=1001.0, file="/a b/nightly.flow.md"), [failed], result=result)
    assert set(states(of).values()) == {"failed", "blocked"}
    text = report_page.markdown(of)
    for words in (
        "- **failed**: fetch: 503 from example.org (http_status)",
        "- what to do: Try later.",
        "Continue from fetch:",
        "leadrope flow resume ",
        "- output without a value: all\n",
        "- output without a value: some: the step 'each' did not run\n",
    ):
        assert words in text, words


def test_what_an_execution_took_over_is_said_and_workflows_inside_are_named() -> None:
    before = UnitOutcome(step="fetch", status="succeeded", started=100.0, ended=101.0, is_sum=True)
    of = told(execution("running"), [before], children=[ChildReport(step="each", id="c" * 32, outcome="waiting")])
    assert rows(report_page.markdown(of))["fetch"][1] == "succeeded, done before"
    assert states(of)["each"] == "waiting"
    assert "leadrope flow report cccccccc" in report_page.markdown(of)


def test_steps_that_the_text_no_longer_has_and_results_of_other_versions_are_told_all_the_same() -> None:
    gone = UnitOutcome(step="gone", status="succeeded", started=1000.0, ended=1001.0, outputs={"x": 1})
    of = told(execution("ended", "succeeded", ended=1002.0), [gone], result={"another": "shape"})
    assert states(of)["gone"] == "succeeded"


def test_long_outputs_are_cut_and_their_length_is_told() -> None:
    long = UnitOutcome(step="fetch", status="succeeded", outputs={"body": "x" * 50_000}, started=1.0, ended=2.0)
    of = told(execution("ended", "succeeded", ended=3.0), [long])
    text = report_page.markdown(of)
    assert len(text) < 5000
    assert "50,000 characters in all" in text
    assert len(report_page.page(of)) < 30_000


def _hostile() -> Account:
    bad = UnitOutcome(
        step="fetch",
        status="failed",
        error=UnitProblem(kind="k", message=HOSTILE, hint=HOSTILE),
        warnings=(Remark(kind=HOSTILE, message=HOSTILE),),
        outputs={HOSTILE: HOSTILE, "body": f"````\n{HOSTILE}"},
        started=1.0,
        ended=2.0,
    )
    return account(
        execution("ended", "failed", ended=3.0, name=HOSTILE, file=HOSTILE, cwd=HOSTILE, labels={HOSTILE: HOSTILE}),
        library.parsed(TEXT.replace("Nightly", HOSTILE.replace("\n", " "))),
        [bad],
        inputs={HOSTILE: HOSTILE},
        approvals=[_asked("last", HOSTILE)],
        result={
            "execution_id": "f",
            "name": "n",
            "outcome": "failed",
            "outputs": {HOSTILE: [HOSTILE]},
            "reason": HOSTILE,
        },
    )


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.links += [name for name, _ in attrs if name in ("href", "src") or name.startswith("on")]


def test_the_page_holds_nothing_but_its_own_markup_and_no_key() -> None:
    page = report_page.page(_hostile())
    tags = _Tags()
    tags.feed(page)
    assert not tags.names & {"script", "img", "iframe", "link", "b"}
    assert tags.links == []
    assert "default-src 'none'" in page
    assert "A" * 90 not in page
    assert not re.search("[\x1b\u202e]", page)


def test_in_markdown_a_strangers_text_stays_in_its_cell_its_line_or_its_fence() -> None:
    text = report_page.markdown(_hostile())
    assert "A" * 90 not in text
    assert not re.search("[\x1b\u202e]", text)
    fence = None
    for line in text.splitlines():
        mark = re.match(r"`{3,}", line)
        if fence is None and mark:
            fence = mark[0]
        elif fence is not None and line == fence:
            fence = None
        elif fence is None:
            outside = re.sub(r"`[^`]*`", "", line.replace("\\`", ""))
            assert not re.search(r"(?<!\\)[<>\[\]~]", outside), line
            assert not outside.startswith("# head")
    assert fence is None
    assert all(len(row) == 7 for row in rows(text).values())


def _asked(step: str, detail: str = "Go on?") -> PendingApproval:
    return PendingApproval(
        id="token234",
        kind="step",
        execution_id="f" * 32,
        step=step,
        title=step,
        detail=detail,
        choices=("go on", "stop"),
        requested=1.0,
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Raise its `timeout`, or ask for less.", "Raise its `timeout`, or ask for less."),
        ("an odd ` one", "an odd \\` one"),
        ("`<b>` and `a|b` and *x*", "\\`\\<b\\>\\` and \\`a\\|b\\` and \\*x\\*"),
    ],
)
def test_what_stands_between_backticks_may_stay_so(text: str, written: str) -> None:
    assert report_page._escaped(text) == written
