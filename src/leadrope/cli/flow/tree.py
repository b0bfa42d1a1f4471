"""A workflow as a tree for the terminal: what follows on one level, what a step chooses between below it. Pure."""

from __future__ import annotations

import functools
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope.cli.screen.screen import Style
from leadrope.cli.screen.table import cut, width_of
from leadrope.runtime.terminal_text import clean, one_line
from leadrope.workflows import links, model

_SHORT = 60
_BESIDE = "side by side"
_MOST_NAMED = 10


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line, and the lines below it that tell more."""

    depth: int
    name: str
    kind: str = ""
    """Empty: the name of a way, not a step."""
    about: str = ""
    notes: tuple[str, ...] = ()


def lines(workflow: model.Workflow, *, width: int, style: Style) -> list[str]:
    shown = [style.bold(cut(_one(workflow.title) or "(no title)", width))]
    shown += [cut(line, width) for line in clean(workflow.prose).strip().splitlines()[:6]]
    if workflow.inputs:
        shown += ["", style.bold("inputs")]
        shown += _table([_input(one) for one in workflow.inputs], width, style)
    shown += ["", style.bold("steps")]
    shown += list(_drawn(rows(workflow), width, style)) or ["  none"]
    if workflow.outputs:
        shown += ["", style.bold("outputs")]
        shown += _table(
            [(one.name, _value(one.source), _one(one.description)) for one in workflow.outputs], width, style
        )
    if told := _settings(workflow.settings):
        shown += ["", style.bold("settings")]
        shown += [cut(f"  {line}", width) for line in told]
    return shown


# -- the tree ---------------------------------------------------------------------------------------------------------


def rows(workflow: model.Workflow) -> list[Row]:
    """Steps in an order in which they can run. A step where ways meet again stands on the level where they parted."""
    return _rows(workflow.steps, workflow.dialect)


def _rows(every: Sequence[model.Step], dialect: model.Dialect) -> list[Row]:
    steps = {step.id: step for step in every}
    found = links.links_between(every, dialect)
    into = {name: [link for link in some if link.kind != "data"] for name, some in found.into.items()}
    out_of = {name: [link for link in some if link.kind != "data"] for name, some in found.out_of.items()}
    under, joined = _placed(found, into)
    told: list[Row] = []
    done: set[str] = set()
    # Depth, step, the way whose first step it is, and the step that it comes after on a level of several ways.
    ways: list[tuple[int, str, str, str | None]]
    todo: list[tuple[int, str, str, str | None]] = []
    first = under.get("", [])
    beginning = [name for name in first if name in found.starts and name not in joined]
    is_parted = len(beginning) > 1
    ways = [(1, name, _BESIDE if number == 0 else "", "") for number, name in enumerate(beginning) if is_parted]
    todo += reversed([*ways, *((0, name, "", None) for name in first if not is_parted or name not in beginning)])
    while todo:
        depth, name, way, behind = todo.pop()
        if way:
            told.append(Row(depth=depth - 1, name=way))
        done.add(name)
        mine = under.get(name, [])
        # The one step that simply follows stays on the level; errors come last, as they do in a reader's mind.
        chosen = [link for link in out_of[name] if link.kind in ("branch", "error")]
        plain = dict.fromkeys(link.target for link in out_of[name] if link not in chosen and link.target not in joined)
        parted = [*(plain if len(plain) > 1 else ()), *(link.target for link in chosen)]
        inner = [one for one in dict.fromkeys(parted) if one in mine and {link.source for link in into[one]} == {name}]
        notes = _notes(steps[name])
        notes += [f"{_way(link)} → {link.target}" for link in chosen if link.target not in inner]
        step = steps[name]
        after = step.after if step.after and len(step.after) > 1 else (behind,) if behind else ()
        if name in joined:
            waits = {*joined[name], *(link.source for link in into[name])}
            after = tuple(one for one in steps if one in waits)
        if after:
            more = f" and {len(after) - _MOST_NAMED} more" if len(after) > _MOST_NAMED else ""
            notes.insert(0, f"after {', '.join(after[:_MOST_NAMED])}{more}")
        told.append(
            Row(depth=depth, name=name, kind=step.type or "?", about=_one(step.description), notes=tuple(notes))
        )
        told += [msgspec.structs.replace(row, depth=depth + 1 + row.depth) for row in _rows(step.steps, dialect)]
        following = [(depth, one, "", None if behind is None else name) for one in mine if one not in inner]
        named = [(one, _ways(out_of[name], one)) for one in inner]
        before = [None, *(way for _, way in named)]
        # Steps on the same way stand below its name together; what comes after one of them then says so.
        counted = Counter(way for _, way in named)
        ways = [
            (depth + 2, one, way if way != last else "", "" if counted[way] > 1 else None)
            for (one, way), last in zip(named, before, strict=False)
        ]
        todo += reversed(ways + following)
    left = [name for name in steps if name not in done]
    told += [Row(depth=0, name=name, kind=steps[name].type or "?", notes=("no way leads here",)) for name in left]
    return told


def _placed(found: links.Links, into: dict[str, list[links.Link]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Step -> those that every way to leads through it, the nearest only; "" for the beginning.

    And step -> those that it waits for beside the ways to it, because it uses their values. It stands where these ways
    have parted, as it would if they all led to it.
    """
    above: dict[str, str] = {}
    depth: dict[str, int] = {"": 0}
    before: dict[str, set[str]] = {}
    joined: dict[str, list[str]] = {}

    def meet(one: str, other: str) -> str:
        while one != other:
            if depth[one] >= depth[other]:
                one = above[one]
            else:
                other = above[other]
        return one

    for name in found.sorted:
        known = [link.source for link in into[name] if link.source in depth]
        if name not in found.starts and not known:
            continue
        nearest = "" if name in found.starts else functools.reduce(meet, known)
        led = {one for source in known for one in (source, *before[source])}
        used = [link.source for link in found.into[name] if link.kind == "data" and link.source in before]
        before[name] = led.union(used, *(before[source] for source in used))
        for source in used:
            if source in led or _is_chosen(name, into):
                continue
            met = meet(nearest, source)
            at = nearest
            # What is done by a choice only stays with it, whatever it uses.
            while at != met and not _is_chosen(at, into):
                at = above[at]
            if at == met:
                nearest = met
                joined.setdefault(name, []).append(source)
        above[name] = nearest
        depth[name] = depth[nearest] + 1
    under: dict[str, list[str]] = {}
    for name in found.steps:
        if name in above:
            under.setdefault(above[name], []).append(name)
    return {name: _ordered(some, found) for name, some in under.items()}, joined


