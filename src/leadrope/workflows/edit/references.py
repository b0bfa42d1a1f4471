"""Finds where a step is named, and renames it there: in values, and in the text of a file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from leadrope.regex import regex
from leadrope.workflows import links, model
from leadrope.workflows.language import template_syntax as syntax

LINK_KEYS = ("after", "next", "on_error")
_PART = regex(r"""\.[A-Za-z0-9_][A-Za-z0-9_-]*|\[\s*(?:"(?:[^"\\]|\\.)*"|'[^']*')\s*\]""")
_BEGINS = r"(?<![A-Za-z0-9_-])"
_NOT_A_NAME = r"(?![A-Za-z0-9_-])"
_IS_KEY = r"[\"']?\s*:"


class Names:
    """Renames one step everywhere in a workflow. `around` are the groups that contain it."""

    def __init__(self, old: str, new: str, around: tuple[str, ...]) -> None:
        self.old = old
        self.new = new
        self._around = around

    # -- the model ----------------------------------------------------------------------------------------------------

    def workflow(self, workflow: model.Workflow) -> model.Workflow:
        layout = {self._name(name): at for name, at in workflow.settings.layout.items()}
        outputs = [msgspec.structs.replace(one, source=self.value(one.source, ())) for one in workflow.outputs]
        return msgspec.structs.replace(
            workflow,
            steps=self._steps(workflow.steps, ()),
            outputs=tuple(outputs),
            settings=msgspec.structs.replace(workflow.settings, layout=layout),
        )

    def _steps(self, steps: tuple[model.Step, ...], outer: tuple[str, ...]) -> tuple[model.Step, ...]:
        found = []
        for step in steps:
            inner = self._steps(step.steps, (*outer, *links.scope_names(step)))
            found.append(msgspec.structs.replace(self.step(step, outer), id=self._name(step.id), steps=inner))
        return tuple(found)

    def step(self, step: model.Step, outer: Collection[str]) -> model.Step:
        """Renames in the step's own values; it keeps its name. `outer` are names provided by groups around it."""
        own = {*outer, *links.scope_names(step)}
        literal = model.LITERAL.get(step.type, ())
        parameters = {
            key: value if key in literal else self.value(value, own) for key, value in step.parameters.items()
        }
        said = {key: self.value(getattr(step, key), own) for key in ("when", "timeout", "budget")}
        batch, loop = step.batch, step.loop
        if batch is not None:
            batch = msgspec.structs.replace(batch, items=self.value(batch.items, own))
        if loop is not None:
            keys = ("while_", "until", "carry", "max_iterations", "wait", "max_seconds")
            loop = msgspec.structs.replace(loop, **{key: self.value(getattr(loop, key), own) for key in keys})
        return msgspec.structs.replace(
            step,
            parameters=parameters,
            after=self._names(step.after),
            next=self._names(step.next),
            branches={label: self._names(names) or () for label, names in step.branches.items()}
            if step.branches is not None
            else None,
            on_error=self._name(step.on_error) if step.on_error is not None else None,
            batch=batch,
            loop=loop,
            **said,
        )

    def _name(self, name: str) -> str:
        return self.new if name == self.old else name

    def _names(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return tuple(map(self._name, names)) if names is not None else None

    def value(self, value: Any, shadowed: Collection[str]) -> Any:
        if isinstance(value, str):
            return self.in_text(value, shadowed) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.value(inner, shadowed) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner, shadowed) for inner in value]
        return value

    # -- texts --------------------------------------------------------------------------------------------------------

    def in_text(self, text: str, shadowed: Collection[str] = ()) -> str:
        """Renames in a text with templates. `shadowed` are names that mean something else there."""
        pieces, _ = syntax.scan(text)
        found = [
            span for piece in pieces if isinstance(piece, syntax.Expression) for span in self._spans(piece, shadowed)
        ]
        for start, end, new in sorted(found, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _spans(self, expression: syntax.Expression, shadowed: Collection[str]) -> Iterator[tuple[int, int, str]]:
        for operand in expression.operands:
            if not isinstance(operand, syntax.Path):
                continue
            if operand.root not in shadowed:
                yield from self._span(operand)
            for part in operand.parts:
                if isinstance(part, syntax.Expression):
                    yield from self._spans(part, shadowed)

    def _span(self, path: syntax.Path) -> Iterator[tuple[int, int, str]]:
        if path.root == self.old:
            yield path.offset, path.offset + len(self.old), self.new
            return
        if path.root not in self._around:
            return
        wanted = (*self._around[self._around.index(path.root) + 1 :], self.old)
        if path.names[: len(wanted)] != wanted:
            return
        at, found = len(path.root), None
        for _ in wanted:
            found = _PART.match(path.source, at)
            if found is None:
                return
            at = found.end()
        if found is not None:
            new = found[0].replace(self.old, self.new, 1)  # including its dot, or its brackets and quotes
            yield path.offset + found.start(), path.offset + found.end(), new

    def loosely_in(self, text: str) -> str:
        r"""Like `in_text`, for text in which quotes are escaped.

        `"${a.b ?? \"none\"}"` is not a template until it is parsed.
        """
        paths = [".".join((*self._around[number:], "")) for number in range(len(self._around) + 1)]
        for path in paths:
            begin = rf"((?:\$\{{|\?\?)\s*{re.escape(path)}){re.escape(self.old)}{_NOT_A_NAME}"
            text = re.sub(begin, rf"\g<1>{self.new}", text)
        return text

    def as_target(self, text: str) -> str:
        """Renames the step where it is a word of its own and not a key: a branch may have the same name."""
        return re.sub(rf"{_BEGINS}{re.escape(self.old)}{_NOT_A_NAME}(?!{_IS_KEY})", self.new, text)

    def as_key(self, text: str) -> str:
        return re.sub(rf"{_BEGINS}{re.escape(self.old)}{_NOT_A_NAME}(?={_IS_KEY})", self.new, text)
