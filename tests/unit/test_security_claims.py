"""Each sentence of SECURITY.md, and each rule of docs/policy.md, beside the tests that show it.

`tests/data/security_claims.toml` lists them. An entry is found by the exact words of its sentence, so that whoever
changes a sentence looks at its tests again.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "security_claims.toml"
# What is said there is how to report something, or an example that other tests run.
SKIPPED = {"SECURITY.md": ("Reporting",), "docs/policy.md": ("From Python",)}
# What only introduces a list or a table.
INTRODUCTIONS = {
    "What kind of line it is decides who has to agree:",
    "From the broadest to the narrowest:",
    "Some of them in more detail:",
}

_FENCE = re.compile(r"^```.*?^```$|^<!--.*?-->$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z/`\"]|leadrope )")


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    document: str = msgspec.field(name="in")
    says: tuple[str, ...]
    """Sentences, or rows of a table, as they stand there."""
    tests: tuple[str, ...] = ()
    because: str = ""
    """Why no test shows it, or not all of it."""


def listed() -> tuple[Claim, ...]:
    return tuple(msgspec.toml.decode(DATA.read_bytes(), type=dict[str, list[Claim]])["claim"])


def sentences(document: str) -> Iterator[str]:
    """In their order, without headings, examples and what only introduces a list."""
    text = _FENCE.sub("", (ROOT / document).read_text())
    section, before = "", ""
    for lines in re.split(r"\n\s*\n|\n(?=- |\d\. |#|\|)", text):
        block = " ".join(lines.split())
        if block.startswith("#"):
            section = block.lstrip("# ")
        elif block.startswith("|"):
            # The first row of a table is its head, the second a line.
            if before.startswith("|") and not set(block) <= set("|- "):
                yield block
        elif block and section not in SKIPPED[document]:
            yield from _split(re.sub(r"\A(?:-|\d\.) ", "", block))
        before = block


def _split(paragraph: str) -> Iterator[str]:
    """Code keeps its full stops: it is put aside while sentences are looked for."""
    code = _CODE.findall(paragraph)
    plain = _CODE.sub("`\0`", paragraph).replace("**", "")
    for part in _END.split(plain):
        sentence = re.sub("\0", lambda _: code.pop(0)[1:-1], part)
        if sentence not in INTRODUCTIONS:
            yield sentence


@functools.cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("document", SKIPPED)
def test_each_sentence_is_listed_once(document: str) -> None:
    said = list(sentences(document))
    found = Counter(sentence for claim in listed() if claim.document == document for sentence in claim.says)
    assert [sentence for sentence in said if not found[sentence]] == [], "say in security_claims.toml what shows it"
    assert sorted(set(found) - set(said)) == [], "the document no longer says this"
    assert [sentence for sentence, count in found.items() if count > 1] == []


def test_each_of_them_names_a_test_or_a_reason() -> None:
    assert [claim for claim in listed() if not (claim.tests or claim.because) or not claim.says] == []
    assert {claim.document for claim in listed()} == set(SKIPPED)


def test_each_test_that_is_named_exists() -> None:
    named = {test for claim in listed() for test in claim.tests}
    missing = []
    for test in sorted(named):
        file, _, name = test.partition("::")
        path = ROOT / file
        if not (path.is_file() and name.startswith("test_") and name in functions(path)):
            missing.append(test)
    assert missing == []
