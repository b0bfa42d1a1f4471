"""Finds what opens, lists, copies, moves or deletes files in source text, whatever name it was imported under.

Only names are read, no types: a method counts by its name and by how it is called. `leadrope.confined.Folder` has
methods of the same names that take other arguments (`read_bytes(name, most=...)`), so the two are told apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OS = _words(
    """chdir chflags chmod chown chroot fwalk getxattr lchflags lchmod lchown link listdir listxattr makedirs mkdir
    mkfifo mknod open popen readlink remove removedirs removexattr rename renames replace rmdir scandir setxattr
    symlink system truncate unlink utime walk"""
)
"""Also with `dir_fd`: whoever holds a descriptor belongs into `leadrope.confined`."""
_HARMLESS = {
    "shutil": _words("which get_terminal_size Error"),
    "tempfile": _words("gettempdir"),
    "sqlite3": _words(
        """Connection Cursor Row Error DatabaseError OperationalError IntegrityError InterfaceError ProgrammingError
        complete_statement sqlite_version SQLITE_FULL SQLITE_IOERR SQLITE_READONLY SQLITE_CANTOPEN SQLITE_PERM
        SQLITE_CORRUPT SQLITE_NOTADB SQLITE_BUSY SQLITE_LOCKED"""
    ),
    "io": _words(
        """StringIO BytesIO TextIOWrapper BufferedIOBase RawIOBase TextIOBase IOBase UnsupportedOperation
        BufferedReader BufferedWriter SEEK_SET SEEK_CUR SEEK_END DEFAULT_BUFFER_SIZE"""
    ),
}
"""Modules of which everything else counts."""
_WHOLE = _words("glob fileinput tarfile zipfile dbm shelve mmap")
_METHODS = _words(
    """read_text read_bytes write_text write_bytes iterdir glob rglob walk touch mkdir rmdir unlink rename replace
    symlink_to hardlink_to link_to chmod lchmod readlink open"""
)
_SOCKETS = frozenset({"create_unix_server", "start_unix_server", "open_unix_connection", "create_unix_connection"})
_PROC = "/proc"
_LEADS_ON = ("/fd", "/root", "/cwd", "/map_files")
"""Names in /proc that lead to any file."""


class Access(NamedTuple):
    function: str
    call: str
    line: int


def accesses(source: str) -> list[Access]:
    tree = ast.parse(source)
    return sorted(_Reader(tree).of(tree, ()), key=lambda found: found.line)


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._modules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._ours: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self._modules[name.asname or name.name.partition(".")[0]] = name.name
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    if (node.module or "").partition(".")[0] == "leadrope":
                        self._ours.add(name.asname or name.name)
                    else:
                        self._names[name.asname or name.name] = f"{node.module}.{name.name}"

    def of(self, node: ast.AST, inside: tuple[str, ...]) -> Iterator[Access]:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and (found := self._called(node)) is not None:
            yield Access(".".join(inside), found, node.lineno)
        for child in ast.iter_child_nodes(node):
            if child is called:
                yield from (found for part in ast.iter_child_nodes(child) for found in self.of(part, inside))
                continue
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if isinstance(child, ast.Attribute | ast.Name) and (mentioned := self._mentioned(child)) is not None:
                yield Access(".".join(inside), mentioned, child.lineno)
            yield from self.of(child, (*inside, child.name) if named else inside)  # type: ignore[attr-defined]

    def _called(self, call: ast.Call) -> str | None:
        found = self._function(call.func)
        if found is not None:
            return None if call.args and _is_of_the_kernel(call.args[0]) else found
        if not isinstance(call.func, ast.Attribute):
            return None
        name, values, words = call.func.attr, len(call.args), {word.arg for word in call.keywords}
        if name in _SOCKETS:
            return name
        if name not in _METHODS or self._is_module(call.func.value) or _is_of_the_kernel(call.func.value):
            return None
        is_confined = "most" in words or {
            "unlink": values == 1,
            "readlink": values == 1,
            "rename": values == 2,
            "replace": values != 1 or bool(words),
            "touch": values > 1,
        }.get(name, False)
        return None if is_confined else name

    def _mentioned(self, node: ast.Attribute | ast.Name) -> str | None:
        """Passed on without being called: `to_thread(shutil.rmtree, folder)`, `map(Path.unlink, files)`."""
        found = self._function(node)
        if found is not None or not isinstance(node, ast.Attribute) or self._is_module(node.value):
            return found
        is_path = node.attr in _METHODS - {"open", "replace", "glob", "walk", "touch"}
        return node.attr if is_path and isinstance(node.ctx, ast.Load) else None

    def _function(self, node: ast.expr) -> str | None:
        """The function of a module that this names, if it is one that counts."""
        if isinstance(node, ast.Name):
            full = self._names.get(node.id, "open" if node.id == "open" and node.id not in self._ours else "")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            full = f"{self._modules.get(node.value.id) or self._names.get(node.value.id, '')}.{node.attr}"
        else:
            return None
        module, _, name = full.rpartition(".")
        counts = (
            full in ("open", "codecs.open")
            or (module == "os" and name in _OS)
            or module in _WHOLE
            or (module in _HARMLESS and name not in _HARMLESS[module])
        )
        return full if counts else None

    def _is_module(self, value: ast.expr) -> bool:
        """A module, or something of leadrope's own: `ast.walk(tree)`, `paths.glob(text)`, `Folder.open(path)`."""
        return isinstance(value, ast.Name) and (value.id in self._ours or value.id in self._modules)


def _is_of_the_kernel(node: ast.expr) -> bool:
    """`/dev/null`, or a file of /proc that is none of the disk's."""
    text = ast.unparse(node)
    if text == "os.devnull":
        return True
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Path" and node.args:
        node = node.args[0]
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    is_proc = isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith(_PROC)
    return is_proc and not any(name in text for name in _LEADS_ON)


def accesses_below(package: Path, *, without: frozenset[str]) -> dict[str, list[Access]]:
    """By module, as `storage/database.py`; `without` are folders that may do this."""
    return {
        path.relative_to(package).as_posix(): accesses(path.read_text(encoding="utf-8"))
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in without
    }
