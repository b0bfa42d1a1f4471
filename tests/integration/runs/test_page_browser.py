"""The page of a run in a real browser, in a network namespace of its own that has no way out."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope.core import events
from leadrope.core.events import Recorded
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.tools import ToolCall
from leadrope.runs.page import render
from leadrope.runs.store import RunInfo

HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=https://example.com/x.png onerror=\"document.title='owned'\">"
    "<link rel=stylesheet href=https://example.com/x.css><iframe src=https://example.com></iframe>"
    "<svg onload=\"document.title='owned'\"><style>@import 'https://example.com/y.css';</style>"
    "<meta http-equiv=refresh content='0;url=https://example.com'><base href=https://example.com/>\x1b[31m\u202e"
)


class Browser:
    """Chromium over its debugging pipe: JSON in both ways, each message ended by a NUL."""

    def __init__(self, to_browser: int, from_browser: asyncio.StreamReader) -> None:
        self._to = to_browser
        self._from = from_browser
        self._id = 0
        self.told: list[dict[str, Any]] = []
        self.session = ""

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = await self._next()
            if found.get("id") == self._id:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    async def until(self, method: str) -> None:
        while not any(found.get("method") == method for found in self.told):
            await self._next()

    async def value(self, expression: str) -> Any:
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def requested(self) -> list[str]:
        sent = [found["params"] for found in self.told if found.get("method") == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def complaints(self) -> list[Any]:
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [found["params"] for found in self.told if found.get("method") in kinds]

    async def _next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            line = await self._from.readuntil(b"\0")
        found: dict[str, Any] = json.loads(line[:-1])
        if "id" not in found:
            self.told.append(found)
        return found


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None or shutil.which("unshare") is None:
        pytest.skip("chromium or unshare is not installed")
    theirs, to_browser = os.pipe()
    from_browser, theirs_too = os.pipe()
    # They must be 3 and 4 in the browser, which are in use here.
    moved = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
    argv = ("bash", "-c", moved, "bash", str(theirs), str(theirs_too), "unshare", "--map-root-user", "--net", program)
    flags = (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank"),
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    process = await asyncio.create_subprocess_exec(
        *argv,
        *flags,
        env=environ,
        pass_fds=(theirs, theirs_too),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(theirs)
    os.close(theirs_too)
    reader = asyncio.StreamReader(limit=2**26)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser, "rb")
    )
    opened = Browser(to_browser, reader)
    try:
        target = await opened.ask("Target.createTarget", url="about:blank")
        opened.session = (await opened.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True))[
            "sessionId"
        ]
        for domain in ("Network", "Log", "Runtime", "Page"):
            await opened.ask(f"{domain}.enable")
        yield opened
        opened.session = ""
        await opened.ask("Browser.close")
        async with asyncio.timeout(30):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()
        os.close(to_browser)


async def opened(page: Browser, file: Path) -> None:
    page.told.clear()
    await page.ask("Page.navigate", url=file.as_uri())
    await page.until("Page.loadEventFired")


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
