"""Chromium for tests of pages: over its debugging pipe, in a network namespace of its own that has no way out."""

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
