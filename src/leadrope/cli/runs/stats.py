"""`leadrope stats`: what runs have cost, by day, model or label, as numbers and as bars. Changes nothing."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from datetime import date, timedelta

import click
import msgspec

from leadrope import errors
from leadrope.cli import flags, json_output
from leadrope.cli.screen.screen import PIPED_WIDTH, Style, wants_colour
from leadrope.cli.screen.table import cut, width_of
from leadrope.core.cost.usage import CostLabel, sum_label
from leadrope.runtime.terminal_text import clean

MAX_DAYS = 3660
MAX_GAPS = 92
"""Days without a run are shown as empty lines, if the whole is no longer than this."""
BLOCKS = " ▏▎▍▌▋▊▉█"

Spent = tuple[str, str, dict[str, str], float, CostLabel, int, str | None]
"""Day, model, labels, cost and what to call it, tokens, outcome: a row of the store."""


class StatsBar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar."""

    name: str
    runs: int = 0
    succeeded: int = 0
    cost_usd: float = 0.0
    cost_label: CostLabel = "estimate"
    tokens: int = 0


def lines(rows: Iterable[Spent], by: str) -> list[StatsBar]:
    """Summed by `day`, `model` or `label:KEY`; days in their order, all else by what it cost."""
    key = by.removeprefix("label:")
    found: dict[str, StatsBar] = {}
    for day, model, labels, cost, label, tokens, outcome in rows:
        name = day if by == "day" else (model or "(not known)") if by == "model" else labels.get(key, "(none)")
        old = found.get(name) or StatsBar(name=name)
        found[name] = StatsBar(
            name=name,
            runs=old.runs + 1,
            succeeded=old.succeeded + (outcome in ("succeeded", "degraded")),
            cost_usd=old.cost_usd + cost,
            cost_label=sum_label([(old.cost_usd, old.cost_label), (cost, label)]),
            tokens=old.tokens + tokens,
        )
    if by == "day":
        return _with_gaps(found)
    return sorted(found.values(), key=lambda line: (-line.cost_usd, -line.tokens, line.name))


def total(found: Sequence[StatsBar]) -> StatsBar:
    return StatsBar(
        name="all",
        runs=sum(line.runs for line in found),
        succeeded=sum(line.succeeded for line in found),
        cost_usd=sum(line.cost_usd for line in found),
        cost_label=sum_label((line.cost_usd, line.cost_label) for line in found),
        tokens=sum(line.tokens for line in found),
    )


def _with_gaps(found: dict[str, StatsBar]) -> list[StatsBar]:
    if not found:
        return []
    first, last = date.fromisoformat(min(found)), date.fromisoformat(max(found))
    count = (last - first).days + 1
    if count > MAX_GAPS:
        return [found[name] for name in sorted(found)]
    days = ((first + timedelta(days=at)).isoformat() for at in range(count))
    return [found.get(day) or StatsBar(name=day) for day in days]


def bar(share: float, width: int) -> str:
    """A bar in eighths of a column; whatever is more than nothing shows.

    >>> bar(0.5, 4), bar(0.0001, 4), bar(0, 4)
    ('██', '▏', '')
    """
    if share <= 0 or width <= 0:
        return ""
    eighths = max(1, round(min(1.0, share) * width * 8))
    whole, part = divmod(eighths, 8)
    return BLOCKS[8] * whole + (BLOCKS[part] if part else "")


