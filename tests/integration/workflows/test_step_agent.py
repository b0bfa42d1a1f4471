"""What the agent and llm steps ask of a run: each parameter, the step's defaults, and whose configuration holds."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core import attachments
from leadrope.core.request import RunRequest
from leadrope.providers.claude_code import credentials, failures
from leadrope.runs.service import Service
from leadrope.runtime.sandboxing.access import Access, SharedFolder
from leadrope.workflows.steps import agent
from leadrope.workflows.steps.base import StepFailed
from scripted_doors import asked_of
from step_place import Here, do, refused

SANDBOX = {
    "enabled": True,
    "autoAllowBashIfSandboxed": False,
    "excludedCommands": ["docker"],
    "network": {"allowLocalBinding": True, "allowUnixSockets": ["/run/a.sock"]},
    "ignoreViolations": {"*": ["/etc/hosts"]},
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def request_of(here: Here, folder: Path, kind: str, **given: Any) -> RunRequest:
    result = {"result": "done", "structured_output": {"n": 1}} if "output_schema" in given else {"result": "done"}
    return (await asked_of(here, folder, result, kind, **{"prompt": "go", **given}))[1]


async def test_the_defaults_of_the_step(here: Here, tmp_path: Path) -> None:
    here.timeout_s = 300
    request = await request_of(here, tmp_path, "agent")
    assert (request.provider, request.model, request.mode) == ("claude-code", "sonnet", "default")
    assert (request.max_turns, request.max_thinking_tokens, request.schema_retries) == (50, 8000, 1)
    assert (request.billing, request.tools, request.disallowed_tools) == ("subscription_only", None, ())
    assert (request.limits.wall_s, request.cwd) == (300, str(here.workspace / "."))


@pytest.mark.parametrize(
    ("name", "value", "field", "wanted"),
    [
        ("output_schema", SCHEMA, "output_schema", SCHEMA),
        ("model", "opus", "model", "opus"),
        ("fallback_model", "haiku", "fallback_model", "haiku"),
        ("purpose", "review", "purpose", "review"),
        ("purpose", "review", "model", None),
        ("effort", "high", "effort", "high"),
        ("allowed_tools", ["Read"], "tools", ("Read",)),
        ("disallowed_tools", ["Bash(rm *)"], "disallowed_tools", ("Bash(rm *)",)),
        ("mode", "plan", "mode", "plan"),
        ("max_turns", 7, "max_turns", 7),
        ("max_thinking_tokens", 1000, "max_thinking_tokens", 1000),
        ("system_prompt", "You are.", "system_prompt", "You are."),
        ("append_system_prompt", "Also.", "append_system_prompt", "Also."),
        ("resume", "12345678-1234-1234-1234-123456789012", "resume", "12345678-1234-1234-1234-123456789012"),
        ("schema_retries", 3, "schema_retries", 3),
        ("sandbox", SANDBOX, "agent_sandbox", SANDBOX),
        ("sandbox", "read-only", "sandbox", "read-only"),
        ("use_api_key", True, "billing", "api_key"),
        ("use_api_key", False, "billing", "subscription_only"),
    ],
)
async def test_every_parameter_reaches_the_run(
    here: Here, tmp_path: Path, name: str, value: Any, field: str, wanted: Any
) -> None:
    # The scripted agent knows no sessions and has no key; what it was asked counts.
    with contextlib.suppress(errors.LeadropeError):
        await request_of(here, tmp_path, "agent", **{name: value})
    assert getattr(here.service.requests[0], field) == wanted


async def test_more_folders_are_seen_from_the_workflows_folder(here: Here, tmp_path: Path) -> None:
    for name in ("shared", "other"):
        (tmp_path / name).mkdir()
    given = ["../shared", str(tmp_path / "other")]
    here.access = Access(folders=(SharedFolder(path=str(tmp_path)),))
    with contextlib.suppress(errors.LeadropeError):
        await request_of(here, tmp_path, "agent", extra_dirs=given)
    assert here.service.requests[0].extra_dirs[:2] == (f"{here.workspace}/../shared", str(tmp_path / "other"))


async def test_how_hard_a_model_thinks(here: Here, tmp_path: Path) -> None:
    request = await request_of(here, tmp_path, "llm", effort="high", max_thinking_tokens=4000)
    assert (request.effort, request.max_thinking_tokens) == ("high", 4000)


AGENTS = """
[run]
max_turns = 3
[agents.reviewer]
model = "opus"
mode = "plan"
max_turns = 7
billing = "api_key"
system_prompt = "You review."
[agents.reviewer.policy]
max_tool_calls = 4
"""


async def test_a_saved_agent_fills_what_the_step_leaves_out(here: Here, tmp_path: Path) -> None:
    """The step's own defaults are no word of its author's: they give way to the agent."""
    (tmp_path / ".config/leadrope").mkdir(parents=True)
    (tmp_path / ".config/leadrope/config.toml").write_text(AGENTS)
    with contextlib.suppress(errors.LeadropeError):
        await request_of(here, tmp_path, "agent", agent="reviewer")
    request = here.service.requests[0]
    assert (request.agent, request.agent_from, request.model, request.mode) == ("reviewer", "config", "opus", "plan")
    assert (request.max_turns, request.billing, request.max_thinking_tokens) == (7, "api_key", 8000)
    with contextlib.suppress(errors.LeadropeError):
        await request_of(here, tmp_path, "agent", agent="reviewer", model="haiku", mode="edit", use_api_key=False)
    request = here.service.requests[0]
    assert (request.model, request.mode, request.billing) == ("haiku", "edit", "subscription_only")
    assert request.system_prompt == "You review."


async def test_an_unknown_agent_is_refused_before_anything_starts(here: Here, tmp_path: Path) -> None:
    with pytest.raises(errors.BadValue, match="there is no agent 'ghost'"):
        await request_of(here, tmp_path, "agent", agent="ghost")
    assert here.service.requests == []


async def test_a_sandbox_that_a_template_gave_is_checked_when_it_is_known(here: Here) -> None:
    with pytest.raises(msgspec.ValidationError, match="allowLocalBindings"):
        await do(here, "agent", {"s": {"network": {"allowLocalBindings": True}}}, prompt="go", sandbox="${s}")


@pytest.mark.parametrize(
    ("configured", "left_out"),
    [
        (None, "subscription_only"),
        ("subscription", "subscription_only"),
        ("subscription_only", "subscription_only"),
        ("api_key", "api_key"),
        ("auto", "auto"),
    ],
)
@pytest.mark.parametrize("kind", ["agent", "llm", "structure"])
async def test_a_key_pays_only_where_the_step_or_the_users_configuration_says_so(
    here: Here, tmp_path: Path, kind: str, configured: str | None, left_out: str
) -> None:
    (tmp_path / ".config/leadrope").mkdir(parents=True)
    if configured is not None:
        (tmp_path / ".config/leadrope/config.toml").write_text(f'[run]\nbilling = "{configured}"\n')
    said = {"text": "x", "mode": "ai"} if kind == "structure" else {"prompt": "go"}
    for given, wanted in (
        ({}, left_out),
        ({"use_api_key": False}, "subscription_only"),
        ({"use_api_key": True}, "api_key"),
    ):
        with contextlib.suppress(errors.LeadropeError):  # the scripted agent's answer is no rows
            await asked_of(here, tmp_path, {"result": "done"}, kind, **said, **given)
        assert here.service.requests[0].billing == wanted, given


@pytest.mark.parametrize(
    "hint",
    [
        credentials.not_authenticated(credentials.NothingToForward(billing="subscription_only")).hint,
        credentials.not_authenticated(credentials.NothingToForward(billing="subscription_only", unused_key="K")).hint,
        failures.NOT_AUTHENTICATED.hint,
    ],
)
def test_how_to_pay_by_key_is_told_with_the_words_of_a_step(hint: str) -> None:
    told = agent.in_words_of_a_step(hint) or ""
    assert "`use_api_key: true`" in told
    assert "billing" not in told


async def test_a_folder_seen_from_the_workspace_or_from_home(here: Here, tmp_path: Path) -> None:
    (here.workspace / "inner").mkdir()
    (tmp_path / "project").mkdir()
    here.access = Access(folders=(SharedFolder(path=str(tmp_path / "project")),))
    for said, real in (("inner", here.workspace / "inner"), ("~/project", tmp_path / "project")):
        assert (await request_of(here, tmp_path, "agent", cwd=said)).cwd == str(real)


async def test_a_model_has_nothing_in_its_hands_whatever_the_configuration_says(here: Here, tmp_path: Path) -> None:
    (tmp_path / ".config/leadrope").mkdir(parents=True)
    (tmp_path / ".config/leadrope/config.toml").write_text(
        '[run]\nmodel = "opus"\ntools = ["Bash"]\nconnections = ["docs"]\nextra_dirs = ["/tmp"]\n'
        'append_system_prompt = "Be brief."\n[connections.docs]\ncommand = "docs-server"\n'
    )
    request = await request_of(here, tmp_path, "llm")
    assert (request.tools, request.connections, request.extra_dirs, request.append_system_prompt) == ((), {}, (), None)
    assert (request.model, request.mode, request.persist_session, request.max_turns) == ("haiku", "dontAsk", False, 1)


async def test_a_time_out_is_told_with_the_words_of_a_step(here: Here, tmp_path: Path) -> None:
    here.timeout_s = 0.5
    with pytest.raises(StepFailed) as caught:
        await asked_of(here, tmp_path, None, "agent", prompt="go")
    assert (caught.value.kind, caught.value.can_heal) == ("timed_out", True)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("Raise its `timeout`")


async def test_files_and_connections_go_along(here: Here, tmp_path: Path) -> None:
    (tmp_path / ".config/leadrope").mkdir(parents=True)
    (tmp_path / ".config/leadrope/config.toml").write_text('[connections.docs]\ncommand = "docs-server"\n')
    (here.workspace / "notes.txt").write_text("hello")
    with contextlib.suppress(errors.LeadropeError):  # there is no such server
        await request_of(here, tmp_path, "agent", attachments=["notes.txt"], connections=["docs"])
    request = here.service.requests[0]
    assert request.attachments == (str(here.workspace / "notes.txt"),)
    assert [(name, server.command) for name, server in request.connections.items()] == [("docs", "docs-server")]


async def test_the_outputs_and_the_title_hold_no_secret_of_the_run(here: Here, tmp_path: Path) -> None:
    secret = "tangerine-window-circus"
    (tmp_path / ".config/leadrope").mkdir(parents=True)
    (tmp_path / ".config/leadrope/config.toml").write_text(
        f'[run]\nsecret_variables = ["DSN"]\nvariables = {{ DSN = "{secret}" }}\n'
    )
    prompt = f"{'use it ' * 10}{secret}"
    done, _ = await asked_of(here, tmp_path, {"result": f"It is {secret}."}, "agent", prompt=prompt)
    assert done.outputs["result"] == "It is [redacted]."
    kept = b"".join(path.read_bytes() for path in (tmp_path / "leadrope").rglob("*") if path.is_file())
    assert b"use it" in kept
    assert secret[:4].encode() not in kept, "not its beginning either, where the title is cut"


async def test_what_a_model_is_told(here: Here, tmp_path: Path) -> None:
    (here.workspace / "notes.txt").write_text("hello")
    request = await request_of(
        here, tmp_path, "llm", system="Be brief.", images=["notes.txt"], model="opus", schema_retries=0
    )
    assert (request.system_prompt, request.model, request.schema_retries) == ("Be brief.", "opus", 0)
    assert request.attachments == (str(here.workspace / "notes.txt"),)
    typed = await request_of(here, tmp_path, "llm", output_schema=SCHEMA)
    assert (typed.output_schema, typed.max_turns) == (SCHEMA, 4)


@pytest.mark.parametrize("kind", ["agent", "llm"])
async def test_a_prompt_that_is_empty_or_too_long_starts_nothing(here: Here, kind: str) -> None:
    empty = await refused(here, kind, {"read": {"content": " \n"}}, prompt="${read.content}")
    assert (empty.kind, empty.message) == (
        "empty_prompt",
        "the prompt of 'here' is empty: ${read.content} gave nothing",
    )
    long = await refused(here, kind, prompt="x" * 1_000_001)
    assert (long.kind, "1000001 characters; at most 1000000" in long.message) == ("prompt_too_long", True)


async def test_the_longest_prompt_is_a_setting(here: Here, tmp_path: Path) -> None:
    assert (await refused(here, "agent", prompt="xxxx", max_prompt_chars=3)).kind == "prompt_too_long"
    assert (await request_of(here, tmp_path, "agent", prompt="xxx", max_prompt_chars=3)).prompt == "xxx"


async def test_a_run_that_had_ended_before_a_crash_is_not_done_again(here: Here, tmp_path: Path) -> None:
    """The unit begins anew with the same names for its runs. Another prompt is another run."""
    done, _ = await asked_of(here, tmp_path, {"result": "done", "total_cost_usd": 0.25}, "agent", prompt="go")
    begun_again = Here(here.workspace)
    begun_again.environ = here.environ
    async with Service(here.environ) as service:
        begun_again.service = service
        again = await do(begun_again, "agent", prompt="go")
        assert [run.id for run in await service.listing()] == [done.run_id]
        assert await service.known(done.run_id or "") is not None
    assert (again.outputs["result"], again.run_id, again.cost_usd) == ("done", done.run_id, done.cost_usd)
    other, _ = await asked_of(Here(here.workspace), tmp_path, {"result": "new"}, "agent", prompt="something else")
    assert (other.outputs["result"], other.run_id == done.run_id) == ("new", False)


@pytest.mark.parametrize(("kind", "parameter"), [("agent", "attachments"), ("llm", "images")])
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("../outside.txt", "outside_workspace"),
        ("/etc/hostname", "outside_workspace"),
        ("~/outside.txt", "bad_input"),
        ("link.txt", "outside_workspace"),
        ("linked/outside.txt", "outside_workspace"),
        ("blocked.txt", "denied"),
    ],
)
async def test_only_files_of_the_workspace_that_may_be_read_are_attached(
    here: Here, tmp_path: Path, kind: str, parameter: str, name: str, wanted: str
) -> None:
    (tmp_path / "outside.txt").write_text("private")
    (here.workspace / "blocked.txt").write_text("private")
    (here.workspace / "sub").mkdir()
    (here.workspace / "link.txt").symlink_to(tmp_path / "outside.txt")
    (here.workspace / "linked").symlink_to(tmp_path)
    here.policies = ({"blocked_paths": ["blocked.txt"]},)
    cwd = {"cwd": "sub"} if kind == "agent" else {}
    wrong = await refused(here, kind, prompt="go", **{parameter: [name]}, **cwd)
    assert wrong.kind == wanted


async def test_a_file_that_becomes_a_link_later_is_not_read(here: Here, tmp_path: Path) -> None:
    """The agent starts after the step has looked; its own folder is another one."""
    (here.workspace / "sub").mkdir()
    (here.workspace / "notes.txt").write_text("hello")
    request = await request_of(here, tmp_path, "agent", attachments=["notes.txt"], cwd="sub")
    assert [one.text for one in attachments.of_request(request)] == ["hello"]
    (tmp_path / "outside.txt").write_text("private")
    (here.workspace / "notes.txt").unlink()
    (here.workspace / "notes.txt").symlink_to(tmp_path / "outside.txt")
    with pytest.raises(errors.BadAttachment, match="leads out of the folder"):
        attachments.of_request(request)
