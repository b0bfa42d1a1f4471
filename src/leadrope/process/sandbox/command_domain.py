"""Keeps an agent's commands from tampering with the agent: small programs that enter a Landlock domain first.

A command runs as the same user as its agent, so the kernel would let it open the agent's input (`/proc/PID/fd/0`), take
over a descriptor (`pidfd_getfd`) or write to its memory. A process in a Landlock domain has no such access to a process
outside of it. The agent is given these programs as its shell, and whatever it starts through them is in a domain of its
own. Signals are not restricted: a later command may need to end what an earlier one has left running.
"""

from __future__ import annotations

import functools
import os
import shutil
import struct
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import msgspec

from leadrope.process import guardian
from leadrope.process.sandbox import programs

FOLDER = "shells"
"""Below LEADROPE_HOME, which sandboxed agents do not see; the one folder in it is shown to them read-only."""

# Version 1 forbids every rename and link between two folders, and that cannot be allowed again.
OLDEST = 2
SCOPES_SINCE = 6

_INTERPRETERS = ("perl", "python3")  # perl starts in a third of the time
_SYSTEM_PATH = "/usr/bin:/bin:/usr/local/bin"
_PRCTL = {"x86_64": 157, "aarch64": 167, "riscv64": 167, "loongarch64": 167, "ppc64le": 171, "s390x": 172}

# landlock(7). A ruleset must restrict something: since version 6 the abstract sockets of others, before that a right
# that is granted again at once for the whole tree (making device nodes, and linking, which is denied unless named).
_FS_MAKE_CHAR_AND_REFER = 1 << 6 | 1 << 13
_SCOPE_ABSTRACT_SOCKETS = 1


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """The installed programs, or the reason why there are none."""

    shell: str = ""
    """Takes the arguments of bash."""
    run: str = ""
    """Takes a pipe for its error output, a program and the program's arguments."""
    line: str = ""
    """Takes one text that bash reads as a script."""
    folder: str = ""
    version: int = 0
    """The Landlock ABI version; 0 if the kernel has none, or does not allow its use."""
    interpreter: str = ""
    missing: str = ""

    @property
    def server_words(self) -> tuple[str, ...]:
        """The words before the pipe, the program and the arguments of a server.

        Without a domain a shell redirects the server's error output, which the agent would discard, and does nothing
        else.
        """
        return (self.run,) if self.run else ("/bin/sh", "-c", _SHELL_STDERR, "sh") if _HAS_SHELL else ()

    @property
    def env(self) -> dict[str, str]:
        """Environment that keeps perl from warning, at every command, about a locale that the machine lacks."""
        return {"PERL_BADLANG": "0"} if self.interpreter.endswith("perl") else {}


def look(blocked: Iterable[str] = ()) -> Domain:
    """Returns what this machine supports; `blocked` programs cannot start in a sandbox and are not used."""
    version = _version()
    if not version:
        return Domain(missing="the kernel has no Landlock, or does not let it be used")
    if version < OLDEST:
        return Domain(version=version, missing=f"Landlock version {version} is too old; Linux 5.19 has version 2")
    masked = programs.files_of(tuple(sorted(blocked)), _SYSTEM_PATH, must=False)
    bash = shutil.which("bash", path=_SYSTEM_PATH)
    if bash is None or os.path.realpath(bash) in masked:
        return Domain(version=version, missing="there is no bash in the folders of the system")
    for name in _INTERPRETERS:
        found = shutil.which(name, path=_SYSTEM_PATH)
        if found and os.path.realpath(found) not in masked and (name != "perl" or _prctl() is not None):
            return Domain(version=version, interpreter=found)
    return Domain(version=version, missing="neither perl nor python3 can be used from the folders of the system")


