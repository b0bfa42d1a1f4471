"""Detached runs whose background process is gone: whoever looks next has them continued, by commands alone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from background_processes import Background
from leadrope.rehearsal import ModelServer

TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"
BEATS = "for i in $(seq 600); do echo beat >> beats; sleep 0.1; done"
WORK = {"tool": {"name": "Bash", "input": {"command": BEATS, "description": "work for a minute"}}}
LOOKS = (
    ("runs", "list"),
    ("run", "another", "--detach", "--provider", "scripted"),  # which fails; what was left is taken up all the same
    ("runs", "show", "RUN"),
    ("runs", "logs", "RUN"),
    ("approvals", "list"),
    ("top", "--once"),
    ("stats",),
    ("runs", "resume", "RUN"),
    ("runs", "logs", "-f", "RUN"),
)


async def detached(desk: Any, model: ModelServer, *words: str, **environ: str) -> str:
    """A detached run whose command is at work; its id."""
    given = ("--detach", "--mode", "full", "--base-url", model.url, *words)
    done = await desk.leadrope("run", "work, then leave a marker", *given, **environ)
    assert done.code == 0, done.err
    return str(done.out.strip())


async def row(desk: Any, run_id: str) -> dict[str, Any]:
    done = await desk.leadrope("runs", "show", run_id, "-o", "json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)["run"]
    return found


@pytest.mark.fault
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", ["kill", "terminate", "reboot"])
async def test_whoever_looks_next_has_the_run_continued(
    desk: Any, background: Background, how: str, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    count = 20 if is_soak else 2
    record_property("count", count)
    first = ["kill", "terminate", "reboot"].index(how) * 3
    for number in range(first, first + count):
        beats = desk.project / "beats"
        beats.unlink(missing_ok=True)
        desk.marker.unlink(missing_ok=True)
        async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
            run_id = await detached(desk, model)
            await background.until(beats.exists)
            await background.end(how)
            await background.until(lambda: not background.all())  # the agent does not outlive its owner
            words = [run_id if word == "RUN" else word for word in LOOKS[number % len(LOOKS)]]
            looked = await desk.leadrope(*words)
            assert looked.code == 0, (words, looked.err)
            await background.until(desk.marker.exists)
            followed = await desk.leadrope("runs", "logs", "-f", run_id)
        assert followed.code == 0, followed.out + followed.err
        ended = await row(desk, run_id)
        assert (ended["outcome"], ended["attempt"]) == ("succeeded", 2), words
        assert "Left a marker." in (await desk.leadrope("runs", "show", run_id)).out


async def left_behind(desk: Any, background: Background, model: ModelServer, **environ: str) -> str:
    """A detached run whose background process was killed in the middle of its work."""
    run_id = await detached(desk, model, **environ)
    await background.until((desk.project / "beats").exists)
    await background.end("kill")
    await background.until(lambda: not background.all())
    return run_id


async def test_a_run_whose_credential_was_not_stored_waits_for_it(desk: Any, background: Background) -> None:
    """The token was only in the environment of the terminal: nobody else's is used, until somebody offers one."""
    home = Path(desk.environ["LEADROPE_HOME"])
    token = (home / ".env").read_text().strip().partition("=")[2]
    (home / ".env").unlink()
    async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
        run_id = await left_behind(desk, background, model, **{TOKEN: token})
        other = {TOKEN: token.replace("0", "9")}  # that of whoever happens to look
        await desk.leadrope("runs", "list", **other)

        async def reason() -> str:
            while not (note := (await row(desk, run_id)).get("note", "")).startswith("it cannot continue"):
                pass
            return str(note)

        async with asyncio.timeout(60):
            note = await reason()
        assert "no credential" in note
        assert f"leadrope runs resume {run_id[:8]}" in note
        assert note in " ".join((await desk.leadrope("runs", "show", run_id, **other)).out.split())
        assert "it cannot continue" in (await desk.leadrope("runs", "list", COLUMNS="200", **other)).out
        await background.until(lambda: not background.owners())  # it does not keep a process alive
        for _ in range(5):
            await desk.leadrope("runs", "list", **other)
            assert not background.owners(), "nothing has changed, so nothing is started"
        refused = await desk.leadrope("runs", "resume", run_id, **other)
        assert (refused.code, refused.out) == (1, "")
        assert "no other account is used in its place" in refused.err
        resumed = await desk.leadrope("runs", "resume", run_id, **{TOKEN: token})
        assert (resumed.code, resumed.out) == (0, f"{run_id[:8]} continues in the background\n")
        followed = await desk.leadrope("runs", "logs", "-f", run_id)
        assert senders(model) == {f"Bearer {token}"}
    assert followed.code == 0, followed.err
    assert desk.marker.exists()


