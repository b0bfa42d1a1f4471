"""`[service]` of the config: what is out of range is refused with the name of the key."""

from __future__ import annotations

import pytest

from leadrope import errors
from leadrope.runs import settings


@pytest.mark.parametrize("value", [-1, 86401, float("nan"), float("inf")])
def test_the_wait_for_a_full_store_has_a_bound(value: float) -> None:
    with pytest.raises(errors.BadConfig, match="store_wait_s"):
        settings.read({"store_wait_s": value}, {}, "config.toml")


def test_the_store_is_waited_for_a_minute_unless_told_otherwise() -> None:
    assert settings.read({}, {}, "config.toml")[0].store_wait_s == 60
    assert settings.read({"store_wait_s": 0}, {}, "config.toml")[0].store_wait_s == 0
