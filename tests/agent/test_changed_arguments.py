"""Once a person has changed the arguments of a call, everyone is told of the call that is made, not of the model's."""

from __future__ import annotations

import pytest

from crewlite import Agent, CheckpointConfig, History, ToolCall, tool
from crewlite.errors import EffectsRepeat, InDoubt
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of

NOTE = 'A person changed the arguments: {"amount": 90, "to": "Ada"}'


@tool(requires_approval=True, effect="once")
def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


def says(messages):
    told = [message["content"] for message in messages if message["role"] == "tool"]
    return told[-1] if told else ToolCall("pay", {"amount": 900, "to": "Ada"})


def cashier(setting):
    return Agent(role="Cashier", goal="pay", llm=ScriptedLLM(says), tools=[pay], checkpoint=setting)


@pytest.fixture
def paid():
    """The store of a run that has paid what a person said, not the model."""
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    answers = {"human:pay": {"arguments": {"amount": 90}}}
    assert cashier(setting).kickoff("Pay.", run_id=RUN, answers=answers).raw == f"{NOTE}\npaid 90 to Ada"
    return setting


def in_doubt(paid):
    """The store of the same run, killed in the middle of the call."""
    entries = entries_of(paid)
    (at,) = (number for number, entry in enumerate(entries, 1) if entry.commit.get("intents"))
    return cut(entries, at)


@pytest.mark.parametrize("pruned", [False, True])
def test_who_decides_if_a_call_may_be_made_again_sees_its_arguments(paid, pruned):
    with History(paid.location, paid.provider) as history:
        if pruned:
            history.prune(keep_last=1)
        with pytest.raises(EffectsRepeat, match=r'tool:pay \{"amount": 90, "to": "Ada"\}, made at'):
            history.fork(RUN, edits={"human:pay": False})
        history.fork(RUN, branch="again", edits={"human:pay": True}, allow_effects=True)
    there = CheckpointConfig(restore_from=f"{RUN}/again", location=paid.location, provider=paid.provider)
    (call,) = cashier(paid).preview(from_checkpoint=there).effects
    assert call.arguments == '{"amount": 90, "to": "Ada"}'


def test_who_settles_a_doubt_is_told_the_arguments_of_the_call_and_the_model_hears_of_the_change(paid):
    store = in_doubt(paid)
    with pytest.raises(
        InDoubt, match=r'tool pay at tool:pay with \{"amount": 90, "to": "Ada"\} was interrupted'
    ) as doubt:
        cashier(store).kickoff(run_id=RUN)
    assert doubt.value.arguments == '{"amount": 90, "to": "Ada"}'
    answered = cashier(store).kickoff(run_id=RUN, answers={"tool:pay": "paid by hand"})
    assert answered.raw == f"{NOTE}\npaid by hand"


def test_a_call_that_nobody_has_changed_is_told_with_the_arguments_of_the_model():
    setting = CheckpointConfig(location="here", provider=InMemoryProvider())
    cashier(setting).kickoff("Pay.", run_id=RUN, answers={"human:pay": True})
    with pytest.raises(InDoubt, match=r'with \{"amount": 900, "to": "Ada"\} was interrupted'):
        cashier(in_doubt(setting)).kickoff(run_id=RUN)
