"""The short way along links gives what the long one gives, whatever they lead over."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from leadrope.confined import real_path
from leadrope.process.sandbox.toolchains import _followed

PLACES = ["bin", "etc/alternatives", "opt/tool/bin", "home/u"]


@pytest.mark.parametrize(
    ("links", "asked"),
    [
        ({"bin/a": "b"}, "bin/a"),
        ({"bin/a": "/ROOT/etc/alternatives/a", "etc/alternatives/a": "/ROOT/bin/b"}, "bin/a"),
        ({"bin/a": "../opt/tool/bin/x"}, "bin/a"),
        ({"here": "opt/tool", "bin/a": "../here/bin/x"}, "bin/a"),
        ({"here": "opt/tool/bin", "bin/a": "../here/../x"}, "bin/a"),
        ({"bin/a": "./b"}, "bin/a"),
        ({"bin/a": "."}, "bin/a"),
        ({"bin/a": "../../../../../../../../../etc"}, "bin/a"),
        ({"bin/a": "a"}, "bin/a"),
        ({"bin/a": "c", "bin/c": "a"}, "bin/a"),
        ({"bin/a": "missing/b"}, "bin/a"),
        ({"bin/a": "../opt/tool/"}, "bin/a"),
    ],
)
def test_each_form_of_a_link(tmp_path: Path, links: dict[str, str], asked: str) -> None:
    for name in PLACES:
        (tmp_path / name).mkdir(parents=True)
    for link, target in links.items():
        (tmp_path / link).symlink_to(target.replace("/ROOT", str(tmp_path)))
    path = str(tmp_path / asked)
    assert _followed(path, {}) == real_path(path)


@pytest.mark.parametrize("seed", range(20))
def test_any_tangle_of_links(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for name in PLACES:
        (tmp_path / name).mkdir(parents=True)
    made = []
    for number in range(40):
        link = tmp_path / rng.choice(PLACES) / f"n{number}"
        there = tmp_path / rng.choice(PLACES) / f"n{rng.randrange(60)}"
        forms = [str(there), os.path.relpath(there, link.parent), f"n{rng.randrange(60)}", f"../{rng.choice(PLACES)}"]
        link.symlink_to(rng.choice(forms))
        made.append(str(link))
    kept: dict[str, str] = {}
    assert [_followed(link, kept) for link in made] == [real_path(link) for link in made]
