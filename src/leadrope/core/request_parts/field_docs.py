"""Docstrings of fields: the texts below the fields of a class, shown by `help()` and in the Python reference.

Python throws such texts away, so they are read from the source file when somebody asks for them. An option's help comes
before the text below its field.
"""

from __future__ import annotations

from typing import SupportsIndex, TypeVar

from leadrope.core.request_parts.option import options_of

T = TypeVar("T")


class Field:
    """One field of a class: its name, its type as written, its default as written, and its text."""

    def __init__(self, name: str, kind: str, default: str | None, text: str) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.text = text

    def __str__(self) -> str:
        default = "" if self.default is None else f" = {self.default}"
        text = "".join(f"\n    {line.strip()}" for line in self.text.splitlines() if line.strip())
        return f"{self.name}: {self.kind}{default}{text}"


class _Doc(str):
    """A class's docstring, to which `help()` adds the fields; made when it asks, so that importing costs nothing."""

    __slots__ = ("owner",)
    owner: type

    def whole(self) -> str:
        fields = "\n".join(str(field) for field in fields_of(self.owner))
        return f"{self}\n\nFields:\n\n{fields}\n" if fields else str(self)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        """The first thing that `help()` and `inspect.getdoc` do with a text. Everybody else gets it as it was written:
        a JSON Schema, for instance, describes its fields itself.
        """
        return self.whole().expandtabs(tabsize)


def documented(kind: type[T]) -> type[T]:
    """Decorator: the fields of the class appear in its docstring."""
    text = _Doc(kind.__doc__ or "")
    text.owner = kind
    kind.__doc__ = text
    return kind


def text_of(kind: type) -> str:
    """The docstring as it was written, without the fields."""
    return str(vars(kind).get("__doc__") or "")


def fields_of(kind: type) -> list[Field]:
    """The fields that the class itself declares, in order; none where its source is not at hand."""
    import ast  # noqa: PLC0415  # only for whoever asks for help
    import inspect  # noqa: PLC0415
    import textwrap  # noqa: PLC0415

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return []
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    options = options_of(kind)
    found: list[Field] = []
    for index, node in enumerate(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id.startswith("_"):
            continue
        after = body[index + 1] if index + 1 < len(body) else None
        value = after.value if isinstance(after, ast.Expr) else None
        below = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
        default = None if node.value is None else ast.unparse(node.value)
        annotation: ast.expr = node.annotation
        if (
            node.target.id in options
            and isinstance(annotation, ast.Subscript)
            and isinstance(annotation.slice, ast.Tuple)
        ):
            annotation = annotation.slice.elts[0]
        option = options.get(node.target.id)
        text = f"{option.sentences()} {below}".strip() if option is not None else below
        found.append(Field(node.target.id, ast.unparse(annotation), default, text))
    return found
