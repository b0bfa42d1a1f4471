"""Changes the mounts from which bubblewrap builds its sandbox; runs in the guardian's child, independent of leadrope.

    SCRIPT [link LINK TARGET | layer shown|extra FOLDER UPPER WORK]... -- BWRAP ...

**link**: git replaces its settings by renaming a new file over the old one, and nothing can be renamed over a mount.
But it follows a link first. So a link to a private copy is mounted over the sandbox's `.git/config`: git changes the
copy, and the user's file stays as it is.

**layer**: a package cache is shown as it is, and what is written to it goes to a private folder (overlayfs).

The bubblewrap command line mounts each of these places read-only, which remains in effect if the system does not allow
these mounts. Where they worked, its own mounts are dropped or made writable; an extra cache without a layer is left
out.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE = 0x2, 0x4, 0x4000, 0x80000
# The numbers are the same on every architecture that has a guardian.
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
# Only attributes that a sandbox inside of ours could want to add: it would look for the mount at the target of the
# link, and give up.
ATTRIBUTES = 0x1 | 0x2 | 0x4  # read-only, nosuid, nodev
WORDS = {"link": 3, "layer": 5}


def enter(words: "list[str]", libc: "Callable[..., int]") -> "list[str]":
    """Sets up the mounts and returns the command to execute."""
    end = words.index("--")
    orders: list[list[str]] = []
    while sum(map(len, orders)) < end:
        at = sum(map(len, orders))
        orders.append(words[at : at + WORDS[words[at]]])
    done = possible(orders, libc)
    if done:
        namespace(libc)
        for order in done:
            obey(order, libc)
    return command_after(words[end + 1 :], orders, done)


def possible(orders: "list[list[str]]", libc: "Callable[..., int]") -> "list[list[str]]":
    """Returns the orders that work here.

    They are tried in a process of its own: a user namespace without rights cannot be left again, and no sandbox can be
    built in it.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            namespace(libc)
            for order in orders:
                os.write(tell, b"1" if is_obeyed(order, libc) else b"0")
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as file:
        answers = file.read()
    os.waitpid(pid, 0)
    return [order for order, answer in zip(orders, answers) if answer == ord("1")]  # noqa: B905  # it may end early


def is_obeyed(order: "list[str]", libc: "Callable[..., int]") -> bool:
    try:
        obey(order, libc)
    except OSError:
        return False
    return True


def namespace(libc: "Callable[..., int]") -> None:
    uid, gid = os.geteuid(), os.getegid()
    check(libc("unshare", CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)))
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  # pathlib costs memory in every run
                file.write(text)
    check(libc("mount", b"none", b"/", b"", MS_REC | MS_SLAVE, b""))


def obey(order: "list[str]", libc: "Callable[..., int]") -> None:
    if order[0] == "layer":
        _, _, folder, upper, work = order
        options = f"lowerdir={escaped(folder)},upperdir={escaped(upper)},workdir={escaped(work)}"
        options += ",userxattr" if os.geteuid() else ""
        place = os.fsencode(folder)
        check(libc("mount", b"overlay", place, b"overlay", MS_NOSUID | MS_NODEV, os.fsencode(options)))
        return
    _, link, target = order
    attributes = ATTRIBUTES.to_bytes(8, sys.byteorder) + bytes(24)
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_SYMLINK_NOFOLLOW
    tree = check(libc("syscall", OPEN_TREE, AT_FDCWD, os.fsencode(link), flags))
    check(libc("syscall", MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes)))
    check(libc("syscall", MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH))
    os.close(tree)


def escaped(path: str) -> str:
    for letter in "\\,:":
        path = path.replace(letter, f"\\{letter}")
    return path


def command_after(command: "list[str]", orders: "list[list[str]]", done: "list[list[str]]") -> "list[str]":
    """Removes the mounts that were replaced from the command, or makes them writable.

    The place is the third word of every order.
    """
    gone = {order[2] for order in done if order[0] == "link"}
    gone |= {order[2] for order in orders if order[:2] == ["layer", "extra"] and order not in done}
    writable = {order[2] for order in done if order[0] == "layer"}
    kept: list[str] = []
    i = 0
    while command[i] != "--":
        is_bind = command[i] == "--ro-bind"
        if is_bind and command[i + 1] in gone:
            i += 3
            continue
        kept.append("--bind" if is_bind and command[i + 1] in writable else command[i])
        i += 1
    return kept + command[i:]


def check(result: int) -> int:
    if result < 0:
        raise OSError("the system refuses")
    return result
