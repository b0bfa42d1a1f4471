"""The page of a run: what it tells, and that nothing in it can be more than text."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from leadrope.core import events
from leadrope.core.cost.usage import ModelShare, Usage
from leadrope.core.events import Recorded
from leadrope.core.fold import fold
from leadrope.core.request import RunRequest
from leadrope.core.result import RunError, RunResult, Warning_
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runs.page import diff as page_diff
from leadrope.runs.page.markdown import markdown
from leadrope.runs.page.page import render
from leadrope.runs.page.tags import tag
from leadrope.runs.page.text import PageWriter
from leadrope.runs.records.values import RunInfo

KEY = "sk-ant-api03-planted-planted-planted-0000"
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "section", "footer", "a", "div", "span", "p"),
    *("h1", "h2", "h4", "small", "strong", "b", "i", "code", "pre", "ul", "ol", "li", "dl", "dt", "dd", "details"),
    *("summary", "table", "tr", "th", "td", "input", "label", "svg", "rect"),
}
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31mred\x1b]0;title\x07\u202eevil\u2066"
    '" onmouseover="alert(1) </pre></details></style><style>*{display:none}</style> &lt; [x](javascript:alert(1))'
    " ![p](https://example.com/p.png) <!-- --> ]]> {{7*7}} \x00 `<b>` **<i>**"
)


def info(**fields: Any) -> RunInfo:
    given: dict[str, Any] = {
        "n": 1,
        "id": "run-1",
        "created": 100.0,
        "started": 100.0,
        "state": "ended",
        "title": "a task",
    }
    return RunInfo(**(given | fields))


def recorded(*found: events.Event, attempt: int = 1) -> list[Recorded]:
    return [Recorded("run-1", attempt, at, 100.0 + at, "agent", event) for at, event in enumerate(found, 1)]


def call(id_: str, name: str, **given: Any) -> ToolCall:
    return ToolCall(id=id_, name=name, input=given)


def allowed(of: ToolCall, **fields: Any) -> events.ToolDecided:
    given: dict[str, Any] = {"call": of, "decision": "allow", "by": "rule", "rule": "mode:edit"}
    return events.ToolDecided(**(given | fields))


class Parsed(HTMLParser):
    """What a browser would make of it: elements, attributes, and the text outside of the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "rect" and self._open[-1] != "rect":
            return
        assert self._open.pop() == tag, "every element is closed in its turn"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.said.append(data)

    @property
    def text(self) -> str:
        assert not self._open
        return "".join(self.said)


def everything(text: str) -> list[Recorded]:
    """The text in every place where a stranger can put one."""
    tool = ToolCall(id="t1", name=text, input={"command": text, text: text}, agent_id=text)
    edit = call("t2", "Edit", file_path=text, old_string="x", new_string=text)
    question = events.Question(question=text, header=text, options=(events.Option(label=text, description=text),))
    return recorded(
        events.SessionStarted(
            session_id=text,
            provider=text,
            model=text,
            mode=text,
            cwd=text,
            tools=(text,),
            connections=(events.Connection(name=text, status=text, error=text),),
            credential=events.CredentialUsed(kind="api_key", source=text, billing="api_key", masked=text),
            instructions=(text,),
            sandbox=text,
        ),
        events.Notice(level="info", code="prompt", message=text),
        events.MessageCompleted(text=text + "\n\n# " + text + "\n- " + text + "\n```\n" + text),
        events.ThinkingCompleted(text=text + "\n"),
        events.ToolRequested(call=tool),
        events.ApprovalRequested(approval_id="a1", call=tool, reason=text, expires_s=1, reading=text),
        events.ApprovalResolved(approval_id="a1", approved=True, by=text, reason=text),
        events.ToolDecided(
            call=tool, decision="allow", by="person", rule=text, layer=text, reason=text, edited={"command": text}
        ),
        events.ToolCompleted(call_id="t1", text=text, is_error=True),
        allowed(edit),
        events.ToolCompleted(call_id="t2", text=text),
        events.QuestionRequested(question_id="q1", kind="question", questions=(question,)),
        events.QuestionResolved(question_id="q1", answered=True, answers={text: text}, by=text, reason=text),
        events.QuestionRequested(question_id="q2", kind="plan", plan=text, allowed_prompts=(text,)),
        events.QuestionResolved(question_id="gone", answered=True, by=text, reason=text),
        events.SubagentStarted(agent_id=text, description=text, kind=text),
        events.SubagentEnded(agent_id=text, status=text, summary=text),
        events.LimitReached(status="rejected", kind=text, message=text),
        events.RetryScheduled(attempt=1, max_attempts=2, delay_s=1, error=text),
        events.Notice(level="error", code=text, message=text),
        events.Unrecognised(reason=text, raw=text),
        events.OutputChecked(rung="none", valid=False, errors=(text,)),
        events.SandboxViolation(kind="read", target=text, message=text),
        events.TurnEnded(turn=1, is_error=True, reason=text, errors=(text,)),
        events.RunEnding(cause="failed", kind="agent_died", message=text, hint=text),
        events.AgentExited(exit_code=1, stderr_tail=(text,)),
    )


