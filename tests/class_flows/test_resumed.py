"""Flows that are cut, or whose process is killed, go on with the causes and arguments that they had."""

from __future__ import annotations

import dataclasses
import signal
import sys
import textwrap
import time
from collections import Counter, OrderedDict, deque

import pytest
from pydantic import BaseModel, Field

from crewlite import Agent, CheckpointConfig, Crew, History, Task
from crewlite.flow import Flow, and_, flow, listen, or_, router, start, step
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.children import PIPE, Child, run
from tests.cuts import RUN, cut, entries_of


class FanOut(Flow):
    """One method starts two."""

    @start()
    async def a(self):
        return "of a"

    @listen(a)
    async def b(self, given):
        self.state["b"] = given
        return "of b"

    @listen(a)
    async def c(self, given):
        self.state["c"] = given
        return "of c"


class Chain(Flow):
    """Each method starts the next."""

    @start()
    def a(self):
        return "of a"

    @listen(a)
    def b(self, given):
        return f"of b, {given}"

    @listen(b)
    def e(self, given):
        return f"of e, {given}"


class Route(Flow):
    """A router chooses the last method."""

    @start()
    def a(self):
        return "of a"

    @router(a)
    def route(self):
        return "go"

    @listen("go")
    def z(self, given):
        return f"of z, {given}"


class Join(Flow):
    """Two branches, one of them a loop with a crew, are joined, and the loop's draft is logged each time."""

    @start()
    def begin(self):
        return "begun"

    @start()
    async def other(self):
        self.state["other"] = True

    @listen(or_(begin, "again"))
    def draft(self, given):
        agent = Agent(role="Poet", goal="rhyme", llm=ScriptedLLM(["one line"]))
        crew = Crew(tasks=[Task(name="poem", description=f"Write on {given}", expected_output="x", agent=agent)])
        self.state.setdefault("drafts", []).append(crew.kickoff().raw)
        return len(self.state["drafts"])

    @router(draft)
    def check(self, count):
        return "again" if count < 3 else "done"

    @listen(draft)
    def log(self, count):
        self.state[f"log {count}"] = True

    @listen(and_("done", other, log))
    def end(self):
        return self.state["drafts"]


EXPECTED = {
    FanOut: ("of c", {"b": "of a", "c": "of a"}),
    Chain: ("of e, of b, of a", {}),
    Route: ("of z, of a", {}),
    Join: (
        ["one line"] * 3,
        {"drafts": ["one line"] * 3, "log 1": True, "log 2": True, "log 3": True, "other": True},
    ),
}


@pytest.mark.parametrize("made", EXPECTED)
def test_a_flow_that_is_cut_after_any_commit_has_the_causes_and_arguments_that_it_had(made):
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    whole = made(checkpoint=setting)
    result = whole.kickoff(run_id=RUN)
    state = {name: value for name, value in whole.state.items() if name != "id"}
    assert (result, state) == EXPECTED[made]
    entries = entries_of(setting)
    for at in range(1, len(entries)):
        again = cut(entries, at)
        for _ in range(2):
            resumed = made(checkpoint=again)
            assert (resumed.kickoff(run_id=RUN), resumed.state) == (result, whole.state), f"cut after commit {at}"
        with History(again.location, again.provider) as history:
            counts = Counter(step.address for step in history.run(RUN).steps)
        assert set(counts.values()) == {1}


class Chance(BaseModel):
    seed: float = Field(default_factory=time.perf_counter)
    found: list[float] = []


class Dice(Flow[Chance]):
    @start()
    def one(self):
        self.state.found.append(self.state.seed)

    @listen(one)
    def two(self):
        self.state.found.append(self.state.seed)


def test_a_default_that_is_chance_is_recorded_once():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    whole = Dice(checkpoint=setting)
    whole.kickoff(run_id=RUN)
    entries = entries_of(setting)
    for at in range(2, len(entries)):
        again = Dice(checkpoint=cut(entries, at))
        again.kickoff(run_id=RUN)
        assert len(set(again.state.found)) == 1
        if at > 2:
            assert again.state == whole.state


