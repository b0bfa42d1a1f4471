"""What the sandbox of a run has inside, as the run plans them: the agent's login, and leadrope's own files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import RunRequest
from leadrope.core.config import Config
from leadrope.process.sandbox.values import Sight
from leadrope.providers import base
from leadrope.providers.claude_code.provider import own_login
from leadrope.runtime import prepare
from leadrope.runtime.sandboxing import sandboxing

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


class Site:
    def __init__(self, folder: Path) -> None:
        self.home, self.ws, self.own, self.run = (folder / name for name in ("home", "ws", "own", "run"))
        for path in (self.home, self.ws, self.own / "sessions" / "s" / "config", self.run / "tmp"):
            path.mkdir(parents=True)

    def sight(self, *, config: Path | None = None, login: Path | None = None, **launch: Any) -> Sight:
        environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        if login is not None:
            environ["CLAUDE_CONFIG_DIR"] = str(login)
        request = RunRequest(prompt="p", cwd=str(self.ws), sandbox="workspace")
        settings = Config(source=str(config)) if config else Config()
        ready = prepare.complete(request, settings, environ, self.own)
        place = base.StartContext(
            run_id="r",
            environ=environ,
            ambient=environ,
            settings={},
            home=self.own,
            run_dir=self.run,
            launch_dir=self.run,
            config=settings,
        )
        start = base.Launch(
            argv=("/bin/true",),
            env=environ if launch.get("config_dir") is None else {"HOME": str(self.home), "PATH": "/usr/bin:/bin"},
            cwd=str(self.ws),
            session_id=None,
            model="m",
        )
        if launch.get("config_dir") is None:
            start = msgspec.structs.replace(start, own_login=own_login(environ))
        start = msgspec.structs.replace(start, **launch)
        wanted = sandboxing.wish(ready.request, ready.rules)
        return sandboxing.build(wanted, ready.request, start, place, ready.rules, sandboxing.Sockets()).sight


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_agents_own_login_is_writable_only_where_it_is_used(site: Site) -> None:
    """It refreshes its token in there; an agent with a credential of its own has no business there."""
    (site.home / ".claude").mkdir()
    (site.home / ".claude.json").touch()
    private = site.own / "sessions" / "s" / "config"
    used = site.sight(config_dir=None)
    assert [used.of(f"{site.home}/{name}") for name in (".claude/x", ".claude.json", ".ssh")] == ["rw", "rw", "private"]
    other = site.sight(config_dir=str(private))
    assert [other.of(f"{site.home}/{name}") for name in (".claude/x", ".claude.json")] == ["private", "private"]
    assert other.of(f"{private}/x") == "rw"


def test_a_login_that_the_user_keeps_elsewhere_is_there_too(site: Site) -> None:
    """And hidden where another credential is used, also in the workspace."""
    (site.home / ".claude").mkdir()
    for folder in (site.home / ".config" / "claude-work", site.ws / "login"):
        folder.mkdir(parents=True)
        sight = site.sight(login=folder, config_dir=None)
        assert [sight.of(path) for path in (f"{folder}/.claude.json", f"{site.home}/.claude/x")] == ["rw", "private"]
        sight = site.sight(login=folder, config_dir=str(site.own / "sessions" / "s" / "config"))
        assert sight.of(f"{folder}/.credentials.json") in ("private", "hidden")


def test_leadropes_own_files_are_absent_wherever_they_lie(site: Site) -> None:
    """Also inside of the workspace, where everything else is writable."""
    site.own = site.ws / "data"
    private = site.own / "sessions" / "s" / "config"
    private.mkdir(parents=True)
    for name in ("data/leadrope.db", "data/.env", "leadrope/config.toml", "notes"):
        (site.ws / name).parent.mkdir(exist_ok=True)
        (site.ws / name).touch()
    sight = site.sight(config=site.ws / "leadrope" / "config.toml", config_dir=str(private))
    for name in ("data/leadrope.db", "data/.env", "data/runs", "leadrope/config.toml", "leadrope/policy.toml"):
        assert sight.of(f"{site.ws}/{name}") == "hidden", name
    assert sight.of(f"{site.ws}/notes") == "rw"
    assert sight.of(f"{private}/x") == "rw"


def test_a_config_file_among_the_users_own_hides_itself_alone(site: Site) -> None:
    (site.ws / "my.toml").touch()
    sight = site.sight(config=site.ws / "my.toml")
    assert [sight.of(f"{site.ws}/{name}") for name in ("my.toml", "notes")] == ["hidden", "rw"]
