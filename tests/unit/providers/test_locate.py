"""Which program is taken for the agent, and what its answer to --version means."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.core import installation
from leadrope.providers.claude_code import locate


def program(path: Path, text: str = "echo '2.1.325 (Claude Code)'") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def nothing_bundled() -> None:
    return None


class TestOrder:
    def test_setting_beats_variable_beats_path_beats_bundle(self, tmp_path: Path) -> None:
        asked, named = program(tmp_path / "asked"), program(tmp_path / "named")
        on_path, inside = program(tmp_path / "bin/claude"), program(tmp_path / "inside")
        environ = {"LEADROPE_CLAUDE_BIN": str(named), "PATH": str(tmp_path / "bin")}
        assert locate.find_binary(str(asked), environ, find_bundled=lambda: inside) == str(asked)
        assert locate.find_binary(None, environ, find_bundled=lambda: inside) == str(named)
        del environ["LEADROPE_CLAUDE_BIN"]
        assert locate.find_binary(None, environ, find_bundled=lambda: inside) == str(on_path)
        assert locate.find_binary(None, {}, find_bundled=lambda: inside) == str(inside)

    def test_nothing_found_says_how_to_install(self) -> None:
        with pytest.raises(errors.CliNotFound, match="npm install -g @anthropic-ai/claude-code") as caught:
            locate.find_binary(None, {"PATH": "/nonexistent"}, find_bundled=nothing_bundled)
        assert installation.command_for("claude") in str(caught.value)

    @pytest.mark.parametrize("source", ["binary", "LEADROPE_CLAUDE_BIN"])
    @pytest.mark.parametrize(
        ("name", "reason"), [("missing", "does not exist"), ("plain", "is not an executable file")]
    )
    def test_a_setting_that_leads_nowhere_is_an_error_and_no_fallback(
        self, tmp_path: Path, source: str, name: str, reason: str
    ) -> None:
        program(tmp_path / "bin/claude")
        (tmp_path / "plain").write_text("no program")
        value = str(tmp_path / name)
        environ = {"PATH": str(tmp_path / "bin")} | ({source: value} if source != "binary" else {})
        with pytest.raises(errors.CliNotFound) as caught:
            locate.find_binary(value if source == "binary" else None, environ)
        assert source in str(caught.value)
        assert value in str(caught.value)
        assert reason in str(caught.value)

    def test_a_setting_without_a_slash_is_a_name_on_path(self, tmp_path: Path) -> None:
        found = program(tmp_path / "bin/claude-next")
        environ = {"PATH": str(tmp_path / "bin")}
        assert locate.find_binary("claude-next", environ) == str(found)
        with pytest.raises(errors.CliNotFound, match="claude-other"):
            locate.find_binary("claude-other", environ)

    def test_a_tilde_is_the_home_of_the_given_environment(self, tmp_path: Path) -> None:
        found = program(tmp_path / "tools/claude")
        assert locate.find_binary("~/tools/claude", {"HOME": str(tmp_path)}) == str(found)

    def test_a_relative_path_entry_cannot_choose_the_program(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program(tmp_path / "claude")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(errors.CliNotFound):
            locate.find_binary(None, {"PATH": ".:"}, find_bundled=nothing_bundled)

    def test_the_bundle_is_found_without_importing_its_package(self) -> None:
        code = (
            "import sys; from leadrope.providers.claude_code import locate; found = locate.bundled();"
            "assert 'claude_agent_sdk' not in sys.modules; print(found)"
        )
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        assert shown.endswith("_bundled/claude")


@pytest.mark.parametrize(
    ("exit_code", "stdout", "stderr", "expected"),
    [
        (0, "2.1.325 (Claude Code)\n", "", ("2.1.325", True, True, None)),
        (0, "2.1.0 (Claude Code)", "", ("2.1.0", True, False, None)),
        (0, "2.999.1-beta.2 (Claude Code)", "", ("2.999.1", True, False, None)),
        (0, "2.0.77 (Claude Code)", "", ("2.0.77", False, False, "2.1.0")),
        (0, "3.0.0 (Claude Code)", "", ("3.0.0", False, False, "3.0.0")),
        (0, "hello", "", (None, False, False, "hello")),
        (0, "", "", (None, False, False, "nothing")),
        (7, "2.1.325 (Claude Code)", "cannot load library", (None, False, False, "cannot load library")),
    ],
)
def test_judge(exit_code: int, stdout: str, stderr: str, expected: tuple[str | None, bool, bool, str | None]) -> None:
    check = locate.judge("/x/claude", exit_code, stdout, stderr)
    version, supported, tested, reason = expected
    assert (check.version, check.supported, check.tested) == (version, supported, tested)
    assert (check.reason is None) == (reason is None)
    assert reason is None or reason in (check.reason or "")


class TestCheckCli:
    async def test_the_program_sees_a_scratch_home_that_is_gone_afterwards(self, tmp_path: Path) -> None:
        seen = tmp_path / "seen"
        binary = program(tmp_path / "claude", f"env > {seen}\necho '2.1.325 (Claude Code)'")
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-x", "LANG": "C"}
        check = await locate.check_cli(str(binary), environ)
        assert check == locate.CliCheck(path=str(binary), version="2.1.325", supported=True, tested=True)
        lines = dict(line.split("=", 1) for line in seen.read_text().splitlines())
        home = lines["HOME"]
        assert home != str(tmp_path)
        assert not Path(home).exists()
        # sh adds PWD and its own; what leadrope hands over is this and no more.
        assert {name: value for name, value in lines.items() if name not in ("PWD", "OLDPWD", "SHLVL", "_")} == {
            "PATH": "/usr/bin:/bin",
            "LANG": "C",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "HOME": home,
            "TMPDIR": home,
            "CLAUDE_CONFIG_DIR": f"{home}/config",
        }

    async def test_a_program_that_never_answers_is_ended_with_its_children(self, tmp_path: Path) -> None:
        binary = program(tmp_path / "claude", "sleep 100 & sleep 100")
        check = await locate.check_cli(str(binary), {"PATH": "/usr/bin:/bin"}, timeout_s=0.3)
        assert check.version is None
        assert "within 0.3 s" in (check.reason or "")

    async def test_a_cancelled_check_leaves_no_process(self, tmp_path: Path) -> None:
        started = tmp_path / "started"
        os.mkfifo(started)
        binary = program(tmp_path / "claude", f"echo x > {started}; exec sleep 100")
        task = asyncio.create_task(locate.check_cli(str(binary), {"PATH": "/usr/bin:/bin"}))
        assert await asyncio.to_thread(started.read_text) == "x\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_it_never_raises(self, tmp_path: Path) -> None:
        missing = await locate.check_cli(str(tmp_path / "none"), {})
        assert "does not exist" in (missing.reason or "")
        odd = tmp_path / "odd"
        odd.write_bytes(b"\0\1\2")
        odd.chmod(0o755)
        broken = await locate.check_cli(str(odd), {})
        assert "cannot be started" in (broken.reason or "")


class TestAuthStatus:
    @pytest.mark.parametrize(
        ("reply", "expected"),
        [
            ("""echo '{"loggedIn":true,"authMethod":"claude.ai","x":1}'""", (True, "claude.ai", False)),
            ("""echo '{"loggedIn":false,"authMethod":"none"}'; exit 1""", (False, "none", False)),
            ("""echo '{"loggedIn":true,"authMethod":"api_key"}'""", (True, "api_key", False)),
            ("echo unknown command; exit 1", (False, "", True)),
        ],
    )
    async def test_the_programs_own_words(self, tmp_path: Path, reply: str, expected: tuple[bool, str, bool]) -> None:
        binary = program(tmp_path / "claude", reply)
        status = await locate.auth_status(str(binary), {"PATH": "/usr/bin:/bin"}, home=tmp_path)
        assert (status.logged_in, status.method, status.reason is not None) == expected

    async def test_it_asks_in_the_users_home_without_any_credential(self, tmp_path: Path) -> None:
        seen = tmp_path / "seen"
        binary = program(tmp_path / "claude", f"env > {seen}; echo '{{}}'")
        environ = {"PATH": "/usr/bin:/bin", "USER": "me", "CLAUDE_CODE_OAUTH_TOKEN": "t", "ANTHROPIC_API_KEY": "k"}
        await locate.auth_status(str(binary), environ, home=tmp_path)
        lines = dict(line.split("=", 1) for line in seen.read_text().splitlines())
        assert lines["HOME"] == str(tmp_path)
        assert lines["USER"] == "me"
        assert not {"CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR"} & set(lines)
