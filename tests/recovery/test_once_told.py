"""Each request for a call with effect="once" keeps its own result, also beside others with the same arguments.

Each result holds the number of a receipt, so two calls with the same arguments are told apart. Programs are killed right
after each of their commits in turn, and kicked off again.
"""

import asyncio

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, tool
from crewlite.errors import EffectsRepeat, InDoubt
from crewlite.flow import flow, step
from crewlite.llm import LLMReply, ToolCall
from crewlite.state.format.record import Record
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, Kept, cut, entries_of


class Interrupted(Exception):
    """What ends the first program."""


class Till:
    """What has been paid. Each payment gives a receipt with the next number."""

    def __init__(self):
        self.paid, self.told = [], []

    def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"{amount}.{len(self.paid)}"

    def tell(self, text):
        self.told.append(text)
        return text


def stored(on_drift="rerun"):
    return CheckpointConfig(location="here", provider=Kept(), on_drift=on_drift)


def until_done(program):
    """Kick off a program, and say of each call in doubt that it took no effect."""
    again = []
    while True:
        try:
            return str(program.kickoff(run_id=RUN, rerun=again))
        except InDoubt as asks:
            again.append(asks.address)


def side_by_side(till, setting, *amounts):
    pay, tell = step(name="pay", effect="once")(till.pay), step(name="tell")(till.tell)

    @flow(checkpoint=setting)
    async def order():
        receipts = await asyncio.gather(*[pay.submit(amount) for amount in amounts])
        return await tell.submit(" ".join(receipts))

    return order


def test_calls_with_the_same_arguments_keep_their_results_wherever_an_unchanged_flow_is_killed():
    setting, till = stored(), Till()
    side_by_side(till, setting, 3, 3).kickoff(run_id=RUN)
    entries = entries_of(setting)
    for at in range(1, len(entries)):
        again = cut(entries, at, on_drift="rerun")
        said = until_done(side_by_side(till, again, 3, 3))
        then = entries_of(again)
        for later in range(1, len(then)):
            if len([ended for ended in Record.of(then[:later]).outcomes if "pay" in ended]) < 2:
                continue  # what was not made yet gets another receipt
            till.told.clear()
            assert until_done(side_by_side(till, cut(then, later, on_drift="rerun"), 3, 3)) == said
            assert till.told in ([], [said]), f"cut after commits {at} and {later}"


def in_crew(till, setting, replies, *, ends=True):
    def say(messages):
        asked = sum(message["role"] == "assistant" for message in messages)
        if asked < len(replies):
            return [ToolCall("pay", {"amount": amount}) for amount in replies[asked]]
        if not ends:
            raise Interrupted
        return " ".join(message["content"] for message in messages if message["role"] == "tool")

    pay = tool("pay", effect="once")(till.pay)
    clerk = Agent(role="Clerk", goal="pay", llm=ScriptedLLM(say), tools=[pay])
    bill = Task(name="bill", description=f"Pay {replies}", expected_output="x", agent=clerk)
    return Crew(tasks=[bill], checkpoint=setting)


def shown(setting, ref=RUN):
    """The results of calls that the last prompt shows."""
    with History(setting.location, setting.provider) as history:
        run = history.run(ref)
        prompt = run.prompt([step.address for step in run.steps if step.kind == "llm"][-1])
    return " ".join(part.text for part in prompt.parts if part.role == "tool")


