"""`@persist`: the id of a state names its run, and a kickoff with it goes on with the run, or with what it has left."""

from __future__ import annotations

import contextlib
import itertools
import threading

import pytest
from pydantic import BaseModel

from crewlite import CheckpointConfig, History
from crewlite.errors import BranchConflictError, ConfigError, CrewliteError, InputsChanged, RunMismatch
from crewlite.flow import Flow, flow, listen, persist, start
from crewlite.flow.classes.persisting import SQLiteFlowPersistence
from crewlite.state import InMemoryProvider
from crewlite.state.providers.base import Commit
from crewlite.testing import Interleaved
from tests.cuts import entries_of


class Chat(BaseModel):
    id: str = ""
    message: str = ""
    said: list[str] = []


def chat(setting, *, broken=False, done=None):
    @persist(setting)
    class Talk(Flow[Chat]):
        @start()
        def hear(self):
            (done if done is not None else []).append(self.state.message)
            self.state.said = [*self.state.said, self.state.message]

        @listen(hear)
        def answer(self):
            if broken:
                raise ConnectionError("down")
            return " ".join(self.state.said)

    return Talk()


def runs_of(setting):
    with History(setting.location, setting.provider) as history:
        return sorted(run.run_id for run in history.runs())


def test_a_kickoff_with_the_id_goes_on_with_the_state_that_the_run_has_left(memory):
    first = chat(memory())
    assert first.kickoff(inputs={"message": "a"}) == "a"
    known = first.state.id
    second = chat(memory())
    assert second.kickoff(inputs={"id": known, "message": "b"}) == "a b"
    assert second.state == Chat(id=known, message="b", said=["a", "b"])
    assert chat(memory()).kickoff({"id": known, "message": "c"}) == "a b c"
    assert chat(memory()).kickoff({"id": "mine", "message": "d"}) == "d"
    assert runs_of(memory()) == sorted([known, f"{known}.2", f"{known}.3", "mine"])
    assert chat(memory()).kickoff(run_id=f"{known}.2") == "a b", "a run_id says which run, and answers from the record"


def test_a_kickoff_with_resume_is_that_of_the_id(memory):
    place = memory()
    with pytest.raises(ConnectionError):
        chat(place, broken=True).kickoff({"id": "mine", "message": "a"})
    done = []
    assert chat(place, done=done).kickoff({"id": "mine", "message": "a"}, resume=True) == "a"
    assert done == [], "the run that was cut short went on behind its first method"
    assert chat(place).kickoff({"id": "mine", "message": "b"}, resume=True) == "a b"
    assert runs_of(place) == ["mine", "mine.2"]


def test_states_whose_ids_differ_in_a_number_at_their_end_share_nothing(memory):
    ids, turns = ("mine", "mine.2", "mine.2.2"), ("a", "b", "c")
    for turn in turns:
        for own in ids:
            kept = chat(memory())
            kept.kickoff({"id": own, "message": f"{own} {turn}"})
            said = [f"{own} {one}" for one in turns[: turns.index(turn) + 1]]
            assert kept.state == Chat(id=own, message=said[-1], said=said)


def test_a_run_that_was_cut_short_goes_on_where_it_was(memory):
    done = []
    chat(memory(), done=done).kickoff({"id": "mine", "message": "a"})
    with pytest.raises(ConnectionError):
        chat(memory(), broken=True, done=done).kickoff({"id": "mine", "message": "b"})
    with pytest.raises(InputsChanged, match=r"'mine\.2'.*message.*run_id='mine\.2'.*delete\('mine\.2'\)"):
        chat(memory(), done=done).kickoff({"id": "mine", "message": "c"})
    assert chat(memory(), done=done).kickoff({"id": "mine"}) == "a b"
    assert done == ["a", "b"]
    assert chat(memory(), done=done).kickoff({"id": "mine", "message": "c"}) == "a b c"


def test_a_turn_that_fails_each_time_is_given_up_with_its_run(memory):
    config = memory()
    chat(config).kickoff({"id": "mine", "message": "a"})
    for message in ("b", "c"):
        with pytest.raises((ConnectionError, InputsChanged)):
            chat(config, broken=True).kickoff({"id": "mine", "message": message})
    with History(config.location, config.provider) as history:
        history.delete("mine.2")
    assert chat(config).kickoff({"id": "mine", "message": "c"}) == "a c"
    assert runs_of(config) == ["mine", "mine.2"]


def test_a_turn_that_is_cut_at_any_commit_is_that_turn_when_it_is_said_again():
    whole = CheckpointConfig(location="whole", provider=InMemoryProvider())
    chat(whole).kickoff({"id": "mine", "message": "a"})
    assert chat(whole).kickoff({"id": "mine", "message": "b"}) == "a b"
    before, turn = entries_of(whole, "mine"), entries_of(whole, "mine.2")
    for at in range(1, len(turn)):
        cut = CheckpointConfig(location="cut", provider=InMemoryProvider())
        with contextlib.closing(cut.provider.open("cut")) as store:
            store.append([Commit("mine", "main", 0, "", tuple(before))])
            store.append([Commit("mine.2", "main", 0, "", tuple(turn[:at]))])
        again = chat(cut)
        assert again.kickoff({"id": "mine", "message": "b"}) == "a b", f"cut after commit {at}"
        assert again.state == Chat(id="mine", message="b", said=["a", "b"])
        assert runs_of(cut) == ["mine", "mine.2"]


def at_work(place):
    """Begin the turn `a`, and return what ends it."""
    begun, free = threading.Event(), threading.Event()

    class Waits(list):
        def append(self, message):
            begun.set()
            free.wait(20)

    handle = chat(place, done=Waits()).submit(inputs={"id": "mine", "message": "a"})
    begun.wait(20)

    def end():
        free.set()
        handle.result()

    return end


