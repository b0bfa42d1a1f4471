"""The secrets of a stored request: kept as references, found again where they came from, named where they are lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core.request import McpServer, RunRequest
from leadrope.core.request_secrets import redactor_of
from leadrope.core.secrets.redaction import Redactor, Secret
from leadrope.runs.records import stored_secrets
from leadrope.runs.records.redacted_rows import as_json

VALUE = "s3cret-value-12345"
CONFIG = configs.parse(
    f"""
[run]
variables = {{ FROM_CONFIG = "{VALUE}-c" }}
[profiles.work]
variables = {{ FROM_PROFILE = "{VALUE}-p" }}
[connections.docs]
command = "serve"
env = {{ KEY = "{VALUE}-k" }}
"""
)
DOCS = CONFIG.connections["docs"]
ENV_FILE = {"FROM_DOTENV": f"{VALUE}-d"}


def around(**environ: str) -> stored_secrets.SecretSources:
    return stored_secrets.SecretSources(config=CONFIG, env_file=ENV_FILE, environ=environ)


def kept(request: RunRequest, files: dict[str, str] | None = None) -> tuple[RunRequest, dict[str, Any]]:
    """As the store has it: the redacted request, and the place with the references."""
    redactor = redactor_of(request)
    found = stored_secrets.referenced(request, redactor, around(), files or {})
    place = msgspec.json.decode(msgspec.json.encode({stored_secrets.KEY: found}))
    assert VALUE not in str(place)
    text = as_json(msgspec.structs.replace(request, credential=None), redactor)
    assert VALUE not in text
    return msgspec.json.decode(text, type=RunRequest), place


def again(stored: RunRequest, place: dict[str, Any], *, is_resumed: bool = False, **environ: str) -> RunRequest:
    references = stored_secrets.of_place(place, stored)
    return stored_secrets.resolved(stored, references, around(**environ), is_resumed=is_resumed)


def secret(**variables: str) -> RunRequest:
    return RunRequest(prompt="go", variables={"PLAIN": "p", **variables}, secret_variables=tuple(variables))


@pytest.mark.parametrize(
    "request_",
    [
        secret(),
        secret(FROM_DOTENV=f"{VALUE}-d"),
        secret(FROM_CONFIG=f"{VALUE}-c", FROM_PROFILE=f"{VALUE}-p"),
        RunRequest(prompt="go", connections={"docs": DOCS, "plain": McpServer(command="x")}),
        RunRequest(prompt="go", connections={"mine": McpServer(command="x", env={"KEY": "${FROM_DOTENV}"})}),
        RunRequest(prompt="what does [redacted] mean?", system_prompt="[redacted]", variables={"A": "[redacted]"}),
        RunRequest(prompt="go", labels={"a": "b"}),
    ],
)
def test_a_request_is_whole_again_from_its_references(request_: RunRequest) -> None:
    assert again(*kept(request_)) == request_


def test_a_secret_file_is_read_again(tmp_path: Path) -> None:
    path, key = tmp_path / "dsn", tmp_path / "key"
    path.write_text(f"{VALUE}\n")
    key.write_text(f"{VALUE}-key\n")
    request = msgspec.structs.replace(secret(DSN=VALUE), credential=Secret(f"{VALUE}-key"))
    stored, place = kept(request, {"DSN": str(path), stored_secrets.CREDENTIAL: str(key)})
    found = again(stored, place)
    assert found.variables == request.variables
    assert found.credential is not None
    assert found.credential.reveal() == f"{VALUE}-key"
    path.write_text("another value\n")
    assert again(stored, place).variables["DSN"] == "another value"
    path.unlink()
    with pytest.raises(errors.RequestError, match=r"the secret file .*dsn cannot be read: No such file"):
        again(stored, place)


def test_what_only_a_terminal_knew_is_named_and_can_be_given_by_another_one() -> None:
    request = secret(DSN=VALUE, OTHER=f"{VALUE}-2")
    stored, place = kept(request)
    told = "it needs DSN and OTHER, and secrets are not stored; set DSN and OTHER in your shell"
    with pytest.raises(errors.RequestError, match=told):
        again(stored, place)
    assert again(stored, place, DSN=VALUE, OTHER=f"{VALUE}-2") == request


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"credential": Secret(VALUE)}, "it needs its credential, .*start it anew"),
        ({"system_prompt": f"the key is {VALUE}"}, "it needs its system_prompt"),
        ({"connections": {"mine": McpServer(command="x", env={"K": f"{VALUE}-x"})}}, "it needs its connections mine"),
    ],
)
def test_what_no_shell_can_give_is_lost(fields: dict[str, Any], told: str) -> None:
    request = RunRequest(prompt="go", variables={"DSN": VALUE}, secret_variables=("DSN",), **fields)
    with pytest.raises(errors.RequestError, match=told):
        again(*kept(request), DSN=VALUE)


def test_a_resumed_session_needs_its_first_prompt_no_more() -> None:
    request = RunRequest(
        prompt=f"use {VALUE}", variables={"FROM_DOTENV": f"{VALUE}-d"}, secret_variables=("FROM_DOTENV",)
    )
    redactor = Redactor([VALUE])
    place = {stored_secrets.KEY: stored_secrets.referenced(request, redactor, around(), {})}
    stored = msgspec.json.decode(as_json(request, redactor), type=RunRequest)
    with pytest.raises(errors.RequestError, match="it needs its prompt"):
        again(stored, place)
    assert again(stored, place, is_resumed=True).variables == request.variables


def test_a_request_of_an_earlier_version_has_lost_what_was_masked() -> None:
    stored, _ = kept(secret(DSN=VALUE))
    with pytest.raises(errors.RequestError, match="secrets are not stored"):
        again(stored, {})
    assert again(RunRequest(prompt="go"), {}) == RunRequest(prompt="go")