@pytest.mark.parametrize("on_drift", ["keep", "rerun"])
@pytest.mark.parametrize(
    ("before", "replies"),
    [([[2]], [[1, 1], [1]]), ([[1]], [[2, 1, 2]]), ([[1]], [[2, 2, 2]]), ([[1, 2], [3]], [[3, 1, 1, 3]])],
)
def test_a_reply_keeps_its_calls_wherever_the_run_is_killed(before, replies, on_drift):
    setting, till = stored(on_drift), Till()
    with pytest.raises(Interrupted):
        in_crew(till, setting, before, ends=False).kickoff(run_id=RUN)
    begun = len(entries_of(setting))
    until_done(in_crew(till, setting, replies))
    entries = entries_of(setting)
    for at in range(begun + 1, len(entries) + 1):
        again = cut(entries, at, on_drift=on_drift)
        said = until_done(in_crew(till, again, replies))
        assert [int(float(receipt)) for receipt in said.split()] == [one for reply in replies for one in reply]
        assert shown(again) == said, f"cut after commit {at}"
        assert until_done(in_crew(till, again, replies)) == said


def moved_in_crew(till, setting, *, ends=True):
    return in_crew(till, setting, [[8, 3], [4]] if ends else [[3, 5]], ends=ends)


def moved_in_flow(till, setting, *, ends=True):
    pay, tell = step(name="pay", effect="once")(till.pay), step(name="tell")(till.tell)

    @flow(checkpoint=setting)
    def order():
        receipts = [pay(amount) for amount in ([8, 3, 4] if ends else [3, 5])]
        if not ends:
            raise Interrupted
        return tell(" ".join(receipts))

    return order


@pytest.mark.parametrize("on_drift", ["keep", "rerun"])
@pytest.mark.parametrize("program", [moved_in_crew, moved_in_flow])
@pytest.mark.parametrize("change", ["edit", "rerun", "edit what follows", "rerun what follows"])
def test_a_fork_of_a_run_whose_calls_have_moved_repeats_what_it_foretells_and_no_more(program, change, on_drift):
    setting, till = stored(), Till()
    with pytest.raises(Interrupted):
        program(till, setting, ends=False).kickoff(run_id=RUN)
    said = until_done(program(till, setting)).split()
    with History(setting.location, setting.provider) as history:
        steps = [step for step in history.run(RUN).steps if step.kind != "task" and step.address]
    last_call = [step.address for step in steps if "pay" in step.address][-1]  # that of 4
    address = steps[-1].address if "follows" in change else last_call
    what = {"edits": {address: "other"}} if "edit" in change else {"rerun": [address]}
    forked = CheckpointConfig(location="here", provider=setting.provider, on_drift=on_drift)
    till.paid.clear()
    if change == "rerun":
        with pytest.raises(EffectsRepeat) as refused:
            program(till, forked).fork(RUN, **what)
        assert [call.address for call in refused.value.effects] == [address]
    fork = program(till, forked).fork(RUN, **what, allow_effects=change == "rerun")
    repeated = [call.address for call in fork.preview().effects]
    comes_to = str(fork.kickoff())
    assert (till.paid, repeated) == (([4], [address]) if change == "rerun" else ([], []))
    expected = {"edit": [*said[:2], "other"], "rerun": [*said[:2], "4.1"], "edit what follows": ["other"]}.get(
        change, said
    )
    assert comes_to.split() == expected


def after_facts_in_crew(till, setting, *amounts, ends=True):
    facts = Agent(role="Reader", goal="read", llm=ScriptedLLM(lambda messages: "facts"))
    read = Task(name="facts", description="Read", expected_output="x", agent=facts)
    crew = in_crew(till, setting, [[amount] for amount in amounts], ends=ends)
    return crew.model_copy(update={"tasks": [read, *crew.tasks]})


def after_facts_in_flow(till, setting, *amounts, ends=True):
    pay, read = step(name="pay", effect="once")(till.pay), step(name="facts")(lambda: "facts")

    @flow(checkpoint=setting)
    def order():
        facts = read()
        receipts = [pay(amount) for amount in amounts if facts != "facts"]
        if not ends:
            raise Interrupted
        return " ".join(receipts)

    return order