def install(leadrope_home: Path, blocked: Iterable[str] = ()) -> Domain:
    """Like `look`, but also writes the programs, into a folder named after their content."""
    found = look(blocked)
    bash = shutil.which("bash", path=_SYSTEM_PATH)
    if found.missing or bash is None:
        return found
    texts = {name: _program(found.interpreter, found.version, bash, name) for name in ("bash", "run", "line")}
    folder = leadrope_home / FOLDER / sha256("".join(texts.values()).encode()).hexdigest()[:16]
    for name, text in texts.items():
        _write(folder / name, text.encode())
    if not os.access(folder / "bash", os.X_OK):
        missing = f"programs in {folder} cannot be started: its file system is mounted noexec"
        return msgspec.structs.replace(found, missing=missing)
    paths = {"shell": str(folder / "bash"), "run": str(folder / "run"), "line": str(folder / "line")}
    return msgspec.structs.replace(found, folder=str(folder), **paths)


@functools.cache
def _version() -> int:
    if sys.platform != "linux":
        return 0
    return max(0, guardian.call_libc("syscall", guardian.LANDLOCK_CREATE_RULESET, 0, 0, 1))


def _prctl() -> int | None:
    """Returns the number of prctl where perl's integers and pointers are those of a 64-bit machine; otherwise None."""
    return _PRCTL.get(os.uname().machine) if struct.calcsize("P") == 8 else None


def _write(path: Path, content: bytes) -> None:
    """Writes the file unless it already has this content.

    It is checked before every start: somebody who works without a sandbox could have changed it.
    """
    try:
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == 0o755:
            return
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.chmod(0o755)  # also for the user that root becomes
    fresh.replace(path)


# -- the programs -----------------------------------------------------------------------------------------------------


def ruleset(version: int) -> tuple[int, ...]:
    """Returns the fields of the kernel's `landlock_ruleset_attr`: file system, network, scopes."""
    if version >= SCOPES_SINCE:
        return (0, 0, _SCOPE_ABSTRACT_SOCKETS)
    return (_FS_MAKE_CHAR_AND_REFER,)


def _program(interpreter: str, version: int, bash: str, name: str) -> str:
    rules = ruleset(version)
    template = _PERL if interpreter.endswith("perl") else _PYTHON
    becomes = {
        "bash": {_PERL: '(BASH, "bash", @ARGV)', _PYTHON: '[BASH, "bash", *sys.argv[1:]]'},
        "run": {_PERL: "($ARGV[1], @ARGV[1 .. $#ARGV])", _PYTHON: "[sys.argv[2], *sys.argv[2:]]"},
        "line": {_PERL: '(BASH, "bash", "-c", $ARGV[0])', _PYTHON: '[BASH, "bash", "-c", sys.argv[1]]'},
    }
    stderr = {_PERL: _PERL_STDERR, _PYTHON: _PYTHON_STDERR}
    return (
        template.replace("@STDERR@", stderr[template] if name == "run" else "")
        .replace("@INTERPRETER@", interpreter)
        .replace("@RULES@", ", ".join(map(str, rules)))
        .replace("@RIGHTS@", str(rules[0]))
        .replace("@PRCTL@", str(_prctl()))
        .replace("@BASH@", bash)
        .replace("@BECOMES@", becomes[name][template])
    )


_PERL = """#!@INTERPRETER@
# Enters a Landlock domain of its own and becomes the command. Uses no module: PERL5LIB could name another one.
sub BASH { "@BASH@" }
sub stop { print STDERR "leadrope: the command was not run: $_[0]\\n"; exit($_[1] || 126) }
@STDERR@
my $rules = pack("Q*", @RULES@);
my $handle = syscall(444, $rules, length($rules), 0);
stop("the kernel makes no Landlock ruleset: $!") if $handle < 0;
if (@RIGHTS@) {
    sysopen(my $root, "/", 0) or stop("/ cannot be opened: $!");
    my $everywhere = pack("Ql", @RIGHTS@, fileno($root));
    syscall(445, $handle, 1, $everywhere, 0) == 0 or stop("the kernel takes no Landlock rule: $!");
    close($root);
}
syscall(@PRCTL@, 38, 1, 0, 0, 0) == 0 or stop("no_new_privs: $!");
syscall(446, $handle, 0) == 0 or stop("the kernel does not enter the Landlock domain: $!");
$ENV{SHELL} = BASH;
# The token by which a proxy of leadrope's knows the agent is not for its commands.
for (qw(HTTP_PROXY HTTPS_PROXY http_proxy https_proxy)) {
    $ENV{$_} =~ s{//leadrope:[0-9a-f]+\\@}{//} if defined $ENV{$_};
}
delete $ENV{PERL_BADLANG};
my ($program, @words) = @BECOMES@;
exec { $program } @words;
stop("$program: $!", 127);
"""

