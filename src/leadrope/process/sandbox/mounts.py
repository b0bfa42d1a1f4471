"""Decides which places of the machine are visible, writable, read-only or hidden in a sandbox, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from leadrope.process.sandbox.values import Machine, MachinePath, Sandbox, Seen, Sight

MIB = 1 << 20
TMP_SIZE = 1024 * MIB
"""Size limit for /tmp and for the home, which are in memory; TMPDIR is on disk, in the run's own folder. Compilers and
package managers use some hundred MiB; without a limit a run could take half of the machine's memory."""
SMALL_SIZE = 16 * MIB

Kind = Literal["ro", "rw", "hide", "mask", "home", "link"]


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    source: str = ""
    is_dir: bool = True


def mounts_of(spec: Sandbox, machine: Machine) -> dict[str, Mount]:
    """Returns the mounts by destination; for the same destination the later one wins."""
    mounts: dict[str, Mount] = {spec.home: Mount(kind="home")}
    work: Kind = "rw" if spec.level == "workspace" else "ro"

    def add(place: MachinePath, kind: Kind) -> None:
        mounts[place.real] = Mount(kind=kind, source=place.real, is_dir=place.is_dir)

    for path in spec.readable:
        add(place_of(path, machine), "ro")
    for path in (spec.workspace, *spec.writable):
        add(place_of(path, machine), work)
    for path in machine.git:
        # Mounted on itself so that it cannot be moved. In a read-only folder that would make it writable.
        nearest = _nearest(mounts, path)
        if nearest is None or mounts[nearest].kind != "ro":
            add(place_of(path, machine), work)
    for place in (*machine.toolchains, *machine.identity):
        if not sees(mounts, place.real, machine):
            add(place, "ro")
    for name, copy in machine.copies.items():
        nearest = _nearest(mounts, str(PurePosixPath(name).parent))
        if nearest is not None and mounts[nearest].kind == "home":
            mounts[name] = Mount(kind="link", source=copy.copy, is_dir=False)
    for cache in machine.caches:
        if not _is_writable(mounts, cache.place.real):
            add(cache.place, "ro")  # until the guardian has mounted a layer over it
    for path in machine.protected:
        # The real path counts: a hooks folder that is a link must not make its target writable.
        if _is_writable(mounts, real(path, machine)):
            add(place_of(path, machine), "ro")
    for place in machine.guarded:
        if _is_writable(mounts, place.real):
            add(place, "ro")
    _close_pins(mounts, machine)
    for place in machine.agent:
        # Also inside of a writable workspace: the same file answers `--version` outside of any sandbox.
        if not sees(mounts, place.real, machine) or _is_writable(mounts, place.real):
            add(place, "ro")
    for place in machine.secrets:
        if sees(mounts, place.real, machine):
            add(place, "hide")
    for path in (*spec.login, *([spec.config_dir] if spec.config_dir else []), spec.run_dir):
        add(place_of(path, machine), "rw")
    for cache in machine.caches:
        if cache.layer:  # for the kernel only; if a lower layer is changed underneath it, an overlay may show anything
            mounts[cache.layer] = Mount(kind="hide")
    _add_masks(mounts, machine)
    _add_aliases(mounts, machine)
    above = str(PurePosixPath(spec.home).parent)
    if mounts[spec.home].kind == "home" and spec.home not in machine.places and sees(mounts, above, machine):
        del mounts[spec.home]  # it would be created on the host
    return mounts


def _close_pins(mounts: dict[str, Mount], machine: Machine) -> None:
    """Keeps a folder that is mounted on itself from making a part of a guarded folder writable again."""
    guarded = [place.real for place in machine.guarded]
    for path in machine.git:
        if any(is_below(path, folder) for folder in guarded):
            mounts[path] = Mount(kind="ro", source=path)


def _add_masks(mounts: dict[str, Mount], machine: Machine) -> None:
    for place in machine.blocked:
        # A blocked folder that is not visible itself may be a parent of one that is: an extra folder, or a toolchain.
        shown = [path for path in mounts if is_below(path, place.real)]
        if shown or sees(mounts, place.real, machine):
            for path in shown:
                del mounts[path]
            mounts[place.real] = Mount(kind="mask", is_dir=place.is_dir)


def _add_aliases(mounts: dict[str, Mount], machine: Machine) -> None:
    """Makes paths that are named through a link in a hidden place available under that name too."""
    places = [
        *machine.toolchains,
        *(cache.place for cache in machine.caches),
        *machine.identity,
        *machine.agent,
        *machine.places.values(),
    ]
    for place in places:
        target = mounts.get(place.real)
        is_reachable = place.name == place.real or sees(mounts, place.name, machine)
        if not is_reachable and target is not None and target.kind in ("ro", "rw"):
            mounts[place.name] = target
            for path, mount in [*mounts.items()]:  # a bind does not include the mounts below its source
                if is_below(path, place.real) and mount.kind in ("ro", "hide", "mask"):
                    mounts[place.name + path.removeprefix(place.real)] = mount