def whole(text: str, **more: Any) -> str:
    result = RunResult(
        run_id="run-1",
        outcome="failed",
        text=text,
        output={text: text},
        schema_error=text,
        model=text,
        error=RunError(kind="agent_died", message=text, hint=text, stderr_tail=(text,), clock=text),
        warnings=(Warning_(kind=text, message=text),),
    )
    request = RunRequest(prompt=text, policy={text: text}, variables={text: text}, labels={text: text})
    row = info(title=text, cwd=text, agent=text, model=text, provider=text, labels={text: text}, session_id=text)
    return render(row, request, everything(text), result, **more)


def test_hostile_text_is_text_in_every_place() -> None:
    page = whole(HOSTILE, diff=f"diff --git a/{HOSTILE} b/{HOSTILE}\n@@ -1 +1 @@\n-{HOSTILE}\n+{HOSTILE}\n")
    found = Parsed(page)
    assert set(found.tags) <= ALLOWED
    assert {name for name, _ in found.attributes} <= {
        *("class", "id", "href", "charset", "http-equiv", "content", "name", "type", "checked", "for", "open", "lang"),
        *("tabindex", "viewbox", "preserveaspectratio", "role", "aria-label", "x", "y", "width", "height"),
    }
    assert {value for name, value in found.attributes if name == "href"} == {"#story"}
    assert page.count("<style") == 1
    assert "<script>alert(1)</script>" in found.text, "it is shown, as text"


@pytest.mark.parametrize("unseen", ["\x1b", "\x00", "\x07", "\u202e", "\u2066", "\x9b", "\u200b", "\ufeff", "\r"])
def test_what_an_eye_cannot_see_is_not_on_the_page(unseen: str) -> None:
    assert unseen not in whole(f"a{unseen}b")


def test_a_command_shows_what_it_hides() -> None:
    page = render(info(), None, recorded(allowed(call("t1", "Bash", command="ls \u202e x"))), None)
    assert "ls &lt;U+202E&gt; x" in page


def test_a_planted_key_is_nowhere_also_where_a_text_is_cut() -> None:
    """Cut first and cleaned then, half a key would pass."""
    for padding in (0, 5985, 19_985, 59_985, 145, 175):
        assert "planted" not in whole("x" * padding + " " + KEY)
    known = Redactor(["a word that is secret"])
    assert "is secret" not in whole("so: a word that is secret.", redact=known.clean)


def test_a_key_of_many_lines_is_not_in_a_diff() -> None:
    lines = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" for _ in range(20))
    text = f"a\n-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\nb"
    edit = call("t1", "Edit", file_path="/x", old_string=text, new_string="a\nb")
    page = render(info(), None, recorded(allowed(edit), events.ToolCompleted(call_id="t1")), None)
    assert "MIIEvQ" not in page


def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else() -> None:
    page = render(info(), None, [], None)
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found is not None
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert found[1].startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert page.index("Content-Security-Policy") < page.index("<style>"), "what comes before it is not covered"
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert not re.search(r"(src|href)=[\"'](?!#)", page)


