"""The processes that use the same store share what they know of a service that is down."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite.errors import ConfigError
from crewlite.recovery import CircuitBreaker
from crewlite.recovery.breaker import Circuit
from crewlite.state import InMemoryProvider
from tests import children

from . import circuits
from .circuits import Clock, ask, down


@pytest.mark.parametrize("location", ["runs", "runs.db"])
def test_a_circuit_that_one_process_opens_refuses_the_calls_of_another_until_one_of_all_tries(location):
    path = os.pathsep.join(sys.path)
    other = children.Child(
        [sys.executable, circuits.__file__],
        env=os.environ | {"PYTHONPATH": path},
        stdin=children.PIPE,
        stdout=children.PIPE,
        text=True,
    )

    def there(line):
        other.stdin.write(f"{line}\n")
        other.stdin.flush()
        return other.stdout.readline()

    Clock.set(100)
    assert ask("before", location) == ("up", 1)
    for run in ("a", "b"):
        assert there(f"ask({run!r}, {location!r}, down)") == "('LLMUnavailable', 1)\n"
    assert ask("open", location) == ("CircuitOpen", 0)
    Clock.set(131)
    assert there(f"ask('probe', {location!r}, hang)") == "probing\n"
    assert ask("while-it-tries", location) == ("CircuitOpen", 0)
    other.end()  # killed, so it cannot say how its call has ended
    Clock.set(160)
    assert ask("soon-after", location) == ("CircuitOpen", 0)
    Clock.set(162)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, f"one-of-{n}", location, down, delay=0.2) for n in range(4)]
    assert sorted(one.result() for one in asked) == [("CircuitOpen", 0)] * 3 + [("LLMUnavailable", 1)]
    assert ask("opened-again", location) == ("CircuitOpen", 0)
    Clock.set(193)
    assert [ask(f"last-{number}", location) for number in range(2)] == [("up", 1)] * 2


class Counted(InMemoryProvider):
    """A provider that counts how often shared data are read and changed, and fails if it is told to."""

    def __init__(self):
        super().__init__()
        self.asked, self.broken, self.late, self.inner = [], None, None, {}

    def open(self, location):
        store, inner = super().open(location), self.inner.setdefault(location, super().open(location).results)

        class Results:
            def recall(_, key):
                self.note("read")
                return inner.recall(key)

            def exchange(_, key, old, new):
                self.note("change")
                return inner.exchange(key, old, new)

        store.results = Results()
        return store

    def note(self, what):
        self.asked.append(what)
        if self.late:
            Clock.set(self.late)
        if self.broken:
            raise self.broken


def test_while_all_is_well_the_store_is_read_once_a_second_and_never_written():
    provider, breaker = Counted(), CircuitBreaker(2, cooldown_seconds=30, clock=Clock())
    for seconds in (100, 100.5, 101.1, 101.2):
        Clock.set(seconds)
        assert ask(f"at-{seconds}", "here", breaker=breaker, provider=provider) == ("up", 1)
    assert provider.asked == ["read"] * 2


def test_a_wait_that_ends_while_the_store_is_read_lets_no_call_through_that_nobody_else_knows_of():
    Clock.set(100)
    provider = Counted()
    for n in range(2):
        ask(f"down-{n}", "here", down, provider=provider)
    Clock.set(129)
    provider.late = 131
    assert ask("just-before", "here", provider=provider) == ("CircuitOpen", 0)


@pytest.mark.parametrize("broken", [OSError("no disk"), RuntimeError("a mistake in a provider")])
def test_a_store_that_cannot_share_costs_no_run_and_the_process_goes_by_what_it_knows(broken, caplog):
    Clock.set(100)
    provider, breaker = Counted(), CircuitBreaker(2, cooldown_seconds=30, clock=Clock())
    provider.broken = broken
    asked = [ask(f"run-{n}", "here", down, breaker, provider) for n in range(3)]
    assert asked == [("LLMUnavailable", 1), ("LLMUnavailable", 1), ("CircuitOpen", 0)]
    assert [record.message.partition(": ")[0] for record in caplog.records] == ["run-0/main", "run-1/main"]
    assert caplog.records[0].message.endswith(f"uses what its own process knows: {type(broken).__name__}: {broken}")
    Clock.set(131)
    assert ask("later", "here", "up", breaker, provider) == ("up", 1)
    assert breaker.state("model far") == "closed"


def test_runs_without_a_store_or_with_one_that_cannot_share_know_what_their_breaker_knows():
    class Plain(InMemoryProvider):
        def open(self, location):
            store = super().open(location)
            store.results = None
            return store

    Clock.set(100)
    for location, provider in ((None, None), ("here", Plain())):
        breaker = CircuitBreaker(2, clock=Clock())
        asked = [ask(f"run-{n}", location, down, breaker, provider) for n in range(3)]
        assert asked == [("LLMUnavailable", 1), ("LLMUnavailable", 1), ("CircuitOpen", 0)]
        other = CircuitBreaker(2, clock=Clock())
        assert ask("other", location, breaker=other, provider=provider) == ("up", 1)


def test_a_breaker_may_share_with_nobody_and_those_with_other_settings_count_for_themselves():
    Clock.set(100)
    for n in range(2):
        ask(f"alone-{n}", "runs", down, CircuitBreaker(2, shared=False, clock=Clock()))
    for n in range(2):
        assert ask(f"shared-{n}", "runs", down) == ("LLMUnavailable", 1)
    assert ask("other", "runs", breaker=CircuitBreaker(3, clock=Clock())) == ("up", 1)
    assert ask("same", "runs") == ("CircuitOpen", 0)
    with pytest.raises(ConfigError, match="shared is 'no'; wanted True or False"):
        CircuitBreaker(shared="no")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"failures": 3}', b'{"opened": "x"}', b'{"later": 1}'])
def test_a_circuit_that_cannot_be_read_is_closed(data):
    assert Circuit.of(data) == Circuit()


def test_a_clock_that_was_set_back_keeps_no_circuit_open_for_long():
    opened = Circuit((1000.0,), opened=1000.0)
    assert [opened.refuses_for(now, 30) for now in (999, 1029, 1030, 960)] == [31, 1, 0, 0]
    assert opened.tried_by("p", 960, 30).probe == "p"
