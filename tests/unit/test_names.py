"""Names of the source: no class name for two ideas, no folder that holds everything, each folder with its purpose."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import leadrope

PACKAGE = Path(leadrope.__file__).parent

ONE_IDEA = {
    # The same event, as leadrope writes it and in the universal schema; its line as the agent prints it.
    *("QuestionRequested", "QuestionResolved", "SessionStarted", "ToolProgress", "TurnEnded", "TurnStarted"),
    # What a peer does that does not speak HTTP: to the rehearsal's server, and to the broker.
}
"""Class names that stand in two modules and mean the same in both."""

MOST_ENTRIES = 30

RETIRED_MODULES = frozenset(
    {
        *("looks", "happenings", "places", "ahead", "aftermath", "whole", "held", "shown", "units", "unit", "fits"),
        *("shapes", "bell", "orders", "keeper", "asking", "room", "rooms", "lane", "wires", "look", "hold", "inside"),
        *("choosing", "starting", "waits", "host", "outcomes", "reporting", "account", "documents", "known_secrets"),
        *("shell_places", "gatecheck", "checks", "tally", "exchange", "endings", "typed", "spending", "merges"),
        *("scripts", "cleaning", "copies", "texts", "flow_looks", "live", "utils", "helpers", "common", "manager"),
    }
)
"""Names of modules that told nobody what is in them, and drawers that everything falls into."""
RETIRED_CLASSES = ("Desk", "Caller", "Told", "Wish", "Doors", "Bell", "Keeper", "Lane", "Room", "Walls", "Flow")
"""Words that gave way to the field's own ones; `FlowCommand` is the command `leadrope flow`."""


def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    return found


def test_no_class_name_has_two_meanings() -> None:
    several = {name: places for name, places in classes().items() if len(places) > 1}
    assert set(several) == ONE_IDEA, several


def test_retired_words_name_no_module_and_no_class() -> None:
    assert [str(path) for path in PACKAGE.rglob("*.py") if path.stem in RETIRED_MODULES] == []
    found = [
        name
        for name in classes()
        for word in RETIRED_CLASSES
        if re.search(rf"{word}(?![a-z])", name) and name != "FlowCommand"
    ]
    assert found == []


def folders() -> list[Path]:
    return [PACKAGE, *sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)]


def test_no_folder_holds_everything() -> None:
    sizes = {str(folder.relative_to(PACKAGE)): len(entries(folder)) for folder in folders()}
    assert {name: size for name, size in sizes.items() if size > MOST_ENTRIES} == {}


def entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.name != "__pycache__"]


def test_every_folder_says_what_it_holds() -> None:
    for folder in folders():
        module = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(module), f"{folder} has no docstring"


def test_every_module_of_architecture_exists() -> None:
    page = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {
        word for word in page.replace("`", " ").replace("(", " ").replace(",", " ").split() if word.endswith(".py")
    }
    missing = [name for name in named if "/" in name and not (PACKAGE / name.removesuffix(")")).is_file()]
    assert missing == []