def placed(mounts: Mapping[str, Mount], machine: Machine) -> Iterator[str]:
    """Orders the mounts with outer folders first.

    An inner mount changes a part of the outer one; an outer one mounted later would cover the inner.
    """
    made: set[str] = set()
    for path in sorted(mounts, key=lambda path: (path.count("/"), path)):
        mount = mounts[path]
        yield from _parents(path, mounts, machine, made)
        if mount.kind == "home":
            yield from tmpfs(path, 0o777 if machine.drops_root else 0o700, TMP_SIZE)
        elif mount.kind == "hide":
            yield from hide(path, is_dir=mount.is_dir)
        elif mount.kind == "mask":
            yield from mask(path, is_dir=mount.is_dir)
        elif mount.kind == "link":
            yield from ("--symlink", mount.source, path)
        else:
            yield from ("--bind" if mount.kind == "rw" else "--ro-bind", mount.source, path)


def _parents(path: str, mounts: Mapping[str, Mount], machine: Machine, made: set[str]) -> Iterator[str]:
    """Creates the folders above a mount point, traversable but not writable.

    A file written beside the workspace would vanish with the run, although its writer believed it saved. Below names
    with a dot in the home, programs may write: caches and settings there are expected to come and go.
    """
    for parent in reversed(PurePosixPath(path).parents):
        name = str(parent)
        if name in made or name == "/" or sees(mounts, name, machine):
            continue
        made.add(name)
        nearest = _nearest(mounts, name)
        is_home = nearest is not None and mounts[nearest].kind == "home"
        if is_home and "/." in name.removeprefix(str(nearest)):
            mode = "0777" if machine.drops_root else "0755"
        else:
            # owned by root, while the agent is another user; or owned by the agent's user
            mode = "0755" if machine.drops_root else "0555"
        yield from ("--perms", mode, "--dir", name)


def masks(mounts: Mapping[str, Mount], machine: Machine) -> Iterator[str]:
    for path in machine.masks:
        if sees(mounts, path, machine):
            yield from ("--ro-bind", "/dev/null", path)


def tmpfs(path: str, mode: int, size: int) -> tuple[str, ...]:
    return ("--perms", f"{mode:04o}", "--size", str(size), "--tmpfs", path)


def hide(path: str, *, is_dir: bool) -> tuple[str, ...]:
    return tmpfs(path, 0o755, SMALL_SIZE) if is_dir else ("--ro-bind", "/dev/null", path)


def mask(path: str, *, is_dir: bool) -> tuple[str, ...]:
    """Covers a path so that every attempt to open it fails with "Permission denied".

    /dev/null is a device, and mounts here allow none.
    """
    return (*tmpfs(path, 0, 4096), "--remount-ro", path) if is_dir else ("--ro-bind", "/dev/null", path)


def place_of(path: str, machine: Machine) -> MachinePath:
    return machine.places.get(path) or MachinePath(name=path, real=path)


def real(path: str, machine: Machine) -> str:
    return place_of(path, machine).real


def is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def sight(spec: Sandbox, machine: Machine) -> Sight:
    """Describes the same mounts for code that does not build sandboxes."""
    own: dict[str, Seen] = dict.fromkeys(("/tmp", "/var", "/run", "/home", "/root", "/dev", "/proc"), "private")  # noqa: S108
    for path in (*machine.system, *machine.links):
        own[path] = "ro"
    kinds: dict[Kind, Seen] = {"ro": "ro", "rw": "rw", "hide": "hidden", "home": "private", "link": "private"}
    kinds["mask"] = "hidden"
    mounts = mounts_of(spec, machine)
    own |= {path: kinds[mount.kind] for path, mount in mounts.items()}
    workspace = real(spec.workspace, machine)
    return Sight(
        places=own,
        home=spec.home,
        workspace=workspace,
        network=spec.network,
        plantable=machine.plantable,
        views=machine.views,
        own_settings=tuple(machine.copies.values()),
        guarded=_guarded(mounts, machine),
    )


def _guarded(mounts: Mapping[str, Mount], machine: Machine) -> frozenset[str]:
    """Returns the guarded places, without those that are read-only for another reason and stay so."""
    others = {real(path, machine) for path in machine.protected} | {place.real for place in machine.agent}
    found = {place.real for place in machine.guarded} - others
    return frozenset(path for path in found if path in mounts and mounts[path].kind == "ro")


def _nearest(mounts: Mapping[str, Mount], path: str) -> str | None:
    """The innermost mount that applies to `path`."""
    for name in (path, *map(str, PurePosixPath(path).parents)):
        if name in mounts:
            return name
    return None


def sees(mounts: Mapping[str, Mount], path: str, machine: Machine) -> bool:
    nearest = _nearest(mounts, path)
    if nearest is not None:
        return mounts[nearest].kind in ("ro", "rw", "link")
    return any(path == folder or is_below(path, folder) for folder in machine.system)


def _is_writable(mounts: Mapping[str, Mount], path: str) -> bool:
    nearest = _nearest(mounts, path)
    return nearest is not None and mounts[nearest].kind == "rw"
