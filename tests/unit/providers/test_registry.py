"""Providers by name: ours first, then those that other packages announce; a bad one is named with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope import RunRequest, errors
from leadrope.providers import base, registry

GOOD = """
from leadrope.providers import base

class Parrot:
    id = "parrot"
    label = "Parrot"
    requires_api_key = False
    capabilities = base.Capabilities(tools=True)
    async def is_available(self, environ=None): return base.Availability(available=True)
    async def prepare(self, request, place, *, attempt): ...
    def session(self, request, launch): ...
    def tidy(self, launch): ...

class Nameless(Parrot):
    id = "other"

class Half:
    id = "half"
    label = "Half"

class Broken:
    def __init__(self): raise RuntimeError("no wings")
"""


def install(folder: Path, name: str, module: str, entries: str) -> None:
    """A package as an installer leaves it: its module, and the metadata that announces it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[leadrope.providers]\n{entries}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def test_the_default_is_claude_code() -> None:
    assert registry.DEFAULT_PROVIDER == "claude-code"
    assert registry.provider().id == "claude-code"
    assert RunRequest(prompt="x").provider == registry.DEFAULT_PROVIDER


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_ours_keep_the_protocol(name: str) -> None:
    found = registry.provider(name)
    assert isinstance(found, base.Provider)
    assert found.id == name


def test_another_package_announces_its_own(site: Path) -> None:
    install(site, "parrot_one", GOOD, "parrot = parrot_one:Parrot")
    assert registry.names() == ("claude-code", "parrot", "scripted")
    found = registry.provider("parrot")
    assert (found.id, found.capabilities) == ("parrot", base.Capabilities(tools=True))


def test_nobody_takes_our_names(site: Path) -> None:
    install(site, "parrot_two", GOOD, "claude-code = parrot_two:Parrot")
    assert type(registry.provider("claude-code")).__name__ == "ClaudeCode"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("bad = parrot_bad:NoSuchClass", "parrot_bad:NoSuchClass cannot be loaded: AttributeError"),
        ("bad = no_such_module:X", "cannot be loaded: ModuleNotFoundError"),
        ("bad = parrot_bad:Broken", "cannot be loaded: RuntimeError: no wings"),
        ("bad = parrot_bad:Half", "is not a provider: it has no capabilities, is_available, prepare, requires_api_key"),
        ("bad = parrot_bad:Nameless", "calls itself 'other'"),
    ],
)
def test_one_that_cannot_be_used_is_named(site: Path, entry: str, says: str) -> None:
    install(site, "parrot_bad", GOOD, entry)
    with pytest.raises(errors.BadProvider, match=says) as caught:
        registry.provider("bad")
    assert caught.value.name == "bad"


def test_two_packages_with_one_name_are_refused(site: Path) -> None:
    install(site, "parrot_left", GOOD, "parrot = parrot_left:Parrot")
    install(site, "parrot_right", GOOD, "parrot = parrot_right:Parrot")
    with pytest.raises(errors.BadProvider, match="several packages give it: parrot_left:Parrot, parrot_right:Parrot"):
        registry.provider("parrot")


def test_an_unknown_one_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(errors.BadValue, match="'nobody' is not known\nUse one of: claude-code, scripted"):
        registry.provider("nobody")


@pytest.mark.parametrize(
    ("field", "value", "capability"),
    [("connections", {"x": {"command": "y"}}, "mcp"), ("resume", "s", "sessions"), ("attachments", ("a",), "images")],
)
def test_what_an_agent_cannot_do_is_refused(site: Path, field: str, value: object, capability: str) -> None:
    install(site, f"parrot_{capability}", GOOD, f"parrot = parrot_{capability}:Parrot")
    request = RunRequest(**{"prompt": "x", field: value})  # type: ignore[arg-type]
    with pytest.raises(errors.BadValue, match=f"{field}: the provider parrot has no {capability}"):
        base.require(registry.provider("parrot"), request)
    base.require(registry.provider("claude-code"), request)
