"""Finds workflows in projects and under LEADROPE_HOME, reads and checks them. Runs nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.confined import Folder, open_named, real_path
from leadrope.core import home as homes
from leadrope.regex import regex
from leadrope.runs.executions.values import NewExecution
from leadrope.workflows import inputs as given_inputs
from leadrope.workflows import model
from leadrope.workflows.check import agents, files
from leadrope.workflows.check.check import check_document
from leadrope.workflows.language import beside, markdown
from leadrope.workflows.problems import BadWorkflow, WorkflowProblem, nearest
from leadrope.workflows.steps import registry

if TYPE_CHECKING:
    from leadrope.workflows.check.subworkflow_check import CalledWorkflow

_MOST_LISTED = 1_000_000
_NAME = regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that passed its check."""

    name: str
    file: str
    """Its path; empty if it did not come from a file."""
    text: str
    workflow: model.Workflow
    warnings: tuple[WorkflowProblem, ...] = ()

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    def inputs(
        self,
        given: Mapping[str, Any],
        *,
        stdin: str | None = None,
        are_texts: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return given_inputs.values_of(self.workflow, given, stdin=stdin, are_texts=are_texts, environ=environ)

    def new(
        self,
        execution_id: str,
        values: Mapping[str, Any],
        *,
        cwd: str,
        parent: str | None = None,
        parent_key: str = "",
        labels: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> NewExecution:
        return NewExecution(
            id=execution_id,
            name=self.name,
            file=self.file,
            title=self.workflow.title,
            text=self.text,
            inputs=dict(values),
            cwd=cwd,
            parent=parent,
            parent_key=parent_key,
            labels=dict(labels or {}),
            settings=dict(settings or {}),
        )


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def folder_of(leadrope_home: Path) -> Path:
    return leadrope_home / "workflows"


def find(name: str, *, folder: Path, leadrope_home: Path) -> Path:
    """Find a workflow: a path, a name in the folder, or the name of a saved workflow, in this order."""
    path = _as_path(name, folder)
    if path is not None:
        if _is_file(path):
            return _resolved(path, folder)
        raise errors.BadValue(
            "workflow", f"there is no file {path}", hint=_meant(name, folder=folder, leadrope_home=leadrope_home)
        )
    for place in (*places_in(folder), folder_of(leadrope_home)):
        for suffix in markdown.SUFFIXES:
            if _is_file(path := place / f"{name}{suffix}"):
                return _resolved(path, folder)
    raise errors.BadValue(
        "workflow",
        f"there is no workflow {name!r} in {folder}, and none is saved under that name",
        hint=_meant(name, folder=folder, leadrope_home=leadrope_home),
    )


def _resolved(path: Path, folder: Path) -> Path:
    """Resolve links. A name inside the folder must stay inside it: an agent may have put a link to a key there."""
    real, root = Path(real_path(path)), Path(real_path(folder))
    if (path.is_relative_to(folder) or path.is_relative_to(root)) and not real.is_relative_to(root):
        raise errors.BadValue("workflow", f"{path} leads out of {folder} through a link", hint="Name the file itself.")
    return real


def _meant(name: str, *, folder: Path, leadrope_home: Path) -> str:
    # Without folder and suffix, which make all names similar.
    beside = {name_of(Path(one)): one for one in names_beside(name, folder=folder, leadrope_home=leadrope_home)}
    near = nearest(name_of(Path(name)), beside)
    return f"Did you mean {beside[near]}?" if near else "`leadrope flow list` shows what there is."


def _as_path(name: str, folder: Path) -> Path | None:
    """Return the name as a path; None for a plain name."""
    try:
        plain = Path(name).expanduser()
    except RuntimeError:
        raise errors.BadValue("workflow", f"{name!r}: nobody is called that here") from None
    is_path = plain.is_absolute() or len(plain.parts) > 1 or markdown.is_workflow_file(name) or name.endswith(".md")
    return (plain if plain.is_absolute() else folder / plain) if is_path else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise errors.BadValue("workflow", f"{str(path)[:200]} cannot be looked at: {error.strerror}") from None


def names_beside(name: str, *, folder: Path, leadrope_home: Path, but: Path | None = None) -> list[str]:
    """Return the names that may have been meant by one that was not found, in the notation in which it was written."""
    try:
        path = _as_path(name, folder)
        if path is None:
            paths = [path for path in files_in(folder) if path != but]
            return list(dict.fromkeys([name_of(path) for path in paths] + [one for one, _ in saved(leadrope_home)]))
        found = [one for one in _listed(path.parent) if one != but]
    except (errors.BadValue, errors.UnsafeFile, OSError):
        return []  # an unreadable folder has no names to suggest
    return [str(Path(name).parent / one.name) for one in found if markdown.is_workflow_file(one.name)]


def load(path: Path, *, leadrope_home: Path | None = None, workspace: Path | None = None) -> Loaded:
    """Read and check a workflow; raises BadWorkflow with all problems if it has errors.

    With `leadrope_home`, where saved workflows are, the workflows it calls are checked too, and so are the saved agents
    it names: those of the user, and of the repository in `workspace` (default: the current directory). If `workspace`
    is given, files that its steps name outside of it are errors.
    """
    text = text_of(path)
    document, problems = judged(path, leadrope_home=leadrope_home, text=text, workspace=workspace)
    loaded = _passed(document, problems, text, name=name_of(path), file=str(path))
    if not document.has_files:
        return loaded
    return msgspec.structs.replace(loaded, text=beside.whole(text, loaded.workflow))


def judged(
    path: Path, *, leadrope_home: Path | None, text: str | None = None, workspace: Path | None = None
) -> tuple[markdown.WorkflowDocument, tuple[WorkflowProblem, ...]]:
    """Read a workflow as far as possible and list its problems; with `leadrope_home`, those of called workflows too."""
    document = document_of(path, text)
    inner: Mapping[str, CalledWorkflow] | None = None
    if leadrope_home is not None and any(step.type == "workflow" for step in document.workflow.every_step):
        from leadrope.workflows.check import subworkflow_loader  # noqa: PLC0415  # few workflows call others

        inner = subworkflow_loader.called_by(document, path, leadrope_home)
    problems = check_document(document, registry.types_of(document.workflow.dialect), inner)
    if leadrope_home is not None and agents.names_agents(document):
        more = agents.look(document, leadrope_home=leadrope_home, workspace=workspace or Path.cwd())
        problems = tuple(sorted((*problems, *more), key=lambda one: (one.line, one.column)))
    if workspace is not None:
        more = files.look(document, workspace=workspace)
        problems = tuple(sorted((*problems, *more), key=lambda one: (one.line, one.column)))
    return document, problems


def document_of(path: Path, text: str | None = None) -> markdown.WorkflowDocument:
    """Read a file and the texts of neighbouring files that its steps name; does not check it."""
    text = text_of(path) if text is None else text
    document = markdown.read(text, dialect=markdown.dialect_of(path.name))
    return beside.with_files(document, path.parent) if _may_name_files(path, text) else document


def _may_name_files(path: Path, text: str) -> bool:
    """Detect without parsing whether steps name files: by `prompt_file: x.md`, or by `prompt: ./x.md` in pflow's
    dialect.
    """
    return f"{model.FILE_SUFFIX}:" in text or (markdown.dialect_of(path.name) == "pflow" and "/" in text)


def whole_text_of(path: Path) -> str | None:
    """Return the text as an execution stores it; None if a file that it includes cannot be read."""
    text = text_of(path)
    if not _may_name_files(path, text):
        return text
    document = document_of(path, text)
    if document.has_errors:
        return text if not beside.has_files(parsed(text, file=path.name)) else None
    return beside.whole(text, document.workflow)


def text_of(path: Path) -> str:
    try:
        # Checked again: a parent folder may have become a link since it was found.
        with open_named(path, workspaces=_here()) as file:
            raw = file.read(4 * markdown.CHARS_LIMIT + 1)
        if len(raw) > 4 * markdown.CHARS_LIMIT:
            raise errors.BadValue("workflow", f"{path} is too large for a workflow")
        return raw.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise errors.BadValue("workflow", f"{path} is not UTF-8 text") from None
    except errors.UnsafeFile as error:
        raise errors.BadValue("workflow", f"{path} {error.reason}", hint=error.hint) from None
    except OSError as error:
        raise errors.BadValue("workflow", f"{path} cannot be read: {error.strerror}") from None


def _here() -> tuple[Path, ...]:
    try:
        return (Path.cwd(),)
    except OSError:  # the file is gone
        return ()


def read(text: str, *, name: str, file: str = "") -> Loaded:
    document = markdown.read(text, dialect=markdown.dialect_of(file or name))
    problems = check_document(document, registry.types_of(document.workflow.dialect))
    return _passed(document, problems, text, name=name, file=file)


def _passed(
    document: markdown.WorkflowDocument, problems: tuple[WorkflowProblem, ...], text: str, *, name: str, file: str
) -> Loaded:
    if any(problem.severity == "error" for problem in problems):
        raise BadWorkflow(file or name, problems)
    return Loaded(name=name, file=file, text=text, workflow=document.workflow, warnings=problems)


def places_in(folder: Path) -> tuple[Path, ...]:
    """Return where a project's workflows are: in the folder, and in its `workflows`, `.leadrope` and `examples`."""
    return (folder, folder / "workflows", folder / ".leadrope", folder / "examples")


def files_in(folder: Path) -> Iterator[Path]:
    """Yield the workflow files of a project."""
    for place in places_in(folder):
        yield from (path for path in _listed(place) if markdown.is_workflow_file(path.name) and path.is_file())


def _listed(folder: Path) -> list[Path]:
    """Return the entries by name; empty if there is no such folder."""
    try:
        place = Folder.open(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    with place:
        return [folder / entry.name for entry in place.entries(most=_MOST_LISTED)]


def saved(leadrope_home: Path) -> list[tuple[str, Path]]:
    found = _listed(folder_of(leadrope_home))
    return [(name_of(path), path) for path in found if markdown.is_workflow_file(path.name)]


def save(loaded: Loaded, leadrope_home: Path, *, name: str | None = None, replace: bool = False) -> Path:
    """Save a copy under a name, from which it can be run anywhere."""
    name = name or loaded.name
    if not _NAME.fullmatch(name):
        raise errors.BadValue(
            "name", f"{name!r} cannot be the name of a workflow", hint="Use letters, digits, `.`, `_` and `-`."
        )
    folder = homes.ensure(folder_of(leadrope_home))
    path = folder / f"{name}{markdown.suffix_of(loaded.workflow.dialect)}"
    others = [other for suffix in markdown.SUFFIXES if (other := folder / f"{name}{suffix}") != path and other.exists()]
    is_changed = bool(others) or (path.exists() and text_of(path) != loaded.text)
    if is_changed and not replace:
        raise errors.BadValue(
            "name", f"a workflow {name!r} is saved already", hint="Give another --name, or --replace."
        )
    _check_calls(loaded, path, leadrope_home)
    with Folder.open(folder) as own:
        own.replace(path.name, loaded.text.encode())
        for other in others:
            own.unlink(other.name, missing_ok=True)
    return path


def saved_as(name: str, leadrope_home: Path) -> Path:
    """Return the file of the workflow saved under this name."""
    known = dict(saved(leadrope_home))
    if name not in known:
        near = nearest(name, known)
        hint = f"Did you mean {near}?" if near else f"Saved are: {', '.join(known)}." if known else "None is saved."
        raise errors.BadValue("name", f"no workflow is saved as {name!r}", hint=hint)
    return known[name]


def callers_of(name: str, leadrope_home: Path) -> list[str]:
    """Return the saved workflows with a step that calls this one."""
    from leadrope.workflows.check.subworkflow_check import literal_name  # noqa: PLC0415  # needed by few

    found = []
    for other, path in saved(leadrope_home):
        try:
            steps = parsed(text_of(path), file=path.name).every_step
        except errors.BadValue:
            continue  # an unreadable workflow calls nothing
        if other != name and any(literal_name(step) == name for step in steps):
            found.append(other)
    return found


def delete(path: Path, leadrope_home: Path) -> None:
    """Delete a saved workflow; executions keep their own copy of its text."""
    with Folder.open(folder_of(leadrope_home)) as own:
        own.unlink(path.name, missing_ok=False)


def _check_calls(loaded: Loaded, path: Path, leadrope_home: Path) -> None:
    """Check that the workflows it calls are found from the copy's folder too, not only from the file's."""
    from leadrope.workflows.check.subworkflow_check import literal_name  # noqa: PLC0415  # needed by this alone

    for step in loaded.workflow.every_step:
        called = literal_name(step)
        if called is None or called == name_of(path):
            continue
        try:
            find(called, folder=path.parent, leadrope_home=leadrope_home)
        except errors.BadValue:
            raise errors.BadValue(
                "workflow",
                f"the step {step.id!r} calls {called}, which a saved copy would not find",
                hint=f"Save that one first (`leadrope flow save {called}`), and call it {name_of(Path(called))}.",
            ) from None


def name_of(path: Path) -> str:
    for suffix in (*markdown.SUFFIXES, ".md"):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.name


def parsed(text: str, *, file: str = "") -> model.Workflow:
    """Parse a workflow as far as possible, without checking it. The file name determines the dialect."""
    return markdown.read(text, dialect=markdown.dialect_of(file)).workflow
