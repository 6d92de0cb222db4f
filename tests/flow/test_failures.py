"""What failed and was handled has failed in every life; what failed the run is tried again."""

from __future__ import annotations

import threading

import pytest

from crewlite import History
from crewlite.errors import StepRaised, StepTimeout, Suspended
from crewlite.flow import ask, flow, step
from tests.flow.failing import Declined


class Odd(Exception):
    """Holds what nobody can write down."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())


@pytest.fixture
def shop(on_disk, ran):
    """A flow that pays with a card, else otherwise, and then asks."""
    trouble = [Declined("visa", 51)]

    @step
    def card():
        if trouble:
            raise trouble[0]
        ran.append("card")
        return "card"

    @step
    def voucher():
        ran.append("voucher")
        return "voucher"

    def pay():
        try:
            return card()
        except (Declined, ConnectionError, StepTimeout) as error:
            return f"{voucher()} after {type(error).__name__} {error.args} {getattr(error, 'card', '')}".strip()

    @flow(checkpoint=on_disk())
    def order():
        return pay(), ask("Ship?", bool, name="ship")

    order.trouble = trouble
    return order


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Declined("visa", 51), "voucher after Declined ('visa was declined',) visa"),
        (ConnectionError(111, "no line"), "voucher after ConnectionError (111, 'no line')"),
        (TimeoutError("late"), "voucher after TimeoutError ('late',)"),
    ],
    ids=["own", "of the system", "built in"],
)
def test_a_failure_that_the_flow_has_handled_is_raised_again_and_not_tried_again(shop, ran, error, told):
    if isinstance(error, TimeoutError):
        error = StepTimeout("card", 3)
        told = f"voucher after StepTimeout {error.args}"
    shop.trouble[0] = error
    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    shop.trouble.clear()
    assert shop.kickoff(run_id="one", answers={"human:ship": True}) == (told, True)
    assert ran == ["voucher"]


def test_a_fork_hears_of_it_too_and_may_have_it_tried_again(shop, ran):
    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    shop.trouble.clear()
    answers = {"human:ship": True}
    assert shop.fork("one", branch="as-it-was").kickoff(answers=answers)[0].startswith("voucher")
    assert "Declined" in str(shop.fork("one", branch="seen").preview())
    assert shop.fork("one", branch="anew", rerun=["step:card"]).kickoff(answers=answers) == ("card", True)
    assert shop.kickoff(run_id="one", rerun=["step:card"], answers=answers) == ("card", True)


def test_an_error_that_cannot_be_written_down_comes_back_as_one_that_stands_for_it(on_disk, ran):
    broken = [True]

    @step
    def odd():
        if broken:
            raise Odd
        return "never"

    @flow(checkpoint=on_disk())
    def pipeline():
        try:
            odd()
        except Odd:
            ran.append("odd")
        except StepRaised as error:
            assert error.error_type == "Odd"
            ran.append("stood for")
        return ask("On?", name="on")

    with pytest.raises(Suspended):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one", answers={"human:on": "yes"}) == "yes"
    assert ran == ["odd", "stood for"]


@pytest.mark.parametrize("how", ["itself", "from", "while handling", "group", "of others that nobody heard of"])
def test_what_the_run_has_failed_with_is_tried_again(on_disk, ran, how):
    broken = [True]

    @step
    def fetch(n):
        ran.append(n)
        if broken and n > 1:
            raise ConnectionError(n)
        return n

    @flow(checkpoint=on_disk())
    def pipeline():
        found = fetch.map([1, 2, 3])
        try:
            return found.result()
        except ConnectionError as error:
            if how == "from":
                raise RuntimeError("no figures") from error
            if how == "while handling":
                raise RuntimeError("no figures")
            if how == "group":
                raise ExceptionGroup("no figures", [error])
            raise

    with pytest.raises((ConnectionError, RuntimeError, ExceptionGroup)):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert pipeline.kickoff(run_id="one") == [1, 2, 3]
    assert sorted(ran) == [1, 2, 2, 3, 3]


def test_a_failure_behind_many_others_is_found_at_once(on_disk, ran):
    broken = [True]

    @step
    def fetch():
        ran.append("fetch")
        if broken:
            raise ConnectionError
        return "fetched"

    def through(layers):  # each tells the one below as its cause, and as its context
        if not layers:
            return fetch()
        try:
            return through(layers - 1)
        except Exception as error:
            raise RuntimeError(layers) from error

    @flow(checkpoint=on_disk())
    def pipeline():
        return through(60)

    with pytest.raises(RuntimeError):
        pipeline.kickoff(run_id="one")
    broken.clear()
    assert (pipeline.kickoff(run_id="one"), ran) == ("fetched", ["fetch", "fetch"])


def test_history_shows_a_failure_that_was_handled(shop):
    with pytest.raises(Suspended):
        shop.kickoff(run_id="one")
    with History(shop.checkpoint.location) as history:
        (card,) = [each for each in history.run("one").steps if each.address == "step:card"]
    assert (card.status, [attempt.error_type for attempt in card.attempts]) == ("failed", ["Declined"])
