"""The working directory of a run: it must exist, be a directory, and not be the system's own."""

from __future__ import annotations

import os
from pathlib import Path

from leadrope import errors, spelling
from leadrope.confined import real_path
from leadrope.core.request_parts import extra_dirs

# An agent that may edit its working directory must not be given the machine itself.
FORBIDDEN = ("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys", "/proc", "/dev", "/boot")


def working_directory(cwd: str | None) -> str:
    """The directory with its links resolved, or an error that says what is wrong with it."""
    given = cwd if cwd is not None else _here()
    path = Path(given).expanduser()
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise errors.BadDirectory(
            f"working directory {given!r} cannot be used: {_why(error)}",
            hint=f"Make it, or name another with {spelling.option('cwd')}.",
            field="cwd",
        ) from None
    if not real.is_dir():
        raise errors.BadDirectory(
            f"working directory {given!r} is not a directory",
            hint=f"Name a directory with {spelling.option('cwd')}.",
            field="cwd",
        )
    _require_access("working", given, real, "cwd")
    refuse_system(given, str(real), "cwd")
    return _text(real)


def extra_directory(given: str, cwd: str) -> str:
    """`DIR` or `DIR:ro` with its links resolved, or an error that says what is wrong with it."""
    name, is_read_only = extra_dirs.parse(given)
    if not name.strip():
        raise errors.BadValue(
            "extra_dirs", f"{given!r} names no folder", hint="Name a folder: DIR, or DIR:ro for one that is only read."
        )
    path = Path(cwd, Path(name).expanduser())
    if not path.is_dir():
        raise errors.BadDirectory(
            f"extra directory {given!r} does not exist or is not a directory",
            hint=f"Make it, or correct {spelling.option('extra_dirs')}. Relative paths start at the working directory.",
            field="extra_dirs",
        )
    real = Path(real_path(path))
    _require_access("extra", given, real, "extra_dirs")
    refuse_system(name, str(real), "extra_dirs")
    return extra_dirs.spell(_text(real), is_read_only=is_read_only)


def _require_access(what: str, given: str, real: Path, field: str) -> None:
    if not os.access(real, os.R_OK | os.X_OK):
        raise errors.BadDirectory(
            f"{what} directory {given!r} cannot be used: you may not read it",
            hint="Change its permissions (chmod u+rx), or name another one.",
            field=field,
        )


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # a text, as a given one is
    except OSError:
        raise errors.BadDirectory(
            "the working directory of this process is gone",
            hint=f"Change to one that exists, or name it with {spelling.option('cwd')}.",
        ) from None


def _text(path: Path) -> str:
    """Every event that names the folder is UTF-8."""
    name = str(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise errors.BadDirectory(
            f"directory {os.fsencode(path)!r} has a name that is not UTF-8 text", hint="Rename it, or work elsewhere."
        ) from None
    return name


def refuse_system(given: str, real: str, field: str | None = None) -> None:
    """`real` is the folder with its links resolved."""
    # Both names count: /bin is a link to /usr/bin on some machines and a folder on others.
    forbidden = {*FORBIDDEN, *(os.path.realpath(name) for name in FORBIDDEN)}
    for name in (real, os.path.abspath(given)):  # noqa: PTH100  # abspath keeps links, resolve() follows them
        if name == "/" or any(name == root or name.startswith(f"{root}/") for root in forbidden):
            raise errors.BadDirectory(
                f"directory {given!r} belongs to the system; an agent is not started there",
                hint="Start it in a project folder.",
                field=field,
            )


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return getattr(error, "strerror", None) or str(error)
