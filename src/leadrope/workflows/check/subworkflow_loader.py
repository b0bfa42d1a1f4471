"""Reads the workflows that a workflow calls, before anything runs and each file once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.workflows import library
from leadrope.workflows.check.check import check_document
from leadrope.workflows.check.subworkflow_check import BAD_INNER, CalledWorkflow, is_sure, literal_name
from leadrope.workflows.language import markdown
from leadrope.workflows.problems import WorkflowProblem
from leadrope.workflows.steps import registry


class _File(msgspec.Struct, kw_only=True):
    document: markdown.WorkflowDocument
    calls: dict[str, Path] = {}
    """The files that were found, by step."""
    sure: frozenset[str] = frozenset()
    """Those of these steps that run unconditionally."""
    failed: dict[str, CalledWorkflow] = {}
    """The other calls."""
    errors: int = 0
    first: str = ""
    """The first error, with its file and position."""
    depth: int = 1
    sure_depth: int = 1


def called_by(document: markdown.WorkflowDocument, path: Path, leadrope_home: Path) -> dict[str, CalledWorkflow]:
    """Returns the called workflows by step, except those named by a template."""
    here = Path(real_path(path))
    reader = _Reader(here, leadrope_home)
    reader.read(here, document)
    return reader.judge()


class _Reader:
    def __init__(self, root: Path, leadrope_home: Path) -> None:
        self._root = root
        self._home = leadrope_home
        self._files: dict[Path, _File] = {}
        self._beside: dict[Path, tuple[WorkflowProblem, ...]] = {}

    def read(self, path: Path, document: markdown.WorkflowDocument) -> None:
        """Reads the document and everything reachable from it."""
        todo = [(path, document)]
        self._files[path] = _File(document=document)
        while todo:
            at, read = todo.pop()
            file = self._files[at]
            for step in read.workflow.every_step:
                name = literal_name(step)
                if name is None or ("steps", step.id, "workflow") in read.unreadable:
                    continue
                found = self._found(name, at)
                if isinstance(found, CalledWorkflow):
                    file.failed[step.id] = found
                    continue
                if found not in self._files:
                    try:
                        inner = library.document_of(found)
                    except errors.BadValue as error:
                        why = error.message.removeprefix("workflow: ")
                        file.failed[step.id] = CalledWorkflow(name=name, file=self._shown(found), broken=why)
                        continue
                    self._files[found] = _File(document=inner)
                    todo.append((found, inner))
                file.calls[step.id] = found
                if is_sure(step, read.workflow):
                    file.sure |= {step.id}

    def _found(self, name: str, at: Path) -> Path | CalledWorkflow:
        try:
            return library.find(name, folder=at.parent, leadrope_home=self._home)
        except errors.BadValue as error:
            there = library.names_beside(name, folder=at.parent, leadrope_home=self._home, but=at)
            return CalledWorkflow(name=name, missing=error.message.removeprefix("workflow: "), there=tuple(there))

    def judge(self) -> dict[str, CalledWorkflow]:
        """Checks called workflows before their callers; a call that leads back is judged without its content."""
        found: dict[str, CalledWorkflow] = {}
        for path in self._inside_out():
            file = self._files[path]
            found = {**file.failed, **{step: self._called(path, step) for step in file.calls}}
            for step, inner in file.calls.items():
                if not found[step].circle:
                    file.depth = max(file.depth, 1 + self._files[inner].depth)
                    if step in file.sure:
                        file.sure_depth = max(file.sure_depth, 1 + self._files[inner].sure_depth)
            if path != self._root:
                self._keep_errors(path, file, self._checked(file, self._shallow(found)))
        return found

    def _checked(self, file: _File, called: dict[str, CalledWorkflow]) -> tuple[WorkflowProblem, ...]:
        return check_document(file.document, registry.types_of(file.document.workflow.dialect), called)

    def _keep_errors(self, path: Path, file: _File, problems: tuple[WorkflowProblem, ...]) -> None:
        wrong = [one for one in problems if one.severity == "error"]
        file.errors = len(wrong)
        if wrong:
            file.first = self._told(path, wrong[0])
            inner = file.calls.get(wrong[0].path[1]) if wrong[0].kind == BAD_INNER else None
            if inner is not None:
                file.first = self._files[inner].first  # where the error is, and not each file around it

    def _called(self, path: Path, step: str) -> CalledWorkflow:
        inner = self._files[path].calls[step]
        file = self._files[inner]
        back = self._way(inner, path)
        shown, count, first = self._shown(inner), file.errors, file.first
        if back is not None:
            # The calling file is itself inside of it: its own errors are reported anyway, and must not count here.
            wrong = self._errors_beside_the_circle(inner) if inner != path else ()
            count, first = len(wrong), self._told(inner, wrong[0]) if wrong else ""
        broken = f"{shown} has 1 error: {first}" if count == 1 else f"{shown} has {count} errors; the first: {first}"
        steps = [(path, step), *(back or ())]
        is_whole = not file.document.has_errors
        return CalledWorkflow(
            name=literal_name(self._files[path].document.workflow.step(step)) or "",
            file=shown,
            broken=broken if count else None,
            inputs=file.document.workflow.inputs if is_whole else None,
            outputs=tuple(one.name for one in file.document.workflow.outputs) if is_whole else None,
            circle=(*(library.name_of(at) for at, _ in steps), library.name_of(path)) if back is not None else (),
            is_endless=back is not None and all(one in self._files[at].sure for at, one in steps),
            depth=file.depth,
            sure_depth=file.sure_depth,
        )

    def _errors_beside_the_circle(self, path: Path) -> tuple[WorkflowProblem, ...]:
        if path not in self._beside:
            file = self._files[path]
            straight = [step for step, inner in file.calls.items() if self._way(inner, path) is None]
            called = self._shallow({**file.failed, **{step: self._called(path, step) for step in straight}})
            problems = self._checked(file, called)
            self._beside[path] = tuple(one for one in problems if one.severity == "error")
        return self._beside[path]

    def _shallow(self, called: dict[str, CalledWorkflow]) -> dict[str, CalledWorkflow]:
        """Resets the depth, which is counted and reported by the outermost workflow."""
        return {step: msgspec.structs.replace(one, depth=1, sure_depth=1) for step, one in called.items()}

    def _way(self, start: Path, end: Path) -> list[tuple[Path, str]] | None:
        """Returns the calls that lead from one file to the other, or None."""
        came: dict[Path, tuple[Path, str] | None] = {start: None}
        todo = deque((start,))
        while todo and end not in came:
            at = todo.popleft()
            for step, inner in self._files[at].calls.items():
                if inner not in came:
                    came[inner] = (at, step)
                    todo.append(inner)
        if end not in came:
            return None
        way: list[tuple[Path, str]] = []
        before = came[end]
        while before is not None:
            way.append(before)
            before = came[before[0]]
        return way[::-1]

    def _inside_out(self) -> Iterator[Path]:
        """Yields each file after all that it calls, except for calls that lead back to it."""
        seen = {self._root}
        stack = [(self._root, iter(self._files[self._root].calls.values()))]
        while stack:
            path, rest = stack[-1]
            inner = next((one for one in rest if one not in seen), None)
            if inner is None:
                stack.pop()
                yield path
            else:
                seen.add(inner)
                stack.append((inner, iter(self._files[inner].calls.values())))

    def _told(self, path: Path, problem: WorkflowProblem) -> str:
        """Describes a problem in a file other than the user's."""
        alone = msgspec.structs.replace(problem, line=0, column=0, path=(), available=())
        where = f"{self._shown(path)}:{problem.line}:{problem.column}: " if problem.line else f"{self._shown(path)}: "
        return where + str(alone).removeprefix("error: ")

    def _shown(self, path: Path) -> str:
        folder = self._root.parent
        return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
