"""config.toml: what it may say, how a mistake is told, and how layers become one request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core import config, models
from leadrope.core.request import Limits, McpServer, RunRequest
from leadrope.core.request_forms import LimitDefaults
from leadrope.core.secrets.redaction import Secret

FULL = """
forward_env = ["HTTPS_PROXY", "NODE_EXTRA_CA_CERTS"]

[run]
model = "opus"
mode = "edit"
tools = ["Read", "Grep"]
billing = "auto"
connections = ["files"]
[run.limits]
idle_s = 60
budget_usd = 2.5
[run.variables]
STAGE = "dev"
COLOR = "no"

[profiles.review]
mode = "plan"
connections = ["files", "web"]
[profiles.review.limits]
wall_s = 900
[profiles.review.variables]
STAGE = "review"

[connections.files]
command = "files-server"
args = ["--root", "."]
[connections.web]
type = "http"
url = "https://x.test/mcp"

[models]
opus = "claude-opus-next"
local = "qwen"
"""


def test_a_full_file() -> None:
    loaded = config.parse(FULL)
    assert loaded.forward_env == ("HTTPS_PROXY", "NODE_EXTRA_CA_CERTS")
    assert loaded.connections["files"] == McpServer(command="files-server", args=("--root", "."))
    tiers = loaded.tiers()
    assert models.resolve_model("opus", None, tiers) == "claude-opus-next"
    assert models.resolve_model("local", None, tiers) == "qwen"
    assert models.resolve_model(None, "chat", tiers) == "claude-haiku-5-5"


def test_layers_in_order() -> None:
    loaded = config.parse(FULL)
    files = McpServer(command="files-server", args=("--root", "."))
    web = McpServer(type="http", url="https://x.test/mcp")
    base = RunRequest(
        prompt="p",
        model="opus",
        mode="edit",
        tools=("Read", "Grep"),
        billing="auto",
        connections={"files": files},
        limits=Limits(idle_s=60, budget_usd=2.5),
        variables={"STAGE": "dev", "COLOR": "no"},
    )
    review = msgspec.structs.replace(
        base,
        mode="plan",
        connections={"files": files, "web": web},
        limits=Limits(idle_s=60, budget_usd=2.5, wall_s=900),
        variables={"STAGE": "review", "COLOR": "no"},
    )
    assert config.apply(loaded, None, {"prompt": "p"}) == base
    assert config.apply(loaded, "review", {"prompt": "p"}) == review
    called = {
        "prompt": "p",
        "mode": "full",
        "model": None,
        "limits": {"wall_s": 1},
        "connections": ["web"],
        "tools": (),
    }
    assert config.apply(loaded, "review", called) == msgspec.structs.replace(
        review,
        mode="full",
        model=None,
        tools=(),
        connections={"web": web},
        limits=Limits(idle_s=60, budget_usd=2.5, wall_s=1),
    )


def test_labels_of_all_layers_are_kept() -> None:
    """A bill by label must not lose the user's own label to one of the call's."""
    text = '[run.labels]\nteam = "a"\nkind = "run"\n[profiles.p.labels]\nkind = "profile"\n'
    made = config.apply(config.parse(text), "p", {"prompt": "x", "labels": {"ticket": "7"}})
    assert made.labels == {"team": "a", "kind": "profile", "ticket": "7"}


def test_values_of_our_own_pass_through() -> None:
    secret, server = Secret("sk-ant-x"), McpServer(command="c")
    request = config.apply(
        config.Config(), None, {"prompt": "p", "credential": secret, "connections": {"s": server}, "limits": Limits()}
    )
    assert request == RunRequest(prompt="p", credential=secret, connections={"s": server})


def test_no_layer_at_all_gives_the_built_in_defaults() -> None:
    assert config.apply(config.Config(), None, {"prompt": "p"}) == RunRequest(prompt="p")
    assert config.apply(config.Config(), None, {}).prompt == ""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Limits()),
        ({"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "1500"}, Limits(idle_s=1.5)),
        ({"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "0", "LEADROPE_SPAWN_MAX_MS": "60000"}, Limits(idle_s=0, wall_s=60)),
        ({"LEADROPE_SPAWN_MAX_MS": ""}, Limits()),
    ],
)
def test_clocks_of_the_environment(environ: dict[str, str], expected: Limits) -> None:
    assert config.apply(config.Config(), None, {"prompt": "p"}, environ=environ).limits == expected


def test_clocks_of_the_environment_stand_above_run_and_below_profile_and_call() -> None:
    loaded = config.parse("[run.limits]\nidle_s = 1\n[profiles.p.limits]\nidle_s = 3")
    environ = {"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "2000"}
    assert config.apply(loaded, None, {}, environ=environ).limits.idle_s == 2
    assert config.apply(loaded, "p", {}, environ=environ).limits.idle_s == 3
    assert config.apply(loaded, "p", {"limits": {"idle_s": 4}}, environ=environ).limits.idle_s == 4


@pytest.mark.parametrize("name", ["LEADROPE_SPAWN_IDLE_TIMEOUT_MS", "LEADROPE_SPAWN_MAX_MS"])
@pytest.mark.parametrize("value", ["5 min", "-1", "1.5", "1e3", "inf"])
def test_a_clock_that_is_no_number_is_named(name: str, value: str) -> None:
    with pytest.raises(errors.BadConfig, match=name):
        config.env_limits({name: value})


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("[runs]", "runs is not a known key", "run"),
        ('[run]\nmodle = "x"', "run.modle is not a known key", "model"),
        ("[run.limits]\nidle = 5", "run.limits.idle is not a known key", "idle_s"),
        ("[profiles.a]\nmax_turn = 5", "profiles.a.max_turn is not a known key", "max_turns"),
        ('[connections.a]\ncommnad = "x"', "connections.a.commnad is not a known key", "command"),
        ('[run]\nprompt = "x"', "run.prompt is not a known key", None),
        ('[run]\ncredential = "sk-ant-secret-value"', "run.credential is not a known key", ".env"),
        ('[run]\nmax_turns = "5"', "run.max_turns: expected a whole number, got text", None),
        ("[run.limits]\nidle_s = true", "run.limits.idle_s: expected a number", None),
        ("run = 5", "run: expected a table", None),
        ("profiles = []", "profiles: expected a table", None),
        ("[profiles]\na = 1", "profiles", None),
        ('forward_env = "HTTPS_PROXY"', "forward_env: expected a list", None),
        ("[models]\nopus = 5", "models", None),
        ("[connections.a]", "connections.a: needs either a command", None),
        ('[connections."a b"]\ncommand = "x"', 'connections."a b": the name', None),
        (
            '[run]\nconnections = ["fils"]\n[connections.files]\ncommand="x"',
            "no connection 'fils'",
            "files",
        ),
        ("[profiles.a]\nconnections = ['x']", "profiles.a.connections", None),
        ("[run", "is not TOML", None),
        pytest.param("run = " + "[" * 100_000, "nested too deeply", None, id="too deep"),
    ],
)
def test_a_mistake_is_told_by_file_and_key(text: str, place: str, hint: str | None) -> None:
    with pytest.raises(errors.BadConfig) as caught:
        config.parse(text, "/my/config.toml")
    assert "/my/config.toml" in str(caught.value)
    assert place in str(caught.value)
    assert hint is None or hint in re.split(r"[ ?]", caught.value.hint or "")
    assert "sk-ant-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[run]\nmode = "edit"\nwalls = "on"', "c.toml:3: run.walls: 'on' is not known"),
        ('[run]\nmode = "edit"\n[run.sandbox]\nenabledd = true', "c.toml:4: run.sandbox.enabledd is not a known key"),
        ('[profiles.a]\nmode = "edit"\nwalls = 3', "c.toml:3: profiles.a.walls: expected text"),
        ('[run]\nwalls = "off"\nsandbox = "off"', "c.toml:2: run.walls is not a known key\nIt is called sandbox now."),
        ('[run]\nwalls = "off"\nmodle = "x"', "c.toml:3: run.modle is not a known key"),
    ],
)
def test_a_mistake_under_an_earlier_name_is_told_as_it_is_written(text: str, told: str) -> None:
    with pytest.raises(errors.BadConfig) as caught:
        config.parse(text, "c.toml")
    assert f"{caught.value.message}\n{caught.value.hint}".startswith(told)


def test_a_mistake_of_an_agent_under_an_earlier_name_too() -> None:
    (broken,) = config.parse('[agents.a]\nmode = "plan"\nwalls = 3', "c.toml").broken_agents.values()
    assert broken.message.startswith("c.toml:3: agents.a.walls: expected text")


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"max_turns": "5"}, "max_turns"),
        ({"limits": {"idle": 5}}, "limits.idle"),
        ({"modle": "x"}, "modle"),
        ({"tools": "Bash"}, "tools"),
        ({"credential": "sk-ant-plain"}, "credential"),
        ({"connections": "web"}, "connections"),
        ({"connections": {"a": {"comand": "x"}}}, "connections"),
    ],
)
def test_a_wrong_override_is_told_by_field(overrides: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.BadValue) as caught:
        config.apply(config.Config(), None, {"prompt": "p"} | overrides)
    assert caught.value.field == field
    assert "sk-ant-plain" not in str(caught.value)


def test_unknown_names_of_a_call_get_a_suggestion() -> None:
    with pytest.raises(errors.BadValue, match="It is called sandbox now"):
        config.apply(config.Config(), None, {"prompt": "x", "walls": "off"})
    with pytest.raises(errors.BadValue, match="are called agent_sandbox"):
        config.apply(config.Config(), None, {"prompt": "x", "sandbox": {"enabled": True}})
    loaded = config.parse(FULL)
    with pytest.raises(errors.BadValue, match="Did you mean review"):
        config.apply(loaded, "reveiw", {"prompt": "p"})
    with pytest.raises(errors.BadConfig, match="Did you mean files"):
        config.apply(loaded, None, {"prompt": "p", "connections": ["file"]})


def test_every_field_that_makes_sense_for_more_than_one_run_can_be_set() -> None:
    """A new field of the request must be placed: here, or in this list of what belongs to one run alone."""
    one_run = {
        "prompt",
        "attachments",
        "session_id",
        "resume",
        "fork",
        "credential",
        "credential_kind",
        "agent_from",
        "attachment_root",
    }
    one_run |= {"policy", "policies", "policy_files"}  # a user's own rules stand in [policy]
    defaults = set(config.RunDefaults.__struct_fields__) - {"idle_close_s"}  # a conversation's
    assert defaults | one_run == set(RunRequest.__struct_fields__)
    assert LimitDefaults.__struct_fields__ == Limits.__struct_fields__


def test_a_missing_file_is_empty_unless_somebody_named_it(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    path = tmp_path / ".config/leadrope/config.toml"
    assert config.load(environ) == config.Config(source=str(path))
    with pytest.raises(errors.BadConfig, match=r"no\.toml does not exist"):
        config.load(environ | {"LEADROPE_CONFIG": str(tmp_path / "no.toml")})
    path.parent.mkdir(parents=True)
    path.write_text('[run]\nmodel = "haiku"')
    assert config.load(environ).run.model == "haiku"
    path.write_bytes(b"\xff")
    with pytest.raises(errors.BadConfig, match="cannot be read"):
        config.load(environ)


def test_a_default_number_of_turns_is_one_piece_of_a_run_that_goes_on() -> None:
    settings = config.parse(
        "[run]\nmax_turns = 7\nidle_close_s = 5\nwait_for_limit = true\n\n[profiles.p]\nmax_turns = 8\n"
    )
    assert settings.run.idle_close_s == 5
    plain = config.apply(settings, None, {"prompt": "x"})
    assert (plain.max_turns, plain.wait_for_limit) == (7, True)
    assert config.apply(settings, None, {"prompt": "x", "auto_continue": 2}).max_turns is None
    assert config.apply(settings, None, {"prompt": "x", "auto_continue": 2, "max_turns": 9}).max_turns == 9
    assert config.apply(settings, "p", {"prompt": "x", "auto_continue": 2}).max_turns == 8
    assert config.apply(settings, None, {"prompt": "x", "wait_for_limit": False}).wait_for_limit is False
