"""A policy is set on a model, tool, step, task, agent, crew or flow; the nearest one decides, and it decides once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from crewlite import (
    LLM,
    Agent,
    AttemptInfo,
    BaseLLM,
    BaseTool,
    CheckpointConfig,
    Crew,
    FailurePolicy,
    History,
    Task,
    ToolCall,
    around,
    tool,
)
from crewlite.errors import BindMissing, ConfigError, InDoubt, LLMUnavailable, MaxIterations, StepTimeout
from crewlite.events import RecoveryStartedEvent, ToolUsageErrorEvent, ToolUsageStartedEvent
from crewlite.flow import flow, recoverable, step
from crewlite.recovery import DEFAULT, Abort, Fallback, Retry, Rule
from crewlite.testing import EventRecorder, ScriptedLLM

from .failing import ADDRESS, AROUND, World

PLACES = [(noun, place) for noun, places in AROUND.items() for place in places]
PAIRS = [
    (noun, near, far) for noun, places in AROUND.items() for n, near in enumerate(places) for far in places[n + 1 :]
]
FAILURES = (KeyError, MaxIterations)


class Own:
    """Says the same whenever it is asked, and notes who it was asked about."""

    def __init__(self, remedy, times=1):
        self.remedy, self.times, self.asked = remedy, times, []

    def decide(self, failure, past):
        self.asked.append((failure.address, past))
        return self.remedy if len(past) < self.times else Abort()


def attempts(address=None):
    with History(".checkpoints") as history:
        found = history.run("r").attempts
    return [(one.number, one.remedy) for one in found if address in (None, one.address)]


@pytest.mark.parametrize(("noun", "place"), PLACES)
def test_retry_has_the_thing_that_failed_done_again_and_is_recorded_with_the_attempt(noun, place):
    policy = Own(Retry())
    world = World(noun, **{place: policy})
    with EventRecorder() as events:
        assert world.flow.kickoff(run_id="r") == "done"
    assert world.calls == 2
    assert policy.asked == [(ADDRESS[noun], ())]
    kind = "refused" if noun == "task" else "bug"
    assert attempts() == [(1, Retry(0, kind))]
    told = [(event.kind, event.remedy, event.attempt) for event in events.of(RecoveryStartedEvent)]
    assert told == [(noun, "retry", 1)]
    assert world.told[-1] == "seen"


@pytest.mark.parametrize(("noun", "place"), PLACES)
@pytest.mark.parametrize("remedy", [Abort(), Fallback()])
def test_abort_gives_up_and_so_does_a_fallback_where_there_is_none(noun, place, remedy):
    policy = Own(remedy)
    world = World(noun, **{place: policy})
    told = noun == "tool"  # its failure goes to the model, as it does without a policy
    with contextlib.nullcontext() if told else pytest.raises(FAILURES):
        world.flow.kickoff(run_id="r")
    assert (world.calls, policy.asked) == (1, [(ADDRESS[noun], ())])
    assert attempts(ADDRESS[noun]) == ([] if told else [(1, Abort())])
    assert world.told == (["Tool look failed: KeyError: 'tool'"] if told else ["seen"] if noun == "task" else [])


@pytest.mark.parametrize("place", AROUND["llm"])
def test_fallback_goes_on_with_the_next_model(place):
    spare = ScriptedLLM(["hello"], model="spare")
    assert World("llm", spare=spare, **{place: Own(Fallback())}).flow.kickoff(run_id="r") == "hello"
    assert attempts() == [(1, Fallback())]


@pytest.mark.parametrize(("noun", "near", "far"), PAIRS)
def test_the_nearest_policy_decides_alone(noun, near, far):
    inner, outer = Own(Retry()), Own(Retry(), 9)
    world = World(noun, 2, **{near: inner, far: outer})
    with contextlib.nullcontext() if noun == "tool" else pytest.raises(FAILURES):
        world.flow.kickoff(run_id="r")
    assert (world.calls, [at for at, _ in inner.asked]) == (2, [ADDRESS[noun]] * 2)
    assert outer.asked == []


def test_what_is_given_up_inside_is_not_tried_again_by_what_is_around_it():
    policy = Own(Abort())
    with pytest.raises(KeyError):
        World("llm", flow=policy).flow.kickoff(run_id="r")
    assert [at for at, _ in policy.asked] == [ADDRESS["llm"]]
    tried = attempts()
    assert [remedy for _, remedy in tried] == [Abort(), None, None, None], "of the task, the crew and the flow"


def test_a_step_around_a_crew_is_not_tried_again_for_what_was_decided_in_the_crew():
    policy = Own(Retry(), 2)
    crew = World("llm", 99).flow

    @step
    def outer():
        return crew.kickoff()

    with pytest.raises(KeyError):
        flow(name="f", checkpoint=True, failure_policy=policy)(lambda: outer()).kickoff(run_id="r")
    assert len(policy.asked) == 3
    assert {at.rpartition("/")[2] for at, _ in policy.asked} == {"llm#1"}


def test_a_step_decides_on_the_code_of_a_flow_inside_it_on_which_nobody_has_decided():
    made = []

    @flow
    def inner():
        made.append(1)
        raise KeyError

    @step
    def outer():
        return inner.kickoff()

    with pytest.raises(KeyError):
        flow(name="f", failure_policy=Own(Retry()))(lambda: outer()).kickoff()
    assert len(made) == 2


def test_retries_of_a_step_are_for_itself_and_its_policy_is_for_what_is_inside_it():
    policy, world = Own(Retry(), 1), World("llm", 4)

    @step(retries=1, failure_policy=policy)
    def outer():
        return world.flow.kickoff()

    with pytest.raises(KeyError):
        flow(name="f", checkpoint=True)(lambda: outer()).kickoff(run_id="r")
    assert world.calls == 4, "two for each of two tries"


def test_a_step_with_no_retries_is_not_tried_again_whatever_is_around_it():
    made, policy = [], Own(Retry())

    @step(retries=0)
    def inner():
        made.append(1)
        raise KeyError

    @step
    def outer():
        return inner()

    with pytest.raises(KeyError):
        flow(name="f", failure_policy=policy)(lambda: outer()).kickoff()
    assert (made, policy.asked) == ([1], [])


def busy(times, **more):
    llm = ScriptedLLM([LLMUnavailable("503", retry_after=0)] * times + ["hello"])
    crew = Crew(tasks=[Task(description="d", expected_output="e", agent=Agent(role="a", goal="g", llm=llm))], **more)
    return llm, crew


def test_models_keep_their_own_tries_where_nothing_is_set():
    llm, crew = busy(3)
    assert crew.kickoff().raw == "hello"
    llm, crew = busy(4)
    with pytest.raises(LLMUnavailable):
        crew.kickoff()
    assert len(llm.calls) == 4


def test_a_policy_around_a_model_takes_the_place_of_its_own_tries():
    llm, crew = busy(3, failure_policy=FailurePolicy())
    with pytest.raises(LLMUnavailable):
        crew.kickoff()
    assert len(llm.calls) == 1
    llm, crew = busy(5, failure_policy=FailurePolicy((Rule(frozenset({"unavailable"}), retries=5),)))
    assert crew.kickoff().raw == "hello"
    more = FailurePolicy((Rule(frozenset({"bug"}), retries=1), *DEFAULT.rules))
    assert busy(3, failure_policy=more)[1].kickoff().raw == "hello"


def test_an_agent_alone_goes_by_its_policy_or_that_of_its_model_or_of_the_flow_around_it():
    agent = Agent(role="a", goal="g", llm=ScriptedLLM([KeyError("x"), "hello"]), failure_policy=Own(Retry()))
    assert agent.kickoff("Hi").raw == "hello"
    llm = ScriptedLLM([KeyError("x"), "hello"])
    llm.failure_policy = Own(Retry())
    assert Agent(role="a", goal="g", llm=llm).kickoff("Hi").raw == "hello"
    agent = Agent(role="a", goal="g", llm=ScriptedLLM([KeyError("x"), "hello"]))
    assert flow(name="f", failure_policy=Own(Retry()))(lambda: agent.kickoff("Hi").raw).kickoff() == "hello"


def test_a_class_of_models_may_have_a_policy():
    class Shaky(BaseLLM):
        failure_policy = Own(Retry())
        made = 0

        def call(self, messages):
            self.made += 1
            if self.made == 1:
                raise KeyError
            return "hello"

    assert Agent(role="a", goal="g", llm=Shaky()).kickoff("Hi").raw == "hello"


def test_a_tool_that_is_called_again_is_one_call_to_the_model_and_to_its_limit():
    policy, made = Own(Retry(), 2), []

    class Look(BaseTool):
        name: str = "look"
        description: str = "Look."

        def _run(self) -> str:
            made.append(1)
            raise KeyError("dark")

    llm = ScriptedLLM([ToolCall("look"), "done"])
    with EventRecorder() as events:
        agent = Agent(role="a", goal="g", llm=llm, tools=[Look(failure_policy=policy, max_usage_count=1)])
        assert agent.kickoff("Go").raw == "done"
    assert len(made) == 3
    assert [len(events.of(cls)) for cls in (ToolUsageStartedEvent, ToolUsageErrorEvent)] == [1, 1]
    assert llm.calls[1][-1]["content"] == "Tool look failed: KeyError: 'dark'"


def test_a_call_that_must_happen_once_is_made_again_by_its_own_policy_alone():
    outer = Own(Retry(), 9)
    world = World("tool", effect="once", task=outer, flow=outer)
    world.flow.kickoff(run_id="r")
    assert (world.calls, outer.asked) == (1, [])
    world = World("tool", effect="once", tool=Own(Retry()))
    world.flow.kickoff(run_id="s")
    assert world.calls == 2


def test_a_call_in_doubt_is_never_made_again_by_a_policy():
    always, made = Own(Retry(), 9), []

    @tool(effect="once", timeout=0.3, failure_policy=always)
    async def pay() -> str:
        """Pay."""
        made.append(1)
        await asyncio.sleep(30)

    agent = Agent(role="a", goal="g", llm=ScriptedLLM([ToolCall("pay")] * 9), tools=[pay])
    task = Task(name="t", description="d", expected_output="e", agent=agent)
    crew = Crew(tasks=[task], failure_policy=always, checkpoint=True)
    for _ in range(2):
        with pytest.raises(InDoubt):
            crew.kickoff(run_id="r")
    assert (made, always.asked) == ([1], [])


@pytest.mark.parametrize("more", [{"retries": 3}, {"failure_policy": Own(Retry(), 9)}], ids=["retries", "policy"])
def test_a_step_that_must_happen_once_and_took_too_long_is_not_done_again(more):
    made = []

    @step(effect="once", timeout=0.3, **more)
    async def pay():
        made.append(1)
        await asyncio.sleep(30)

    @flow(checkpoint=True)
    async def bill():
        await pay()

    with pytest.raises(StepTimeout):
        bill.kickoff(run_id="r")
    with pytest.raises(InDoubt):
        bill.kickoff(run_id="r")
    assert made == [1]


@pytest.mark.parametrize("place", ["llm", "tool", "task", "crew", "step", "flow"])
def test_a_policy_that_misbehaves_is_told_instead_of_the_failure(place):
    noun = place if place in AROUND else "llm"
    with pytest.raises(
        ConfigError, match=r"Own.decide returned None; wanted Retry\(after\), Fallback\(\) or Abort\(\)"
    ):
        World(noun, **{place: Own(None)}).flow.kickoff(run_id="r")


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: LLM("offline", failure_policy=3), "LLM: failure_policy is 3"),
        (lambda: Task(description="d", expected_output="e", failure_policy=3), "Task: failure_policy is 3"),
        (
            lambda: Crew(tasks=[Task(description="d", expected_output="e")], failure_policy=3),
            "Crew: failure_policy is 3",
        ),
        (lambda: tool(failure_policy=3)(test_a_policy_that_cannot_decide), "FunctionTool: failure_policy is 3"),
        (lambda: step(name="s", failure_policy=3)(print), "@step 's': failure_policy is 3"),
        (lambda: flow(name="f", failure_policy=3)(print), "@flow 'f': failure_policy is 3"),
        (lambda: recoverable(name="f", policy=3)(print), "@recoverable 'f': policy is 3"),
        (lambda: World("llm", llm=3).flow.kickoff(), "model 'first': failure_policy is 3"),
        (lambda: LLM("offline", extra={"num_retries": 3}), "use failure_policy="),
    ],
)
def test_a_policy_that_cannot_decide(make, where):
    """Is refused where it is set; what a model of the user's own has, where it is asked."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert where in str(caught.value)


