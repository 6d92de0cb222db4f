"""A finished call with effect="once" is not made again because something around it is tried again."""

import asyncio
import itertools

import pytest
from pydantic import SecretStr

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, History, Task, event_bus, tool
from crewlite.errors import EffectsRepeat, InDoubt
from crewlite.events import ToolUsageErrorEvent, ToolUsageFinishedEvent
from crewlite.flow import Flow, flow, keyed, recoverable, start, step
from crewlite.llm import ToolCall
from crewlite.recovery import Rule, replan, rollback_to_checkpoint
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept, cut, entries_of

AGAIN = FailurePolicy((Rule({"bug", "refused"}, retries=1, base=0),))


def store():
    return CheckpointConfig(location="here", provider=InMemoryProvider())


class Post:
    """Sends letters, each at once, and breaks down right after the first attempts to do so."""

    def __init__(self, *letters, breaks=1, beside=False):
        self.letters, self.breaks, self.beside, self.sent = letters, breaks, beside, []
        self.send = step(name="send", effect="once")(self._send)

    def _send(self, text):
        self.sent.append(text)
        return f"sent {text}"

    async def work(self):
        asked = [self.send.submit(text) for text in self.letters]
        answers = await asyncio.gather(*asked) if self.beside else [await one for one in asked]
        if self.breaks:
            self.breaks -= 1
            raise ValueError("oops")
        return answers


def in_step(post, setting):
    @step(retries=1)
    async def around():
        return await post.work()

    @flow(checkpoint=setting)
    async def one():
        return await around()

    return one


def in_step_with_policy(post, setting):
    @step
    async def around():
        return await post.work()

    @flow(checkpoint=setting, failure_policy=AGAIN)
    async def one():
        return await around()

    return one


def in_method(post, setting):
    class Posting(Flow):
        checkpoint = setting

        @start(retries=1)
        async def first(self):
            return await post.work()

    return Posting()


def in_phases(post, setting):
    @recoverable(policy=FailurePolicy(default=replan()), checkpoint=setting)
    async def one(hint: str):
        return await post.work()

    return one


PLACES = [in_step, in_step_with_policy, in_method, in_phases]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("letters", [["a"], ["a", "b"], ["a", "a"]])
@pytest.mark.parametrize("place", PLACES)
def test_a_letter_is_sent_once_although_it_is_tried_again_around_it(place, letters, beside):
    setting, post = store(), Post(*letters, beside=beside)
    assert place(post, setting).kickoff(run_id=RUN) == [f"sent {text}" for text in letters]
    assert sorted(post.sent) == letters
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        again, other = cut(entries, at), Post(*letters, beside=beside)
        with History("cut", again.provider) as history:
            steps = history.run(RUN).steps
        other.breaks -= any(one.attempts for one in steps)
        other.sent += ["before the kill" for one in steps if is_sent(one)]
        try:
            assert place(other, again).kickoff(run_id=RUN) == [f"sent {text}" for text in letters], f"commit {at}"
        except InDoubt as stopped:
            assert stopped.address in {one.address for one in steps if one.status == "in_doubt"}, f"commit {at}"
        else:
            assert len(other.sent) == len(letters), f"commit {at}"


def is_sent(one):
    """Whether a step of the record has sent a letter itself."""
    return one.address.rpartition("/")[2].startswith("step:send") and one.status == "finished" and not one.reused_from


