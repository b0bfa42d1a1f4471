"""`leadrope doctor`: looks at what a run needs and says what to do. Starts an agent only against a scripted model."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import Screen
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.policy.files import sources
from leadrope.policy.resolve import EffectivePolicy
from leadrope.process.sandbox import availability, command_domain, probe
from leadrope.providers.claude_code import credentials, locate
from leadrope.runs import background, settings, stores
from leadrope.runtime import gate_trial
from leadrope.runtime.agents import config_paths, saved_agents
from leadrope.version import __version__

Status = Literal["ok", "warning", "failed"]

OLDEST_PYTHON = (3, 11)
NARROW = 60
"""Columns. Below this the names of the checks have lines of their own."""
LOW_SPACE = 200 * 1024**2
"""Bytes. The transcripts and events of a long run take tens of megabytes."""


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    status: Status
    message: str
    hint: str | None = None


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    ok: bool
    checks: tuple[DoctorCheck, ...]


@click.command("doctor", short_help="Check the installation, and say what to do.")
@flags.output("text", "json", help="json: the report as one object.")
@flags.old_json()
def command(*, output: str) -> int:
    """Check what a run needs, and say what to do.

    The gate is tried with a real agent process whose model is a script on this machine; no account is used.
    """
    if output == "json":
        report = asyncio.run(examine(os.environ))
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    else:
        screen = Screen.of_process()
        click.echo(f"leadrope {__version__}")
        report = asyncio.run(examine(os.environ, lambda check: _print(check, screen)))
        ended = "All checks passed." if report.ok else "Some checks failed; see the lines marked ✗."
        click.echo("\n".join(screen.fitted(ended)))
    return 0 if report.ok else 1


async def examine(environ: Mapping[str, str], show: Callable[[DoctorCheck], None] = lambda _: None) -> DoctorReport:
    """Try everything; `show` gets each check as soon as it is done, because some of them take seconds."""
    checks: list[DoctorCheck] = []

    def done(check: DoctorCheck) -> None:
        checks.append(check)
        show(check)

    done(python())
    done(system())
    settings, where = _home(environ)
    done(where)
    config, written = configuration({**settings, **environ})
    done(written)
    rules, policy = effective_policy({**settings, **environ})
    done(policy)
    binary, program = await _program(config, {**settings, **environ})
    done(program)
    if binary is not None:
        done(await _gate(binary, environ))
        done(await _credential(binary, config, environ, settings))
    done(await _sandbox(rules))
    done(commands(command_domain.look(rules.blocked_programs)))
    return DoctorReport(version=__version__, ok=all(c.status != "failed" for c in checks), checks=tuple(checks))


def python(version: tuple[int, ...] = sys.version_info[:3]) -> DoctorCheck:
    shown = ".".join(map(str, version))
    if version >= OLDEST_PYTHON:
        return DoctorCheck(name="python", status="ok", message=shown)
    return DoctorCheck(
        name="python", status="failed", message=f"{shown} is too old", hint="Install Python 3.11 or newer."
    )


def system(name: str = sys.platform) -> DoctorCheck:
    shown = f"{platform.system()} {platform.release()} ({platform.machine()})"
    if name == "linux":
        return DoctorCheck(name="platform", status="ok", message=shown)
    return DoctorCheck(name="platform", status="warning", message=f"{shown}: leadrope is tested on Linux only")


def _home(environ: Mapping[str, str]) -> tuple[dict[str, str], DoctorCheck]:
    try:
        folder = home.ensure(home.leadrope_home(environ))
        with tempfile.TemporaryFile(dir=folder):
            pass
        stores.check(folder)
        return home.load_env(folder), _room(folder, background.free_bytes(folder))
    except errors.LeadropeError as error:
        return {}, DoctorCheck(name="home", status="failed", message=error.message, hint=error.hint)
    except OSError as error:
        return (
            {},
            DoctorCheck(
                name="home",
                status="failed",
                message=f"{error.filename or 'LEADROPE_HOME'} cannot be written: {error.strerror}",
                hint="Set LEADROPE_HOME to a folder that you may write to.",
            ),
        )


def _room(folder: Path, free: int) -> DoctorCheck:
    """Runs, sessions and logs are written there for as long as a run lasts."""
    told = f"{free / 1024**3:.1f} GiB" if free >= 1024**3 else f"{free // 1024**2} MiB"
    hint = "Free some space, run `leadrope runs prune`, or set LEADROPE_HOME to a folder on another disk."
    if free < background.LEAST_FREE:
        return DoctorCheck(name="home", status="failed", message=f"{folder}: the disk is full ({told} free)", hint=hint)
    if free < LOW_SPACE:
        return DoctorCheck(name="home", status="warning", message=f"{folder} is writable; only {told} free", hint=hint)
    return DoctorCheck(name="home", status="ok", message=f"{folder} is writable, {told} free")


def configuration(environ: Mapping[str, str]) -> tuple[configs.Config, DoctorCheck]:
    try:
        path = home.config_file(environ)
        config = configs.load(environ)
        settings.read(config.service, config.budgets, config.source)
        settings.check_others(config)
    except errors.LeadropeError as error:
        return configs.Config(), DoctorCheck(name="config", status="failed", message=error.message, hint=error.hint)
    here = Path(os.path.realpath("."))
    for missing in config_paths.missing(config, environ, here):
        return config, DoctorCheck(name="config", status="failed", message=missing.message, hint=missing.hint)
    wrong = [entry for entry in saved_agents.listing(config, environ, here) if entry.problems]
    if own := [entry for entry in wrong if entry.origin == "config"]:
        more = f" (and {len(own) - 1} more; see `leadrope agents check`)" if len(own) > 1 else ""
        told = f"the agent {own[0].name} cannot be used: {own[0].problems[0]}{more}"
        return config, DoctorCheck(name="config", status="failed", message=told, hint=own[0].problems[0].hint)
    if config.old_keys:
        return config, DoctorCheck(name="config", status="warning", message="; ".join(config.old_keys))
    what = f"{path} is valid" if path.exists() else f"none ({path} does not exist); defaults hold"
    return config, DoctorCheck(name="config", status="ok", message=what)


def effective_policy(environ: Mapping[str, str]) -> tuple[EffectivePolicy, DoctorCheck]:
    """As a run that is started in this folder would have it. Without one that can be used nothing starts."""
    try:
        found = sources.gather_policy(
            config=home.config_file(environ), home=home.leadrope_home(environ), cwd=Path(os.path.realpath("."))
        )
        rules = found.effective()
    except errors.LeadropeError as error:
        return EffectivePolicy(sandbox="preferred"), DoctorCheck(
            name="policy", status="failed", message=error.message, hint=error.hint
        )
    names = ", ".join(dict.fromkeys(layer.name for layer in found.layers))
    hint = "; ".join(found.notices) or None
    return rules, DoctorCheck(name="policy", status="warning" if hint else "ok", message=f"layers: {names}", hint=hint)


async def _program(config: configs.Config, environ: Mapping[str, str]) -> tuple[str | None, DoctorCheck]:
    chosen = config.run.binary if isinstance(config.run.binary, str) else None
    found = await locate.check_cli(chosen, environ)
    low, high = (".".join(map(str, number)) for number in (locate.MINIMUM, locate.BELOW))
    if found.path is None or not found.supported:
        hint = f"leadrope works with {low} up to, not including, {high}. {locate.install_hint()}"
        message = (found.reason or "not found").split("\n")[0]
        return None, DoctorCheck(name="agent", status="failed", message=message, hint=hint)
    shown = f"Claude Code {found.version} ({found.path})"
    if found.tested:
        return found.path, DoctorCheck(name="agent", status="ok", message=f"{shown}, tested")
    tested = ", ".join(locate.TESTED)
    return found.path, DoctorCheck(
        name="agent",
        status="warning",
        message=f"{shown} is in the supported range, but not tested",
        hint=f"Tested: {tested}. The gate is tried below, and before the first run.",
    )


async def _gate(binary: str, environ: Mapping[str, str]) -> DoctorCheck:
    try:
        wrong = await gate_trial.try_gate("claude-code", binary, environ)
    except errors.LeadropeError as error:
        return DoctorCheck(name="gate", status="failed", message=error.message, hint=error.hint)
    if wrong is None:
        return DoctorCheck(
            name="gate", status="ok", message="a denied command did not run (tried with a scripted model)"
        )
    return DoctorCheck(
        name="gate", status="failed", message=wrong, hint=f"Install a tested version: {', '.join(locate.TESTED)}."
    )


async def _credential(
    binary: str, config: configs.Config, environ: Mapping[str, str], settings: Mapping[str, str]
) -> DoctorCheck:
    """Looks where a run would look. The value itself is never shown."""
    user_home = home.user_home(environ)
    billing = config.run.billing if isinstance(config.run.billing, str) else "subscription"
    try:
        found = await credentials.resolve(
            environ,
            user_home,
            now=time.time(),
            own_login=lambda: locate.auth_status(binary, environ, home=user_home),
            billing=billing,
            settings=settings,
        )
    except errors.LeadropeError as error:
        return DoctorCheck(name="credential", status="failed", message=error.message, hint=error.hint)
    used = found.used()
    masked = f" {used.masked}" if used.masked else ""
    status: Status = "warning" if found.notices else "ok"
    return DoctorCheck(
        name="credential",
        status=status,
        message=f"{used.source}{masked}; billing: {used.billing}",
        hint="; ".join(found.notices) or None,
    )


async def _sandbox(rules: EffectivePolicy) -> DoctorCheck:
    """Which sandbox a run gets here. Installed is not enough: one is built and a program runs in it."""
    is_model_only = rules.network_reach == "model-only"
    is_required = rules.sandbox == "required" or is_model_only
    without: Status = "failed" if is_required else "warning"
    fate = "the policy requires a sandbox, so no run can start" if is_required else "runs have no sandbox"
    missing = [
        package
        for program, package in (("bwrap", "bubblewrap"), ("socat", "socat"))
        if shutil.which(program, path=probe.SYSTEM_PATH) is None
    ]
    hint = f"On Debian: apt install {' '.join(missing)}" if missing else None
    if "bubblewrap" in missing:
        return DoctorCheck(
            name="sandbox",
            status=without,
            message=f"bubblewrap not found: {fate}, and mode sandboxed is refused",
            hint=hint,
        )
    found = await availability.try_sandbox()
    if not found.ok:
        return DoctorCheck(name="sandbox", status=without, message=f"{fate}; {found.say()}", hint=found.hint)
    if rules.sandbox == "off" and not is_model_only:
        turned = f"runs have no sandbox: the policy ({rules.layer_of('sandbox')}) switches it off; {found.say()}"
        return DoctorCheck(name="sandbox", status="warning", message=turned, hint=hint)
    status: Status = "ok" if found.model_only and found.forwards else without if is_model_only else "warning"
    reach = ", network model-only" if is_model_only else ""
    return DoctorCheck(
        name="sandbox",
        status=status,
        message=f"runs have a sandbox ({rules.sandbox_level}{reach}); {found.say()}",
        hint=hint,
    )


def commands(domain: command_domain.Domain) -> DoctorCheck:
    """Can a command that was approved reach into the agent that runs it?"""
    if not domain.missing:
        message = f"commands cannot reach into the agent that runs them (Landlock version {domain.version})"
        return DoctorCheck(name="commands", status="ok", message=message)
    hint = (
        "Needed are Linux 5.19 or newer with Landlock switched on, bash, and perl or python3 in the system's folders."
        " Until then an approved command can write to the agent's input; leadrope ends the run when it notices."
    )
    return DoctorCheck(
        name="commands",
        status="warning",
        message=f"commands are not kept apart from the agent that runs them: {domain.missing}",
        hint=hint,
    )


def _print(check: DoctorCheck, screen: Screen) -> None:
    style = screen.style
    marks = {"ok": style.good("✓"), "warning": style.warn("!"), "failed": style.bad("✗")}
    is_narrow = screen.width < NARROW
    margin = " " * (4 if is_narrow else 16)
    room = screen.width - len(margin)
    first, *more = table.wrapped(spelling.runnable(check.message), room, breaks_paths=True)
    if is_narrow:
        click.echo(f"  {marks[check.status]} {check.name}\n{margin}{first}")
    else:
        click.echo(f"  {marks[check.status]} {check.name:<11} {first}")
    hints = table.wrapped(spelling.runnable(check.hint), room, breaks_paths=True) if check.hint else []
    for line in (*more, *map(style.dim, hints)):
        click.echo(margin + line)
