"""Runs and sessions by the beginning of an id: one is found, several are named, an unknown one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.request import RunRequest
from leadrope.runs import session_names
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runtime.sessions.files import SessionInfo, Sessions, write_info

ONE, TWO = "11111111-aaaa-4000-8000-000000000001", "11112222-aaaa-4000-8000-000000000002"


async def test_a_beginning_that_could_be_two_runs_names_both(store: Sqlite, add: Any) -> None:
    for name in ("abcd01", "abcd02", "ef0101"):
        await add(name, title=f"task {name}")
    assert (await store.find("ef")).id == "ef0101"
    assert (await store.find("abcd01")).title == "task abcd01"
    with pytest.raises(errors.UnknownRun, match=r"'abcd' could be abcd01 \(task abcd01\), abcd02 \(task abcd02\)"):
        await store.find("abcd")
    with pytest.raises(errors.UnknownRun, match="there is no run 'ff'"):
        await store.find("ff")


def sessions(folder: Path, *names: str) -> Sessions:
    found = Sessions(folder)
    for name in names:
        (found.folder / name).mkdir(parents=True)
        write_info(found.folder / name, SessionInfo(id=name))
    return found


async def test_a_session_is_named_by_its_own_id_or_by_that_of_a_run(store: Sqlite, add: Any, tmp_path: Path) -> None:
    known = sessions(tmp_path / "home", ONE, TWO)
    for run_id, session in (("abcd01", ONE), ("abcd02", ONE), ("ef0101", TWO), ("0f0f01", None), ("111122", ONE)):
        await add(run_id, title="x", request=RunRequest(prompt="x", session_id=session))

    async def resolve(given: str) -> str:
        return session_names.resolve(given, known, await store.with_prefix(given))

    assert await resolve(ONE) == ONE
    assert await resolve("11111111") == ONE
    assert await resolve("ef01") == TWO
    assert await resolve("abcd01") == ONE
    assert await resolve("abcd") == ONE, "two runs of one session"
    for given, why in (
        ("1111", "'1111' could be run 111122 .*session 11111111.*session 11112222"),
        ("111122", "'111122' could be run 111122 .*session 11112222"),
        ("0f0f", "the session of run 0f0f01 is not kept"),
        ("abc", "'abc' is too short for an id"),
        ("ffff", "no session or run 'ffff' is known"),
    ):
        with pytest.raises(errors.BadValue, match=why):
            await resolve(given)
