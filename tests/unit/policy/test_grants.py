"""Grants: what they open, what they never open, what is offered at a question, and what a refusal names."""

from __future__ import annotations

import os
from typing import Any

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Allow, Ask, Deny, Facts, Policy, Verdict, decide
from leadrope.policy.offers import offered
from leadrope.policy.resolve import EffectivePolicy, Layer, resolve, rules_of

LISTS = {"blocked_commands": ["dd"], "require_approval": ["git push", "rm"], "protected_paths": [".git/"]}
RULES = resolve([Layer("default", rules_of({**LISTS, "opaque": "ask"}))])


def judged(
    command: str,
    *,
    mode: Mode = "default",
    rules: EffectivePolicy = RULES,
    facts: Facts | None = None,
    **lists: Any,
) -> Verdict:
    policy = Policy(mode=mode, workspace=("/ws",), rules=rules, **lists)
    call = ToolCall(id="t", name="Bash", input={"command": command})
    return decide(policy, call, facts or Facts(home="/home/me"), resolve=os.path.normpath)


COVERED = [
    ("npm test", "Bash(npm test *)"),
    ("npm test --watch", "Bash(npm test *)"),
    ("npm test 2>/dev/null", "Bash(npm test *)"),
    ("npm test && make lint", "Bash(npm test *)", "Bash(make lint)"),
    # Programs that are in none of our tables.
    ("gradle test", "Bash(gradle test)"),
    ("gradle test --info", "Bash(gradle test *)"),
    ("terraform plan", "Bash(terraform plan)"),
    ("mytool run", "Bash(mytool *)"),
    # What an interpreter runs is granted when the pattern spells it out.
    ("python3 -c 'print(1)'", "Bash(python3 -c 'print(1)')"),
    ("python3 tool.py a", "Bash(python3 *)"),
]


@pytest.mark.parametrize("row", COVERED, ids=lambda row: row[0])
@pytest.mark.parametrize("mode", ["default", "edit", "dontAsk"])
@pytest.mark.parametrize("where", ["allow", "grants", "tools"])
def test_a_pattern_opens_what_it_covers(row: tuple[str, ...], mode: Mode, where: str) -> None:
    command, *entries = row
    lists: dict[str, Any] = {where: tuple(entries)}
    found = judged(command, mode=mode, **lists)
    assert isinstance(found, Allow)
    assert found.rule == ("tools" if where == "tools" else "allow")
    assert entries[0] in found.reason


UNCOVERED = [
    ("npm run build", "Bash(npm test *)"),
    ("npm test && touch x", "Bash(npm test *)"),
    ("npm test > log", "Bash(npm test *)"),
    ("npm test $X", "Bash(npm test *)"),
    ("./npm test", "Bash(npm test *)"),
    ("env X=1 npm test", "Bash(npm test *)"),
    ("gradle build", "Bash(gradle test)"),
    ("gradle test --info", "Bash(gradle test)"),
    ("python3 -c 'print(1)'", "Bash(python3 *)"),
    ("python3 -c 'print(2)'", "Bash(python3 -c 'print(1)')"),
    ("python3 - <<E\nprint(1)\nE", "Bash(python3 -)"),
    ("echo evil | bash", "Bash(bash)", "Bash(echo *)"),
    ('eval "$X"', "Bash(eval *)"),
]


@pytest.mark.parametrize("row", UNCOVERED, ids=lambda row: row[0])
@pytest.mark.parametrize("where", ["allow", "grants"])
def test_it_opens_nothing_else(row: tuple[str, ...], where: str) -> None:
    command, *entries = row
    lists: dict[str, Any] = {where: tuple(entries)}
    assert isinstance(judged(command, **lists), Ask)
    assert isinstance(judged(command, mode="dontAsk", **lists), Deny)
    assert isinstance(judged(command, tools=tuple(entries)), Deny)


@pytest.mark.parametrize("where", ["allow", "grants", "tools"])
@pytest.mark.parametrize("entry", ["Bash", "Bash(git *)", "Bash(dd *)", "Bash(rm *)", "Bash(touch *)"])
def test_it_never_opens_a_block_an_approval_rule_or_a_protected_path(where: str, entry: str) -> None:
    words = {"Bash(git *)": "git push", "Bash(rm *)": "rm x", "Bash(touch *)": "touch .git/hooks/x"}
    lists: dict[str, Any] = {where: (entry,)}
    if entry in ("Bash", "Bash(dd *)"):
        assert isinstance(judged("dd if=a of=b", **lists), Deny)
    for command in words.values() if entry == "Bash" else [words[entry]] if entry in words else []:
        found = judged(command, **lists)
        assert isinstance(found, Ask)
        assert found.rule in ("require_approval", "protected_paths")


def test_a_bare_tool_is_as_much_as_mode_full_is_for_it() -> None:
    assert isinstance(judged("npm test", allow=("Bash",)), Allow)
    assert isinstance(judged('eval "$X"', allow=("Bash",)), Ask)
    assert isinstance(judged("gradle test", allow=("Bash",)), Ask)
    assert isinstance(judged("gradle test", allow=("Bash",), facts=Facts(sandboxed=True)), Allow)


def test_a_grant_opens_neither_plan_mode_nor_a_layers_mode() -> None:
    grant = ("Bash(npm test *)",)
    assert isinstance(judged("npm test", mode="plan", allow=grant), Deny)
    capped = resolve([Layer("global", rules_of({"permission_mode": "edit"}))])
    found = judged("npm test", mode="full", rules=capped, allow=grant, grants=grant)
    assert isinstance(found, Ask)
    assert found.layer == "global"