def senders(model: ModelServer) -> set[str]:
    """Who has paid for the requests to the model."""
    every = [*model.requests, *model.other_requests]
    names = ("authorization", "x-api-key")
    return {request.headers[name] for request in every for name in names if name in request.headers}


class Account:
    """One way to pay: where its credential lies, and how it is exchanged for that of another account."""

    def __init__(self, desk: Any) -> None:
        self.home: Path = desk.home
        self.env_file = Path(desk.environ["LEADROPE_HOME"], ".env")
        self.desk = desk
        self.words: tuple[str, ...] = ()

    def in_env_file(self, number: int) -> None:
        self.env_file.write_text(f"{TOKEN}=sk-ant-oat01-rehearsal-{number:010}\n")

    def in_a_file(self, number: int) -> None:
        self.env_file.unlink(missing_ok=True)
        file = self.home / "credential.txt"
        file.write_text(f"sk-ant-oat01-rehearsal-{number:010}\n")
        self.words = ("--credential-file", str(file))

    def by_login(self, number: int) -> None:
        """As `claude auth login` leaves it: the account is in .claude.json, the token beside."""
        self.env_file.unlink(missing_ok=True)
        (self.home / ".claude").mkdir(exist_ok=True)
        login = {"accessToken": f"sk-ant-oat01-rehearsal-{number:010}", "expiresAt": (time.time() + 86400) * 1000}
        (self.home / ".claude/.credentials.json").write_text(json.dumps({"claudeAiOauth": login}))
        account = {"accountUuid": f"account-{number}", "organizationUuid": "organization"}
        (self.home / ".claude.json").write_text(json.dumps({"oauthAccount": account}))

    def by_a_key_of_the_agent(self, number: int) -> None:
        self.env_file.unlink(missing_ok=True)
        key = f"sk-ant-api03-rehearsal-{number:010}"
        (self.home / ".claude.json").write_text(json.dumps({"primaryApiKey": key}))
        self.words = ("--billing", "api_key")

    def by_login_then_by_key(self, number: int) -> None:
        """With `auto` the login pays; when it is gone a key must not step in for it."""
        if number == 1:
            self.by_login(number)
        else:
            (self.home / ".claude/.credentials.json").unlink()
            self.by_a_key_of_the_agent(number)
        self.words = ("--billing", "auto")


@pytest.mark.parametrize(
    "way",
    [
        Account.in_env_file,
        Account.in_a_file,
        Account.by_login,
        Account.by_a_key_of_the_agent,
        Account.by_login_then_by_key,
    ],
)
async def test_a_run_is_never_continued_under_another_account(
    desk: Any, background: Background, way: Callable[[Account, int], None]
) -> None:
    account = Account(desk)
    way(account, 1)
    async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
        run_id = await detached(desk, model, *account.words)
        await background.until((desk.project / "beats").exists)
        await background.end("kill")
        await background.until(lambda: not background.all())
        paid_by = senders(model)
        way(account, 2)
        for look in (("runs", "list"), ("runs", "show", run_id), ("approvals", "list")):
            assert (await desk.leadrope(*look)).code == 0
            await background.until(lambda: not background.owners())
        waiting = await row(desk, run_id)
        assert waiting["state"] == "queued"
        assert "no other account is used in its place" in waiting["note"]
        assert f"leadrope runs resume {run_id[:8]}" in waiting["note"]
        resumed = await desk.leadrope("runs", "resume", run_id)
        assert (resumed.code, resumed.out) == (1, "")
        assert "no other account is used in its place" in resumed.err
        assert f"leadrope runs stop {run_id[:8]}" in " ".join(resumed.err.split())
        await background.until(lambda: not background.owners())
        assert (await row(desk, run_id))["state"] == "queued"
        assert senders(model) == paid_by
        assert not desk.marker.exists()
        way(account, 1)
        resumed = await desk.leadrope("runs", "resume", run_id)
        assert resumed.code == 0, resumed.err
        followed = await desk.leadrope("runs", "logs", "-f", run_id)
        assert senders(model) == paid_by
    assert followed.code == 0, followed.err
    assert desk.marker.exists()


