"""`leadrope flow run --dry-run`: the plan of a workflow on standard output. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from leadrope.cli import json_output
from leadrope.cli.flow.view import first_line, money
from leadrope.cli.runs.runs import with_service
from leadrope.cli.screen.live_lines import seconds
from leadrope.core.config import Config
from leadrope.runs.service import Service
from leadrope.workflows.library import Loaded
from leadrope.workflows.start import dry_run
from leadrope.workflows.start.dry_run import DryRun, PlannedStep


def run(
    loaded: Loaded,
    values: Mapping[str, Any],
    folder: Path,
    environ: Mapping[str, str],
    config: Config,
    given: Mapping[str, Any],
    **options: Any,
) -> int:
    async def look(service: Service) -> DryRun:
        return await dry_run.look(
            service.configured(config), loaded, values, workspace=folder, environ=environ, **options
        )

    found = with_service(look, needs_config=True)
    if given["output"] == "json":
        json_output.write(found)
    else:
        for line in lines(found):
            click.echo(line)
    return 0


def lines(found: DryRun) -> Iterator[str]:
    count = sum(step.runs and step.depth == 0 for step in found.steps)
    yield f"{first_line(found.title) or found.name} · {count} step{'' if count == 1 else 's'} · nothing is started"
    for asked in found.asks:
        yield f"  asks you to allow: {asked}"
    for step in found.steps:
        yield f"  {'  ' * step.depth}{'→' if step.runs else '·'} {step.id} ({step.type}){_about(step)}"
    if found.last is not None:
        last = found.last
        about = [last.outcome]
        about += [seconds(last.duration_s)] if last.duration_s is not None else []
        about += [money(last.cost_usd)] if last.cost_usd else []
        yield f"last execution: {last.id[:8]} · {' · '.join(about)}"
    else:
        yield "last execution: none"


def _about(step: PlannedStep) -> str:
    about = ["from the cache"] if step.is_cached else [] if step.runs else ["not run"]
    about += [first_line(text) for text in (*step.conditions, step.repeats, *step.asks) if text]
    if step.runs and not step.is_cached and step.last_duration_s is not None and step.last_state != "skipped":
        cost = f", {money(step.last_cost_usd)}" if step.last_cost_usd else ""
        about.append(f"last time {seconds(step.last_duration_s)}{cost}")
    return f" · {' · '.join(about)}" if about else ""