@pytest.mark.parametrize(
    ("entry", "path", "expected"),
    [
        ("Write", "/ws/a", "allow"),
        ("Write", "/srv/a", "ask"),
        ("Write(/srv/**)", "/srv/a", "allow"),
        ("Write(/srv/**)", "/etc/a", "ask"),
        ("Write(src/**)", "src/a", "allow"),
    ],
)
def test_an_edit_outside_is_granted_by_a_path_only(entry: str, path: str, expected: str) -> None:
    policy = Policy(mode="default", workspace=("/ws",), allow=(entry,))
    call = ToolCall(id="t", name="Write", input={"file_path": path})
    assert decide(policy, call, resolve=os.path.normpath).word == expected


@pytest.mark.parametrize(
    ("tools", "command", "named"),
    [
        (
            ("Bash(git *)",),
            "git status && touch x",
            "`touch` in `git status && touch x` is not covered by Bash(git *)",
        ),
        (
            ("Bash(gradle test)",),
            "gradle build",
            "`build` in `gradle build` is not covered by Bash(gradle test)",
        ),
        (("Bash(gradle test)",), "gradle test --info", "`--info` in `gradle test --info` is not covered"),
        (("Bash(gradle test)",), "ls", "`ls` is not covered by Bash(gradle test)"),
        (("Bash(gradle test --info)",), "gradle test", "`gradle test` is not covered by Bash(gradle test --info)"),
        (("Bash(npm test *)",), "npm test > log", "writing to `log` is not covered by Bash(npm test *)"),
        (("Bash(eval *)",), 'eval "$X"', "a command that cannot be read"),
        (("Read",), "ls", "Bash is not in this run's list of tools"),
    ],
)
def test_a_refusal_names_what_is_not_covered(tools: tuple[str, ...], command: str, named: str) -> None:
    found = judged(command, mode="full", tools=tools)
    assert isinstance(found, Deny)
    assert (found.rule, named in found.reason) == ("tools", True), found.reason


# -- what is offered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("npm test -- --watch", "Bash(npm test *)"),
        ("npm run build -- --prod", "Bash(npm run build *)"),
        ("pytest -q tests", "Bash(pytest *)"),
        ("make test", "Bash(make test *)"),
        ("cargo test --lib", "Bash(cargo test *)"),
        ("python -m pytest -q", ""),  # two programs: python, and what it starts
        ("git commit -m x", "Bash(git commit *)"),
        ("touch a b", "Bash(touch *)"),
        # High risk, an approval rule, not clean, several programs, a word that is not known: none.
        ("git push", ""),
        ("rm x", ""),
        ("sudo make install", ""),
        ("chmod -R 777 a", ""),
        ("gradle test", ""),
        ("python3 -c 'print(1)'", ""),
        ('eval "$X"', ""),
        ("npm test && npm run lint", ""),
        ("npm test $X", ""),
        ("npm test > log", ""),
        ("git -C x commit", ""),
        ("npm", ""),
    ],
)
def test_the_pattern_that_a_question_offers(command: str, pattern: str) -> None:
    policy = Policy(mode="default", workspace=("/ws",), rules=RULES)
    call = ToolCall(id="t", name="Bash", input={"command": command})
    verdict = decide(policy, call, Facts(home="/home/me"), resolve=os.path.normpath)
    assert isinstance(verdict, Ask)
    assert offered(policy, call, verdict) == pattern
    if pattern:
        granted = Policy(mode="default", workspace=("/ws",), rules=RULES, grants=(pattern,))
        assert isinstance(decide(granted, call, Facts(home="/home/me"), resolve=os.path.normpath), Allow)


@pytest.mark.parametrize(
    "command", ["curl https://a.b", "wget -q https://a.b", "ssh host ls", "kill 7", "pkill x", "chmod +x a"]
)
def test_nothing_is_offered_for_programs_whose_words_are_all_that_matters(command: str) -> None:
    policy = Policy(mode="default", workspace=("/ws",))
    call = ToolCall(id="t", name="Bash", input={"command": command})
    verdict = decide(policy, call, Facts(home="/home/me"), resolve=os.path.normpath)
    assert (verdict.word, verdict.rule) == ("ask", "mode:default"), "or nothing would be offered anyway"
    assert offered(policy, call, verdict) == ""


@pytest.mark.parametrize(
    ("pattern", "command", "expected"),
    [
        ("Bash(touch *)", "touch src/a", Allow),
        ("Bash(touch *)", "touch /home/me/.bashrc", Ask),
        ("Bash(touch *)", "touch ~/.bashrc", Ask),
        ("Bash(touch *)", "touch ../other/a", Ask),
        ("Bash(chmod *)", "chmod -R 777 a", Ask),
        ("Bash(git checkout *)", "git checkout main", Allow),
    ],
)
def test_what_was_granted_at_a_question_covers_no_risky_call_and_no_other_folder(
    pattern: str, command: str, expected: type[Verdict]
) -> None:
    assert isinstance(judged(command, grants=(pattern,)), expected)


def test_nothing_is_offered_where_a_grant_would_not_answer_the_question() -> None:
    call = ToolCall(id="t", name="Bash", input={"command": "npm test"})
    for rules in ({"require_approval": True}, {"permission_mode": "default"}, {"require_approval": ["npm test"]}):
        policy = Policy(mode="full", workspace=("/ws",), rules=resolve([Layer("global", rules_of(rules))]))
        verdict = decide(policy, call)
        assert isinstance(verdict, Ask)
        assert offered(policy, call, verdict) == ""
    edit = ToolCall(id="t", name="Write", input={"file_path": "/ws/a"})
    policy = Policy(mode="default", workspace=("/ws",))
    assert offered(policy, edit, decide(policy, edit)) == ""
