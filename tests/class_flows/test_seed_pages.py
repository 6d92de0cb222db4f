"""What two pages on checkpoints promise, with flows of methods: the page of CrewAI, and that of QitOS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.errors import InputsChanged, RunMismatch
from crewlite.events.event_bus import crewlite_event_bus
from crewlite.events.types.flow_events import MethodExecutionFinishedEvent
from crewlite.flow.flow import Flow, listen, or_, router, start
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from crewlite.state.runtime import RuntimeState
from crewlite.testing import ScriptedLLM


class CtrlC(Exception):
    """What interrupts a run here."""


# The page of CrewAI


class MyFlow(Flow):
    interrupted = False

    @start()
    def step_one(self):
        return "data"

    @listen(step_one)
    def step_two(self, data):
        if MyFlow.interrupted:
            raise CtrlC
        return f"processed {data}"


@pytest.fixture
def interrupted():
    MyFlow.interrupted = True
    yield
    MyFlow.interrupted = False


@pytest.mark.parametrize("provider", [None, JsonProvider(), SqliteProvider()])
def test_checkpoint_a_flow(provider):
    location = "./flow_cp.db" if isinstance(provider, SqliteProvider) else "./flow_cp"
    config = CheckpointConfig(location=location, provider=provider, on_events=["method_execution_finished"])
    flow = MyFlow(checkpoint=config)
    assert flow.kickoff() == "processed data"
    with History(location, provider) as history:
        assert [place.address for place in history.run().checkpoints()] == [
            "method:step_one",
            "method:step_two@step_one",
        ]


def test_resume_a_flow_that_was_interrupted(interrupted):
    with pytest.raises(CtrlC):
        MyFlow(checkpoint=True).kickoff()
    [place] = Path(".checkpoints").glob("*_*.json")
    MyFlow.interrupted = False
    config = CheckpointConfig(restore_from=str(place))
    assert MyFlow(checkpoint=True).kickoff(from_checkpoint=config) == "processed data"
    assert MyFlow.from_checkpoint(config).kickoff() == "processed data", "it is finished: nothing runs"
    with History() as history:
        assert [step.address for step in history.run().steps if step.kind == "method"] == [
            "method:step_one",
            "method:step_two@step_one",
        ]


def test_a_crew_in_a_flow_inherits_its_checkpoints_and_one_opts_out():
    def crew(**settings):
        agent = Agent(role="Clerk", goal="note", llm=ScriptedLLM(["noted"] * 9), **settings)
        return Crew(tasks=[Task(name="note", description="Note it", expected_output="a note", agent=agent)])

    class Office(Flow):
        checkpoint = CheckpointConfig(location="./office", on_events=["task_completed"])

        @start()
        def first(self):
            return crew().kickoff().raw

        @listen(first)
        def second(self):
            return crew(checkpoint=False).kickoff().raw

    Office().kickoff(run_id="run")
    with History("./office") as history:
        assert [place.address for place in history.run("run").checkpoints()] == ["method:first/crew:crew/task:note"]


@pytest.mark.parametrize("as_coroutine", [False, True])
def test_write_a_checkpoint_by_hand(as_coroutine):
    saved = []
    if as_coroutine:

        @crewlite_event_bus.on(MethodExecutionFinishedEvent)
        async def on_done_async(source: Any, event: MethodExecutionFinishedEvent, state: RuntimeState) -> None:
            saved.append(await state.acheckpoint("./my_checkpoints"))
    else:

        @crewlite_event_bus.on(MethodExecutionFinishedEvent)
        def on_done(source: Any, event: MethodExecutionFinishedEvent, state: RuntimeState) -> None:
            saved.append(state.checkpoint("./my_checkpoints"))

    MyFlow().kickoff()
    assert [Path(path).exists() for path in saved] == [True, True]


# The page of QitOS


class Notes(BaseModel):
    what: str = ""
    scratchpad: list[str] = []
    current_step: int = 0
    finding: str = ""


class Analysis(Flow[Notes]):
    """Four steps of an agent, the third of which may be interrupted."""

    did: list[str] = []
    broken = False

    def note(self, step):
        type(self).did.append(step)
        self.state.current_step += 1
        self.state.scratchpad = [*self.state.scratchpad, f"{step} {self.state.what}".strip()]
        return f"did {step}"

    @start()
    def read(self):
        return self.note("read")

    @listen(or_(read, "unclear"))
    def clean(self):
        self.state.finding = "dirty"
        return self.note("clean")

    @router(clean, emit=["clear", "unclear"])
    def model(self):
        if type(self).broken:
            raise ConnectionError("network")
        self.note("model")
        return "clear"

    @listen("clear")
    def report(self):
        return self.note("report")


@pytest.fixture(params=["memory", "json", "sqlite"])
def analysis(request):
    """Makes the flow in one store; `.did` lists what has run."""
    provider = {"memory": InMemoryProvider, "json": JsonProvider, "sqlite": SqliteProvider}[request.param]()
    location = "checkpoints.db" if request.param == "sqlite" else "checkpoints"
    store = CheckpointConfig(location=location, provider=provider, on_events=["method_execution_finished"])

    class Own(Analysis):
        name = "analysis"
        checkpoint = store
        did: list[str] = []

    Own.history = staticmethod(lambda: History(location, provider))
    return Own


def test_basic_checkpointing(analysis):
    analysis().kickoff({"what": "the dataset"}, run_id="my-run-001")
    with analysis.history() as history:
        latest = history.checkpoint("my-run-001")
        assert (latest.version, latest.address) == (4, "method:report@clear")
        assert latest == history.run("my-run-001").checkpoints()[-1]


def test_resuming_a_run(analysis):
    analysis.broken = True
    with pytest.raises(ConnectionError, match="network"):
        analysis().kickoff({"what": "it"}, run_id="my-run-001")
    analysis.broken = False
    flow = analysis()
    assert flow.kickoff(run_id="my-run-001") == "did report"
    assert analysis.did == ["read", "clean", "model", "report"], "nothing is done twice"
    assert (flow.state.current_step, flow.state.scratchpad[-1]) == (4, "report it")
    with pytest.raises(InputsChanged):
        analysis().kickoff({"what": "something else"}, run_id="my-run-001")


def test_forking_a_checkpoint(analysis):
    flow = analysis()
    flow.kickoff({"what": "A"}, run_id="my-run-001")
    with analysis.history() as history:
        second = history.run("my-run-001").checkpoints()[1]
        before = history.run("my-run-001").checkpoints()
    analysis.did.clear()
    fork = flow.fork(CheckpointConfig(restore_from=second.id), branch="branch-a")
    assert fork.kickoff() == "did report"
    assert analysis.did == ["model", "report"], "what was done at the checkpoint is not done again"
    assert fork.state.scratchpad == flow.state.scratchpad

    other = flow.fork(CheckpointConfig(restore_from=second.id), branch="branch-b", inputs={"what": "B"})
    analysis.did.clear()
    other.kickoff()
    assert analysis.did == ["read", "clean", "model", "report"], "other inputs run all again"
    assert other.state.scratchpad == ["read B", "clean B", "model B", "report B"]

    edited = flow.fork("my-run-001", branch="branch-c", edits={"method:model@clean": "unclear"})
    analysis.did.clear()
    edited.kickoff()
    assert analysis.did == ["clean", "model", "report"], "an edited label goes another way"
    with analysis.history() as history:
        assert history.run("my-run-001").checkpoints() == before, "the original is untouched"
        assert history.run("my-run-001/branch-a").base.checkpoint_id == second.id
    assert analysis().kickoff(run_id="my-run-001") == "did report"


def test_fork_then_time_travel_within_the_run(analysis):
    flow = analysis()
    flow.kickoff({"what": "A"}, run_id="my-run-001")
    with analysis.history() as history:
        second, third, last = history.run("my-run-001").checkpoints()[1:]
        history.fork(third, branch="branch-a")
        run = history.rewind(second, reason="redo from step 2")
        assert (run.status, run.checkpoints()[-1]) == ("unfinished", second)
        assert (history.checkpoint("my-run-001").versions, history.checkpoint(last.id).versions["current_step"]) == (
            second.versions,
            5,
        )
    analysis.did.clear()
    assert flow.kickoff(run_id="my-run-001") == "did report"
    assert analysis.did == ["model", "report"], "what was before the place stands"
    assert (flow.state.current_step, flow.state.scratchpad) == (4, ["read A", "clean A", "model A", "report A"])
    assert flow.kickoff(from_checkpoint="my-run-001/branch-a") == "did report"
    assert analysis.did == ["model", "report", "report"], "forks of what was left go on"
    with analysis.history() as history:
        run = history.run("my-run-001")
        assert [place.version for place in run.checkpoints()] == [1, 2, 5, 6], "a number is used once"
        assert [tail.checkpoints()[-1] for tail in run.abandoned] == [last]
        assert history.doctor() == []


def test_a_run_of_another_flow_is_not_taken_for_one_of_this(analysis):
    analysis().kickoff(run_id="my-run-001")

    class Other(Flow):
        checkpoint = analysis.checkpoint

        @start()
        def begin(self): ...

    with pytest.raises(RunMismatch):
        Other().kickoff(run_id="my-run-001")


def test_state_version_tracking(analysis):
    analysis.broken = True
    with pytest.raises(ConnectionError):
        analysis().kickoff(run_id="my-run-001")
    analysis.broken = False
    analysis().kickoff(run_id="my-run-001")
    begun = {"what": 1, "id": 1}
    with analysis.history() as history:
        places = history.run("my-run-001").checkpoints()
        assert [place.versions for place in places] == [
            begun | {"current_step": 2, "scratchpad": 2, "finding": 1},
            begun | {"current_step": 3, "scratchpad": 3, "finding": 2},
            begun | {"current_step": 4, "scratchpad": 4, "finding": 2},
            begun | {"current_step": 5, "scratchpad": 5, "finding": 2},
        ]
        assert places[0].diff(places[1]).changed["finding"] == ("", "dirty")
        history.fork(places[2], branch="b")
        assert history.checkpoint("my-run-001/b").versions == places[2].versions
