"""What History shows of the state at a checkpoint is what the run saw there, also in forks that run steps again."""

from __future__ import annotations

import asyncio
import copy
import random

import pytest

from crewlite import Agent, Crew, History, Task, event_bus
from crewlite.errors import Suspended
from crewlite.events import MethodExecutionFinishedEvent, StepCompletedEvent, TaskCompletedEvent
from crewlite.flow import Flow, ask, flow, listen, start, step
from crewlite.flow.function import FlowFunction
from crewlite.state import RuntimeState
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN
from tests.parts import Stop

INPUTS = {"one": 1, "two": 2}
NAMES = ("x", "y", "z")
SEEDS = pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
ENDS = (StepCompletedEvent, MethodExecutionFinishedEvent, TaskCompletedEvent)


@pytest.fixture
def seen():
    """What handlers of the ends of steps saw: by branch and number of the commit."""
    found = {}

    def note(source, event, state):
        if "/" not in event.address:
            items = dict(state.collection("log"))
            found[event.branch, event.seq] = (event.address, without_id(state), items)

    with event_bus.scoped_handlers():
        for kind in ENDS:
            event_bus.on(kind, note)
        yield found


def without_id(values):
    return {name: copy.deepcopy(value) for name, value in dict(values).items() if name != "id"}


def agree(setting, seen, *, beside=False):
    """History shows what handlers saw. `beside`: steps run side by side, so a handler may see what has ended since."""
    with History(setting.location, setting.provider) as history:
        places = [one for run in history.runs() for one in run.checkpoints()]
    at = {
        (one.branch, one.seq): (one.address, without_id(one.values), one.collections.get("log", {})) for one in places
    }
    if not beside:
        assert {place: at[place] for place in seen} == seen
        return
    for (branch, seq), (address, *state) in seen.items():
        later = [then for (other, n), (_, *then) in at.items() if other == branch and n >= seq]
        assert state in later, (branch, seq, address)


def changed(state, verb, name, value):
    """Change a named value in one of some ways, whatever it was."""
    if verb == "set":
        state[name] = value
    elif verb == "remove":
        state.pop(name, None)
    elif verb == "add":
        state.collection("log").add(value)
    elif verb == "append":
        state[f"{name}s"] = [*state.get(f"{name}s", []), value]
    else:
        state.setdefault(f"{name}d", {})[str(value)] = value


@step
def act(verb, name, value):
    changed(RuntimeState.current(), verb, name, value)
    return value


def flow_of(plan, setting, stop):
    """A flow that does what a plan says. Some of its steps are given an input, or what a step before them returned."""

    @flow(checkpoint=setting)
    def made(one, two):
        results = [one, two]
        for number, (kind, verb, name, given) in enumerate(plan):
            if number in stop:
                raise Stop
            value = results[given % len(results)] * 10 + number if given else number
            if kind == "ask":
                results.append(ask(f"{number}?", int, name=f"q{number}"))
            elif kind == "own":
                changed(RuntimeState.current(), verb, name, value)
            else:
                results.append(act(verb, name, value))
        return results

    return made


def random_plan(chance):
    kinds = ("step",) * 6 + ("own", "ask")
    verbs = ("set", "set", "append", "remove", "key", "add")
    return [
        (chance.choice(kinds), chance.choice(verbs), chance.choice(NAMES), chance.randrange(6))
        for _ in range(chance.randrange(2, 7))
    ]


def changes(chance, ended):
    """Random changes of a fork: `ended` are the steps before it."""
    kind = chance.choice(("inputs", "edits", "rerun", "none"))
    if kind == "inputs":
        return {"inputs": {chance.choice([*INPUTS]): chance.randrange(3, 9)}}
    if kind == "none" or not ended:
        return {}
    at = chance.choice(ended)
    new = chance.randrange(20, 30)
    return {"edits": {at: str(new) if at.startswith("task:") else new}} if kind == "edits" else {"rerun": [at]}


def lived(made, plan, chance, stop, **where):
    """Kick a run off until it is finished, stopping at random places."""
    stop |= {chance.randrange(8)} if chance.random() < 0.4 else set()
    answers = {f"human:q{number}": 7 for number in range(len(plan))} if chance.random() < 0.5 else None
    while True:
        try:
            return made.kickoff(answers=answers, **where)
        except Stop:
            stop.clear()
        except Suspended as waits:
            answers = dict.fromkeys(waits.waiting, 7)


