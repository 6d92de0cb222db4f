"""How much of a long trial `make soak` makes: sized for about an hour of two cores, or for as many as `HOURS` says.

Some trials have more cases than anybody waits for. They try a fair sample of them, another one each day: which one is said
by `SEED`, and what a trial finds is found again with the seed that it prints.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from typing import Any

import pytest

HOURS = float(os.environ.get("HOURS") or 1)
SEED = int(os.environ.get("SEED") or dt.date.today().toordinal())


def every(nth: int) -> pytest.MarkDecorator:
    """Give a test the argument `every`, so that it tries each `nth` of its cases only; a soak tries them all as well."""
    return pytest.mark.parametrize("every", [nth, pytest.param(1, id="all", marks=pytest.mark.soak)])


def sample(cases: Sequence[Any], nth: int) -> list[Any]:
    """Parametrize a test with each `nth` of its cases, and the others too in a soak."""
    return [one if n % nth == 0 else pytest.param(*one, marks=pytest.mark.soak) for n, one in enumerate(cases)]


def in_time(count: int) -> int:
    """So many cases, or seconds, in a soak of one hour; more or fewer in a longer or shorter one."""
    return max(1, round(count * HOURS))