@pytest.mark.parametrize("noun", ADDRESS)
def test_a_hook_sees_every_attempt_with_its_number_and_how_it_ended(noun):
    seen = []

    @contextlib.contextmanager
    def hook(attempt: AttemptInfo):
        if attempt.address == ADDRESS[noun]:
            seen.append(attempt.attempt)
        yield

    with around(hook):
        World(noun, 2, flow=Own(Retry(), 2)).flow.kickoff(run_id="r")
    assert seen == [1, 2, 3]


def test_calls_side_by_side_have_a_budget_each():
    policy, made = Own(Retry(), 2), {}

    @tool
    async def look(n: int) -> str:
        """Look."""
        made[n] = made.get(n, 0) + 1
        await asyncio.sleep(0.001 * (n % 5))
        if made[n] <= n % 4:
            raise KeyError(n)
        return "seen"

    turn = [ToolCall("look", {"n": n}) for n in range(24)]
    llm = ScriptedLLM([turn, "done"])
    task = Task(description="d", expected_output="e", agent=Agent(role="a", goal="g", llm=llm, tools=[look]))
    Crew(tasks=[task], failure_policy=policy).kickoff()
    assert made == {n: min(n % 4 + 1, 3) for n in range(24)}
    told = [message["content"] for message in llm.calls[1] if message["role"] == "tool"]
    assert [text.startswith("Tool look failed") for text in told] == [n % 4 == 3 for n in range(24)]