_PYTHON = """#!@INTERPRETER@ -IS
# Enters a Landlock domain of its own and becomes the command.
import ctypes, os, signal, stat, struct, sys

BASH = "@BASH@"
libc = ctypes.CDLL(None, use_errno=True)


def stop(what, code=126):
    os.write(2, f"leadrope: the command was not run: {what}\\n".encode(errors="surrogateescape"))
    os._exit(code)


def must(what, result):
    return result if result >= 0 else stop(f"{what}: {os.strerror(ctypes.get_errno())}")

@STDERR@
rules = struct.pack("=%dQ" % len((@RULES@,)), @RULES@)
handle = must("the kernel makes no Landlock ruleset", libc.syscall(444, rules, len(rules), 0))
if @RIGHTS@:
    root = os.open("/", os.O_RDONLY)
    everywhere = struct.pack("=Qi", @RIGHTS@, root)
    must("the kernel takes no Landlock rule", libc.syscall(445, handle, 1, everywhere, 0))
    os.close(root)
must("no_new_privs", libc.prctl(38, 1, 0, 0, 0))
must("the kernel does not enter the Landlock domain", libc.syscall(446, handle, 0))
# As it was passed: under the C locale Python adds LC_CTYPE to its own copy.
with open("/proc/self/environ", "rb") as file:
    pairs = [entry.partition(b"=") for entry in file.read().split(b"\\0")]
environment = {name: value for name, equals, value in pairs if equals}
environment[b"SHELL"] = BASH.encode()
# The token by which a proxy of leadrope's knows the agent is not for its commands.
for name in (b"HTTP_PROXY", b"HTTPS_PROXY", b"http_proxy", b"https_proxy"):
    scheme, slashes, rest = environment.get(name, b"").partition(b"//")
    if rest.startswith(b"leadrope:") and b"@" in rest:
        environment[name] = scheme + slashes + rest.partition(b"@")[2]
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, and an ignored signal is inherited
    signal.signal(number, signal.SIG_DFL)
program, *words = @BECOMES@
try:
    os.execvpe(program, words, environment)
except OSError as error:
    stop(f"{program}: {error.strerror}", 127)
"""

START_MARK = "\0leadrope: started\0"
"""A line of its own before the output of a server, since an agent may start a server twice: Claude Code offers it the
newest protocol first, and if the server exits at that, starts it again with the older one."""

# Opened for reading too, so that it never waits for a reader; a missing pipe is ignored.
_SHELL_STDERR = """
[ -p "$1" ] && exec 2<>"$1" && printf '\\000leadrope: started\\000\\n' >&2
shift
exec "$@"
"""
_HAS_SHELL = sys.platform != "win32" and os.access("/bin/sh", os.X_OK)

# The numbers are O_WRONLY with O_NONBLOCK, which does not wait for a reader, and F_SETFL, since writes of the program
# itself must be able to wait. Without such a pipe the error output stays as it was.
_PERL_STDERR = """
if (sysopen(my $pipe, $ARGV[0], 1 | 2048)) {
    if (-p $pipe && fcntl($pipe, 4, 0)) {
        open(STDERR, ">&", $pipe);
        syswrite(STDERR, "\\0leadrope: started\\0\\n");
    }
}
"""

_PYTHON_STDERR = """
try:
    pipe = os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
    if stat.S_ISFIFO(os.fstat(pipe).st_mode):
        os.set_blocking(pipe, True)
        os.dup2(pipe, 2)
        os.write(2, b"\\0leadrope: started\\0\\n")
    os.close(pipe)
except OSError:
    pass

"""
