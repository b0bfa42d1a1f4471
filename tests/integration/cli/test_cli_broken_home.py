"""A home or a store that cannot be used: every command says so in a sentence, and none shows its own code."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import database_file

NOBODY = 65534
REPOSITORY = Path(__file__).parents[3]
LOOKS = ("runs list", "runs show x", "approvals list", "stats", "top --once", "flow history", "events x")
ACTS = ("runs stop x", "runs prune", "run hi", "run hi --detach")


def is_text(path: Path) -> None:
    path.write_text("not a database\n" * 1000)


def is_newer(path: Path) -> None:
    _database(path, 0x1EAD409E, 999)


def is_foreign(path: Path) -> None:
    _database(path, 7, 1)


def _database(path: Path, application: int, version: int) -> None:
    with database_file.opened(path) as db:
        db.execute("create table notes (text)")
        db.execute(f"pragma application_id = {application}")
        db.execute(f"pragma user_version = {version}")


@pytest.mark.fault
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("spoil", [is_text, is_newer, is_foreign])
async def test_a_store_that_cannot_be_used_is_named(
    desk: Any, spoil: Callable[[Path], None], is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    count = 20 if is_soak else 2
    record_property("count", count)
    path = Path(desk.environ["LEADROPE_HOME"], "leadrope.db")
    path.parent.mkdir()
    spoil(path)
    before = path.read_bytes()
    for _ in range(count):
        done = await asyncio.gather(*(desk.leadrope(*words.split()) for words in (*LOOKS, *ACTS)))
        for words, ended in zip((*LOOKS, *ACTS), done, strict=True):
            assert (ended.code, ended.out) == (1, ""), (words, ended.err)
            assert str(path) in ended.err, words
            assert "Traceback" not in ended.err, words
    doctor = await desk.leadrope("doctor")
    assert doctor.code == 1
    assert str(path) in "".join(doctor.out.split()), doctor.out
    assert path.read_bytes() == before, "nothing was overwritten"


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_a_store_that_another_process_holds_is_read(
    desk: Any, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    count = 20 if is_soak else 2
    record_property("count", count)
    path = Path(desk.environ["LEADROPE_HOME"], "leadrope.db")
    started = await desk.leadrope("run", "say it", "--provider", "scripted", "--detach")  # fails, and is kept
    await desk.leadrope("runs", "logs", "-f", started.out.strip())
    with database_file.held(path):
        for _ in range(count):
            began = time.monotonic()
            done = await asyncio.gather(*(desk.leadrope(*words.split()) for words in ("runs list", "top --once")))
            for ended in done:
                assert ended.code == 0, ended.err
                assert "say it" in ended.out
                assert f"the run store {path} is held by another process" in ended.err
            assert time.monotonic() - began < 30


@pytest.fixture
def stranger(
    claude: str, shown_to_all: Callable[..., list[str]]
) -> Iterator[Callable[..., tuple[list[str], dict[str, str], Path]]]:
    """Commands of another user, in a folder of that user."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    if shutil.which("setpriv") is None or shutil.which("bwrap") is None:
        pytest.skip("setpriv or bwrap is missing")
    folder = Path(tempfile.mkdtemp(prefix="leadrope-stranger-"))
    folder.chmod(0o755)
    own = folder / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    (folder / "closed" / "bin").mkdir(parents=True)
    (folder / "closed").chmod(0o700)
    prefix = Path(os.path.realpath(sys.executable)).parents[1]
    shown = shown_to_all(prefix, REPOSITORY, Path(claude).parent)

    def words(*args: str) -> tuple[list[str], dict[str, str], Path]:
        drop = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "--")
        argv = ["bwrap", "--dev-bind", "/", "/", *shown, "--chdir", str(own), "--", *drop]
        env = {"PATH": os.environ["PATH"], "HOME": str(own), "LANG": "C.UTF-8", "LEADROPE_CLAUDE_BIN": claude}
        env |= {"TMPDIR": str(own), "PYTHONDONTWRITEBYTECODE": "1"}
        return [*argv, sys.executable, "-m", "leadrope.cli.main", *args], env, folder

    yield words
    shutil.rmtree(folder)


async def started(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    async with asyncio.timeout(90):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_the_home_of_another_user_is_refused_in_a_sentence(stranger: Any) -> None:
    every = (*LOOKS, *ACTS, "sessions list", "sessions show x", "flow list", "policy show", "doctor")
    for words in every:
        argv, env, folder = stranger(*words.split())
        home = folder / "closed"
        code, said = await started(argv, env | {"LEADROPE_HOME": str(home)})
        assert code in (1, 2), (words, said)
        assert str(home) in said, (words, said)
        assert "ermission denied" in " ".join(said.split()), (words, said)
        assert "Traceback" not in said, (words, said)


async def test_a_folder_of_the_path_that_may_not_be_entered_is_passed_over(stranger: Any) -> None:
    """As after `su` without `-`."""
    argv, env, folder = stranger("demo", "--yes")
    code, said = await started(argv, env | {"PATH": f"{folder}/closed/bin:{env['PATH']}"})
    assert code == 0, said
    assert "Traceback" not in said
