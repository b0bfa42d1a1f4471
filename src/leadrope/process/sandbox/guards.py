"""Makes read-only places of a running sandbox writable, or read-only again, from outside; a separate script.

    python -I -S guards.py PID open|close PATH...

The mounts of a sandbox belong to a user namespace created by a process of the same user. So that user may enter it from
outside and change them; nobody inside may. A process must be single-threaded to enter, hence a script. It prints errors
on stdout and exits with 1.
"""

import ctypes
import fcntl
import os
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
NS_GET_USERNS = 0xB701
MOUNT_SETATTR = 442  # the same number on every architecture; Linux 5.12
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
MOUNT_ATTR_RDONLY = 1


def enter(pid: int) -> None:
    """Enters the namespaces of the sandbox's mounts."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    if os.fstat(mounts).st_ino == os.stat("/proc/self/ns/mnt").st_ino:  # noqa: PTH116
        raise OSError(0, "the agent has no mounts of its own")
    owner = fcntl.ioctl(mounts, NS_GET_USERNS)
    if os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:  # noqa: PTH116
        call("setns", owner, CLONE_NEWUSER)
    call("setns", mounts, CLONE_NEWNS)


def change(path: str, *, is_open: bool) -> None:
    """Changes only the read-only attribute: other restrictions of the host's mount (nosuid, noexec …) remain."""
    cleared, added = (MOUNT_ATTR_RDONLY, 0) if is_open else (0, MOUNT_ATTR_RDONLY)
    attributes = b"".join(number.to_bytes(8, sys.byteorder) for number in (added, cleared, 0, 0))
    call("syscall", MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), AT_SYMLINK_NOFOLLOW, attributes, len(attributes))


def call(name: str, *arguments: "int | bytes") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[name](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def main() -> int:
    pid, wanted, *paths = sys.argv[1:]
    try:
        enter(int(pid))
        for path in paths:
            change(path, is_open=wanted == "open")
    except OSError as error:
        print(error.strerror)  # read by the process that started this script
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
