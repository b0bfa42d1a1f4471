"""The options of a run, stated once beside their fields: who may set what, and how each is spelled."""

from __future__ import annotations

import pytest

from leadrope.cli import options
from leadrope.cli.agents import edit
from leadrope.core.config import RunDefaults
from leadrope.core.request import OPTIONS, Limits, RunRequest, flag_of
from leadrope.core.request_parts.option import RequestOption, options_of, type_of
from leadrope.policy.files.project import RUN_KEYS
from leadrope.workflows.steps.agent import AgentConfig


def test_every_field_that_a_person_sets_is_an_option() -> None:
    without = set(RunRequest.__struct_fields__) - set(options_of(RunRequest))
    assert without == {"prompt", "attachment_root", "agent_from", "policy", "policies"}
    assert set(options_of(Limits)) == set(Limits.__struct_fields__)


@pytest.mark.parametrize("field", OPTIONS)
def test_help_is_sentences_without_the_default(field: str) -> None:
    option = OPTIONS[field]
    for text in filter(None, (option.help, option.terminal)):
        assert text.endswith(".")
        assert "default" not in text.lower().replace("default:", "")
    assert (option.low is None) == (option.high is None)


def test_an_error_spells_each_option_as_its_flag() -> None:
    spelled: dict[str, str] = {}
    for flag in options.FLAGS:
        if flag.field:
            spelled.setdefault(flag.field, flag.spelling)
    assert spelled == {field: flag_of(field) for field, option in OPTIONS.items() if option.flag is not None}
    assert (flag_of("access.folders"), flag_of("no_option")) == ("--add-dir", "--no-option")


def test_a_project_sets_the_model_and_prompts_and_nothing_else() -> None:
    assert set(RUN_KEYS) == {
        *("model", "fallback_model", "purpose", "effort"),
        *("system_prompt", "append_system_prompt"),
    }


def test_what_belongs_to_one_run_is_no_key_of_the_configuration() -> None:
    keys = set(RunDefaults.__struct_fields__) - {"idle_close_s"}
    assert keys == {field for field, option in OPTIONS.items() if option.config and "." not in field}
    assert not keys & {"attachments", "session_id", "resume", "fork", "credential", "credential_kind", "policy_files"}


def test_a_new_agent_takes_no_secret_and_no_other_agent() -> None:
    offered = {flag.field for flag in edit.FLAGS}
    assert not offered & {"agent", "secret_variables", "credential", "resume"}
    assert {"model", "tools", "limits.budget_usd"} <= offered


def test_a_remote_caller_cannot_name_what_is_the_machines() -> None:
    refused = {field for field, option in OPTIONS.items() if option.remote == "no"}
    assert {"binary", "base_url", "credential", "credential_kind", "billing", "broker"} <= refused
    assert {"cwd", "extra_dirs", "policy_files", "agent_sandbox"} <= refused
    assert {OPTIONS[field].remote for field in ("provider", "agent", "connections", "variables")} == {"named"}
    assert {OPTIONS[field].remote for field in ("sandbox", "network", "limits", "limits.budget_usd")} == {"lower"}
    assert OPTIONS["attachments"].remote == "upload"


def test_a_step_has_the_options_that_say_so_with_the_type_of_the_request() -> None:
    shared = {field for field, option in OPTIONS.items() if option.step}
    assert shared <= set(AgentConfig.__struct_fields__)
    assert {"purpose", "allow", "resume"} <= shared


def test_the_range_follows_the_sentence_that_it_belongs_to() -> None:
    bounded = RequestOption("How often.", "limits", low=0, high=1000)
    assert bounded.in_range(bounded.help) == "How often, 0 to 1,000."
    assert bounded.in_range("How often. Or never.") == "How often. Or never. 0 to 1,000."


def test_the_type_of_an_option_is_that_of_its_field_without_none() -> None:
    assert (type_of(RunRequest, "max_turns"), type_of(RunRequest, "instructions")) == (int, bool)
    assert type_of(RunRequest, "tools") == tuple[str, ...]
