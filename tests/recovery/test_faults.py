"""The recommended policy over a table of faults: it recovers what can be, and pays for nothing in vain."""

from __future__ import annotations

import pytest

from crewlite.errors import RecoveryEscalated

from .faults_script import ERRORS
from .faults_table import DOCS, FAULTS, PLACES, SPENT, VAIN, WELL, WrongResult, ran, refreshed

_WAIT = 60.0
"""The seconds for which a run waits at most, in all."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_that_can_be_recovered_fails_no_run_and_no_other_is_tried_again_in_vain(fault):
    on = ran(fault, on=True)
    assert (on.error is None) == (fault.kind == WELL), repr(on.error)
    assert fault.fewest <= on.calls <= fault.fewest + fault.extra
    assert on.waited < _WAIT
    if fault.kind == SPENT:
        assert isinstance(on.error, RecoveryEscalated | WrongResult), "of a tool that is given up its model hears"
    if fault.kind == VAIN:
        assert on.calls == ran(fault, on=False).calls
        assert on.waited == 0


def test_the_calls_that_are_paid_are_near_the_fewest_that_could_do():
    paid = sum(ran(fault, on=True).calls for fault in FAULTS)
    assert paid <= 1.05 * sum(fault.fewest for fault in FAULTS)
    assert max(fault.extra for fault in FAULTS) <= 3


def test_without_a_policy_more_runs_fail():
    able = [fault for fault in FAULTS if fault.kind == WELL]
    assert sum(ran(fault, on=False).error is None for fault in able) < 0.7 * len(able)


def test_the_table_holds_at_least_sixty_faults_in_every_place_and_none_twice():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60
    assert {fault.where for fault in FAULTS} == set(PLACES)
    assert set(ERRORS) <= {word for fault in FAULTS for word in fault.script}


def test_the_figures_of_the_page_are_those_of_the_table():
    text = DOCS.read_text(encoding="utf-8")
    assert text == refreshed(text), "refresh it: python -m tests.recovery.faults_table"