def test_it_tells_who_said_yes_and_why() -> None:
    bash = call("t1", "Bash", command="npm test")
    denied = call("t2", "Bash", command="git push")
    found = recorded(
        events.ToolRequested(call=bash),
        events.ApprovalRequested(approval_id="a1", call=bash, reason="it is a command", expires_s=300),
        events.ApprovalResolved(approval_id="a1", approved=True, by="user:anna", reason="tests are fine", scope="run"),
        events.ToolDecided(call=bash, decision="allow", by="user:anna", rule="approval", reason="tests are fine"),
        events.ToolCompleted(call_id="t1", text="ok"),
        events.ToolDecided(
            call=denied, decision="deny", by="rule", rule="blocked", layer="project", reason="no pushes"
        ),
    )
    text = " ".join(Parsed(render(info(), None, found, None)).text.split())
    assert "Allowed by user:anna, approval: tests are fine" in text
    assert "user:anna approved it after 1.0 s, for the same call in the whole run: tests are fine" in text
    assert "Denied by policy, blocked of project: no pushes" in text
    assert "1 denied" in text


def test_it_tells_what_went_wrong_and_what_to_do() -> None:
    error = RunError(kind="timed_out", message="no event for 300 s", clock="idle", hint="Raise limits.idle_s.")
    page = render(info(), None, [], RunResult(run_id="run-1", outcome="timed_out", error=error))
    text = " ".join(Parsed(page).text.split())
    assert "timed out: no event for 300 s" in text
    assert "What to do: Raise limits.idle_s." in text


def test_it_tells_cost_and_tokens_by_model() -> None:
    usage = Usage(input_tokens=1000, output_tokens=20, cache_read_input_tokens=500)
    models = {"opus": ModelShare(usage=usage, cost_usd=0.25), "haiku": ModelShare(usage=usage, cost_usd=0.05)}
    found = recorded(
        events.SessionStarted(session_id="s", provider="p", model="opus"),
        events.TurnStarted(turn=1),
        events.TurnEnded(
            turn=1, is_error=False, reason="success", text="done", usage=usage + usage, cost_usd=0.3, models=models
        ),
        events.AgentExited(exit_code=0),
    )
    text = Parsed(render(info(), None, found, fold(found))).text
    assert "$0.2500" in text
    assert "$0.0500" in text
    assert "$0.3000" in text


def test_edits_become_diffs_and_what_was_denied_or_failed_does_not() -> None:
    done = call("t1", "Edit", file_path="/ws/a.py", old_string="a\nb\nc", new_string="a\nB\nc")
    new = call("t2", "Write", file_path="/ws/new.py", content="one\ntwo\n")
    again = call("t3", "Edit", file_path="/ws/new.py", old_string="two", new_string="2")
    over = call("t4", "Write", file_path="/ws/new.py", content="one\n2\nthree\n")
    failed = call("t5", "Edit", file_path="/ws/failed.py", old_string="x", new_string="y")
    denied = call("t6", "Write", file_path="/ws/denied.py", content="x")
    unsure = call("t7", "Write", file_path="/ws/unsure.py", content="x")
    found = recorded(
        *(step for each in (done, new, again, over) for step in (allowed(each), events.ToolCompleted(call_id=each.id))),
        *(allowed(failed), events.ToolCompleted(call_id="t5", is_error=True)),
        *(allowed(denied, decision="deny"), events.ToolCompleted(call_id="t6", is_error=True, executed=False)),
        allowed(unsure),
    )
    from leadrope.runs.page.story import Story

    changes = {change.path: change for change in Story(found).changes(str)}
    assert changes["/ws/a.py"].lines == (" a", "-b", "+B", " c")
    assert changes["/ws/new.py"].lines == ("+one", "+two", "@@", "-two", "+2", "@@", " one", " 2", "+three")
    assert changes["/ws/new.py"].edits == 3
    assert not changes["/ws/unsure.py"].is_certain
    assert changes.keys() == {"/ws/a.py", "/ws/new.py", "/ws/unsure.py"}


def test_what_a_person_changed_is_what_is_shown_as_done() -> None:
    write = call("t1", "Write", file_path="/ws/a", content="the agent's")
    decided = allowed(write, by="person", edited={"file_path": "/ws/a", "content": "the person's"})
    page = render(info(), None, recorded(decided, events.ToolCompleted(call_id="t1")), None)
    assert '<span class="d-plus">+the person&#x27;s</span>' in page
    assert '<span class="d-plus">+the agent&#x27;s</span>' not in page
    assert "A person made it" in page