def forked_and_agreeing(made, plan, chance, stop, setting, seen, *, beside=False):
    """Kick a run off, then forks of it and of them, at random places with random changes: History agrees throughout."""
    given = INPUTS if isinstance(made, FlowFunction) else {"inputs": INPUTS}
    lived(made, plan, chance, stop, run_id=RUN, **given)
    agree(setting, seen, beside=beside)
    for number in range(5):
        with History(setting.location, setting.provider) as history:
            run = chance.choice(list(history.runs()))
            places = run.checkpoints()
            place = chance.choice([None, *places])
            ended = [one.address for one in (places if place is None else places[: places.index(place) + 1])]
            ref = place.ref if place else run.ref
            there = {one.address for one in history.run(f"{run.ref}@{place.id}" if place else ref).steps}
            ended = [at for at in ended if at in there]
        fork = made.fork(ref, branch=f"b{number}", **changes(chance, ended))
        lived(fork, plan, chance, stop)
        agree(setting, seen, beside=beside)


@SEEDS
def test_a_checkpoint_of_a_flow_shows_the_state_that_its_handler_saw(stored, seen, seed):
    chance, stop, setting = random.Random(seed), set(), stored(on_events=["step_completed"])
    plan = random_plan(chance)
    forked_and_agreeing(flow_of(plan, setting, stop), plan, chance, stop, setting, seen)


def together_of(plan, setting, stop):
    """A flow whose steps run side by side, in groups."""

    @step(name="act")
    async def act_soon(verb, name, value):
        for _ in range(9 + value % 3):  # until all of them are requested
            await asyncio.sleep(0)
        changed(RuntimeState.current(), verb, name, value)
        return value

    @flow(checkpoint=setting)
    async def made(one, two):
        results = [one, two]
        for number in range(0, len(plan), 3):
            if number in stop:
                raise Stop
            group = plan[number : number + 3]
            results += await asyncio.gather(
                *(
                    act_soon(verb, f"{name}{n}", results[given % len(results)] * 10 + number)
                    for n, (_, verb, name, given) in enumerate(group)
                )
            )
        return results

    return made


@SEEDS
def test_so_does_one_of_a_flow_whose_steps_run_side_by_side(stored, seen, seed):
    chance, stop, setting = random.Random(seed), set(), stored(on_events=["step_completed"])
    plan = random_plan(chance)
    forked_and_agreeing(together_of(plan, setting, stop), plan, chance, stop, setting, seen, beside=True)


def methods_of(plan, setting, stop):
    """A flow of a class, each of whose methods follows one that is before it."""

    def method(number, verb, name, given):
        async def does(self):
            if number in stop:
                raise Stop
            value = self.state.get("one" if given % 2 else "two", 0) * 10 + number
            changed(RuntimeState.current(), verb, name, value)
            return value

        does.__name__ = f"m{number}"
        return does

    made, fields = [], {"checkpoint": setting}
    for number, (_, verb, name, given) in enumerate(plan):
        does = method(number, verb, name, given)
        made.append((start() if not made else listen(made[given % len(made)]))(does))
        fields[f"m{number}"] = made[-1]
    return type("Made", (Flow,), fields)()


@SEEDS
def test_so_does_one_of_a_flow_of_a_class(stored, seen, seed):
    chance, stop, setting = random.Random(seed), set(), stored(on_events=["method_execution_finished"])
    plan = random_plan(chance)
    forked_and_agreeing(methods_of(plan, setting, stop), plan, chance, stop, setting, seen, beside=True)


def crew_of(plan, setting, stop):
    """A crew, of whose tasks handlers keep something in the state."""

    def says(messages):
        text = messages[-1]["content"]
        number = int(text.split()[1])
        if number in stop:
            return Stop()
        return str(len(text) * 10 + number)

    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(says))
    tasks = []
    for number, (_, _, _, given) in enumerate(plan):
        about = ("{one}", "{two}")[given % 2] if given < 4 else "nothing"
        context = tasks[-1:] if given == 2 else []
        tasks.append(
            Task(
                name=f"t{number}",
                description=f"Do {number} with {about}",
                expected_output="text",
                agent=agent,
                context=context,
            )
        )
    return Crew(tasks=tasks, checkpoint=setting)


@SEEDS
def test_so_does_one_of_a_crew_whose_handlers_change_the_state(stored, seen, seed):
    chance, stop, setting = random.Random(seed), set(), stored(on_events=["task_completed"])
    plan = random_plan(chance)
    verbs = {f"t{number}": (verb, name) for number, (_, verb, name, _) in enumerate(plan)}

    @event_bus.on(TaskCompletedEvent)
    def keep(source, event, state):
        changed(state, *verbs[event.task_name], event.output.raw)

    made = crew_of(plan, setting, stop)
    forked_and_agreeing(made, plan, chance, stop, setting, seen)


