"""Whatever steps do to the state, in whatever order, is what a dictionary says, wherever the run is cut and gone on with."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings

from crewlite import CheckpointConfig, History
from crewlite.errors import ChangeUnused
from crewlite.flow import flow
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from tests.cuts import RUN, cut, entries_of
from tests.flow.state_programs import body, expected, programs, shown


def played(program, setting, **options):
    @flow(name="played", checkpoint=setting)
    def whole(program):
        return body(program)

    return whole.kickoff(program, run_id=RUN) if not options else whole.fork(RUN, **options).kickoff()


def values(setting, ref=RUN):
    with History(setting.location, setting.provider) as history:
        run = history.run(ref)
        return shown(run.values | {f"items of {name}": [*items.values()] for name, items in run.collections.items()})


def hold(program, setting, *, every=1):
    """The whole run, the run cut after each commit, pruned there, and forks that do a step again."""
    bag: dict[str, object] = {}
    wanted = expected(program, bag)
    assert played(program, setting) == wanted
    assert values(setting) == shown(bag)
    entries, cuts = entries_of(setting), 0
    for at in range(1, len(entries), every):
        for pruned in (False, True):
            again = cut(entries, at, on_events=["step_completed"])
            if pruned:
                with History(again.location, again.provider) as history:
                    history.prune(keep_last=1)
            assert played(program, again) == wanted, f"cut after commit {at}, {pruned=}"
            assert values(again) == shown(bag), f"cut after commit {at}, {pruned=}"
            cuts += 1
    done = [one["address"] for entry in entries for one in entry.commit.get("steps", ()) if "value" in one]
    for number, address in enumerate(at for at in done if at):
        try:
            assert played(program, setting, rerun=[address], branch=f"b{number}") == wanted, f"{address} done again"
        except ChangeUnused:  # it is inside a try that failed
            continue
        assert values(setting, f"{RUN}/b{number}") == shown(bag), f"{address} done again"
    for number, address in enumerate(at for at in done if at and not has_failed(at, done)):
        played(program, setting, edits={f"{address}.state.edited": number}, branch=f"e{number}")
        assert values(setting, f"{RUN}/e{number}") == shown(bag | {"edited": number}), f"state of {address} edited"
    return cuts


def has_failed(address, done):
    """Whether a step is inside an attempt that has failed, which leaves nothing in the state."""
    around = [address[: at.start()] for at in re.finditer("/", address)]
    return any(one not in done for one in around) or any(f"{one}!2" in "".join(done) for one in around)


def in_memory():
    return CheckpointConfig(location="whole", provider=InMemoryProvider(), on_events=["step_completed"])


@given(programs)
@settings(max_examples=15, deadline=None)
def test_any_program_that_is_cut_after_any_commit_has_the_state_that_a_dictionary_says(program):
    hold(program, in_memory())


def test_a_step_that_is_done_again_comes_before_those_that_were_requested_after_it():
    first, second = [[], [("set", "a", 0)], []], [[], [("set", "a", 1)]]
    hold([("beside", first, False), ("beside", second, False)], in_memory())


@pytest.mark.parametrize("kind", [JsonProvider, SqliteProvider])
@given(program=programs)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_program_has_it_on_disk(kind, program, tmp_path_factory):
    place = str(tmp_path_factory.mktemp("kept") / ("kept.db" if kind is SqliteProvider else "kept"))
    hold(program, CheckpointConfig(location=place, provider=kind(), on_events=["step_completed"]), every=3)


@pytest.mark.soak
def test_thousands_of_programs():
    cuts = []

    @given(programs)
    @settings(max_examples=1000, deadline=None, database=None)
    def any_program(program):
        cuts.append(hold(program, in_memory()))

    any_program()
    print({"programs": len(cuts), "cuts": sum(cuts)})
