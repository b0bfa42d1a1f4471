"""What to show a person who is asked: how risky a call is, and which pattern could be granted instead."""

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

# Their first words decide what they do; a grant for everything that one of them can do is never offered.
_FAMILIES = names(
    """git npm pnpm yarn bun npx cargo go docker podman kubectl helm uv uvx pip pip3 pipx poetry hatch make just task
    rake mix dotnet swift gh glab gradle gradlew mvn bundle composer rails terraform tofu ansible aws gcloud az nx turbo
    lerna bazel cmake ctest deno python python3 node ruby perl php java bash sh zsh systemctl apt
    apt-get brew"""
)
# Their words alone decide what they do, which includes unusual things: sending files away, ending another process.
_NEVER = names("curl wget http https xh nc ssh scp sftp rsync kill pkill killall chmod chown chgrp mount")
# Words that only lead to the word that matters.
_LEADING = frozenset(("run", "exec", "compose", "tool", "-m", "x", "dlx"))
_PLAIN = regex(r"[A-Za-z0-9_@./:+-]+")


def risk_of(call: ToolCall, workspace: tuple[str, ...]) -> Risk:
    """Estimates the risk, to help the person who is asked; it has no effect on decisions."""
    from leadrope.policy import commands  # noqa: PLC0415  # loads the shell parser, which only commands need
    from leadrope.policy.shell import reader  # noqa: PLC0415  # loads the shell parser, which only commands need

    kind = class_of_call(call, workspace)
    command = call.input.get("command")
    if kind == "command" and isinstance(command, str):
        return commands.risk(reader.read(command))
    if kind == "edit_outside":
        return "high"
    return "low" if kind in ("network", "read") else "medium"


def offered(policy: Policy, call: ToolCall, verdict: Verdict) -> str:
    """Returns the pattern to offer with an approval request; empty if a grant would not answer it.

    A grant answers a request of the run's own mode. None is offered for risky calls, because nobody checks the next
    call that it covers.
    """
    if not verdict.rule.startswith("mode:") or verdict.layer != "run" or risk_of(call, policy.workspace) == "high":
        return ""
    return pattern_for(Look(call, paths.Ground(policy.workspace, home=paths.user_home(), cwd=call.cwd)))


def pattern_for(look: Look) -> str:
    """Returns a pattern for this call and similar ones (`Bash(npm test *)` for `npm test --watch`), or an empty string.

    Only a command that was read cleanly and consists of one program gets one.
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
