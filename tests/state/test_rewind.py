"""An entry may stand on an earlier entry of its own branch: those between stay readable and no longer count."""

from __future__ import annotations

import hashlib

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, ToolCall, event_bus, idempotency_key, tool
from crewlite.errors import JournalCorrupt, RefError
from crewlite.events import TaskStartedEvent
from crewlite.state.format.entry import next_entry
from crewlite.state.format.record import Record, replay
from crewlite.state.journal.lineage import find_lineage
from crewlite.state.providers import Commit
from crewlite.testing import ScriptedLLM
from tests.parts import PROVIDERS


class Kept:
    """A location, with a run of three tasks that finished and then went back to where the first had finished."""

    def __init__(self, location, provider):
        self.location, self.provider = location, provider

    def crew(self, *replies, tools=()):
        self.llm = ScriptedLLM(list(replies))
        agent = Agent(role="Pilot", goal="pilot", llm=self.llm, tools=list(tools))
        tasks = [
            Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=[]) for n in range(3)
        ]
        config = CheckpointConfig(location=self.location, provider=self.provider, on_events=["task_completed"])
        return Crew(tasks=tasks, checkpoint=config)

    def history(self, make=False):
        return History(self.location, self.provider, make=make)

    def entries(self, branch="main"):
        store = self.provider.open(self.location)
        try:
            return find_lineage(store, "r", branch).entries
        finally:
            store.close()

    def go_back(self, seq, *, branch="main", total=None):
        """What a rewind to that entry will commit."""
        entries = self.entries(branch)
        found = next(entry for entry in entries if entry.seq == seq)
        parts = {"rewind": {"seq": seq, "sum": total or found.sum}, "released": True}
        store = self.provider.open(self.location)
        try:
            store.append([Commit.of("r", branch, (entries[-1].seq, entries[-1].sum), parts)])
        finally:
            store.close()

    def record(self, branch="main"):
        return Record.of(self.entries(branch))


def raws(result):
    return [output.raw for output in result.tasks_output]


def place_of(record, address, number=0):
    return [place for place in record.checkpoints.values() if place["address"] == address][number]


@pytest.fixture(params=list(PROVIDERS))
def kept(request, tmp_path):
    kept = Kept(str(tmp_path / ("first.db" if request.param == "sqlite" else "first")), PROVIDERS[request.param]())
    kept.crew("a", "b", "c").kickoff(run_id="r")
    kept.before = kept.record()
    kept.go_back(place_of(kept.before, "task:t0")["seq"])
    return kept


def test_steps_behind_that_place_begin_anew(kept):
    said = kept.crew().preview(from_checkpoint="r")
    assert [(step.address, step.why) for step in said if step.verdict == "runs"][0] == ("task:t1", "was never recorded")
    begun = []
    with event_bus.on(TaskStartedEvent, lambda source, event: begun.append((event.address, event.resumed))):
        kept.crew("B", "C").kickoff(run_id="r")
    assert begun == [("task:t1", False), ("task:t2", False)]


@pytest.mark.parametrize(("number", "expected"), [(0, ["a", "b", "X"]), (1, ["a", "B", "X"])], ids=["left", "live"])
def test_a_fork_stands_on_what_was_left_behind_as_on_what_counts(kept, number, expected):
    kept.crew("B", "C").kickoff(run_id="r")
    place = place_of(kept.record(), "task:t1", number)
    with kept.history() as history:
        history.fork(place["id"], branch="other")
    assert raws(kept.crew("X").kickoff(from_checkpoint="r/other")) == expected


def test_an_export_brings_all_of_it_to_every_other_provider(kept, tmp_path):
    with kept.history() as history:
        history.export("r", tmp_path / "run.json")
        digest = history.run("r").digest
    for name, provider in PROVIDERS.items():
        other = Kept(str(tmp_path / ("other.db" if name == "sqlite" else "other")), provider())
        with other.history(make=True) as history:
            assert history.import_run(tmp_path / "run.json").digest == digest
            assert history.doctor() == []
        assert raws(other.crew("B", "C").kickoff(run_id="r")) == ["a", "B", "C"]


def test_a_prune_keeps_what_was_gone_back_to(kept):
    states = {entry.seq: (dict(record.outcomes), record.epoch) for entry, record in replay(kept.entries())}
    with kept.history() as history:
        history.prune(keep_last=1)
        assert history.doctor() == []
    for entry, record in replay(kept.entries()):
        answers = {at: outcome.digest for at, outcome in record.outcomes.items()}
        outcomes, epoch = states.get(entry.seq, ({}, record.epoch))
        assert answers.items() <= {at: outcome.digest for at, outcome in outcomes.items()}.items() or not outcomes
        assert record.epoch == epoch
    assert kept.record().paid.total == kept.before.paid.total
    assert raws(kept.crew("B", "C").kickoff(run_id="r")) == ["a", "B", "C"]


def test_no_checkpoint_gets_the_number_of_one_that_was_abandoned_and_pruned(kept):
    with kept.history() as history:
        for _ in range(2):
            history.prune(keep_last=1)
        assert [place["address"] for place in kept.record().checkpoints.values()] == ["task:t0"]
        assert history.doctor() == []
    kept.crew("B", "C").kickoff(run_id="r")
    record = kept.record()
    assert place_of(record, "task:t1")["version"] > max(one["version"] for one in kept.before.checkpoints.values())


def test_a_prune_keeps_the_time_of_a_rewind(kept):
    kept.crew("B", "C").kickoff(run_id="r")
    with kept.history() as history:
        before = history.run("r").rewinds
        for keep in (2, 1):
            history.prune(keep_last=keep)
            assert history.run("r").rewinds == before


def test_of_places_that_a_rewind_has_abandoned_no_two_get_one_label_though_a_fork_stands_on_them(kept):
    first, second = (place_of(kept.before, f"task:t{n}")["id"] for n in (1, 2))
    with kept.history() as history:
        history.fork(second, branch="f")
        history.label(first, "before")
        with pytest.raises(RefError, match="labels another place"):
            history.label(f"r/f@{second}", "before")


def test_what_goes_back_to_nothing_is_damaged(kept):
    kept.go_back(place_of(kept.before, "task:t0")["seq"], total="0" * 32)
    with pytest.raises(JournalCorrupt, match="goes back to commit"):
        kept.record()


def test_a_commit_goes_back_and_never_ahead_or_to_itself(kept):
    entries = kept.entries()
    last = entries[-1]
    for seq in (last.seq + 1, last.seq + 2):
        made = next_entry({"rewind": {"seq": seq, "sum": last.sum}}, after=(last.seq, last.sum))
        with pytest.raises(JournalCorrupt):
            Record.of([*entries, made])


def test_idempotency_keys_are_others_after_going_back(kept):
    keys = []

    @tool
    def charge() -> str:
        """Charge somebody."""
        keys.append(idempotency_key())
        return "charged"

    for _ in range(2):
        kept.crew(ToolCall("charge", {}), "B", "C", tools=[charge]).kickoff(run_id="r")
        kept.go_back(place_of(kept.before, "task:t0")["seq"])
    kept.crew(ToolCall("charge", {}), "a", "B", "C", tools=[charge]).kickoff(run_id="s")
    key = hashlib.blake2b(b"s\nmain\ntask:t0/tool:charge", digest_size=16).hexdigest()
    assert len(set(keys)) == 3 and keys[-1] == key, "a run that never went back has the key it always had"
