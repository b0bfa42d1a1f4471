"""The report of an execution and the picture of a workflow in a real browser: they load nothing, and can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope.runs.executions.values import ExecutionInfo, Remark, UnitOutcome, UnitProblem
from leadrope.workflows import library
from leadrope.workflows.views import drawing, execution_report, report_page
from real_browser import Browser, browser, opened

HOSTILE = (
    "</title></pre></style></script><script>document.title='owned'</script>"
    "<img src=https://example.com/x.png onerror=\"document.title='owned'\">"
    "<style>@import 'https://example.com/y.css';</style><foreignObject><iframe src=https://example.com></iframe>"
    "<meta http-equiv=refresh content='0;url=https://example.com'>\x1b[31m\u202e&lt;b&gt;"
)
TEXT = f"""# {HOSTILE}

## Steps

### first

{HOSTILE}

- type: shell
- command: {HOSTILE}
- next: {{'{HOSTILE.replace("'", "''")}': many, else: last}}

### many

- type: read-file
- file_path: x
- batch: {{items: [1, 2]}}
- on-error: last

### last

- type: a-kind-with-a-rather-long-name
- text: x
"""
NARROW, WIDE = 360, 1200
FAILED = UnitProblem(kind="command_failed", message=HOSTILE, hint=HOSTILE)


def told() -> execution_report.Account:
    info = ExecutionInfo(
        n=1, id="f" * 32, digest="", title=HOSTILE, state="ended", outcome="failed", created=0.0, ended=9.0
    )
    first = UnitOutcome(
        step="first", status="degraded", outputs={"stdout": HOSTILE, "exit_code": 0, "long": "x" * 9000}, cost_usd=1.25,
        warnings=(Remark(kind="w", message=HOSTILE),), attempts=3, tokens=1234567, ended=2.0,
    )  # fmt: skip
    items = [UnitOutcome(step="many", item=number, status="failed", error=FAILED) for number in range(2)]
    whole = UnitOutcome(step="many", iteration=-1, status="failed", error=FAILED, outputs={"count": 2})
    return execution_report.account(info, library.parsed(TEXT), [first, *items, whole], inputs={HOSTILE: HOSTILE})


async def at(page: Browser, width: int, scheme: str, file: Path) -> None:
    await page.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    await page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    await opened(page, file)
    assert page.requested() == [file.as_uri()], "it loads nothing"
    assert page.complaints() == []
    assert await page.value("document.title") != "owned"


def luminance(colour: str) -> float:
    """0 is black, 255 is white."""
    red, green, blue = (float(one) for one in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.3 * red + 0.6 * green + 0.1 * blue


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
async def test_the_report_loads_nothing_and_can_be_read(tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page.page(told()), encoding="utf-8")
    async with browser(tmp_path) as page:
        await at(page, width, scheme, file)
        assert await page.value("document.querySelectorAll('script, img, iframe, link, base, object').length") == 0
        # The style holds: the policy names its hash, and a browser that did not agree would drop it.
        assert await page.value("getComputedStyle(document.querySelector('.facts')).display") == "grid"
        assert await page.value("getComputedStyle(document.querySelector('.values')).display") == "grid"
        paper, ink = [
            luminance(await page.value(f"getComputedStyle(document.body).{name}"))
            for name in ("backgroundColor", "color")
        ]
        assert (paper > ink + 100) if scheme == "light" else (ink > paper + 100)
        # Nothing is wider than the screen: the table moves in a box of its own, and no word of it is broken.
        assert await page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        tall = "[...document.querySelectorAll('.scroll td')].filter(cell => cell.getBoundingClientRect().height > 45)"
        assert await page.value(f"{tall}.map(cell => cell.innerText)") == []
        rows = "[...document.querySelectorAll('.scroll tr')]"
        words = f"{rows}.map(row => row.cells[0].innerText + ' ' + row.cells[2].innerText)"
        assert await page.value(words) == ["step state", "first degraded", "many failed, handled", "last not run"]
        assert await page.value("document.body.innerText.includes('1,234,567')")
        assert await page.value("[...document.querySelectorAll('summary')].every(one => one.tabIndex === 0)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_picture_loads_nothing_and_every_text_is_inside_its_box(tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "picture.svg"
    file.write_text(drawing.svg(library.parsed(TEXT)), encoding="utf-8")
    async with browser(tmp_path) as page:
        await at(page, WIDE, scheme, file)
        assert await page.value("document.querySelectorAll('script, image, foreignObject, a, use').length") == 0
        outside = """[...document.querySelectorAll('g > rect.box')].flatMap(box => {
            const around = box.getBoundingClientRect();
            return [...box.parentNode.querySelectorAll('text')].filter(text => {
                const inside = text.getBoundingClientRect();
                return inside.left < around.left || inside.right > around.right + 1 || inside.bottom > around.bottom;
            }).map(text => text.textContent);
        })"""
        assert await page.value(outside) == []
        assert await page.value("document.querySelectorAll('rect.box').length") == 3
        paper = "getComputedStyle(document.querySelector('.paper')).fill"
        assert (luminance(await page.value(paper)) > 128) == (scheme == "light")