def finished(place):
    chat(place).kickoff({"id": "mine", "message": "a"})
    return lambda: chat(place).kickoff({"id": "mine", "message": "b"})


def cut_and_deleted(place):
    with contextlib.suppress(ConnectionError):
        chat(place, broken=True).kickoff({"id": "mine", "message": "a"})

    def delete():
        with History(place.location, place.provider) as history:
            history.delete("mine")

    return delete


def test_a_turn_that_is_to_wait_has_the_result_of_the_equal_one_that_took_its_name_meanwhile():
    turn, waiting = {"id": "mine", "message": "c"}, []

    class Works(list):
        def append(self, message):
            while not (waiting and (waiting[0].run_id or waiting[0].done())):  # until the other one waits for it
                threading.Event().wait(0.01)

    for n in itertools.count(1):
        waiting.clear()
        place = CheckpointConfig(location="there", provider=InMemoryProvider())
        chat(place).kickoff({"id": "mine", "message": "a"})
        other = chat(place, done=Works())
        beside = Interleaved(place.provider, at=n, act=lambda: other.submit(inputs=turn))  # noqa: B023
        waiting.append(chat(CheckpointConfig(location="there", provider=beside)).submit(inputs=turn, wait=True))
        assert waiting[0].result(20) == "a c"
        if beside.count < n:
            return
        assert beside.ended()
        if not isinstance(beside.outcome, BranchConflictError):  # else the one that waits was first
            assert beside.outcome.result(20) == "a c"
        assert runs_of(place) == ["mine", "mine.2"], f"before verb {n}"


@pytest.mark.parametrize("prepare", [at_work, finished, cut_and_deleted])
def test_a_turn_is_its_own_whatever_becomes_of_the_run_that_it_found_before_it_has_it(prepare):
    for n in itertools.count(1):
        place = CheckpointConfig(location="there", provider=InMemoryProvider())
        act = prepare(place)
        beside = Interleaved(place.provider, at=n, act=act)
        try:
            told = chat(CheckpointConfig(location="there", provider=beside)).kickoff({"id": "mine", "message": "c"})
        except CrewliteError as error:
            told = error
        if beside.count < n:
            act()
            return
        assert beside.ended()
        if prepare is cut_and_deleted and isinstance(told, InputsChanged):
            assert "History(location).delete('mine')" in str(told), "it was read before it was deleted"
        elif not isinstance(told, BranchConflictError):
            with History(place.location, place.provider) as history:
                turns = len(history.runs())
            assert told in {"c", "a c", "a b c"}
            assert len(told.split()) == turns, "no turn is lost, and none is taken for another"


def test_a_method_or_a_class_is_marked_with_or_without_parentheses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def counted(mark_class, mark_method):
        @mark_class
        class Count(Flow):
            @mark_method
            @start()
            def count(self):
                self.state["count"] = self.state.get("count", 0) + 1
                return self.state["count"]

        return [Count().kickoff(inputs={"id": "mine"}) for _ in range(2)]

    def not_at_all(marked):
        return marked

    assert counted(persist, not_at_all) == [1, 2]
    assert counted(not_at_all, persist()) == [3, 4]
    assert counted(persist(), persist) == [5, 6]
    assert counted(persist(SQLiteFlowPersistence(tmp_path / "flows")), not_at_all) == [1, 2]
    assert (tmp_path / "flows").is_file()
    assert counted(not_at_all, not_at_all) == [1, 1]


def test_a_flow_that_is_a_part_of_a_run_is_kept_with_that(memory):
    class Outer(Flow):
        checkpoint = memory()

        @start()
        def begin(self):
            return [chat(None).kickoff({"id": "mine", "message": word}) for word in "ab"]

    assert Outer().kickoff(run_id="outer") == ["a", "b"]
    assert runs_of(memory()) == ["outer"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: persist(3), r"wanted a CheckpointConfig, or SQLiteFlowPersistence\(path\)"),
        (lambda: persist()(Chat), "@persist is on Chat; wanted a class of flows"),
        (lambda: persist(Chat), "@persist is on Chat; wanted a class of flows"),
        (
            lambda: persist(CheckpointConfig(location="a"))(type("Own", (Flow,), {"checkpoint": True})),
            "Own has checkpoint=, and @persist names another place",
        ),
        (
            lambda: chat(None).kickoff({"id": "a/b"}),
            "The id of a flow with @persist is the run_id .* take a digest of it",
        ),
        (lambda: chat(None).kickoff({"id": 7}), "id is 7, which is int; wanted a text, such as id='7'"),
        (lambda: chat(None).kickoff(restore_from_state_id="x"), r"kickoff\(inputs={...}\)"),
    ],
)
def test_what_cannot_work_says_what_to_write(make, told):
    with pytest.raises((ConfigError, TypeError), match=told):
        make()


def test_the_name_of_a_program_names_no_run_that_the_id_of_a_state_names(memory, monkeypatch):
    monkeypatch.setenv("CREWLITE_RUN_ID", "night-7")
    for message in ("a", "b"):
        chat(memory()).kickoff(inputs={"id": "mine", "message": message})
    free = chat(memory())
    free.kickoff({"message": "c"})
    assert free.state.id.startswith("night-7.")
    assert runs_of(memory()) == sorted(["mine", "mine.2", free.state.id])


def test_an_id_that_names_the_run_of_another_flow_is_refused(memory):
    @flow(checkpoint=memory())
    def other() -> str:
        return "theirs"

    other.kickoff(run_id="mine")
    with pytest.raises(RunMismatch, match="Run 'mine' is of flow 'other'"):
        chat(memory()).kickoff({"id": "mine", "message": "a"})
    assert runs_of(memory()) == ["mine"]