def plot(
    found: Sequence[StatsBar], *, width: int, measure: str = "cost", style: Style | None = None, bars: bool = True
) -> list[str]:
    """A line each and their sum, with bars as wide as there is room for; without them it is a table for programs."""
    style = style or Style(enabled=False)
    # The sum has no bar: it would dwarf them all.
    found = [*found, total(found)]
    values = [line.cost_usd if measure == "cost" else float(line.tokens) for line in found]
    top = max(values[:-1], default=0.0)
    names = [cut(" ".join(clean(line.name).split()), max(12, width // 4)) for line in found]
    names_width = max((width_of(name) for name in names), default=0)
    figures = [f"{money(line.cost_usd):>10}  {tokens(line.tokens):>7}  {line.runs:>5} {_runs(line)}" for line in found]
    if names_width + 2 + max(map(len, figures)) > width:
        figures = _narrow(found)
    figures_width = max(map(len, figures))
    room = width - names_width - figures_width - 4
    shown = []
    for name, text, value in zip(names, figures, [*values[:-1], 0.0], strict=True):
        head = f"{name}{' ' * (names_width - width_of(name))}  {text:<{figures_width}}"
        drawn = bar(value / top, room) if bars and top and room >= 8 else ""
        shown.append(f"{head}  {style.good(drawn)}".rstrip())
    return shown


def _narrow(found: Sequence[StatsBar]) -> list[str]:
    """The same figures in columns that are only as wide as they must be."""
    rows = [(money(line.cost_usd), tokens(line.tokens), f"{line.succeeded}/{line.runs} ok") for line in found]
    wide = [max(len(row[at]) for row in rows) for at in range(3)]
    return ["  ".join(cell.rjust(wide[at]) for at, cell in enumerate(row)) for row in rows]


def money(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def tokens(count: int) -> str:
    """Three digits and a letter.

    >>> tokens(950), tokens(12_345), tokens(4_200_000)
    ('950', '12.3k', '4.20M')
    """
    if count < 1000:
        return str(count)
    for size, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        # 999.95k would be written as 1000k.
        if count < size * 999.5 or letter == "G":
            value = count / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{letter}"
    raise AssertionError(count)


def _runs(line: StatsBar) -> str:
    failed = line.runs - line.succeeded
    return f"{'run' if line.runs == 1 else 'runs'}" + (f", {failed} not ok" if failed else "")


@click.command(
    "stats",
    short_help="Show what runs have cost, by day, model or label.",
    epilog="""\b
Examples:
  leadrope stats
  leadrope stats --by model --days 7
  leadrope stats --by label:team --label env=ci -o json
""",
)
@click.option(
    "--by", default="day", show_default=True, metavar="day|model|label:KEY", help="What each line stands for."
)
@click.option("--days", type=click.IntRange(1, MAX_DAYS), default=30, show_default=True, help="How far back.")
@click.option("--label", "label", metavar="KEY=VALUE", help="Only runs with this label.")
@click.option("--tokens", "by_tokens", is_flag=True, help="Draw the bars by tokens, not by cost.")
@flags.output("text", "json", help="json: one object.")
def command(*, by: str, days: int, label: str | None, by_tokens: bool, output: str) -> int:
    """What runs have cost, and how many tokens they have used. Costs are estimates at list prices."""
    _check_by(by)
    rows = _rows(days)
    if label is not None:
        name, equals, value = label.partition("=")
        if not equals or not name:
            raise errors.BadValue("--label", f"{label!r} is not KEY=VALUE")
        rows = [row for row in rows if row[2].get(name) == value]
    found = lines(rows, by)
    if output == "json":
        told = {"by": by, "days": days, "lines": found, "total": total(found)}
        json_output.write(told)
        return 0
    if not rows:
        which = " with this label" if label is not None else ""
        click.echo(f"No runs{which} in the last {days} days.", err=True)
        return 0
    is_live = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_live else PIPED_WIDTH
    style = Style(enabled=wants_colour(sys.stdout, os.environ))
    measure = "tokens" if by_tokens else "cost"
    for text in plot(found, width=width, measure=measure, style=style, bars=is_live):
        click.echo(text)
    click.echo(textwrap.fill(key(rows), max(20, width)), err=True)
    return 0


def key(rows: Iterable[Spent]) -> str:
    """What the sums are, in one line; where they mix what is charged and what is not, how much of each."""
    parts: dict[CostLabel, float] = {}
    for _, _, _, cost, label, _, _ in rows:
        if cost > 0:
            parts[label] = parts.get(label, 0.0) + cost
    if len(parts) < 2:
        return f"Costs: {next(iter(parts), 'estimate')} at list prices."
    return "Costs at list prices: " + ", ".join(f"{money(usd)} {label}" for label, usd in sorted(parts.items())) + "."


def _check_by(by: str) -> None:
    if by not in ("day", "model") and not (by.startswith("label:") and by != "label:"):
        raise errors.BadValue("--by", f"{by!r} is not known", hint="Use day, model or label:KEY.")


def _rows(days: int) -> list[Spent]:
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # --help needs no store
    from leadrope.runs.service import Service  # noqa: PLC0415  # the same

    if not has_store():
        return []  # asking must not make one
    first = date.fromtimestamp(time.time()) - timedelta(days=days - 1)  # noqa: DTZ012  # the user's own days

    async def look(service: Service) -> list[Spent]:
        return await service.spending(time.mktime(first.timetuple()))

    return with_service(look, reads=True)