def test_a_diff_that_git_made_is_shown_instead() -> None:
    diff = (
        "diff --git a/a b.py b/a b.py\nindex 1..2 100644\n"
        "--- a/a b.py\n+++ b/a b.py\n@@ -1,2 +1,2 @@\n--- x\n+++ y\n c\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/pic.png b/pic.png\nBinary files a/pic.png and b/pic.png differ\n"
    )
    found = page_diff.of_text(diff)
    assert [(change.path, change.added, change.removed) for change in found] == [
        ("a b.py", 1, 1),
        ("gone", 0, 1),
        ("pic.png", 0, 0),
    ]
    page = render(info(), None, [], None, diff=diff)
    assert "as git tells it" in page
    assert "+++ y" in page


def test_inputs_that_are_no_edits_after_all_do_no_harm() -> None:
    odd: list[ToolCall] = [
        call("t1", "Edit", file_path="/x"),
        call("t2", "Edit", file_path="/x", old_string=1, new_string=None),
        call("t3", "MultiEdit", file_path="/x", edits="no"),
        call("t4", "MultiEdit", file_path="/x", edits=[1, {"old_string": "a", "new_string": "b"}]),
        call("t5", "Write", file_path=["/x"], content="x"),
        call("t6", "Edit"),
    ]
    page = render(info(), None, recorded(*(allowed(each) for each in odd)), None)
    assert page.count('class="d-plus"') == 1


def test_a_long_run_stays_usable() -> None:
    """50,000 events: the page is bounded, quick to make, and keeps the beginning, the end, and what matters."""
    found: list[events.Event] = []
    for at in range(10_000):
        bash = call(f"t{at}", "Bash", command=f"echo {at} " + "x" * 200)
        found += [
            events.MessageDelta(text="x"),
            events.ToolRequested(call=bash),
            allowed(bash),
            events.ToolCompleted(call_id=bash.id, text="y" * 3000, is_error=at == 5000),
            events.MessageCompleted(text=f"step {at} is done"),
        ]
    records = recorded(*found)
    before = time.process_time()
    page = render(info(), None, records, None)
    took = time.process_time() - before
    assert len(page) < 20_000_000
    assert took < 30, "a bound against quadratic work, not a measurement"
    assert "step 0 is done" in page
    assert "step 9999 is done" in page
    assert "echo 5000 " in page, "the one that failed is kept"
    assert "entries are left out here" in page
    assert page.count("<li") < 3100


def test_one_enormous_output_is_cut_with_its_size() -> None:
    found = recorded(allowed(call("t1", "Bash", command="x")), events.ToolCompleted(call_id="t1", text="z" * 5_000_000))
    page = render(info(), None, found, None)
    assert len(page) < 100_000
    assert "Cut here: 5.0 MB in all." in page


def test_a_run_that_has_not_ended_has_a_page() -> None:
    page = render(info(state="waiting"), None, recorded(events.TurnStarted(turn=1)), None)
    assert "waiting" in Parsed(page).text


def test_markdown_is_a_little_of_it_and_hostile_text_costs_linear_time() -> None:
    assert markdown("a **b** `c`") == "<p>a <strong>b</strong> <code>c</code></p>"
    assert markdown("# T\ntext\n\n- x\n  - y\n1. z", heading="h4") == (
        '<h4>T</h4><p>text</p><ul><li>x</li><li class="deep">y</li><li class="numbered">1. z</li></ul>'
    )
    assert markdown("```js\n<b>\n```\nx") == '<pre tabindex="0"><code>&lt;b&gt;</code></pre><p>x</p>'
    assert markdown("[a](https://example.com)", has_links=False) == "<p>[a](https://example.com)</p>"
    before = time.process_time()
    for nasty in ("*" * 60_000, "`" * 60_000, "# " * 30_000, "- " * 30_000, "**a" * 20_000, "`a" * 30_000):
        markdown(nasty)
    assert time.process_time() - before < 10


def test_a_tag_escapes_what_is_not_its_own() -> None:
    assert tag("a", "<", href='"x') == '<a href="&quot;x">&lt;</a>'
    assert PageWriter(str).line("a\n\tb  c") == "a b c"
