"""The web tools: public hosts in every mode, unless the rule `web` says otherwise, and nothing else."""

from __future__ import annotations

import os
from typing import Any, get_args

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, Verdict, decide
from leadrope.policy.resolve import Layer, resolve, rules_of
from leadrope.runtime.gate.machine_facts import MachineFacts

MODES: tuple[Mode, ...] = get_args(Mode)


def judged(
    name: str, rules: dict[str, Any] | None = None, mode: Mode = "default", facts: Facts | None = None, **input_: Any
) -> Verdict:
    policy = Policy(mode=mode, workspace=("/ws",), rules=resolve([Layer("test", rules_of(rules or {}))]))
    return decide(policy, ToolCall(id="t", name=name, input=input_), facts, resolve=os.path.normpath)


@pytest.mark.parametrize("mode", MODES)
def test_public_hosts_and_searches_are_allowed_in_every_mode(mode: Mode) -> None:
    assert judged("WebFetch", mode=mode, url="https://example.com/a?b=c").word == "allow"
    found = judged("WebSearch", mode=mode, query="x")
    assert found.word == "allow"
    assert "granted" not in found.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://localhost:8080/", "localhost is"),
        ("http://127.0.0.1/", "loopback"),
        ("http://[::1]/", "loopback"),
        ("http://10.1.2.3/", "a private network"),
        ("http://192.168.0.1/", "a private network"),
        ("http://169.254.1.1/", "link-local"),
        ("http://169.254.169.254/latest/meta-data/", "metadata"),
        ("http://metadata.google.internal/", "its cloud"),
        ("http://[::ffff:10.0.0.1]/", "a private network"),
        ("http://127.1/", "cannot be read"),
        ("file:///etc/passwd", "file: addresses"),
        ("ftp://example.com/a", "ftp: addresses"),
        ("example.com", "cannot be read"),
        ("https://user:pw@example.com/", "user name or a password"),
        ("https://token@example.com/", "user name or a password"),
        ("https://example.com\\@evil.test/", "cannot be read"),
        ("", "no address"),
    ],
)
def test_other_addresses_are_denied_in_every_mode(mode: Mode, url: str, why: str) -> None:
    found = judged("WebFetch", mode=mode, url=url)
    assert (found.word, found.rule) == ("deny", "web")
    assert why in found.reason


def test_a_call_without_an_address_is_denied() -> None:
    assert judged("WebFetch").word == judged("WebFetch", url=7).word == "deny"


@pytest.mark.parametrize(
    ("allowed", "url", "expected"),
    [
        (["127.0.0.1"], "http://127.0.0.1:8080/", "allow"),
        (["127.0.0.1"], "http://127.0.0.2/", "deny"),
        (["10.0.0.7", "example.com"], "http://10.0.0.7/", "allow"),
        (["docs.corp.internal"], "https://docs.corp.internal/a", "allow"),
        (["*.corp.internal"], "https://docs.corp.internal/a", "allow"),
        (["example.com"], "http://localhost/", "deny"),
        (["169.254.169.254"], "http://169.254.169.254/", "allow"),
    ],
)
def test_a_private_host_is_reached_by_naming_it(allowed: list[str], url: str, expected: str) -> None:
    assert judged("WebFetch", {"network": {"allowed_hosts": allowed}}, url=url).word == expected


def test_every_layer_must_name_it() -> None:
    lists = [{"network": {"allowed_hosts": ["10.0.0.7"]}}, {"network": {"allowed_hosts": ["example.com"]}}]
    policy = Policy(mode="full", workspace=("/ws",), rules=resolve([Layer("a", rules_of(each)) for each in lists]))
    assert decide(policy, ToolCall(id="t", name="WebFetch", input={"url": "http://10.0.0.7/"})).word == "deny"


def test_a_name_that_leads_to_a_private_address_is_denied_unless_it_is_named() -> None:
    facts = Facts(not_public="intra.example leads to 10.0.0.1, which is a private network")
    found = judged("WebFetch", facts=facts, url="https://intra.example/")
    assert (found.word, found.reason) == ("deny", facts.not_public)
    named = {"network": {"allowed_hosts": ["intra.example"]}}
    assert judged("WebFetch", named, facts=facts, url="https://intra.example/").word == "allow"


@pytest.mark.parametrize(
    ("name", "input_"),
    [
        ("WebFetch", {"url": "https://example.com/?q=hunter2hunter2"}),
        ("WebSearch", {"query": "what is hunter2hunter2"}),
    ],
)
def test_an_address_or_a_search_that_holds_a_secret_is_denied(name: str, input_: dict[str, Any]) -> None:
    facts = Facts(holds_secret=lambda text: "hunter2hunter2" in text)
    found = judged(name, facts=facts, mode="full", **input_)
    assert (found.word, "secret" in found.reason) == ("deny", True)
    assert "hunter2" not in found.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "input_", "expected"),
    [
        ("WebFetch", {"url": "https://public.example/"}, "allow"),
        ("WebFetch", {"url": "https://intra.example/"}, "deny"),
        ("WebFetch", {"url": "https://both.example/"}, "deny"),
        ("WebFetch", {"url": "https://public.example/?q=hunter2hunter2"}, "deny"),
        ("WebFetch", {"url": "https://public.example/?q=%68unter2hunter2"}, "deny"),
        ("WebSearch", {"query": "what is hunter2hunter2"}, "deny"),
        ("WebSearch", {"query": "what is hunter"}, "allow"),
    ],
)
async def test_the_gate_resolves_a_name_and_looks_for_secrets_itself(
    mode: Mode, name: str, input_: dict[str, Any], expected: str
) -> None:
    known = {
        "public.example": ["93.184.216.34"],
        "intra.example": ["10.0.0.1"],
        "both.example": ["93.184.216.34", "169.254.169.254"],
    }

    async def resolver(host: str, port: int) -> list[str]:
        return known[host]

    gate = MachineFacts(workspace=("/ws",), secrets=["hunter2hunter2"], resolver=resolver)
    facts = await gate.looked_up(ToolCall(id="t", name=name, input=input_), Facts())
    assert judged(name, mode=mode, facts=facts, **input_).word == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "input_"), [("WebFetch", {"url": "https://example.com"}), ("WebSearch", {"query": "x"})]
)
def test_the_rule_asks_or_denies(mode: Mode, name: str, input_: dict[str, Any]) -> None:
    asked = judged(name, {"web": "ask"}, mode, **input_)
    assert (asked.word, asked.rule) == ("deny" if mode == "dontAsk" else "ask", "web")
    assert judged(name, {"web": "deny"}, mode, **input_).word == "deny"
    assert judged(name, {"web": "allow"}, mode, **input_).word == "allow"


def test_the_rules_about_hosts_still_hold() -> None:
    blocked = {"network": {"blocked_hosts": ["example.com"]}}
    assert judged("WebFetch", blocked, url="https://www.example.com").word == "deny"
    only = {"network": {"allowed_hosts": ["example.org"]}}
    assert judged("WebFetch", only, url="https://example.com").word == "deny"
    assert judged("WebSearch", only, query="x").word == "deny"
    assert judged("WebSearch", only, query="x", allowed_domains=["example.org"]).word == "allow"