# by example


def letters(setting):
    """A flow whose methods each leave a letter, made of the input; the third one asks a person."""

    class Letters(Flow[dict]):
        checkpoint = setting

        @start()
        def a(self):
            self.state["a"] = self.state["one"] + "a"

        @listen(a)
        def b(self):
            self.state["b"] = self.state["one"] + "b"

        @listen(b)
        def c(self):
            self.state["c"] = self.state["one"] + "c"
            return self.ask("Good?", bool, name="good")

        @listen(c)
        def d(self):
            self.state["d"] = self.state["one"] + "d"

    return Letters()


GOOD = {"method:c@b/human:good": True}


def states(setting, branch):
    """The states at the checkpoints that a branch has made itself."""
    with History(setting.location, setting.provider) as history:
        places = history.run(f"{RUN}/{branch}").checkpoints()
        return [without_id(one.values) for one in places if one.branch == branch]


def so_far(one, count):
    return {"one": one} | {letter: one + letter for letter in "abcd"[:count]}


def test_a_fork_that_waits_shows_what_it_has_done_and_not_the_end_of_its_base(stored):
    setting = stored()
    letters(setting).kickoff({"one": "1"}, run_id=RUN, answers=GOOD)
    fork = letters(setting).fork(RUN, branch="other", inputs={"one": "2"})
    with pytest.raises(Suspended):
        fork.kickoff()
    assert states(setting, "other") == [so_far("2", 1), so_far("2", 2)]
    with History(setting.location, setting.provider) as history:
        assert without_id(history.run(f"{RUN}/other").values) == so_far("2", 2)
        found = history.diff(f"{RUN}@method:b@a", f"{RUN}/other@method:b@a").state
    assert [one.name for one in found if one.name != "id"] == ["one", "a", "b"]
    fork.kickoff(answers=GOOD)
    assert states(setting, "other") == [so_far("2", count) for count in (1, 2, 3, 4)]


def test_a_fork_in_the_middle_that_runs_a_step_again_keeps_what_that_has_changed(stored):
    setting = stored()
    letters(setting).kickoff({"one": "1"}, run_id=RUN, answers=GOOD)
    letters(setting).fork(f"{RUN}@method:a", branch="mid", inputs={"one": "2"}).kickoff(answers=GOOD)
    assert states(setting, "mid") == [so_far("2", count) for count in (1, 2, 3, 4)]


@pytest.mark.parametrize("change", [{"rerun": ["method:a"]}, {"edits": {"method:a": 7}}])
def test_a_fork_with_an_edit_does_not_show_what_comes_later(stored, change):
    setting = stored()
    letters(setting).kickoff({"one": "1"}, run_id=RUN, answers=GOOD)
    with pytest.raises(Suspended):
        letters(setting).fork(RUN, branch="other", **change).kickoff()
    assert states(setting, "other")[-1] == so_far("1", 2)


def test_a_run_that_goes_on_shows_all_that_was_recorded_also_before_its_code_comes_there(stored):
    """The steps run side by side, and the first one, which was cut, ends before the code has asked for the other."""
    setting, cut = stored(on_events=["step_completed"]), [True]

    @step
    async def slow():
        await asyncio.sleep(0.05)
        if cut:
            cut.clear()
            raise Stop
        RuntimeState.current()["slow"] = 1

    @step
    async def quick():
        RuntimeState.current()["quick"] = 1

    @flow(checkpoint=setting)
    async def both():
        first = asyncio.ensure_future(slow())
        if not cut:
            await first
        await asyncio.gather(first, quick())

    with pytest.raises(Stop):
        both.kickoff(run_id=RUN)
    both.kickoff(run_id=RUN)
    assert states(setting, "main") == [{"quick": 1}, {"quick": 1, "slow": 1}]


def test_a_task_that_runs_again_after_an_edit_inside_it_has_no_changes_of_handlers_yet(stored):
    agent = Agent(role="Worker", goal="work", llm=ScriptedLLM(lambda messages: "done"))
    crew = Crew(tasks=[Task(name="t", description="Do it", expected_output="text", agent=agent)], checkpoint=stored())

    def count(source, event, state):
        state["finished"] = state.get("finished", 0) + 1

    with event_bus.scoped_handlers():
        event_bus.on(TaskCompletedEvent, count)
        crew.kickoff(run_id=RUN)
        crew.fork(RUN, branch="other", edits={"task:t/llm#1": "more"}).kickoff()
    with History(stored().location, stored().provider) as history:
        assert [history.run(ref).values for ref in (RUN, f"{RUN}/other")] == [{"finished": 1}, {"finished": 1}]
