"""No inner setting switches an outer guard off, and `max_retries` of a model says no more than how often."""

from __future__ import annotations

import pytest

from crewlite import LLM, Agent, Crew, FailurePolicy, Task, ToolCall, tool
from crewlite.errors import CallVetoed, CircuitOpen, ConfigError, LLMUnavailable, Suspended
from crewlite.flow import flow, step
from crewlite.recovery import (
    DEFAULT,
    Abort,
    CircuitBreaker,
    Failure,
    Fallback,
    Guard,
    Replan,
    Retry,
    RiskThreshold,
    Rule,
    Suspend,
    backoff_and_retry,
    chain,
    replan,
    suspend,
    usual_policy,
)
from crewlite.recovery.policy import MaxRetries
from crewlite.testing import ScriptedLLM


class Listener(Guard):
    """Notes the calls that it is asked about, and refuses those of one kind."""

    def __init__(self, name, heard, refuses=""):
        self.name, self.heard, self.refuses = name, heard, refuses

    def before(self, call):
        self.heard.append((self.name, call.kind))
        if call.kind == self.refuses:
            raise CallVetoed(self.name, call.what, "no")


def guarded(*guards):
    return FailurePolicy(DEFAULT.rules, guards=guards)


PLAIN = FailurePolicy(DEFAULT.rules)


class Own:
    def decide(self, failure, past):
        return Abort()


def model(times=None, policy=None, **more):
    """A model that calls its tool once. `times`: how often it says that it retries."""

    def reply(messages):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("look", {"port": "Brest"})

    llm = ScriptedLLM(reply, **more)
    llm.failure_policy = policy if times is None else LLM("offline", max_retries=times).failure_policy
    return llm


def made(ran, policy, *, llm=None, tool_policy=None, **of):
    """A crew; `of`: further settings of its agent and its task."""

    @tool(failure_policy=tool_policy)
    def look(port: str) -> str:
        """Look."""
        ran.append(port)
        return "fog"

    agent = Agent(role="Pilot", goal="g", llm=llm or model(), tools=[look], **of.get("agent", {}))
    task = Task(name="ask", description="d", expected_output="x", agent=agent, **of.get("task", {}))
    return Crew(tasks=[task], failure_policy=policy, checkpoint=of.get("checkpoint"))


INNER = {
    "nothing": {},
    "max_retries of the model": {"llm": lambda: model(times=20)},
    "policy of the model": {"llm": lambda: model(policy=PLAIN)},
    "policy of the tool": {"tool_policy": PLAIN},
    "policy of the agent": {"agent": {"failure_policy": PLAIN}},
    "policy of the task": {"task": {"failure_policy": PLAIN}},
    "a policy of one's own": {"task": {"failure_policy": Own()}, "tool_policy": Own()},
    "retries of the agent": {"agent": {"max_retry_limit": 2}},
}


def settings(name):
    return {key: value() if key == "llm" else value for key, value in INNER[name].items()}


@pytest.mark.parametrize("kind", ["tool", "model"])
@pytest.mark.parametrize("inner", INNER)
def test_the_guard_of_a_crew_holds_whatever_is_set_inside(inner, kind):
    ran, heard = [], []
    crew = made(ran, guarded(Listener("crew", heard, kind)), **settings(inner))
    if kind == "model":
        with pytest.raises(CallVetoed):
            crew.kickoff()
        assert not crew.tasks[0].agent.llm.calls
    else:
        crew.kickoff()
    assert not ran
    assert (heard[-1] if kind == "model" else heard[1]) == ("crew", kind)


@pytest.mark.parametrize("kind", ["tool", "model"])
def test_the_guard_of_an_agent_holds_at_a_task_with_a_policy_of_its_own(kind):
    ran, heard = [], []
    own = {"agent": {"failure_policy": guarded(Listener("agent", heard, kind))}, "task": {"failure_policy": PLAIN}}
    crew = made(ran, None, **own)
    if kind == "model":
        with pytest.raises(CallVetoed):
            crew.kickoff()
    else:
        crew.kickoff()
    assert not ran