def crew_of(replies, sent, setting, *, refused=1, **more):
    """A crew of one task, whose agent pays, and whose first answers are refused."""
    verdicts = itertools.chain([False] * refused, itertools.repeat(True))

    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay."""
        sent.append(amount)
        return f"paid {amount}"

    agent = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(replies), tools=[pay])
    task = Task(
        name="t",
        description="pay",
        expected_output="done",
        agent=agent,
        guardrail=lambda output: (next(verdicts), output.raw),
        guardrail_max_retries=0,
    )
    return Crew(tasks=[task], checkpoint=setting, **more)


def asks(*amounts):
    """Model replies that pay these amounts in each attempt at the task, one after the other."""

    def answer(messages):
        made = sum(message["role"] == "tool" for message in messages)
        return ToolCall("pay", {"amount": amounts[made]}) if made < len(amounts) else "done"

    return answer


@pytest.mark.parametrize("policy", [AGAIN, FailurePolicy(default=replan())])
def test_an_agent_that_begins_its_task_anew_is_answered_with_what_it_has_paid(policy):
    sent, heard, setting = [], [], store()
    event_bus.on(ToolUsageFinishedEvent, lambda source, event: heard.append((event.address, event.reused_from)))
    assert crew_of(asks(5, 5, 7), sent, setting, failure_policy=policy).kickoff(run_id=RUN).raw == "done"
    assert sent == [5, 5, 7]
    calls = ["tool:pay", "tool:pay#2", "tool:pay#3"]
    assert heard == [
        *((f"task:t/{call}", None) for call in calls),
        *((f"task:t!2/{call}", f"{RUN}/main@task:t/{call}") for call in calls),
    ]
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        again, more = cut(entries, at), []
        with History("cut", again.provider) as history:
            steps = history.run(RUN).steps
        refused = int("task:t/guardrail#1" not in {one.address for one in steps})
        crew = crew_of(asks(5, 5, 7), more, again, refused=refused, failure_policy=policy)
        before = sum(one.kind == "tool" and one.status == "finished" and not one.reused_from for one in steps)
        try:
            assert crew.kickoff(run_id=RUN).raw == "done"
        except InDoubt as stopped:
            assert stopped.address.startswith("task:t/"), f"commit {at}: the second attempt has paid nothing"
        else:
            assert before + len(more) == 3, f"commit {at}"


def test_a_fork_that_may_pay_again_names_the_calls_that_were_made():
    sent, setting = [], store()
    crew = crew_of(asks(5), sent, setting, failure_policy=AGAIN)
    crew.kickoff(run_id=RUN)
    for _ in range(2):
        with pytest.raises(EffectsRepeat) as refused:
            crew.fork(RUN, rerun=["task:t"])
        assert [call.address for call in refused.value.effects] == ["task:t/tool:pay"]
        with History(setting.location, setting.provider) as history:
            history.prune(keep_last=1)
    assert crew.fork(RUN, rerun=["task:t"], allow_effects=True).kickoff().raw == "done"
    assert sent == [5, 5], "as it was asked to"


def test_a_fork_makes_the_call_that_it_is_to_run_again():
    sent, setting = [], store()
    crew = crew_of(asks(5), sent, setting, failure_policy=AGAIN)
    crew.kickoff(run_id=RUN)
    assert crew.fork(RUN, rerun=["task:t!2/tool:pay"], allow_effects=True).kickoff().raw == "done"
    assert sent == [5, 5]


@pytest.mark.parametrize("pruned", [False, True])
def test_a_call_inside_a_finished_step_answers_the_next_attempt_also_after_a_prune(pruned):
    sent, fails, setting = (
        [],
        [ValueError("oops")],
        CheckpointConfig(location="here", provider=Kept(), on_events=["flow_failed"]),
    )

    @step(effect="once")
    def send(text):
        sent.append(text)
        return text

    @step
    def inner():
        return send("a")

    @step
    def around():
        told = inner()
        if fails:
            raise fails[0]
        return told

    program = flow(around, name="program", checkpoint=setting)
    for _ in range(2):
        with pytest.raises(ValueError, match="oops"):
            program.kickoff(run_id=RUN)
    if pruned:
        with History(setting.location, setting.provider) as history:
            history.prune(keep_last=1)
    fails.clear()
    assert program.kickoff(run_id=RUN) == "a"
    assert sent == ["a"]


def test_a_preview_tells_what_an_earlier_attempt_answers():
    setting = store()
    in_phases(Post("a"), setting).kickoff(run_id=RUN)
    previews = []
    for at in range(1, len(entries_of(setting))):
        preview = in_phases(Post("a", breaks=0), cut(entries_of(setting), at)).preview(run_id=RUN)
        previews += [(one.address, one.verdict, one.why) for one in preview.steps]
    assert ("!2/step:send", "reused", "was made before, as step:send") in previews
    assert not [one for one in previews if one[0] == "!2/step:send" and one[1] != "reused"]


def test_the_model_of_the_next_attempt_is_told_that_a_call_has_failed():
    tried, heard, setting = [], [], store()
    event_bus.on(ToolUsageErrorEvent, lambda source, event: heard.append((event.address, event.reused_from)))

    class Tried(list):
        def append(self, amount):
            tried.append(amount)
            raise ConnectionError("no route")

    assert crew_of(asks(5), Tried(), setting, failure_policy=AGAIN).kickoff(run_id=RUN).raw == "done"
    assert tried == [5]
    assert heard == [("task:t/tool:pay", None), ("task:t!2/tool:pay", f"{RUN}/main@task:t/tool:pay")]
    with History(setting.location, setting.provider) as history:
        first, second = (one.value for one in history.run(RUN).steps if one.kind == "tool")
    assert first == second


def test_a_model_that_is_told_of_a_failed_call_may_make_another_one():
    sent = []

    class Sent(list):
        def append(self, amount):
            sent.append(amount)
            if len(sent) == 1:
                raise ConnectionError("no route")

    assert crew_of(asks(5, 5), Sent(), store(), failure_policy=AGAIN).kickoff(run_id=RUN).raw == "done"
    assert sent == [5, 5]


def test_calls_of_which_something_cannot_be_recorded_answer_those_at_the_same_place():
    sent, fails = [], [ValueError("oops"), None]

    @step(effect="once")
    def send(text, key, client):
        sent.append(text)
        return f"sent {text}"

    @step(retries=1)
    def around():
        texts = [send(text, SecretStr("k"), object()) for text in "ab"]
        if error := fails.pop(0):
            raise error
        return texts

    one = flow(around, name="one", checkpoint=store())
    assert one.kickoff(run_id=RUN) == ["sent a", "sent b"]
    assert sent == ["a", "b"]


def test_a_call_with_a_key_answers_the_call_with_that_key():
    charged, orders, fails = [], [["o1"], ["o2", "o1"]], [ValueError("oops"), None]

    @step(effect="once")
    def charge(amount):
        charged.append(amount)
        return len(charged)

    @step(retries=1)
    def around():
        done = {}
        for order in orders.pop(0):
            with keyed(order):
                done[order] = charge(5)
        if error := fails.pop(0):
            raise error
        return done

    assert flow(around, name="one", checkpoint=store()).kickoff(run_id=RUN) == {"o2": 2, "o1": 1}
    assert charged == [5, 5]


def test_another_amount_is_another_call():
    sent, amounts = [], iter([5, 7])

    def answer(messages):
        return "done" if messages[-1]["role"] == "tool" else ToolCall("pay", {"amount": next(amounts)})

    assert crew_of(answer, sent, store(), failure_policy=AGAIN).kickoff(run_id=RUN).raw == "done"
    assert sent == [5, 7]


def test_a_kickoff_after_the_failure_pays_nothing_again():
    sent, setting = [], store()
    crew = crew_of(asks(5), sent, setting)
    with pytest.raises(Exception, match="no answer of 1 passes the guardrail"):
        crew.kickoff(run_id=RUN)
    assert crew.kickoff(run_id=RUN).raw == "done"
    assert sent == [5]


def trip(sent, setting, *, plan="Plan", refused=1, **more):
    """A crew that plans, pays and checks; the first checks are refused."""
    verdicts = itertools.chain([False] * refused, itertools.repeat(True))

    @tool(effect="once")
    def pay(amount: int) -> str:
        """Pay."""
        sent.append(amount)
        return f"paid {amount}"

    def answer(messages):
        if "Pay" not in str(messages) or messages[-1]["role"] == "tool":
            return "done"
        return ToolCall("pay", {"amount": 5})

    clerk = Agent(role="Clerk", goal="travel", llm=ScriptedLLM(answer), tools=[pay])
    planned = Task(name="plan", description=plan, expected_output="a plan", agent=clerk)
    paid = Task(name="pay", description="Pay", expected_output="done", agent=clerk, context=[planned])
    checked = Task(
        name="check",
        description="Check",
        expected_output="done",
        agent=clerk,
        guardrail=lambda output: (next(verdicts), output.raw),
        guardrail_max_retries=0,
    )
    return Crew(tasks=[planned, paid, checked], checkpoint=setting, **more)


def paid_in(setting):
    """How many payments the record of a run holds."""
    with History(setting.location, setting.provider) as history:
        return sum(one.kind == "tool" and one.status == "finished" for one in history.run(RUN).steps)


def test_a_payment_is_not_made_again_where_a_crew_goes_back_to_before_its_task():
    policy = FailurePolicy(default=rollback_to_checkpoint("task:plan"))
    sent, setting = [], CheckpointConfig(location="here", provider=Kept())
    assert trip(sent, setting, failure_policy=policy).kickoff(run_id=RUN).raw == "done"
    assert sent == [5]
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        again, more = cut(entries, at), []
        before = paid_in(again)
        with History("cut", again.provider) as history:
            refused = int(not history.run(RUN).attempts)
        try:
            assert trip(more, again, refused=refused, failure_policy=policy).kickoff(run_id=RUN).raw == "done"
        except InDoubt:
            assert before == 0, f"commit {at}"
        else:
            assert before + len(more) == 1, f"commit {at}"


def test_a_payment_is_not_made_again_where_its_task_is_done_anew_because_another_one_has_changed():
    sent, setting = [], CheckpointConfig(location="here", provider=Kept())
    with pytest.raises(Exception, match="passes the guardrail"):
        trip(sent, setting).kickoff(run_id=RUN)
    begun = len(entries_of(setting))
    anew = setting.model_copy(update={"on_drift": "rerun"})
    assert trip(sent, anew, plan="Plan well", refused=0).kickoff(run_id=RUN).raw == "done"
    assert sent == [5]
    entries = entries_of(setting)
    for at in range(begun, len(entries) + 1):
        again, more = cut(entries, at, on_drift="rerun"), []
        assert trip(more, again, plan="Plan well", refused=0).kickoff(run_id=RUN).raw == "done"
        assert more == [], f"commit {at}"


def test_a_fork_whose_calls_may_be_made_again_makes_them_in_what_is_done_anew():
    sent, setting = [], store()
    crew = trip(sent, setting, refused=0)
    crew.kickoff(run_id=RUN)
    with pytest.raises(EffectsRepeat):
        crew.fork(RUN, edits={"task:plan": "another plan"})
    fork = crew.fork(RUN, edits={"task:plan": "another plan"}, allow_effects=True)
    assert fork.kickoff().raw == "done"
    assert sent == [5, 5]
