"""Every test gets a scratch home, an environment without credentials, and must leave nothing behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from leadrope.process import process_tree
from leadrope.providers.claude_code.locate import bundled
from process_tree import descendants

_FORBIDDEN = ("ANTHROPIC_", "CLAUDE_", "CLAUDECODE", "OPENAI_", "PERPLEXITY_", "LEADROPE_")

# pytest-timeout and execnet own these; a test cannot leave them behind.
_HARNESS_THREADS = ("pytest_timeout", "execnet", "asyncio_0")


# A busy machine is not a failure: no example, and no draw of one, is timed.
hypothesis.settings.register_profile(
    "leadrope",
    parent=hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("leadrope")

# Started with nohup or by a script in the background, the suite inherits ignored signals, and its programs would too.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# What a thread that is about to return may still take on a busy machine; one that was left behind stays.
THREAD_END_S = 10.0

# Read at import: the fixture below removes LEADROPE_* before every test. `make soak` sets ten times as many.
FAULT_COUNT = int(os.environ.get("LEADROPE_FAULT_COUNT", "5"))


_HOMES = itertools.count()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `leadrope` alone, as pipx makes it: on PATH, so that hints name it without a path."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "leadrope").symlink_to(Path(sys.executable).with_name("leadrope"))
    return folder


@pytest.fixture(autouse=True)
def scratch_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, installed: Path) -> Path:
    """No test can see the developer's logins, keys or settings: HOME is new and empty."""
    # Numbered here: pytest would look through all homes of before for the next number.
    home = tmp_path_factory.mktemp(f"home-{next(_HOMES)}", numbered=False)
    for name in list(os.environ):
        if name.upper().startswith(_FORBIDDEN):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{os.environ.get('PATH', os.defpath)}:{installed}")
    monkeypatch.setenv("LEADROPE_HOME", str(home / "leadrope"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local/share"))
    return home


def _descendants(root: int) -> dict[int, str]:
    """Living processes below `root`; zombies are the test's own unawaited children and count too."""
    found: dict[int, str] = {}
    for child in descendants(root):
        try:
            name, rest = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        found[child] = f"{name.split('(', 1)[1]} ({rest.split()[0]})"
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """A process or thread that outlives its test fails that test. (Tasks: pytest-asyncio cancels, `-W error` tells.)"""
    if not Path("/proc/thread-self/children").exists():
        yield
        return
    processes = set(_descendants(os.getpid()))
    threads = {t.ident for t in threading.enumerate()}
    yield
    give_up = time.monotonic() + THREAD_END_S
    # Where a busy machine takes its time to kill, a run has its answer before its guardian has ended.
    while process_tree.late() and time.monotonic() < give_up:
        time.sleep(0.01)
    left = {pid: name for pid, name in _descendants(os.getpid()).items() if pid not in processes}
    assert not left, f"processes left behind: {left}"
    started = [t for t in threading.enumerate() if t.ident not in threads and not t.name.startswith(_HARNESS_THREADS)]
    for thread in started:
        # asyncio's own thread of a child process tells the exit first and returns a moment later.
        thread.join(THREAD_END_S)
    running = [thread.name for thread in started if thread.is_alive()]
    assert not running, f"threads left behind: {running}"


@pytest.fixture(scope="session")
def claude() -> str:
    """The binary that the development lock installs, never one that happens to be on PATH."""
    found = bundled()
    if found is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("the agent binary is missing: install requirements-dev.lock")
        pytest.skip("the agent binary is missing: run `make setup-dev`")
    return str(found)


@pytest.fixture
def fault_count() -> int:
    return FAULT_COUNT


@pytest.fixture
def is_soak() -> bool:
    """Absolute times are held in the soak, which has the machine to itself; here they would measure the other tests."""
    return FAULT_COUNT >= 50


@pytest.fixture
def stalls() -> Iterator[Callable[[], float]]:
    """The longest time since the last call in which this machine did not let an idle thread run."""
    longest = 0.0
    done = threading.Event()

    def beat() -> None:
        nonlocal longest
        before = time.monotonic()
        while not done.wait(0.02):
            now = time.monotonic()
            longest = max(longest, now - before - 0.02)
            before = now

    def told() -> float:
        nonlocal longest
        found, longest = longest, 0.0
        return found

    thread = threading.Thread(target=beat, name="stalls")
    thread.start()
    yield told
    done.set()
    thread.join()


@pytest.fixture
def shown_to_all() -> Callable[..., list[str]]:
    """Words for bubblewrap that let every user reach these folders, also below one that is closed to others."""

    def words(*paths: Path) -> list[str]:
        below: dict[Path, list[Path]] = {}
        for path in dict.fromkeys(path.resolve() for path in paths):
            closed = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001]
            if closed:
                below.setdefault(closed[0], []).append(path)
        found: list[str] = []
        for top, shown in below.items():
            found += ["--perms", "0755", "--tmpfs", str(top)]
            for path in shown:
                between = [folder for folder in reversed(path.parents) if top in folder.parents]
                found += [word for folder in between for word in ("--perms", "0755", "--dir", str(folder))]
                found += ["--ro-bind", str(path), str(path)]
        return found

    return words


@pytest.fixture
def marker() -> str:
    """A word that a test puts into the argv of everything it starts, so that the scan below finds it."""
    return f"leadrope-test-{secrets.token_hex(6)}"


@pytest.fixture
def survivors(marker: str) -> Iterator[Callable[[], dict[int, str]]]:
    """Living processes with the marker in their argv. It shares no code with the package."""

    def scan() -> dict[int, str]:
        found: dict[int, str] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            if int(entry.name) == os.getpid():
                continue
            try:
                argv = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in argv and state not in "ZX":
                found[int(entry.name)] = argv.replace(b"\0", b" ").decode(errors="replace")
        return found

    yield scan
    for pid in scan():  # a failed test cleans up after itself
        os.kill(pid, 9)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Waits for a state, with a bound; for states that no event announces."""

    async def until(holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < give_up, "the state never came"
            await asyncio.sleep(0.005)

    return until