def _is_chosen(name: str, into: dict[str, list[links.Link]]) -> bool:
    """Whether it is done only where one step has chosen it, or has failed."""
    return len({link.source for link in into[name]}) == 1 and all(
        link.kind in ("branch", "error") for link in into[name]
    )


def _ordered(names: list[str], found: links.Links) -> list[str]:
    """As in the file, but for those that wait for others."""
    behind = {name: found.descendants(name) for name in names} if len(names) > 1 else {}
    left, ordered = list(names), []
    while left:
        one = next((name for name in left if not any(name in behind.get(other, ()) for other in left)), left[0])
        left.remove(one)
        ordered.append(one)
    return ordered


def _ways(out: Sequence[links.Link], target: str) -> str:
    return ", ".join(dict.fromkeys(_way(link) for link in out if link.target == target))


def _way(link: links.Link) -> str:
    if link.kind == "branch":
        return _one(link.label or "")
    return "on error" if link.kind == "error" else _BESIDE


def _drawn(told: Sequence[Row], width: int, style: Style) -> Iterable[str]:
    # From the end: whether a level goes on below a row is known only then.
    goes_on: list[bool] = []
    leads: list[tuple[str, str]] = []
    below = 0
    """The depth of the row that comes after."""
    for row in reversed(told):
        goes_on = goes_on[: row.depth + 1] + [False] * (row.depth + 1 - len(goes_on))
        above = "".join("│  " if on else "   " for on in goes_on[: row.depth])
        tail = above + ("│  " if goes_on[row.depth] else "   ") + ("│ " if below > row.depth else "  ")
        leads.append((above + ("├─ " if goes_on[row.depth] else "└─ "), tail))
        goes_on[row.depth] = True
        below = row.depth
    leads.reverse()
    names = [len(lead) + width_of(row.name) for (lead, _), row in zip(leads, told, strict=True) if row.kind]
    wide = min(max(names, default=0), max(24, width // 2))
    for (lead, tail), row in zip(leads, told, strict=True):
        if not row.kind:
            yield "  " + style.dim(lead) + style.warn(cut(row.name, width - 2 - len(lead)))
            continue
        name = cut(row.name, max(8, width - 20 - len(lead)))
        space = " " * max(1, wide - len(lead) - width_of(name) + 2)
        left = width - 2 - len(lead) - width_of(name) - len(space)
        about = cut(f"{row.kind:<11} {row.about}".rstrip(), left)
        yield "  " + style.dim(lead) + style.bold(name) + space + style.dim(about)
        for note in row.notes:
            for line in textwrap.wrap(note, max(20, width - 2 - len(tail)), subsequent_indent="  "):
                yield "  " + style.dim(tail + line)


# -- what a step says -------------------------------------------------------------------------------------------------


def _notes(step: model.Step) -> list[str]:
    said = []
    if step.when is not None:
        said.append(f"only when {_value(step.when)}")
    if step.approval:
        said.append("a person approves it before it starts")
    if (batch := step.batch) is not None:
        how = f", {batch.at_once} at once" if batch.at_once > 1 else ""
        softly = "; continues when one fails" if batch.error_handling == "continue" else ""
        said.append(f"for each {batch.as_} of {_value(batch.items)}{how}{softly}")
    if (loop := step.loop) is not None:
        while_ = f" while {_value(loop.while_)}" if loop.while_ is not None else ""
        until = f" until {_value(loop.until)}" if loop.until is not None else ""
        carried = f", carries {', '.join(loop.carry)}" if loop.carry else ""
        pause = f", {_seconds(loop.wait)} apart" if loop.wait else ""
        limit = f" or {_seconds(loop.max_seconds)}" if loop.max_seconds is not None else ""
        most = f"at most {loop.max_iterations} times{limit}"
        said.append(f"again{while_}{until}{pause}, {most}{carried}")
    if (retry := step.retry) is not None:
        apart = f"{retry.wait:g} s apart" + (", growing" if retry.backoff == "exponential" else "")
        codes = ", ".join("any exit code" if one == "exit_code" else f"exit code {one}" for one in retry.retry_on)
        more = f", also after {codes}" if codes else ""
        said.append(f"up to {retry.max} attempts, {apart}{more}" if retry.max > 1 else "one attempt")
    small = []
    if step.timeout is not None:
        small.append(f"at most {_seconds(step.timeout)}")
    if step.budget is not None:
        small.append(f"at most {_value(step.budget)} USD")
    if step.cache:
        small.append("kept in the cache")
    if step.policy:
        small.append(f"own policy ({', '.join(step.policy)})")
    return said + ([" · ".join(small)] if small else [])


def _input(one: model.Input) -> tuple[str, str, str]:
    kind = one.type + (" (stdin)" if one.stdin else "")
    if one.default is not UNSET:
        kind += f" = {_value(one.default)}"
    elif one.required:
        kind += ", required"
    return one.name, kind, _one(one.description)


def _settings(settings: model.WorkflowSettings) -> list[str]:
    found = []
    if settings.budget is not None:
        found.append(f"budget       {settings.budget:g} USD")
    if settings.concurrency is not None:
        found.append(f"concurrency  {settings.concurrency} steps at once")
    if settings.max_seconds is not None:
        found.append(f"time         at most {settings.max_seconds:g} s")
    if settings.max_iterations is not None:
        found.append(f"loops        at most {settings.max_iterations} turns together")
    if settings.policy:
        found.append(f"policy       {', '.join(settings.policy)}")
    return found


def _table(found: Sequence[tuple[str, str, str]], width: int, style: Style) -> list[str]:
    names = min(28, max(width_of(row[0]) for row in found))
    kinds = min(max(width_of(row[1]) for row in found), max(16, width // 2 - names))
    shown = []
    for name, told, about in found:
        kind = cut(told, kinds if about else width - names - 4)
        start = f"  {cut(name, names)}{' ' * max(0, names - width_of(name))}  "
        left = width - width_of(start) - max(kinds, width_of(kind)) - 2
        more = f"{' ' * max(0, kinds - width_of(kind))}  {cut(about, left)}" if about and left > 8 else ""
        shown.append(start + style.dim(kind) + more)
    return shown


def _seconds(value: Any) -> str:
    return f"{value:g} s" if isinstance(value, int | float) else f"{value} s"


def _value(value: Any) -> str:
    return one_line(clean(value if isinstance(value, str) and value else msgspec.json.encode(value).decode()), _SHORT)


def _one(text: str) -> str:
    return one_line(clean(text), 200)