@pytest.mark.parametrize("store", [None, True, False])
def test_the_guards_of_a_flow_hold_in_a_step_with_a_policy_and_in_a_crew_whatever_its_store(store):
    ran, heard = [], []

    @step(failure_policy=PLAIN)
    def asks():
        return made(ran, PLAIN, checkpoint=store).kickoff().raw

    @flow(failure_policy=guarded(Listener("flow", heard, "tool")))
    def day():
        return asks()

    assert day.kickoff() == "done"
    assert not ran
    assert heard == [("flow", "model"), ("flow", "tool"), ("flow", "model")]


def test_all_guards_are_asked_once_for_each_call_the_outer_first():
    ran, heard = [], []
    crew_s, twice = Listener("crew", heard), Listener("twice", heard)
    crew = made(
        ran,
        guarded(crew_s, twice),
        llm=model(policy=guarded(Listener("model", heard))),
        tool_policy=guarded(Listener("tool", heard), twice),
        agent={"failure_policy": guarded(Listener("agent", heard))},
        task={"failure_policy": guarded(twice, Listener("task", heard))},
    )
    assert crew.kickoff().raw == "done"
    around = ["crew", "twice", "agent", "task"]
    of_model = [(name, "model") for name in (*around, "model")]
    assert heard == [*of_model, *((name, "tool") for name in (*around, "tool")), *of_model]
    assert ran == ["Brest"]


def test_the_guard_of_a_fallback_holds_for_it():
    heard = []
    first, spare = ScriptedLLM([LLMUnavailable("503")], model="first"), ScriptedLLM(["done"], model="spare")
    spare.failure_policy = guarded(Listener("spare", heard))
    first.failure_policy, first.fallbacks = FailurePolicy(), (spare,)
    agent = Agent(role="Pilot", goal="g", llm=first)
    task = Task(name="ask", description="d", expected_output="x", agent=agent)
    assert Crew(tasks=[task]).kickoff().raw == "done"
    assert heard == [("spare", "model")]


def test_the_breaker_of_a_crew_counts_a_model_that_says_how_often_it_retries():
    for first, error in ((True, LLMUnavailable), (False, CircuitOpen)):
        llm = ScriptedLLM([LLMUnavailable("503")], model="far")
        llm.failure_policy = LLM("offline", max_retries=0).failure_policy
        policy = FailurePolicy(guards=[CircuitBreaker(1)])
        agent = Agent(role="Pilot", goal="g", llm=llm)
        crew = Crew(
            tasks=[Task(description="d", expected_output="x", agent=agent)],
            failure_policy=policy,
            checkpoint=True,
        )
        with pytest.raises(error):
            crew.kickoff()
        assert bool(llm.calls) is first


def test_breakers_that_share_their_circuits_count_a_failure_once_and_let_the_one_try_through():
    now = [100.0]

    def clock():
        return now[0]

    def says(*replies):
        llm = ScriptedLLM(list(replies), model="far")
        llm.failure_policy = FailurePolicy(guards=[CircuitBreaker(2, cooldown_seconds=5, clock=clock)])
        agent = Agent(role="Pilot", goal="g", llm=llm)
        outer = FailurePolicy(guards=[CircuitBreaker(2, cooldown_seconds=5, clock=clock)])
        task = Task(description="d", expected_output="x", agent=agent)
        try:
            return Crew(tasks=[task], failure_policy=outer, checkpoint=True).kickoff().raw
        except (LLMUnavailable, CircuitOpen) as error:
            return type(error).__name__

    down = LLMUnavailable("503")
    assert [says(down), says(down), says("never")] == ["LLMUnavailable", "LLMUnavailable", "CircuitOpen"]
    now[0] += 6
    assert says("done") == "done"


