"""A step whose outputs came from the cache says so: as it happens, in the result, in the journal and in the report."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.core import execution_events
from leadrope.workflows import library
from leadrope.workflows.views import report_page
from leadrope.workflows.views.execution_report import account

TEXT = """## Steps
### once
- type: write-file
- file_path: log
- content: x
- mode: append
- cache: true
### each
- type: write-file
- file_path: items
- content: ${item}
- mode: append
- cache: true
- batch: {items: [a, b]}
### always
- type: write-file
- file_path: log
- content: y
- mode: append
"""


async def test_what_came_from_the_cache_is_told_everywhere(shop: Any) -> None:
    for is_cached in (False, True):
        shop.happened.clear()
        result = await shop.run(TEXT)
        assert (result.outcome, result.warnings) == ("succeeded", {})
        expected = {"once": is_cached, "each": is_cached, "always": False}
        assert {step.id: step.is_cached for step in result.steps} == expected
        assert {step["id"]: step["is_cached"] for step in msgspec.to_builtins(result)["steps"]} == expected
        assert {one.step: one.is_cached for one in shop.of(execution_events.StepEnded)} == expected
        async with shop.service() as service:
            kept = await service.executions.outcomes(result.execution_id)
            of = account(await service.executions.get(result.execution_id), library.parsed(TEXT), kept)
        assert {step.report.id: step.report.is_cached for step in of.steps} == expected
        assert report_page.markdown(of).count("succeeded, from the cache") == 2 * is_cached
    assert (shop.ws / "log").read_text() == "xyy"
    assert (shop.ws / "items").read_text() == "ab"
