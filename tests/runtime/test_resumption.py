"""What a resume goes on with, decided from a record and a request alone."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from crewlite.encoding.codec import digest, encode
from crewlite.errors import (
    AnswerRefused,
    CheckpointIsBehind,
    ConfigError,
    CrewliteError,
    InputsChanged,
    RefError,
    RunMismatch,
)
from crewlite.flow import flow
from crewlite.runtime.kickoffs.answers import check_results
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.resumption import branch_for, check_newest, inputs_of
from crewlite.runtime.steps.earlier_kickoffs import EarlierKickoffs, unrequested_changes
from crewlite.state import CheckpointConfig, InMemoryProvider
from crewlite.state.format.checkpoints import BranchCheckpoints
from crewlite.state.format.edits import Edit
from crewlite.state.format.outcome import Outcome
from crewlite.state.format.record import Record
from crewlite.state.journal.journal import Journal
from crewlite.state.reading.locate import Located
from crewlite.state.reading.steps import calls_without_outcome
from crewlite.texts.secrets import Secrets


@flow
def trip(city: str, days: int = 2) -> str:
    return city * days


@flow
def errand(city: str) -> str:
    return city


def recorded(*, fork=False, fresh=False, **inputs):
    """A record of `trip`, as far as its beginning goes."""
    coded = encode(inputs)
    run = {"run_id": "r", "branch": "main", "inputs": coded, "definition": {"kind": "flow", "name": "trip"}}
    run |= {"definition": {"kind": "flow", "name": "trip", "takes": ["city", "days"]}}
    run |= {"base": {"branch": "main", "seq": 1, "sum": "0" * 32, "place": None}} if fork else {}
    return Record(seq=1, run=run, fresh=fresh)


def go_on(definition, request, record):
    """The inputs that a resume goes on with, and what is recorded of them anew."""

    async def asked():
        journal = Journal("r", "main", record, Secrets.of())
        inputs, parts = inputs_of(definition.as_root(request), request, journal)
        await journal.aclose()
        return inputs, parts.get("inputs")

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("where", "given", "inputs", "anew"),
    [
        pytest.param({}, None, {"city": "Rome"}, None, id="none given: the recorded ones"),
        pytest.param({}, {"city": "Rome"}, {"city": "Rome"}, None, id="the same given"),
        pytest.param({}, {"city": "Berlin"}, InputsChanged, None, id="others given to a run"),
        pytest.param({"fork": True}, {"city": "Berlin"}, InputsChanged, None, id="others given to a fork at work"),
        pytest.param(
            {"fork": True, "fresh": True},
            {"city": "Berlin"},
            {"city": "Berlin"},
            {"city": "Berlin"},
            id="others given to a fork that nobody has kicked off",
        ),
        pytest.param(
            {"fork": True, "fresh": True},
            {"days": 3},
            {"city": "Rome", "days": 3},
            {"city": "Rome", "days": 3},
            id="one more given to a fork: laid over the recorded ones",
        ),
        pytest.param({"fork": True, "fresh": True}, {"town": "X"}, ConfigError, None, id="one that nothing asks for"),
    ],
)
def test_inputs_are_the_recorded_ones_but_for_a_fork_that_is_new(where, given, inputs, anew):
    record, request = recorded(city="Rome", **where), Request(given)
    if isinstance(inputs, dict):
        assert go_on(trip, request, record) == (inputs, anew)
    else:
        with pytest.raises(inputs):
            go_on(trip, request, record)


def test_a_record_of_another_definition_is_not_gone_on_with():
    with pytest.raises(RunMismatch, match=r"of flow 'trip', and this is flow 'errand'"):
        go_on(errand, Request(None), recorded(city="Rome"))


def checkpoint(number, address="task:plan"):
    return {"id": f"{number:032x}", "seq": number, "parent": None, "trigger": "task_completed", "address": address}


@pytest.mark.parametrize(
    ("named", "left", "behind"),
    [
        pytest.param(None, (), None, id="none was named"),
        pytest.param(5, (), None, id="the newest was named"),
        pytest.param(2, (), ("task:write", "task:check"), id="those that came after, each name once"),
        pytest.param(2, ((2, 6),), None, id="those after it were left behind by going back"),
    ],
)
def test_a_resume_from_a_checkpoint_that_more_came_after_is_refused(named, left, behind):
    later = [checkpoint(seq, address) for seq, address in ((3, "task:write"), (4, "task:write"), (5, "task:check"))]
    record = Record(seq=5, checkpoints=BranchCheckpoints())
    record.checkpoints.rewind(left)
    for one in (checkpoint(2), *later):
        record.checkpoints.add(one)
    located = Located(InMemoryProvider(), "here", "r", "main", f"{named:032x}" if named else None)
    root = trip.as_root(Request({"city": "Rome"}))
    if behind is None:
        check_newest(root, record, located)
        return
    with pytest.raises(CheckpointIsBehind) as found:
        check_newest(root, record, located)
    assert found.value.after == behind


def outcome(address, seq=2):
    return Outcome(address, "step", 1, digest(["q"]), "x", digest("x"), None, {}, 1.0, seq, "")


@pytest.mark.parametrize(
    ("address", "result", "refused"),
    [
        pytest.param("step:pay", "paid", None, id="the call in doubt"),
        pytest.param("step:sent", "x", None, id="the result of one that has finished"),
        pytest.param("step:sent", "y", AnswerRefused, id="another result than it has"),
        pytest.param("human:ok", True, None, id="a question that is not asked yet"),
        pytest.param("step:other", "paid", RefError, id="what nobody knows"),
    ],
)
def test_a_call_takes_a_result_while_it_is_in_doubt_and_the_same_one_afterwards(address, result, refused):
    record = Record(intents={"step:pay": "once", "step:sent": "once"}, outcomes={"step:sent": outcome("step:sent")})
    assert calls_without_outcome(record) == {"step:pay"}
    with pytest.raises(refused) if refused else contextlib.nullcontext():
        check_results(record, {address: result}, Secrets.of())


@pytest.mark.parametrize(
    ("edited", "outcomes", "unused"),
    [
        pytest.param({}, {"a": 2}, set(), id="nothing edited"),
        pytest.param({"a": 2}, {"a": 2}, {"a"}, id="edited in this fork's first commit"),
        pytest.param({"a": 2}, {"a": 5}, set(), id="edited, and done anew since"),
        pytest.param({"a": 2}, {}, {"a"}, id="taken back, and not done yet"),
        pytest.param({"a": 1}, {}, set(), id="taken back by the branch that this one is forked from"),
        pytest.param({"a/b": 2}, {"a/b": 2, "a": 6}, set(), id="inside a step that has finished since"),
    ],
)
def test_a_fork_knows_which_of_its_changes_nobody_has_used(edited, outcomes, unused):
    record = recorded(fork=True, city="Rome")
    record.edited = {at: Edit(seq, 0) for at, seq in edited.items()}
    record.outcomes = {address: outcome(address, seq) for address, seq in outcomes.items()}
    assert unrequested_changes(record) == unused


def test_a_kickoff_knows_what_began_in_earlier_ones():
    record = Record()
    record.checkpoints["c"] = checkpoint(3, "step:c")
    record.events.add([("step_started", "e", "", "step:a"), ("step_completed", "f", "", "step:b")], 2)
    assert EarlierKickoffs.of(record, {}, expects_all=False).begun == {"", "step:a", "step:c"}


@pytest.mark.parametrize(("run_id", "found"), [(None, "trip-1"), ("trip-1", "trip-1"), ("trip-2", ConfigError)])
def test_a_ref_and_a_run_id_must_name_the_same_run(run_id, found, tmp_path):
    there = flow(checkpoint=CheckpointConfig(location=str(tmp_path)))
    there(trip.__wrapped__).kickoff(city="Rome", run_id="trip-1")
    config = CheckpointConfig(location=str(tmp_path), restore_from="trip-1")
    root = trip.as_root(Request({"city": "Rome"}))
    if isinstance(found, str):
        assert branch_for(root, Request(run_id=run_id), config).run_id == found
        return
    with pytest.raises(CrewliteError, match="belongs to run 'trip-1'"):
        branch_for(root, Request(run_id=run_id), config)


def test_a_recorded_input_that_the_flow_takes_no_more_is_not_blamed_on_the_call():
    memory = CheckpointConfig(location="x", provider=InMemoryProvider())

    def made(function):
        return flow(function, name="f", checkpoint=memory)

    def taking(k):
        raise KeyError

    with pytest.raises(KeyError):
        made(taking).kickoff(1, run_id="r")
    with pytest.raises(
        ConfigError, match=r"no parameter k; it takes \(\)\. The inputs \(k\) are those that run 'r' has"
    ):
        made(lambda: 1).kickoff(run_id="r")
    with pytest.raises(
        ConfigError, match=r"missing the input other; it takes \(k, other\)\. The inputs \(k\) are those"
    ):
        made(lambda k, other: 1).kickoff(run_id="r")
