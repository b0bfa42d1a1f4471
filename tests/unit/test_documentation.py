"""The documentation has a door, no dead link, and reference pages that follow from the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import python_reference
import reference
from leadrope.core import config

ROOT = Path(__file__).parents[2]
DOOR = "docs/index.md"
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "docs/internals/*.md", "bench/README.md", "tests/recordings/README.md")
    for path in ROOT.glob(pattern)
)
_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!`)!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"""<(?:img|source)[^>]*?\b(?:src|srcset)="([^"]+)\"""")


def prose(page: str) -> str:
    return _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def links(page: str) -> list[str]:
    text = prose(page)
    return [link for link in (*_LINK.findall(text), *_IMAGE.findall(text)) if not re.match(r"[a-z]+:", link)]


def anchors(page: str) -> set[str]:
    """As GitHub makes them from headings: lower case, without punctuation, blanks as hyphens."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        number = 0
        while (one := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(one)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    dead = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        has_anchor = target.suffix != ".md" or not anchor or anchor in anchors(str(target.relative_to(ROOT)))
        if not target.exists() or not has_anchor:
            dead.append(link)
    assert dead == []


def test_every_page_is_reached_from_the_index() -> None:
    seen, todo = set[str](), [DOOR]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in links(page):
            target = ((ROOT / page).parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file():
                todo.append(str(target.relative_to(ROOT)))
    assert [page for page in PAGES if page.startswith("docs/") and page not in seen] == []
    listed = {str(((ROOT / DOOR).parent / link.partition("#")[0]).resolve().relative_to(ROOT)) for link in links(DOOR)}
    assert [page for page in PAGES if page.startswith("docs/") and page not in {*listed, DOOR}] == [], "name it there"
    assert DOOR in links("README.md")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a process of its own: click remembers how a command was asked for its help before."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, "tools/reference.py", str(folder)], cwd=ROOT, check=True, timeout=120)
    return folder


@pytest.mark.parametrize("page", reference.PAGES)
def test_a_reference_page_is_what_the_code_says(page: str, made: Path) -> None:
    is_current = (ROOT / page).read_text(encoding="utf-8") == (made / page).read_text(encoding="utf-8")
    assert is_current, f"{page} is not what the code says: run `make docs`"


def test_every_public_name_is_in_the_python_reference() -> None:
    assert python_reference.missing() == []


def test_every_section_of_the_config_is_described() -> None:
    described = {section.partition(".")[0] for section in reference.SECTIONS}
    assert described == set(config._SECTIONS)


def test_examples_on_the_page_about_settings_are_accepted() -> None:
    said = tomllib.loads((ROOT / "tools/config_keys.toml").read_text())["sections"]
    for section, about in said.items():
        if about.get("example"):
            config.parse(about["example"], source=section)


def test_every_command_is_on_the_page_about_the_command_line() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    for command in ("run", "flow run", "runs list", "approvals approve", "sessions export", "policy explain", "doctor"):
        assert f"`leadrope {command}`\n" in text
    assert "--no-wait-for-limit" in text


@pytest.mark.parametrize("name", ["docs/demo.svg", "docs/run-page.png"])
def test_pictures_are_small_and_load_nothing(name: str) -> None:
    data = (ROOT / name).read_bytes()
    assert 2_000 < len(data) < 150_000
    if name.endswith(".svg"):
        assert not re.search(rb"""(href|src|url\(|@import|<script)""", data)
        assert b"Allow?" in data


PHRASES = tomllib.loads((ROOT / "tests/data/phrases.toml").read_text())["phrases"]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md" and not page.startswith("tests/")])
def test_a_page_uses_plain_english(page: str) -> None:
    """docs/cli.md has every `--help`, so help texts are held to the same."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = {phrase: better for phrase, better in PHRASES.items() if re.search(phrase, text, re.IGNORECASE)}
    assert found == {}


def test_messages_use_plain_english() -> None:
    """Errors, hints and what screens show: every text of the package that is not a docstring."""
    found = []
    for path in sorted((ROOT / "src/leadrope").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
                continue
            found += [
                f"{path.name}:{node.lineno}: {node.value[:80]!r}: write: {better}"
                for phrase, better in PHRASES.items()
                if " " in node.value and re.search(phrase, node.value, re.IGNORECASE)
            ]
    assert found == []
