"""Code that has changed asks for its calls with effect="once" in another order: each is made as often as it is asked for.

A program is ended by an error, and another version of it goes on with the run. That one is killed right after each of its
commits in turn, and kicked off again.
"""

import random
import re
from collections import Counter

import pytest

from crewlite import CheckpointConfig, FailurePolicy, History
from crewlite.errors import InDoubt, NonDeterminism
from crewlite.flow import recoverable, step
from crewlite.recovery import rollback_to_checkpoint
from crewlite.state.format.addresses import bare_name, leaf
from tests.cuts import RUN, Kept, cut, entries_of
from tests.recovery.tills import PROGRAMS, Interrupted, Till, in_crew, in_flow
from tests.soak import SEED, in_time

VERSIONS = [
    [(3,), (8, 3)],
    [(3, 5), (5, 3)],
    [(3, 5), (5,), (3, 5)],
    [(3,), (8,), (3,)],
    [(3, 3), (3, 8, 3)],
    [(3, 5), (8, 5, 8, 3, 3), (5, 8)],
]


def until_done(program, till, setting):
    """Kick off a program, and say of each call in doubt that it took no effect."""
    again = []
    while True:
        try:
            return str(program(till, setting).kickoff(run_id=RUN, rerun=again))
        except InDoubt as asks:
            again.append(asks.address)


def finished(setting):
    """How often the steps of the run say that each amount was paid, whether or not the program asks for it now."""
    with History(setting.location, setting.provider) as history:
        made = [one for one in history.run(RUN).steps if one.status == "finished" and not one.reused_from]
    return Counter(int(re.sub(r"\D", "", str(one.value))) for one in made if bare_name(one.address) == "pay")


def goes_on(program, till, setting):
    """Let a program go on with the run. Return what it says, or the class of the error that ends it."""
    try:
        return until_done(program, till, setting)
    except (Interrupted, NonDeterminism) as error:
        return type(error)


def changed(program, versions, on_drift, later=""):
    """Run programs that pay these amounts, all but the last interrupted, and each also cut after each of its commits.

    `later`: the `on_drift` after a cut. The program may then be refused, but pays nothing twice. Returns the setting.
    """
    setting = CheckpointConfig(location="here", provider=Kept(), on_drift=on_drift)
    paid, wanted, begun = Counter(), Counter(), 1
    for number, amounts in enumerate(versions, 1):
        ends = number == len(versions)
        whole, wanted = Till(*amounts, ends=ends), wanted | Counter(amounts)
        said = goes_on(program, whole, setting)
        assert said == (" ".join(map(str, amounts)) if ends else Interrupted)
        paid += Counter(whole.paid)
        assert paid == wanted == finished(setting)
        entries = entries_of(setting)
        for at in range(begun, len(entries) + 1) if begun > 1 else ():
            again, till = cut(entries, at, on_drift=later or on_drift), Till(*amounts, ends=ends)
            known = finished(again)
            comes_to = goes_on(program, till, again)
            if comes_to is NonDeterminism and later:
                assert known + Counter(till.paid) <= wanted, f"cut after commit {at}"
            else:
                assert comes_to == said, f"cut after commit {at}"
                assert known + Counter(till.paid) == wanted == finished(again), f"cut after commit {at}"
        begun = len(entries) + 1
    assert goes_on(program, Till(*versions[-1]), setting) == said
    return setting


@pytest.mark.parametrize("versions", VERSIONS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_call_is_made_as_often_as_it_is_asked_for(program, versions):
    changed(program, versions, "rerun")


@pytest.mark.parametrize("versions", VERSIONS)
def test_a_task_that_has_other_words_gets_the_results_of_the_calls_that_it_made_before(versions):
    setting = changed(in_crew, versions, "keep")
    with History(setting.location, setting.provider) as history:
        run = history.run(RUN)
        prompt = run.prompt([step.address for step in run.steps if step.kind == "llm"][-1])
    assert [part.text for part in prompt.parts if part.role == "tool"] == [str(amount) for amount in versions[-1]]


@pytest.mark.parametrize("program", [in_flow, in_crew])
def test_a_call_that_nothing_asks_for_any_more_is_still_a_step_of_the_run(program):
    setting = CheckpointConfig(location="here", provider=Kept(), on_drift="rerun")
    assert goes_on(program, Till(3, 5, ends=False), setting) is Interrupted
    assert goes_on(program, Till(5), setting) == "5"
    with History(setting.location, setting.provider) as history:
        steps, page = history.run(RUN).steps, history.as_html(RUN)
    paid = {leaf(step.address).partition(":")[2]: (step.status_text, step.unused) for step in steps}
    assert (paid["pay"], paid["pay#2"]) == (("unused", True), ("finished", False))
    assert page.count(">unused<") == 1


def test_after_a_rollback_code_may_ask_in_another_order():
    setting, orders, till = CheckpointConfig(location="here", provider=Kept()), [(3, 5), (8, 5, 3)], Till()
    back = FailurePolicy(default=rollback_to_checkpoint("step:plan"))

    @step
    def plan():
        return len(till.paid)

    @recoverable(policy=back, checkpoint=setting)
    def order():
        plan()
        amounts = orders.pop(0)
        paid = [till.pay(amount) for amount in amounts]
        if orders:
            raise ValueError("the plan was wrong")
        return paid

    assert order.kickoff(run_id=RUN) == [8, 5, 3]
    assert till.paid == [3, 5, 8]


def try_at_random(seeds):
    for seed in seeds:
        chosen = random.Random(seed)
        program, later = chosen.choice(PROGRAMS), chosen.choice(["", "keep"])
        on_drift = chosen.choice(["rerun", "keep"]) if program is in_crew else "rerun"
        versions = [tuple(chosen.choices((1, 2, 3), k=chosen.randint(1, 5))) for _ in range(3)]
        print(f"seed {seed}: {program.__name__}, {versions}, {on_drift}, {later}")
        changed(program, [*dict.fromkeys(versions)], on_drift, later)


def test_a_few_programs_at_random():
    try_at_random(range(12))


@pytest.mark.soak
def test_many_programs_at_random():
    try_at_random(range(SEED * 100_000, SEED * 100_000 + in_time(2_000)))