def test_runs_side_by_side_share_a_policy_and_no_budget():
    policy = Own(Retry(), 1)
    worlds = [World("llm", n % 3, crew=policy, checkpoint=False) for n in range(12)]

    async def every():
        return await asyncio.gather(*(world.flow.akickoff() for world in worlds), return_exceptions=True)

    for n, result in enumerate(asyncio.run(every())):
        assert result == "done" if n % 3 < 2 else isinstance(result, KeyError)


def test_a_record_is_read_without_the_policy_and_a_definition_is_rebuilt_with_one():
    task = Task(name="t", description="d", expected_output="e", agent=Agent(role="a", goal="g", llm="offline"))
    crew = Crew(tasks=[task], checkpoint=CheckpointConfig(location="here"), failure_policy=Own(Retry()))
    crew.kickoff(run_id="r")
    with History("here") as history:
        assert history.run("r").tasks
    ref = CheckpointConfig(location="here", restore_from="r")
    with pytest.raises(BindMissing, match="the failure policy 'Own'"):
        Crew.from_checkpoint(ref)
    again = Own(Abort())
    assert Crew.from_checkpoint(ref, bind={"failure_policy": again}).failure_policy is again
    assert Crew.from_checkpoint(ref, bind={"failure_policy": None}).failure_policy is None


def test_a_model_with_a_policy_is_not_rebuilt_without_it():
    assert LLM("offline", failure_policy=FailurePolicy()).plain_settings() is None