def test_a_pruned_and_compacted_run_goes_on_in_the_order_of_its_commits(tmp_path):
    setting = CheckpointConfig(location=str(tmp_path / "store"), on_events=["method_execution_finished"])
    limited = {"max_method_calls": 2}
    with pytest.raises(RecursionError):
        Join(checkpoint=setting, **limited).kickoff(run_id=RUN)
    with History(setting.location) as history:
        history.prune(keep_last=1)
    whole = Join(checkpoint=setting)
    assert (whole.kickoff(run_id=RUN), len(whole.state)) == (EXPECTED[Join][0], 6)


def test_a_killed_process_is_resumed(tmp_path):
    (tmp_path / "plan.py").write_text(
        textwrap.dedent(
            """
            import pathlib, sys, time
            from crewlite import Flow, listen, or_, router, start
            from pydantic import BaseModel

            class Plan(BaseModel):
                turns: int = 0

            def note(text):
                with open("done.txt", "a") as file:
                    file.write(text + "\\n")

            class Turns(Flow[Plan]):
                checkpoint = True

                @start()
                def begin(self):
                    note("begin")

                @listen(or_(begin, "again"))
                def turn(self):
                    self.state.turns += 1
                    if self.state.turns == 3 and sys.argv[1:] == ["hang"]:
                        print("hangs", flush=True)
                        time.sleep(60)
                    note(f"turn {self.state.turns}")

                @router(turn)
                def check(self):
                    return "again" if self.state.turns < 4 else "done"

                @listen("done")
                def end(self):
                    return self.state

            print(Turns().kickoff(run_id="turns"))
            """
        )
    )
    child = Child([sys.executable, "plan.py", "hang"], cwd=tmp_path, stdout=PIPE, text=True)
    assert child.stdout.readline() == "hangs\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = run([sys.executable, "plan.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "turns=4\n", done.stderr
    assert (tmp_path / "done.txt").read_text().split("\n") == ["begin", "turn 1", "turn 2", "turn 3", "turn 4", ""]


def failing_on(answer_of, config):
    class Parse(Flow):
        checkpoint = config

        @start()
        def read(self):
            return int(answer_of().raw)

    return Parse()


def test_the_kickoff_after_a_method_has_failed_goes_on_in_it_and_pays_nothing_twice(on_disk):
    config, llm = on_disk(), ScriptedLLM(["seven"])
    agent = Agent(role="r", goal="g", llm=llm)
    crew = Crew(tasks=[Task(description="Count", expected_output="a number", agent=agent)])
    with pytest.raises(ValueError, match="seven") as first:
        failing_on(crew.kickoff, config).kickoff(run_id="p")
    assert "Recorded: 4 finished steps of run 'p'" in first.value.__notes__[-1]
    with pytest.raises(ValueError, match="seven") as second:
        failing_on(crew.kickoff, config).kickoff(run_id="p")
    assert "flow.fork('p', rerun=['method:read/crew:crew']).kickoff()" in "".join(second.value.__notes__)

    class Parse(Flow):
        checkpoint = config

        @start()
        def read(self):
            return {"seven": 7}[crew.kickoff().raw]

    assert Parse().kickoff(run_id="p") == 7
    assert len(llm.calls) == 1


def test_what_is_inside_a_step_that_begins_anew_is_not_said_to_be_kept(on_disk):
    agent = Agent(role="r", goal="g", llm=ScriptedLLM(["seven", "8"]))
    crew = Crew(tasks=[Task(description="Count", expected_output="a number", agent=agent)])

    @step
    def read():
        return int(crew.kickoff().raw)

    @flow(name="reading", checkpoint=on_disk())
    def reading():
        return read()

    with pytest.raises(ValueError, match="seven") as caught:
        reading.kickoff(run_id="p")
    assert "The next kickoff begins anew." in caught.value.__notes__[-1]
    assert reading.kickoff(run_id="p") == 8


@pytest.mark.parametrize(
    "held",
    [list, deque, lambda items: OrderedDict(enumerate(items)), Counter],
    ids=["list", "deque", "ordered", "counter"],
)
def test_objects_of_a_class_from_elsewhere_come_back_as_such_within_any_collection(held):
    point = dataclasses.make_dataclass("Point", ["x"], frozen=True, namespace={"__qualname__": f"Point.{id(held)}"})
    whole = held([point(1)])

    class Finds(Flow):
        @start()
        def first(self):
            return whole

        @listen(first)
        def second(self, found):
            return found == whole and type(found) is type(whole)

    assert Finds().kickoff() is True
