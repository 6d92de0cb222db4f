"""Which parts of a record become void when steps are edited or inputs change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from crewlite.state.format.addresses import around, outers
from crewlite.state.format.commit import AskedQuestion, GivenAnswer

ByAddress = dict[str, Any]


class Edit(NamedTuple):
    """What the record of a fork keeps about a step that the fork has edited or set to run again."""

    seq: int
    """The number of the commit that did so."""
    since: int
    """The number of the commit with the step's outcome or last failure before that; 0 for none."""


def void_edited(
    edited: Set[str], *, outcomes: ByAddress, intents: ByAddress, late: ByAddress, others: Iterable[ByAddress]
) -> None:
    """Remove the edited steps and the steps inside them from these parts of a record, which are keyed by address.

    The outcomes, intents and late changes of the enclosing steps are removed too. The outcomes and late changes of the
    edited steps themselves stay, as their new outcomes replace them. `late`: the changes that handlers made to the
    state of steps after their end.
    """
    for known in (outcomes, intents, late, *others):
        for at in [at for at in known if not edited.isdisjoint(outers(at))]:
            del known[at]
    for known in (intents, *others):
        for at in edited:
            known.pop(at, None)
    for at in ("", *around(edited)):  # needed even if a prune has removed the steps inside them
        for known in (outcomes, intents, late):
            known.pop(at, None)


def withdraw(asked: ByAddress, answers: ByAddress, open_ones: Iterable[Mapping[str, Any]]) -> None:
    """Remove the open questions to people, and the answers that the base of a fork was given ahead of its questions.

    A fork with changes may never ask these questions; if it does, it asks them again. Nothing says what an answer was
    given ahead to, so it does not count for what the fork asks instead.
    """
    for question in open_ones:
        asked.pop(question["address"], None)
    for at in [at for at, answer in answers.items() if answer.get("ahead") and answer.get("inherited")]:
        del answers[at]


def inherited(answers: Mapping[str, GivenAnswer]) -> dict[str, GivenAnswer]:
    """Return the answers as a fork has them: those given ahead are marked, as they were given to its base."""
    return {at: {**answer, "inherited": True} if answer.get("ahead") else answer for at, answer in answers.items()}


def bound_to(answer: GivenAnswer, asked: AskedQuestion | None) -> GivenAnswer:
    """Return an answer that was given ahead as the answer to this question."""
    bound: GivenAnswer = {**answer}
    del bound["ahead"]
    if asked and "digest" in asked:
        bound["digest"] = asked["digest"]
    return bound
