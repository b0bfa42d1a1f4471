"""The page of a run in a real browser, in a network namespace of its own that has no way out."""

from __future__ import annotations

from pathlib import Path

from leadrope.core import events
from leadrope.core.events import Recorded
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.tools import ToolCall
from leadrope.runs.page.page import render
from leadrope.runs.records.values import RunInfo
from real_browser import browser, opened

HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=https://example.com/x.png onerror=\"document.title='owned'\">"
    "<link rel=stylesheet href=https://example.com/x.css><iframe src=https://example.com></iframe>"
    "<svg onload=\"document.title='owned'\"><style>@import 'https://example.com/y.css';</style>"
    "<meta http-equiv=refresh content='0;url=https://example.com'><base href=https://example.com/>\x1b[31m\u202e"
)


def story(text: str, count: int = 1) -> list[Recorded]:
    found: list[events.Event] = [events.SessionStarted(session_id="s", provider="p", model="m", mode="edit")]
    for at in range(count):
        bash = ToolCall(id=f"b{at}", name="Bash", input={"command": f"echo {at} {text}"})
        edit = ToolCall(id=f"e{at}", name="Edit", input={"file_path": "/a", "old_string": "x", "new_string": text})
        found += [
            events.ToolRequested(call=bash),
            events.ToolDecided(call=bash, decision="allow", by="rule", rule="mode:full"),
            events.ToolCompleted(call_id=bash.id, text=text),
            events.ToolDecided(call=edit, decision="allow", by="rule", rule="mode:full"),
            events.ToolCompleted(call_id=edit.id),
            events.MessageCompleted(text=f"{text}\n\n- {text}\n```\n{text}\n```"),
        ]
    return [Recorded("run-1", 1, at, 1000.0 + at / 10, "agent", event) for at, event in enumerate(found, 1)]


async def test_the_page_asks_for_nothing_runs_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    info = RunInfo(n=1, id="run-1", created=1000.0, state="ended", title=HOSTILE, labels={HOSTILE: HOSTILE})
    result = RunResult(run_id="run-1", outcome="succeeded", text=HOSTILE)
    small, large = tmp_path / "small.html", tmp_path / "large.html"
    small.write_text(render(info, RunRequest(prompt=HOSTILE), story(HOSTILE), result), encoding="utf-8")
    large.write_text(render(info, None, story("x" * 500, 8500), result), encoding="utf-8")
    async with browser(tmp_path) as page:
        await opened(page, small)
        assert page.requested() == [small.as_uri()]
        assert page.complaints() == []
        assert await page.value("document.title") != "owned"
        assert await page.value("document.querySelectorAll('script, img, iframe, link, base, object').length") == 0
        assert await page.value("document.styleSheets.length") == 1
        # The style holds: the policy names its hash, and a browser that did not agree would drop it.
        assert await page.value("getComputedStyle(document.querySelector('.facts')).display") == "grid"
        assert await page.value("document.body.innerText.includes('document.title')"), "it is there to read"
        # A filter works without any script.
        await page.value("document.getElementById('p-message').click()")
        shown = "[...document.querySelectorAll('.story > li')].filter(e => getComputedStyle(e).display !== 'none')"
        assert await page.value(f"{shown}.every(e => e.classList.contains('k-message'))")
        assert await page.value(f"{shown}.length") == 1
        # Everything that opens can be reached with the keyboard.
        assert await page.value("[...document.querySelectorAll('summary')].every(e => e.tabIndex === 0)")

        await opened(page, large)
        assert page.requested() == [large.as_uri()]
        assert page.complaints() == []
        assert await page.value("document.querySelectorAll('.story > li').length") < 3100
