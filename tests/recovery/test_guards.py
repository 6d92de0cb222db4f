"""A guard refuses a call before anything happens: the model hears of it, and a resumed run refuses the same."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import Agent, Crew, FailurePolicy, Task, ToolCall, tool
from crewlite.errors import CallVetoed, CircuitOpen, ConfigError, LLMUnavailable, RecoveryEscalated, Suspended
from crewlite.events import RecoveryStartedEvent, ToolExecutionErrorEvent
from crewlite.recovery import (
    CircuitBreaker,
    Failure,
    FailureType,
    Guard,
    GuardedCall,
    LoopDetector,
    RequireIdempotency,
    RiskThreshold,
    Rule,
    escalate,
)
from crewlite.recovery.guards import guarding
from crewlite.testing import EventRecorder, ScriptedLLM, assert_classifies_as, faults
from tests.cuts import lives


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def call(breaker, error=None, name="search"):
    """Make a call that the breaker guards: what became of it."""

    async def work():
        async with guarding([breaker], GuardedCall("tool", name)):
            if isinstance(error, BaseException):
                raise error
            if error:
                error()

    try:
        asyncio.run(work())
    except CircuitOpen as refused:
        return f"refused for {refused.retry_after:g} s"
    except Exception as failed:
        return type(failed).__name__
    return "made"


def test_a_circuit_opens_after_failures_of_the_service_and_one_call_tries_whether_it_may_close():
    clock = Clock()
    breaker = CircuitBreaker(failure_threshold=2, window_seconds=10, cooldown_seconds=30, clock=clock)
    lost = ConnectionError("no line")
    assert [call(breaker, error) for error in (KeyError("x"), lost, None, lost)] == [
        *("KeyError", "ConnectionError", "made", "ConnectionError"),
    ]
    clock.now += 11  # the failure is forgotten
    assert call(breaker, lost) == "ConnectionError"
    assert breaker.state("tool search") == "closed"
    assert call(breaker, TimeoutError()) == "TimeoutError"
    clock.now += 10
    assert (breaker.state("tool search"), call(breaker)) == ("open", "refused for 20 s")
    assert call(breaker, name="other") == "made"
    clock.now += 20
    assert breaker.state("tool search") == "half_open"

    def beside():
        with ThreadPoolExecutor() as other:
            assert other.submit(call, breaker).result() == "refused for 30 s"  # another call tries already

    assert call(breaker, beside) == "made"
    assert breaker.state("tool search") == "closed"


def test_a_probe_that_fails_opens_the_circuit_again_and_one_that_tells_nothing_leaves_it_half_open():
    clock = Clock()
    breaker = CircuitBreaker(1, cooldown_seconds=5, clock=clock)
    call(breaker, ConnectionError())
    clock.now += 5
    assert call(breaker, KeyError("a mistake")) == "KeyError"
    assert breaker.state("tool search") == "half_open"
    assert call(breaker, ConnectionError()) == "ConnectionError"
    assert call(breaker) == "refused for 5 s"


def crew(llm, tools, policy, checkpoint=True):
    agent = Agent(role="Pilot", goal="answer", llm=llm, tools=tools)
    ask = Task(name="ask", description="Ask", expected_output="A word", agent=agent)
    return Crew(tasks=[ask], failure_policy=policy, checkpoint=checkpoint)


def heard(llm):
    """What the model was told by tools."""
    return [message["content"] for message in llm.calls[-1] if message["role"] == "tool"]


def test_a_tool_whose_service_is_down_is_not_called_and_the_model_is_told():
    calls = []

    @tool
    def search(word: str) -> str:
        """Search."""
        calls.append(word)
        raise ConnectionError("no line")

    llm = ScriptedLLM([*[ToolCall("search", {"word": word}) for word in "abc"], "done"])
    policy = FailurePolicy(guards=[CircuitBreaker(failure_threshold=2, clock=Clock())])
    with EventRecorder() as events:
        assert crew(llm, [search], policy).kickoff(run_id="r").raw == "done"
    assert calls == ["a", "b"]
    assert heard(llm)[2].startswith(
        "Tool search failed: CircuitOpen: CircuitBreaker refused the call of tool search, which was not made: it has "
        "failed 2 times of late. Try it again in 30 s, or go on without it."
    )
    assert [event.error_type for event in events.of(ToolExecutionErrorEvent)][-1] == "CircuitOpen"


def test_a_model_whose_circuit_is_open_is_passed_over_for_its_fallback():
    first = ScriptedLLM(faults(["never"], LLMUnavailable("503"), LLMUnavailable("503")), model="first")
    second = ScriptedLLM(lambda messages: "second says", model="second")
    first.fallbacks = (second,)
    breaker = CircuitBreaker(failure_threshold=1, cooldown_seconds=90)
    policy = FailurePolicy(guards=[breaker])
    for run in ("a", "b"):
        assert crew(first, [], policy).kickoff(run_id=run).raw == "second says"
    assert (len(first.calls), len(second.calls)) == (1, 2)
    assert breaker.state("model first") == "open"
    assert Failure.of(CircuitOpen("model first", 1, 90)).kind == "later"


def looping(made):
    """A crew whose model asks for the same look until it is told something else."""

    @tool
    def look(port: str) -> str:
        """Look."""
        made.append(port)
        return "fog"

    def reply(messages):
        told = [message["content"] for message in messages if message["role"] == "tool"]
        return "fog, I say" if told[3:] else ToolCall("look", {"port": "Brest"})

    return lambda checkpoint: crew(
        ScriptedLLM(reply), [look], FailurePolicy(guards=[LoopDetector(window=2)]), checkpoint
    )


def test_equal_calls_with_equal_results_are_refused_also_after_a_kill_at_any_commit():
    made: list[str] = []
    for whole, again in lives(looping(made)):
        assert (again.raw, again.token_usage.requests) == (whole.raw, whole.token_usage.requests) == ("fog, I say", 5)
    made.clear()
    looping(made)(checkpoint=True).kickoff(run_id="r")
    assert made == ["Brest"] * 2


def test_results_that_differ_and_other_arguments_are_no_loop():
    numbers = iter(range(9))

    @tool
    def poll() -> str:
        """Poll."""
        return str(next(numbers))

    llm = ScriptedLLM([*[ToolCall("poll")] * 4, "done"])
    crew(llm, [poll], FailurePolicy(guards=[LoopDetector(window=2)])).kickoff(run_id="r")
    assert heard(llm) == ["0", "1", "2", "3"]


def test_a_call_that_must_happen_once_is_made_once_and_the_model_gets_its_result():
    paid = []

    @tool(effect="once")
    def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        return f"paid {invoice}"

    llm = ScriptedLLM(
        [ToolCall("pay", {"invoice": 1}), ToolCall("pay", {"invoice": 1}), ToolCall("pay", {"invoice": 2}), "done"]
    )
    crew(llm, [pay], FailurePolicy(guards=[RequireIdempotency()])).kickoff(run_id="r")
    assert paid == [1, 2]
    assert heard(llm)[1].endswith("it must happen only once, and was made at task:ask/tool:pay. Its result was: paid 1")


def test_a_person_approves_what_is_risky():
    sent = []

    @tool
    def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    def risk(call):
        return 0.95 if "money" in call.arguments["text"] else 0.1

    def risky():
        llm = ScriptedLLM([ToolCall("send", {"text": "hello"}), ToolCall("send", {"text": "money"}), "done"])
        return crew(llm, [send], FailurePolicy(guards=[RiskThreshold(risk)]))

    with pytest.raises(Suspended) as waits:
        risky().kickoff(run_id="r")
    ((address, question),) = waits.value.waiting.items()
    assert (sent, question) == (["hello"], 'Pilot wants to call send with {"text": "money"}. Allow it?')
    llm = ScriptedLLM(["done"])
    resumed = crew(llm, [send], FailurePolicy(guards=[RiskThreshold(risk)]))
    assert resumed.kickoff(run_id="r", answers={address: True}).raw == "done"
    assert sent == ["hello", "money"]


def test_a_guard_that_neither_refuses_nor_listens_nor_asks_is_a_mistake():
    class NoMail(Guard):
        def bfore(self, call): ...

    with pytest.raises(ConfigError, match="NoMail does nothing: define before"):
        FailurePolicy(guards=[NoMail()])


def test_a_veto_is_a_failure_that_a_policy_may_decide_on():
    class NoMail(Guard):
        refused = 0

        def before(self, call):
            if call.name == "mail" and not self.refused:
                self.refused += 1
                raise CallVetoed("NoMail", call.what, "not yet", "goal_drift")

    @tool
    def mail() -> str:
        """Send mail."""
        return "sent"

    llm = ScriptedLLM([ToolCall("mail"), "done"])
    policy = FailurePolicy((Rule({"refused"}, 1, base=0),), guards=[NoMail()])
    with EventRecorder() as events:
        crew(llm, [mail], policy).kickoff(run_id="r")
    assert heard(llm) == ["sent"]
    assert [event.error_type for event in events.of(RecoveryStartedEvent)] == ["CallVetoed"]
    assert_classifies_as(CallVetoed("NoMail", "tool mail", "no", "goal_drift"), FailureType.GOAL_DRIFT)
    assert_classifies_as(CircuitOpen("tool mail", 2, 1.0), FailureType.EXTERNAL_FAULT)


async def _async_score(call):
    return 0.5


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: CircuitBreaker(0), "failure_threshold is 0; wanted a whole number, 1 or more"),
        (lambda: CircuitBreaker(cooldown_seconds=0), "cooldown_seconds is 0; wanted seconds, more than 0"),
        (lambda: LoopDetector(window=1), "window is 1; wanted a whole number, 2 or more"),
        (lambda: RiskThreshold("risk"), "scorer is 'risk'; wanted a function of a call"),
        (lambda: RiskThreshold(len, 2), "ask_above is 2; wanted a number from 0 to 1"),
        (lambda: FailurePolicy(guards=LoopDetector()), r"wanted a list of guards, such as \[LoopDetector\(\)\]"),
        (lambda: FailurePolicy.from_dict({"guards": ["loop_detecter"]}), r"did you mean 'loop_detector'\?"),
        (lambda: RiskThreshold(len).asks(GuardedCall("tool", "x", address=3)), "scorer raised TypeError"),
        (lambda: RiskThreshold(_async_score), "scorer is async; wanted a plain function"),
        *(
            (
                lambda risk=risk: RiskThreshold(lambda call: risk).asks(GuardedCall("tool", "x")),
                f"scorer returned {risk!r} for tool x; wanted a number from 0 to 1",
            )
            for risk in (math.nan, 7, -1, "high", None)
        ),
    ],
)
def test_what_cannot_guard_is_told_when_it_is_made(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


def test_guards_are_built_from_plain_data():
    policy = FailurePolicy.from_dict({"guards": ["require_idempotency", {"loop_detector": 2}, "circuit_breaker"]})
    assert policy.guards[:2] == (RequireIdempotency(), LoopDetector(2))
    assert isinstance(policy.guards[2], CircuitBreaker)


def test_a_mistake_that_a_model_can_mend_is_told_to_it_though_the_default_escalates():
    @tool
    def look(port: str) -> str:
        """Look."""
        if port != "Brest":
            raise ValueError("no such port")
        return "fog"

    llm = ScriptedLLM([ToolCall("look", {"port": "x"}), ToolCall("look", {"port": "Brest"}), "done"])
    assert crew(llm, [look], FailurePolicy(default=escalate())).kickoff(run_id="r").raw == "done"
    llm = ScriptedLLM([ToolCall("look", {"port": "x"}), "done"])
    with pytest.raises(RecoveryEscalated, match="no such port"):
        crew(llm, [look], FailurePolicy(UNKNOWN=escalate())).kickoff(run_id="s")
