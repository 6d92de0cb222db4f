"""A reply that is no answer was paid all the same: it counts in the usage, in the cost and against budgets."""

from __future__ import annotations

import contextlib

import pytest
from server import chat, reply

from crewlite import LLM, Agent, CheckpointConfig, Crew, FailurePolicy, History, LLMReply, Task, Usage, around
from crewlite.errors import BudgetExceeded, ConfigError, ContentRefused, LLMEmptyReply
from crewlite.flow import flow
from crewlite.recovery import LLMClassifier, Retry, Rule
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept, cut, entries_of

PAID = Usage(prompt_tokens=60, completion_tokens=40, cost=0.5, requests=1)
NOTHING, DONE = LLMReply(usage=PAID), LLMReply(text="done", usage=PAID)
AT_ONCE = FailurePolicy((Rule({"empty"}, retries=5, base=0),))


def crew_of(*replies, setting=None, **more):
    agent = Agent(role="Scout", goal="look", llm=ScriptedLLM([*replies]))
    task = Task(name="t", description="Look", expected_output="x", agent=agent)
    return Crew(tasks=[task], checkpoint=setting, failure_policy=AT_ONCE, **more)


def test_an_empty_reply_counts_with_the_agent_that_asked():
    used = crew_of(NOTHING, NOTHING, DONE).kickoff().token_usage
    assert (used.total_tokens, used.requests, used.cost) == (300, 3, 1.5)
    assert used.by_agent["Scout"].total_tokens == 300


def test_wherever_the_run_is_killed_each_reply_counts_once():
    setting = CheckpointConfig(location="here", provider=Kept())
    crew_of(NOTHING, NOTHING, DONE, setting=setting).kickoff(run_id=RUN)
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        kept = cut(entries, at)
        known = History(kept.location, provider=kept.provider).run(RUN).usage.requests
        crew = crew_of(DONE, setting=kept)
        assert crew.kickoff(run_id=RUN).token_usage.requests == known + len(crew.agents[0].llm.calls), f"commit {at}"


def test_it_is_known_where_it_was_paid(memory):
    setting = memory()
    crew_of(NOTHING, DONE, setting=setting).kickoff(run_id=RUN)
    run = History(setting.location, provider=setting.provider).run(RUN)
    assert run.usage.total_tokens == 200
    [call] = [step for step in run.steps if step.kind == "llm"]
    assert call.usage.total_tokens == 100
    assert [attempt.usage for attempt in call.attempts] == [PAID.model_copy(update={"by_agent": {"Scout": PAID}})]
    assert run.usage_of(call.address).total_tokens == run.usage_of("task:t").total_tokens == 200
    with History(setting.location, provider=setting.provider) as history:
        history.prune(keep_last=1)
        assert history.run(RUN).usage.total_tokens == 200


def test_a_run_that_fails_has_paid_it_too(memory):
    setting = memory()
    with pytest.raises(LLMEmptyReply) as caught:
        crew_of(*[NOTHING] * 6, setting=setting).kickoff(run_id=RUN)
    assert caught.value.usage == PAID
    run = History(setting.location, provider=setting.provider).run(RUN)
    assert run.usage.cost == 3.0
    [task] = [step for step in run.steps if step.kind == "task"]
    assert sum(attempt.usage.cost for attempt in task.attempts) == 3.0


def test_a_budget_ends_the_tries():
    crew = crew_of(*[NOTHING] * 9, max_cost_usd=1.0)
    with pytest.raises(BudgetExceeded):
        crew.kickoff()
    assert len(crew.agents[0].llm.calls) == 2


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (chat(None), LLMEmptyReply),
        (chat(None, refusal="no"), ContentRefused),
        (chat("Half", finish="content_filter"), ContentRefused),
    ],
)
def test_a_service_that_counts_a_reply_is_believed(serve, said, error):
    server = serve(*[reply(said)] * 3)
    model = LLM(model="openai/foo", base_url=server.base_url, api_key="k", failure_policy=FailurePolicy())
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())

    @flow(checkpoint=setting)
    def one():
        return str(model.call("hello"))

    with pytest.raises(error) as caught:
        one.kickoff(run_id=RUN)
    run = History("here", provider=setting.provider).run(RUN)
    assert run.usage.total_tokens == caught.value.usage.total_tokens * len(server.requests) > 0
    assert run.usage.requests == len(server.requests)


def test_what_an_attempt_has_paid_is_not_counted_for_one_that_asks_nobody():
    def hook(attempt):
        if attempt.kind == "llm" and attempt.attempt > 1:
            raise LLMEmptyReply("nobody")

    llm = ScriptedLLM([NOTHING])

    @flow
    def one():
        return str(llm.call("hello"))

    with around(hook), pytest.raises(LLMEmptyReply):
        handle = one.submit()
        handle.result()
    assert handle.usage.requests == len(llm.calls) == 1


@pytest.mark.parametrize("policy_fails", [False, True])
def test_it_counts_also_where_a_model_is_asked_first_what_kind_of_failure_it_is(policy_fails, memory):
    class Asking:
        classifier = LLMClassifier(ScriptedLLM(["unknown"]))

        def decide(self, failure, past):
            if policy_fails:
                raise KeyError("no remedy")
            return Retry(0.0)

    llm = ScriptedLLM([NOTHING, DONE])
    llm.failure_policy = Asking()
    setting = memory()

    @flow(checkpoint=setting)
    def one():
        return str(llm.call("hello"))

    with pytest.raises(ConfigError) if policy_fails else contextlib.nullcontext():
        one.kickoff(run_id=RUN)
    run = History(setting.location, provider=setting.provider).run(RUN)
    assert run.usage.requests == len(llm.calls) + 1
    [call] = [step for step in run.steps if step.address == "llm#1"]
    assert call.attempts[0].usage.cost == PAID.cost
