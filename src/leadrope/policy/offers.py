"""What a person who is asked should know: how risky a call is, and which pattern may be granted instead of it."""

from __future__ import annotations

import shlex

from leadrope.core.events import Risk
from leadrope.core.tools import ToolCall
from leadrope.policy import paths, patterns
from leadrope.policy.call_analysis import Look
from leadrope.policy.decide import Policy, class_of_call
from leadrope.policy.shell.words import names
from leadrope.policy.verdicts import Verdict
from leadrope.regex import regex

# Their first words say what they do; a grant of all that one of them can do is never offered.
_FAMILIES = names(
    """git npm pnpm yarn bun npx cargo go docker podman kubectl helm uv uvx pip pip3 pipx poetry hatch make just task
    rake mix dotnet swift gh glab gradle gradlew mvn bundle composer rails terraform tofu ansible aws gcloud az nx turbo
    lerna bazel cmake ctest deno python python3 node ruby perl php java bash sh zsh systemctl apt
    apt-get brew"""
)
# What they do depends on their words alone, and some of it is not ordinary: send files away, end a stranger's process.
_NEVER = names("curl wget http https xh nc ssh scp sftp rsync kill pkill killall chmod chown chgrp mount")
# Words that only lead to the word that matters.
_LEADING = frozenset(("run", "exec", "compose", "tool", "-m", "x", "dlx"))
_PLAIN = regex(r"[A-Za-z0-9_@./:+-]+")


def risk_of(call: ToolCall, workspace: tuple[str, ...]) -> Risk:
    """How much could go wrong, for the eye of whoever is asked; it decides nothing."""
    from leadrope.policy import commands  # noqa: PLC0415  # the shell's parser, only where there is a command
    from leadrope.policy.shell import reader  # noqa: PLC0415  # the shell's parser, only where there is a command

    kind = class_of_call(call, workspace)
    command = call.input.get("command")
    if kind == "command" and isinstance(command, str):
        return commands.risk(reader.read(command))
    if kind == "edit_outside":
        return "high"
    return "low" if kind in ("network", "read") else "medium"


def offered(policy: Policy, call: ToolCall, verdict: Verdict) -> str:
    """The pattern to offer at a question; empty where a grant would not answer it.

    A grant answers the question of the run's own mode. It is not offered for what is risky, because the next call
    that it covers is not looked at by anyone.
    """
    if not verdict.rule.startswith("mode:") or verdict.layer != "run" or risk_of(call, policy.workspace) == "high":
        return ""
    return pattern_for(Look(call, paths.Ground(policy.workspace, home=paths.user_home(), cwd=call.cwd)))


def pattern_for(look: Look) -> str:
    """A pattern that covers this call and its likes (`npm test --watch` gives `Bash(npm test *)`); empty: none.

    Only a command that is read cleanly and is one program gets one.
    """
    reading = look.reading
    if look.command is None or reading is None or not reading.is_clean or len(reading.programs) != 1:
        return ""
    words = reading.programs[0].words
    known = [word for word in words if word is not None]
    if len(known) != len(words) or not known:
        return ""
    fixed = _fixed(known)
    if not fixed or not all(_PLAIN.fullmatch(word) for word in fixed):
        return ""
    text = f"{look.call.name}({shlex.join(fixed)} *)"
    return text if patterns.admitted((text,), look) else ""


def _fixed(words: list[str]) -> list[str]:
    fixed = words[:1]
    name = words[0].rpartition("/")[2]
    if name in _NEVER:
        return []
    if name not in _FAMILIES:
        return fixed
    for word in words[1:4]:
        if word.startswith("-") and word not in _LEADING:
            return []
        fixed.append(word)
        if word not in _LEADING:
            return fixed
    return []