def in_crew_and_on(till, setting, *amounts, ends=True):
    def end(messages):
        if not ends:
            raise Interrupted
        return " ".join(text for text in messages[-1]["content"].splitlines() if text[:1].isdigit() or text == "other")

    crew = in_crew(till, setting, [[amount] for amount in amounts])
    writer, closer = (
        Agent(role="Writer", goal="write", llm=ScriptedLLM(say)) for say in (lambda messages: "note", end)
    )
    note = Task(name="note", description="Note", expected_output="x", agent=writer, context=[])
    close = Task(name="end", description="End", expected_output="x", agent=closer, context=[*crew.tasks, note])
    return crew.model_copy(update={"tasks": [*crew.tasks, note, close]})


def in_flow_and_on(till, setting, *amounts, ends=True):
    pay, note = step(name="pay", effect="once")(till.pay), step(name="note")(lambda: "note")

    @flow(checkpoint=setting)
    def order():
        receipts = [pay(amount) for amount in amounts]
        noted = note()
        if not ends:
            raise Interrupted
        return " ".join([*receipts, noted])

    return order


@pytest.mark.parametrize("again", ["the fork", "a fork of it"])
@pytest.mark.parametrize("program", [after_facts_in_crew, after_facts_in_flow])
def test_a_changed_fork_keeps_the_calls_that_it_has_made_itself_where_its_code_changes(program, again):
    setting, till = stored(), Till()
    with pytest.raises(Interrupted):
        program(till, setting, ends=False).kickoff(run_id=RUN)
    address = "task:facts" if program is after_facts_in_crew else "step:facts"
    fork = program(till, setting, 3, 5, 5, ends=False).fork(RUN, branch="fork", edits={address: "other facts"})
    with pytest.raises(Interrupted):
        fork.kickoff()
    changed = program(till, setting, 5, 8, 3)
    if again == "the fork":
        result = changed.kickoff(from_checkpoint=f"{RUN}/fork")
    else:
        result = changed.fork(f"{RUN}/fork").kickoff()
    assert (str(result), till.paid) == ("5.2 8.4 3.1", [3, 5, 5, 8])


@pytest.mark.parametrize("program", [in_crew_and_on, in_flow_and_on])
def test_a_changed_fork_makes_no_call_again_that_its_changes_do_not_lead_to_where_its_code_changes(program):
    setting, till = stored(), Till()
    with pytest.raises(Interrupted):
        program(till, setting, 3, 5, ends=False).kickoff(run_id=RUN)
    address = "task:note" if program is in_crew_and_on else "step:note"
    fork = program(till, setting, 5, 8, 3).fork(RUN, edits={address: "other"})
    assert (str(fork.kickoff()), till.paid) == ("5.2 8.3 3.1 other", [3, 5, 8])


def test_a_fork_that_asks_again_for_a_reply_keeps_the_calls_of_that_reply_that_were_made_before_its_change():
    setting, till = stored("keep"), Till()
    with pytest.raises(Interrupted):
        in_crew(till, setting, [[1]], ends=False).kickoff(run_id=RUN)
    program = in_crew(till, setting, [[2], [1]])
    assert until_done(program) == "2.2 1.1"
    fork = program.fork(RUN, edits={"task:bill/tool:pay#2": "other"})
    assert fork.preview().effects == ()
    assert str(fork.kickoff()) == "other 1.1"


def test_a_reply_that_a_fork_has_edited_shows_the_results_of_its_own_calls():
    setting, till = stored("keep"), Till()
    with pytest.raises(Interrupted):
        in_crew(till, setting, [[3, 5]], ends=False).kickoff(run_id=RUN)
    program = in_crew(till, setting, [[8, 3], [4]])
    until_done(program)
    change = {"edits": {"task:bill/llm#2": LLMReply(tool_calls=(ToolCall("pay", {"amount": 7}),))}}
    fork = program.fork(RUN, branch="edited", **change, allow_effects=True)
    said = str(fork.kickoff())
    assert (said.split()[-1], shown(setting, f"{RUN}/edited")) == ("7.5", said)
