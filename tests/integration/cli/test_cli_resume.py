"""`run --resume`, `--fork` and `--continue`: the run continues with the settings that it had."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123"


async def newest(desk: Any) -> dict[str, Any]:
    """The request of the run that was made last."""
    found: dict[str, Any] = json.loads((await desk.leadrope("runs", "show", "last", "-o", "json")).out)["request"]
    return found


def repository(folder: Path) -> None:
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
    (folder / "old.txt").write_text("old\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=folder, check=True)


SETTINGS = ("--mode", "edit", "--tools", "Read,Edit", "--max-turns", "7", "--disallowed-tools", "WebFetch")


@pytest.mark.parametrize("way", ["run", "session", "last", "continue", "fork"])
async def test_the_settings_of_a_run_are_kept(desk: Any, playing: Any, way: str) -> None:
    (desk.project / "rules.toml").write_text('[policy]\nblocked_commands = ["terraform"]\n')
    async with playing({"text": "I remember."}, {"text": "42.", "expect": {"contains": "number 42"}}) as model:
        given = (*SETTINGS, "--budget", "3", "--policy", "rules.toml", "--base-url", model.url)
        first = json.loads((await desk.leadrope("run", "the number 42", "-o", "json", *given)).out)
        before = await newest(desk)
        named = {
            "run": ("--resume", first["run_id"][:8]),
            "session": ("--resume", first["session_id"]),
            "last": ("--resume", "last"),
            "continue": ("--continue",),
            "fork": ("--fork", first["run_id"][:6]),
        }
        again = await desk.leadrope("run", "which?", *named[way])
        assert (again.code, again.out) == (0, "42.\n"), again.err
        after = await newest(desk)
    told = f"settings of run {first['run_id'][:8]}: tools Read, Edit, disallowed tools WebFetch, mode edit"
    assert again.err.startswith(told), again.err
    assert f"max turns 7, budget usd 3.0, base url {model.url}\n" in again.err
    for field in ("mode", "tools", "disallowed_tools", "max_turns", "policy_files", "base_url", "limits", "cwd"):
        assert after[field] == before[field], field
    assert after["prompt"] == "which?"


async def test_flags_come_before_what_is_kept(desk: Any, playing: Any) -> None:
    (desk.project / "rules.toml").write_text('[policy]\nblocked_commands = ["terraform"]\n')
    (desk.project / "more.toml").write_text('[policy]\nblocked_commands = ["kubectl"]\n')
    turns = ({"text": "One."}, {"text": "Two."})
    async with playing(*turns) as model:
        given = (*SETTINGS, "--budget", "3", "--idle-secs", "50", "--policy", "rules.toml", "--base-url", model.url)
        await desk.leadrope("run", "go", "-q", *given)
        flags = ("--mode", "plan", "--tools", "Read", "--budget", "4", "--policy", "more.toml", "--max-turns", "9")
        again = await desk.leadrope("run", "more", "--resume", "last", "-q", *flags, "--disallowed-tools", "Bash")
        assert (again.code, again.err) == (0, ""), "quiet says nothing of it"
        after = await newest(desk)
    assert after["mode"] == "plan"
    assert (after["tools"], after["max_turns"]) == (["Read"], 9)
    assert (after["limits"]["budget_usd"], after["limits"]["idle_s"]) == (4, 50)
    assert after["disallowed_tools"] == ["WebFetch", "Bash"], "what was prohibited stays so"
    assert [Path(name).name for name in after["policy_files"]] == ["rules.toml", "more.toml"], "rules only tighten"


async def test_nothing_is_said_where_nothing_is_different(desk: Any, playing: Any) -> None:
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    async with playing({"text": "One."}, {"text": "Two."}, {"text": "Three."}) as model:
        config.write_text(f'[run]\nmode = "edit"\nbase_url = "{model.url}"\n')
        await desk.leadrope("run", "go")
        same = await desk.leadrope("run", "more", "--continue")
        config.write_text(f'[run]\nmode = "plan"\nbase_url = "{model.url}"\ndisallowed_tools = ["Bash"]\n')
        other = await desk.leadrope("run", "and more", "--continue")
        after = await newest(desk)
    assert "settings of run" not in same.err
    assert re.search(r"^settings of run \w{8}: mode edit$", other.err, re.MULTILINE), other.err
    assert after["mode"] == "edit"
    assert after["disallowed_tools"] == ["Bash"], "what the config prohibits now is prohibited"


async def test_a_worktree_is_kept_and_an_answers_schema_is_not(desk: Any, playing: Any) -> None:
    repository(desk.project)
    schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    answer = {"name": "StructuredOutput", "input": {"n": 1}}
    touch = {"name": "Bash", "input": {"command": "touch second.txt"}}
    third = {"name": "Bash", "input": {"command": "touch third.txt"}}
    turns = ({"tool": answer}, {"tool": touch}, {"text": "Done again."}, {"tool": third}, {"text": "In a chat."})
    async with playing(*turns) as model:
        given = ("--mode", "full", "--worktree", "--schema", schema, "--base-url", model.url)
        first = await desk.leadrope("run", "go", *given)
        assert first.code == 0, first.err
        again = await desk.leadrope("run", "and another one", "--resume", "last")
        assert (again.code, again.out) == (0, "Done again.\n"), again.err
        assert "1 file changed in its worktree" in again.err
        assert "second.txt" in (await desk.leadrope("runs", "diff")).out
        async with desk.at_terminal("chat", "a third one", "--resume", "last") as terminal:
            await terminal.reads("In a chat.", "> ")
            terminal.types("\x04")
            assert await terminal.ends() == 0
    assert not (desk.project / "second.txt").exists(), "it would be the user's checkout"
    assert not (desk.project / "third.txt").exists()


async def test_secrets_are_found_again_or_asked_for(desk: Any, playing: Any) -> None:
    (desk.home / "key").write_text(KEY)
    call = {"name": "Bash", "input": {"command": f'printf "%s" "$DSN" > {desk.marker}', "description": "use it"}}
    turns = ({"text": "One."}, {"tool": call}, {"text": "Two."}, {"text": "Three."})
    async with playing(*turns) as model:
        credential = ("--billing", "api_key", "--credential-file", str(desk.home / "key"))
        given = ("--mode", "full", *credential, "--secret", "DSN=opensesame-1", "--base-url", model.url)
        first = await desk.leadrope("run", "go", *given)
        assert first.code == 0, first.err
        refused = await desk.leadrope("run", "more", "--resume", "last")
        assert refused.code == 2
        assert "was started with DSN, and secrets are not stored" in refused.err
        assert "Give it again: --secret DSN." in refused.err
        again = await desk.leadrope("run", "more", "--resume", "last", "--secret", "DSN=opensesame-2")
        assert again.code == 0, again.err
        assert desk.marker.read_text() == "opensesame-2"
        shell = await desk.leadrope("run", "still more", "--resume", "last", DSN="opensesame-3")
        assert shell.code == 0, shell.err
    for ended in (again, shell):
        assert "billing api_key" in ended.err
        assert "opensesame" not in ended.err + ended.out
        assert KEY not in ended.err


async def test_a_chat_keeps_the_settings_and_its_hint_works_as_it_is(desk: Any, playing: Any) -> None:
    (desk.home / "key").write_text(KEY)
    turns = ({"text": "I remember."}, {"text": "It was 42.", "expect": {"contains": "number 42"}})
    async with playing(*turns) as model:
        given = ("--mode", "plan", "--billing", "api_key", "--credential-file", str(desk.home / "key"))
        async with desk.at_terminal(
            "chat", "the number 42", *given, "--tools", "Read", "--base-url", model.url
        ) as terminal:
            await terminal.reads("I remember.")
            terminal.types("\x04")
            assert await terminal.ends() == 0
        (hint,) = re.findall(r"resume with: leadrope (.*)\r\n", terminal.seen)
        async with desk.at_terminal(*shlex.split(hint), COLUMNS="200") as terminal:
            await terminal.reads("settings of run ", "tools Read", "> ")
            await terminal.asks("which?\r", "It was 42.")
            terminal.types("\x04")
            assert await terminal.ends() == 0
    assert (await newest(desk))["tools"] == ["Read"]


async def test_the_resume_command_of_an_ending_works_as_it_is(desk: Any, playing: Any) -> None:
    settings = desk.home / ".config" / "leadrope" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[service]\nidle_s = 1\n")
    async with playing({"tool": desk.touch}, {"text": "Nothing."}, {"text": "I continue."}) as model:
        ended = await desk.leadrope("run", "go", "--mode", "dontAsk", "--base-url", model.url)
        assert ended.code == 3
        (hint,) = re.findall(r" · leadrope (runs resume .*)\n", ended.err)
        resumed = await desk.leadrope(*shlex.split(hint))
        assert resumed.code == 0, resumed.err
        followed = await desk.leadrope("runs", "logs", "-f", resumed.out.strip())
        assert "I continue." in followed.out, followed.err
    assert (await newest(desk))["mode"] == "dontAsk"
