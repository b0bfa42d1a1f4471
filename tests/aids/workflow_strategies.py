"""Workflows for property tests: any names, values and links, with texts that Markdown and YAML could misread."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from leadrope.workflows import model

IDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TRICKY = st.sampled_from(
    [
        *(
            "${a.b}",
            '${a ?? "x: y"}',
            "a: b",
            "# x",
            " #",
            "- a",
            "```",
            "~~~\n",
            "### x",
            "#### x",
            "###### x",
            "null",
            "true",
            "1e3",
            "0x1F",
        ),
        *(
            "yes",
            "a\nb",
            "\n",
            " a ",
            "|",
            "> x",
            "\\- x",
            "\\",
            "[${a}, b]",
            "{",
            '"',
            "'",
            "a #b",
            "---",
            "...",
            "\ufeff",
        ),
        *(
            "\u2028",
            "\x85",
            "\x7f",
            "\x00",
            "\r\n",
            "\ue041",
            "end",
            "````\n```\n",
            "  ```py\n",
            "@x",
            "%x",
            "&a",
            "*a",
            "!x",
        ),
    ]
)
ANY_TEXT = st.one_of(TRICKY, TEXTS, st.lists(st.one_of(TRICKY, TEXTS), max_size=3).map("\n".join))
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), ANY_TEXT)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)),
    max_leaves=8,
)
PROSE = ANY_TEXT.map(model.tidied)
KEYS = st.one_of(
    IDS, ANY_TEXT.filter(bool), st.sampled_from(["text", "json", "prompt", "policy-x", "output_schema"])
).filter(lambda key: model.attribute(key) is None)
POSITIVE = st.floats(min_value=0.001, max_value=1e6)
MAPS = st.dictionaries(ANY_TEXT, VALUES, max_size=3)


def _step(draw: st.DrawFn, name: str, ids: list[str]) -> model.Step:
    some = st.lists(st.sampled_from(ids), max_size=3, unique=True).map(tuple)
    led = draw(st.sampled_from(["", "next", "branches"]))
    return model.Step(
        id=name,
        type=draw(IDS),
        description=draw(PROSE),
        parameters=draw(st.dictionaries(KEYS, VALUES, max_size=4)),
        after=draw(st.none() | some),
        next=draw(some) if led == "next" else None,
        branches=draw(st.dictionaries(ANY_TEXT, some, min_size=1, max_size=3)) if led == "branches" else None,
        on_error=draw(st.none() | st.sampled_from(ids)),
        when=draw(VALUES),
        batch=draw(st.none() | st.builds(model.Batch, items=VALUES, as_=IDS, max_concurrent=st.integers(1, 100))),
        loop=draw(
            st.none()
            | st.builds(
                model.Loop,
                until=VALUES,
                carry=MAPS,
                max_iterations=st.integers(1, 9) | st.just("${n}"),
                wait=st.floats(0, 100) | st.just("${x.y}"),
                max_seconds=st.none() | POSITIVE | st.just("${x.y}"),
            )
        ),
        retry=draw(
            st.none()
            | st.builds(
                model.Retry,
                max=st.integers(1, 10),
                wait=st.floats(0, 60),
                retry_on=st.lists(st.just("exit_code") | st.integers(1, 255), max_size=2).map(tuple),
            )
        ),
        timeout=draw(st.none() | POSITIVE | st.just("${x.y}")),
        cache=draw(st.none() | st.booleans()),
        approval=draw(st.booleans()),
        budget=draw(st.none() | POSITIVE),
        policy=draw(st.none() | MAPS),
    )


def _nested(steps: list[model.Step], levels: dict[str, int], level: int) -> list[model.Step]:
    """Those that have a deeper level than the one above them are inside it, which is then a group."""
    found: list[model.Step] = []
    inside: dict[str, list[model.Step]] = {}
    for step in steps:
        if found and levels[step.id] > level and level < 6:
            inside.setdefault(found[-1].id, []).append(step)
        else:
            found.append(step)
    return [
        msgspec.structs.replace(step, type="group", steps=tuple(_nested(inside[step.id], levels, level + 1)))
        if step.id in inside
        else step
        for step in found
    ]


@st.composite
def workflows(draw: st.DrawFn) -> model.Workflow:
    ids = draw(st.lists(IDS, min_size=1, max_size=6, unique=True))
    # Each step is inside a group that stands above it, or in none.
    levels = {name: draw(st.integers(3, 6)) for name in ids}
    steps = _nested([_step(draw, name, ids) for name in ids], levels, 3)
    inputs = st.builds(
        model.Input,
        name=IDS,
        type=st.sampled_from(model.INPUT_TYPES),
        required=st.booleans(),
        default=st.just(msgspec.UNSET) | VALUES,
        description=PROSE,
        stdin=st.booleans(),
    )
    outputs = st.builds(model.Output, name=IDS, source=VALUES.filter(lambda one: one is not None), description=PROSE)
    at = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
    return model.Workflow(
        title=draw(st.from_regex(r"([A-Za-z][A-Za-z0-9:#' -]{0,20}[a-z])?", fullmatch=True)),
        prose=draw(PROSE),
        inputs=tuple(draw(st.lists(inputs, max_size=2, unique_by=lambda one: one.name))),
        steps=tuple(steps),
        outputs=tuple(draw(st.lists(outputs, max_size=2, unique_by=lambda one: one.name))),
        settings=model.WorkflowSettings(
            policy=draw(st.none() | MAPS),
            budget=draw(st.none() | POSITIVE),
            concurrency=draw(st.none() | st.integers(1, 100)),
            max_seconds=draw(st.none() | POSITIVE),
            max_iterations=draw(st.none() | st.integers(1, 1000)),
            layout=draw(st.dictionaries(st.sampled_from(ids), at)),
        ),
        section_prose=draw(st.dictionaries(st.sampled_from(model.SECTIONS), PROSE.filter(bool), max_size=2)),
        notes=tuple(draw(st.lists(st.builds(model.Note, title=st.just("Notes"), text=PROSE), max_size=2))),
        frontmatter=draw(st.sampled_from(["", "created_at: 2026-01-01\nversion: 3", "- a"])),
    )
