"""Turns of a state that `@persist` keeps: a repeated request is the same turn, and turns at the same time take turns."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from datetime import timedelta
from uuid import UUID

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import BranchConflictError, ConfigError, InputsChanged, RefError, StoreError, UnknownOption
from crewlite.flow import Flow, flow, listen, persist, start
from crewlite.flow.classes import turns
from crewlite.state import InMemoryProvider
from crewlite.state.providers.base import Commit
from crewlite.system import disk
from crewlite.testing import Interleaved
from tests.cuts import entries_of
from tests.parts import Stop, deletes_a_run


def chat(setting, done=None, *, broken=False, until=None):
    @persist(setting)
    class Chat(Flow):
        @start()
        async def hear(self):
            await (until.wait() if until else asyncio.sleep(0))
            (done if done is not None else []).append(self.state["message"])
            self.state["said"] = [*self.state.get("said", []), self.state["message"]]

        @listen(hear)
        def answer(self):
            if broken:
                raise ConnectionError("down")
            return " ".join(self.state["said"])

    return Chat()


def turn(message):
    return {"id": "mine", "message": message}


def runs_of(setting):
    with History(setting.location, setting.provider) as history:
        return sorted(run.run_id for run in history.runs())


def test_a_repeated_request_has_the_result_of_its_turn_and_no_turn_of_its_own(memory):
    done = []
    for operation in ("one", "two", "one", "two", "three", "one"):
        for _ in range(2):
            said = {"one": "yes", "two": "yes yes", "three": "yes yes yes"}[operation]
            again = chat(memory(), done)
            assert again.kickoff(turn("yes"), operation_id=operation) == said
            assert again.state["said"] == said.split()
    assert len(done) == 3
    assert chat(memory()).kickoff(turn("no")) == "yes yes yes no", "without an operation it is a turn of its own"
    assert chat(memory()).kickoff(turn("yes"), operation_id="three") == "yes yes yes"
    assert runs_of(memory()) == ["mine", "mine.2", "mine.3", "mine.4"]


def test_a_state_knows_the_operations_of_its_latest_turns_alone(memory, monkeypatch):
    monkeypatch.setattr(turns, "_REMEMBERED", 3)
    for operation in ("one", "two", "three", "four"):
        chat(memory()).kickoff(turn("a"), operation_id=operation)
    assert chat(memory()).kickoff(turn("a"), operation_id="two") == "a a"
    assert chat(memory()).kickoff(turn("a"), operation_id="one") == "a a a a a", "one that is forgotten is new"
    (entry, *_) = entries_of(memory(), "mine.5")
    assert [*entry.commit["run"]["turns"].values()] == ["mine.3", "mine.4", "mine.5"]


def test_an_id_that_leaves_no_room_for_the_names_of_later_turns_is_refused_at_the_first(memory):
    for asked in ("x" * 91, "x" * 100, "mine."):
        wanted = rf"has {len(asked)} characters; wanted at most 90, and no '\.' at the end.*hexdigest"
        with pytest.raises(ConfigError, match=wanted):
            chat(memory()).kickoff({"id": asked, "message": "a"})
    for message in "ab":
        chat(memory()).kickoff({"id": "x" * 90, "message": message})
    assert runs_of(memory()) == ["x" * 90, "x" * 90 + ".2"]


def test_a_state_with_a_longer_id_goes_on_for_as_long_as_its_turns_can_be_named(memory):
    long = "x" * 98
    chat(memory()).kickoff({"message": "a"}, run_id=long)
    for message in "bcdefghi":
        chat(memory()).kickoff({"id": long, "message": message})
    with pytest.raises(
        ConfigError, match=r"can have no further turn: its name would be 'x+\.10', which no run can have"
    ):
        chat(memory()).kickoff({"id": long, "message": "j"})


def test_states_with_names_alike_are_kept_apart(config):
    said = {}
    for own, message in itertools.product(("mine", "mine.1", "mine.02", "mine.2", "mine.2.1"), "ab"):
        chat(config()).kickoff({"id": own, "message": message})
    for own in ("mine", "mine.1", "mine.02", "mine.2", "mine.2.1"):
        said[own] = chat(config()).kickoff({"id": own, "message": "c"})
    assert set(said.values()) == {"a b c"}, said


def prune(setting, *, cut=0):
    """Delete all runs that have ended; with `cut`, stop before the deletion with this number."""
    deletions = itertools.count(1)

    def stop(operation):
        if deletes_a_run(operation) and next(deletions) == cut:
            raise Stop

    with History(setting.location) as history, disk.watched(stop):
        return history.prune(older_than=timedelta(0))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_state_goes_on_from_its_newest_turn_after_a_prune_that_is_cut(on_disk, cut):
    done = []
    for operation in "abc":
        chat(on_disk(), done).kickoff(turn(operation), operation_id=operation)
    with pytest.raises(Stop):
        prune(on_disk(), cut=cut)
    assert chat(on_disk(), done).kickoff(turn("c"), operation_id="c") == "a b c"
    assert chat(on_disk(), done).kickoff(turn("d"), operation_id="d") == "a b c d"
    assert done == ["a", "b", "c", "d"]
    prune(on_disk())
    assert chat(on_disk(), done).kickoff(turn("e"), operation_id="e") == "e"


def test_a_turn_that_a_prune_leaves_keeps_those_after_it(on_disk):
    for operation in "abc":
        chat(on_disk()).kickoff(turn(operation), operation_id=operation)
    chat(on_disk()).kickoff({"id": "yours", "message": "a"})
    with History(on_disk().location) as history:
        history.fork(history.run("mine.2").checkpoints()[0], branch="begun")
    done = prune(on_disk())
    assert (set(done.runs), done.holding) == ({"mine", "yours"}, ("mine.2/begun",))
    assert chat(on_disk()).kickoff(turn("d"), operation_id="d") == "a b c d"


def test_a_turn_that_storage_cannot_delete_keeps_those_after_it(on_disk):
    for operation in "abc":
        chat(on_disk()).kickoff(turn(operation), operation_id=operation)
    failed = []

    def fail(operation):
        if deletes_a_run(operation) and not failed:
            failed.append(operation)
            raise OSError(5, "Input/output error")

    with History(on_disk().location) as history, disk.watched(fail), pytest.raises(StoreError, match="'mine'"):
        history.prune(older_than=timedelta(0))
    assert runs_of(on_disk()) == ["mine", "mine.2", "mine.3"]


def test_a_uuid_is_an_operation_and_its_text_is_the_same_one(memory):
    operation = UUID("8f14e45f-ceea-467f-a0e6-8c64f1d1f0a1")
    for given in (operation, str(operation), operation):
        assert chat(memory()).kickoff(turn("a"), operation_id=given) == "a"
    assert runs_of(memory()) == ["mine"]


def test_a_turn_that_fails_says_that_the_same_request_goes_on_with_it(on_disk):
    for options, same in (({"operation_id": "one"}, "repeat the request"), ({}, "run the same script again")):
        with pytest.raises(ConnectionError) as caught:
            chat(on_disk(), broken=True).kickoff(turn("a"), **options)
        assert f"To go on: {same}, or flow.kickoff(run_id='mine')" in "\n".join(caught.value.__notes__)


def test_resume_changes_nothing_beside_an_id(memory):
    with pytest.raises(ConnectionError):
        chat(memory(), broken=True).kickoff(turn("a"))
    assert chat(memory()).kickoff(turn("a"), resume=True, wait=True) == "a"
    assert chat(memory()).kickoff(turn("b"), resume=True, run_id="mine.2") == "a b"
    with pytest.raises(ConfigError, match="resume=True skips a run that a process is running"):
        chat(memory()).kickoff({"message": "a"}, resume=True, wait=True)


def test_an_operation_is_one_of_its_state_alone(memory):
    for own in ("mine", "yours"):
        assert chat(memory()).kickoff({"id": own, "message": own}, operation_id="one") == own


def test_a_repeated_request_with_other_inputs_is_refused(memory):
    chat(memory()).kickoff(turn("a"), operation_id="one")
    chat(memory()).kickoff(turn("b"), operation_id="two")
    with pytest.raises(
        InputsChanged, match="'mine' .*'message'.* repeat the request as it was; .*another operation_id"
    ):
        chat(memory()).kickoff(turn("c"), operation_id="one")
    assert chat(memory()).kickoff(turn("c"), operation_id="three") == "a b c"


def test_a_turn_that_is_cut_at_any_commit_is_the_turn_of_its_operation_alone():
    whole = CheckpointConfig(location="whole", provider=InMemoryProvider())
    chat(whole).kickoff(turn("yes"), operation_id="one")
    chat(whole).kickoff(turn("yes"), operation_id="two")
    before, last = entries_of(whole, "mine"), entries_of(whole, "mine.2")
    for at in range(1, len(last) + 1):
        cut = CheckpointConfig(location="cut", provider=InMemoryProvider())
        with contextlib.closing(cut.provider.open("cut")) as store:
            store.append([Commit("mine", "main", 0, "", tuple(before))])
            store.append([Commit("mine.2", "main", 0, "", tuple(last[:at]))])
        if at < len(last):
            with pytest.raises(InputsChanged, match=r"'operation_id'\. To go on, kick off with run_id='mine\.2'"):
                chat(cut).kickoff(turn("yes"), operation_id="three")
        assert chat(cut).kickoff(turn("yes"), operation_id="two") == "yes yes", f"cut after commit {at}"
        assert chat(cut).kickoff(turn("yes"), operation_id="one") == "yes"
        assert runs_of(cut) == ["mine", "mine.2"]


def test_a_turn_that_was_cut_is_ended_by_its_run_id_which_begins_no_other(memory):
    with pytest.raises(ConnectionError):
        chat(memory(), broken=True).kickoff(turn("a"), operation_id="one")
    with pytest.raises(InputsChanged) as refused:
        chat(memory()).kickoff(turn("b"), operation_id="two")
    assert not refused.value.finished
    for _ in range(2):
        assert chat(memory()).kickoff(run_id=refused.value.run_id, wait=True) == "a"
    assert chat(memory()).kickoff(turn("b"), operation_id="two") == "a b"
    assert chat(memory()).kickoff(turn("a"), operation_id="one") == "a"


@pytest.mark.parametrize("operations", [["one", "two", "three", "one"], [None, None, None]])
def test_turns_at_the_same_time_that_wait_each_get_their_turn(memory, operations):
    messages = ["a", "b", "c", "a"][: len(operations)]

    async def all_at_once():
        each = zip(messages, operations, strict=True)
        return await asyncio.gather(*[chat(memory()).akickoff(turn(m), operation_id=o, wait=True) for m, o in each])

    answers = [answer.split() for answer in asyncio.run(all_at_once())]
    assert [answer[-1] for answer in answers] == messages, "each has the answer to what it said"
    assert sorted(map(len, {tuple(answer) for answer in answers})) == [1, 2, 3]
    assert sorted(max(answers, key=len)) == ["a", "b", "c"]
    assert runs_of(memory()) == ["mine", "mine.2", "mine.3"]


def test_a_turn_that_does_not_wait_is_told_whose_turn_it_is(memory):
    async def all_at_once():
        until = asyncio.Event()
        flows = [(chat(memory(), until=until), message) for message in "abc"]
        left = turns = [asyncio.ensure_future(flow.akickoff(turn(m), operation_id=m)) for flow, m in flows]
        while len(left) > 1:
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        until.set()
        return await asyncio.gather(*turns, return_exceptions=True)

    told = asyncio.run(all_at_once())
    refused = [one for one in told if isinstance(one, BranchConflictError)]
    assert len(refused) == 2
    assert "a turn of the state 'mine'" in str(refused[0])
    assert str(refused[0]).endswith("kick off with wait=True")
    assert len(runs_of(memory())) == 1


@pytest.mark.parametrize("theirs", ["one", "two"])
def test_a_request_beside_another_at_any_verb_is_its_own_turn_or_the_same(theirs):
    for n in itertools.count(1):
        place = CheckpointConfig(location="there", provider=InMemoryProvider())
        chat(place).kickoff(turn("a"))
        beside = Interleaved(place.provider, at=n, act=lambda: chat(place).submit(turn("b"), operation_id=theirs))  # noqa: B023
        mine = chat(CheckpointConfig(location="there", provider=beside)).submit(
            turn("b"), operation_id="one", wait=True
        )
        said = mine.result(20)
        if beside.count < n:
            return
        assert beside.ended()
        if not isinstance(beside.outcome, BranchConflictError):  # else it was refused where it asked
            with contextlib.suppress(BranchConflictError):
                beside.outcome.result(20)
        others = chat(place).kickoff(turn("b"), operation_id=theirs, wait=True)
        if theirs == "one":
            assert said == others == "a b"
        assert sorted({said, others}) == ["a b", "a b b"][: 1 if theirs == "one" else 2], f"before verb {n}"
        assert runs_of(place) == ["mine", "mine.2", "mine.3"][: 2 if theirs == "one" else 3]


def test_the_result_of_a_turn_that_was_deleted_is_gone_and_the_turn_is_not_taken_again(memory):
    for operation in ("one", "two", "three"):
        chat(memory()).kickoff(turn("a"), operation_id=operation)
    with History(memory().location, memory().provider) as history:
        history.delete("mine.2")
    with pytest.raises(RefError, match=r"'mine\.2' was the turn of operation_id='two', and was deleted"):
        chat(memory()).kickoff(turn("a"), operation_id="two")
    assert runs_of(memory()) == ["mine", "mine.3"]


def test_a_run_id_beside_the_id_names_a_turn_of_it_or_the_next_one(memory):
    assert chat(memory()).kickoff(turn("a"), run_id="mine") == "a"
    assert chat(memory()).kickoff(turn("b"), run_id="mine.2") == "a b"
    for run_id, message, said in (("mine", "a", "a"), ("mine.2", "b", "a b")):
        assert chat(memory()).kickoff(turn(message), run_id=run_id) == said
    with pytest.raises(InputsChanged):
        chat(memory()).kickoff(turn("c"), run_id="mine.2")
    chat(memory()).kickoff({"id": "yours", "message": "a"})
    for other in ("request-7", "mine.4", "yours"):
        with pytest.raises(ConfigError, match=rf"'{other}' names no turn of the state 'mine'.*'mine\.3' is next"):
            chat(memory()).kickoff(turn("c"), run_id=other)
    assert runs_of(memory()) == ["mine", "mine.2", "yours"]


def test_a_run_id_that_names_no_turn_is_refused_where_nothing_is_stored_yet(on_disk):
    with pytest.raises(ConfigError, match=r"'request-7' names no turn of the state 'mine'.*'mine' is next"):
        chat(on_disk()).kickoff(turn("a"), run_id="request-7")
    assert chat(on_disk()).kickoff(turn("a"), run_id="mine") == "a"


def test_the_text_of_an_operation_is_not_stored(tmp_path):
    place = CheckpointConfig(location=tmp_path)
    for _ in range(2):
        assert chat(place).kickoff(turn("a"), operation_id="bearer of a token") == "a"
    assert not any("bearer" in path.read_text() for path in tmp_path.rglob("*.json*"))


def in_a_run(setting):
    @flow(checkpoint=setting)
    def outer():
        return chat(None).kickoff(turn("a"), operation_id="one")

    outer.kickoff()


def of_a_flow_that_keeps_no_state(setting):
    class Plain(Flow):
        checkpoint = setting

        @start()
        def begin(self): ...

    Plain().kickoff(turn("a"), operation_id="one")


def of_a_crew(setting):
    clerk = Agent(role="Clerk", goal="answer", llm="offline")
    task = Task(description="Answer", expected_output="text", agent=clerk)
    Crew(tasks=[task], checkpoint=setting).kickoff(operation_id="one")


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (in_a_run, "here the flow is part of another run.*Leave operation_id out"),
        (of_a_flow_that_keeps_no_state, "names a turn of a state: give the flow @persist, and inputs an 'id'"),
        (lambda setting: chat(setting).kickoff({"message": "a"}, operation_id="one"), "inputs an 'id'"),
        (lambda setting: chat(setting).kickoff(turn("a"), operation_id="one", run_id="mine"), "pass one of them"),
        (lambda setting: chat(setting).kickoff(turn("a"), operation_id=""), "wanted a text or UUID that is the same"),
        (lambda setting: chat(setting).kickoff(turn("a"), operation_id=7), "wanted a text or UUID that is the same"),
    ],
)
def test_an_operation_that_can_mean_nothing_is_refused(memory, attempt, told):
    with pytest.raises(ConfigError, match=told):
        attempt(memory())


def test_crews_have_no_operations(memory):
    with pytest.raises(UnknownOption, match="operation_id"):
        of_a_crew(memory())