async def test_stopping_a_run_is_the_way_to_another_account(desk: Any, background: Background) -> None:
    account = Account(desk)
    account.in_env_file(1)
    async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
        run_id = await left_behind(desk, background, model)
        account.in_env_file(2)
        assert (await desk.leadrope("runs", "stop", run_id)).code == 0
        resumed = await desk.leadrope("runs", "resume", run_id)
        assert resumed.code == 0, resumed.err
        followed = await desk.leadrope("runs", "logs", "-f", resumed.out.strip())
    assert followed.code == 0, followed.err
    assert desk.marker.exists()


async def test_stopping_a_run_that_a_run_that_was_left_starts_nothing(desk: Any, background: Background) -> None:
    async with ModelServer([WORK]) as model:
        run_id = await left_behind(desk, background, model)
        stopped = await desk.leadrope("runs", "stop", run_id)
        assert (stopped.code, stopped.out) == (0, f"{run_id[:8]} stopped\n")
        assert not background.owners()
        assert (await row(desk, run_id))["outcome"] == "stopped"


async def test_a_background_process_that_fails_is_not_started_by_every_look(desk: Any, background: Background) -> None:
    async with ModelServer([WORK, {"tool": desk.touch}, {"text": "Left a marker."}]) as model:
        run_id = await left_behind(desk, background, model)
        folder = Path(desk.environ["LEADROPE_HOME"], "background")
        (folder / "owner.sock").unlink()
        (folder / "owner.sock").mkdir()  # where the process wants to listen
        log = folder / "owner.log"
        before = log.read_text().count("owner.sock")
        told = ""
        async with asyncio.timeout(60):
            while "took up nothing" not in told:
                told = (await desk.leadrope("runs", "list")).err
        assert f"run {run_id[:8]} waits" in told
        assert str(log) in told
        for _ in range(3):
            await desk.leadrope("runs", "list")
        await background.until(lambda: not background.owners())
        assert log.read_text().count("Traceback") <= before + 3
        (folder / "owner.sock").rmdir()
        resumed = await desk.leadrope("runs", "resume", run_id)
        assert resumed.code == 0, resumed.err
        assert (await desk.leadrope("runs", "logs", "-f", run_id)).code == 0
    assert desk.marker.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look at the store of another user")
async def test_looking_at_the_store_of_another_user_starts_nothing(desk: Any, background: Background) -> None:
    async with ModelServer([WORK]) as model:
        run_id = await left_behind(desk, background, model)
        store = Path(desk.environ["LEADROPE_HOME"], "leadrope.db")
        os.chown(store, 65534, 65534)
        assert run_id[:8] in (await desk.leadrope("runs", "list")).out
        assert not background.owners()
        assert (await row(desk, run_id))["state"] == "queued"
        os.chown(store, 0, 0)
        await desk.leadrope("runs", "stop", run_id)


@pytest.mark.fault
async def test_a_look_does_not_wait_for_what_it_starts(
    desk: Any, background: Background, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """Looks that start the background process, and the same that start none, in turns."""
    count = 20 if is_soak else 3
    record_property("count", count)
    taken: dict[str, list[float]] = {"starts one": [], "starts none": []}
    async with ModelServer([WORK]) as model:
        run_id = await left_behind(desk, background, model)
        folder = Path(desk.environ["LEADROPE_HOME"], "background")
        with (folder / "owner.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # what is started here ends without having touched the run
            for _ in range(count):
                for name, times in taken.items():
                    (folder / "starts.json").unlink(missing_ok=True)
                    if name == "starts none":
                        (folder / "starts.json").write_text(json.dumps([1, time.time()]))
                    before = time.monotonic()
                    await desk.leadrope("runs", "list")
                    times.append(time.monotonic() - before)
                    assert bool(background.owners()) == (name == "starts one")
                    await background.until(lambda: not background.owners())
        ratio = statistics.median(taken["starts one"]) / statistics.median(taken["starts none"])
        record_property("ratio", f"{ratio:.2f}")
        assert ratio < (1.5 if is_soak else 3), taken
        await desk.leadrope("runs", "stop", run_id)