def test_a_call_made_before_an_outer_guard_had_a_person_asked_about_it_is_not_made_again():
    ran = []
    risky = RiskThreshold(lambda call: 1.0)

    def crew(*guards, last="done"):
        def reply(messages):
            if messages[-1]["role"] != "tool":
                return ToolCall("look", {"port": "Brest"})
            if last is None:
                raise LookupError("stop")
            return last

        return made(ran, guarded(*guards), llm=ScriptedLLM(reply), tool_policy=PLAIN, checkpoint=True)

    with pytest.raises(LookupError):
        crew(last=None).kickoff(run_id="r")
    with pytest.raises(Suspended) as waits:
        crew(risky).kickoff(run_id="r")
    assert crew(risky).kickoff(run_id="r", answers=dict.fromkeys(waits.value.waiting, True)).raw == "done"
    assert ran == ["Brest"]


LOST, SLOW, EMPTY = (
    Failure(kind, "LLMUnavailable", "503", address="llm#1") for kind in ("unavailable", "timeout", "empty")
)
BUG = Failure("bug", "KeyError", "x")


def remedies(policy, failure, most=30):
    """The remedies of one step that keeps failing."""
    past = []
    while len(past) < most:
        past.append(policy.decide(failure, tuple(past)))
        if not isinstance(past[-1], Retry):
            break
    return past


@pytest.mark.parametrize(
    ("others", "times", "failure", "retries", "then"),
    [
        (DEFAULT, 0, LOST, 0, Abort),
        (DEFAULT, 2, LOST, 2, Abort),
        (DEFAULT, 20, SLOW, 20, Abort),
        (DEFAULT, 0, EMPTY, 0, Abort),
        (DEFAULT, 20, EMPTY, 1, Abort),
        (FailurePolicy(), 2, LOST, 2, Abort),
        (FailurePolicy((Rule({"unavailable"}, 6),)), 1, LOST, 1, Abort),
        (FailurePolicy((Rule({"unavailable"}, 6),)), 9, LOST, 9, Abort),
        (FailurePolicy((Rule({"bug"}, 4),)), 1, BUG, 4, Abort),
        (FailurePolicy((Rule({"unavailable"}, 6),), default=suspend()), 2, LOST, 2, Suspend),
        (FailurePolicy(default=chain(backoff_and_retry(4), suspend())), 2, LOST, 2, Suspend),
        (FailurePolicy(default=chain(backoff_and_retry(2), suspend())), 7, LOST, 7, Suspend),
        (FailurePolicy(default=replan()), 3, LOST, 3, Replan),
        (usual_policy(), 9, LOST, 9, None),
        (usual_policy(), 1, LOST, 1, None),
        (FailurePolicy((Rule({"unavailable"}, 10**6),)), 2, LOST, 2, Abort),
    ],
)
def test_max_retries_says_how_often_and_the_nearest_policy_all_else(others, times, failure, retries, then):
    classifier = others.classifier
    asked = classifier.classify(failure) if classifier else failure
    found = remedies(MaxRetries(times, others), asked)
    assert [type(one) for one in found[:-1]] == [Retry] * retries
    assert not isinstance(found[-1], Retry)
    assert then is None or isinstance(found[-1], then)


def test_the_delays_of_the_nearest_policy_hold_for_all_retries_of_max_retries():
    policy = MaxRetries(20, FailurePolicy((Rule({"unavailable"}, 2, base=0.01, cap=0.02),)))
    assert all(one.after <= 0.02 for one in remedies(policy, LOST)[:-1])


def test_a_fallback_has_all_retries_of_max_retries_again():
    failure = Failure("unavailable", "LLMUnavailable", "503", fallbacks=1)
    first = remedies(MaxRetries(2), failure)
    assert [type(one) for one in first] == [Retry, Retry, Fallback]
    assert isinstance(MaxRetries(2).decide(failure, first), Retry)


def test_a_mistake_in_the_nearest_policy_is_told_of_that():
    class Wrong:
        def decide(self, failure, past):
            raise KeyError("x")

    llm = ScriptedLLM([LLMUnavailable("503")])
    llm.failure_policy = MaxRetries(2)
    agent = Agent(role="Pilot", goal="g", llm=llm)
    task = Task(description="d", expected_output="x", agent=agent, failure_policy=Wrong())
    with pytest.raises(ConfigError, match=r"<locals>\.Wrong.decide raised KeyError"):
        Crew(tasks=[task]).kickoff()
