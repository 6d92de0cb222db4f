"""Which calls of a tool a run has begun, as limits count them, whatever of its record is taken back meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from crewlite.runtime.steps.run import BegunCalls
from crewlite.state.format.commit import invalidated
from crewlite.state.format.entry import seal
from crewlite.state.format.record import Record

FIRST, SECOND, THIRD = "task:t/tool:look", "task:t/tool:look#2", "task:t/tool:look#3"


def commit(number: int, **parts: Any) -> Any:
    return seal({"schema": 1, "seq": number, "at": "2026-01-01T00:00:00+00:00", **parts}, after="")


def intends(*addresses: str) -> dict[str, Any]:
    return {"intents": [(address, "idempotent") for address in addresses]}


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [({"steps": [invalidated(FIRST, "tool")]}, []), (intends(FIRST), [FIRST])],
    ids=["taken back", "begun again"],
)
def test_a_call_counts_as_begun_whatever_becomes_of_an_earlier_one(meanwhile, left):
    record, begun = Record(), BegunCalls()
    record.apply(commit(1, **intends(FIRST, SECOND)))
    assert begun.of(record, "tool", {"look"}) == [FIRST, SECOND]
    record.apply(commit(2, **intends(THIRD)))
    record.apply(commit(3, **meanwhile))
    assert begun.of(record, "tool", {"look"}) == [*left, SECOND, THIRD]
