"""An answer that stands for no outcome is refused wherever it is given, before anything is recorded."""

from __future__ import annotations

import pytest

from crewlite import History
from crewlite.errors import AnswerRefused, Suspended
from crewlite.flow import Flow, human_feedback, listen, start
from crewlite.state.format.entry import seal
from crewlite.state.reading.fitting import what_fits
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of

ADDRESS = "method:draft/human:draft"


def review(setting, **options):
    class Review(Flow):
        checkpoint = setting

        @start()
        @human_feedback("Good?", **({"emit": ["approved", "Größe"]} | options))
        def draft(self):
            return "of the tides"

        @listen("approved")
        def publish(self, given):
            return f"published: {given.feedback}"

    return Review()


def older(setting):
    """The store of a run that has asked in an earlier release, which did not record what an answer must be."""
    entries, before = [], ""
    for entry in entries_of(setting):
        asked = [{name: one[name] for name in one if name != "schema"} for one in entry.commit.get("asked", [])]
        entries.append(seal(entry.commit | ({"asked": asked} if asked else {}), after=before))
        before = entries[-1].sum
    return cut(entries, len(entries))


@pytest.mark.parametrize(
    ("options", "misfits", "fits", "shown"),
    [
        (
            {},
            ["perhaps", "", " ", "approvedish", "not approved", True],
            "GRÖSSE: so",
            "one of 'approved', 'Größe', alone or with words",
        ),
        ({"default_outcome": "approved"}, ["perhaps", "approvedish"], " ", "; nothing: approved"),
        ({"llm": ScriptedLLM([])}, ["", " \n", 7], "Approved", "one of 'approved', 'Größe', or your own words"),
        ({"llm": ScriptedLLM([]), "default_outcome": "approved"}, [7], "", "or your own words; nothing: approved"),
    ],
)
def test_every_door_refuses_an_answer_that_does_not_fit(memory, options, misfits, fits, shown):
    made = review(memory(), **options)
    with pytest.raises(Suspended):
        made.kickoff(run_id=RUN)
    with History("memory", memory().provider) as history:
        waiting = history.run(RUN).waiting
        assert shown in what_fits(waiting[0].schema)
        for misfit in misfits:
            with pytest.raises(AnswerRefused, match="wanted"):
                history.answer(RUN, ADDRESS, misfit)
            assert history.run(RUN).waiting == waiting
        history.answer(RUN, ADDRESS, fits)
        made.kickoff(run_id=RUN)
        for misfit in misfits:
            with pytest.raises(AnswerRefused, match="Nothing was changed: fork again"):
                made.fork(RUN, edits={ADDRESS: misfit})
        assert len(history.branches(RUN)) == 1


def test_a_kickoff_that_refuses_an_answer_says_that_it_was_withdrawn(memory):
    with pytest.raises(AnswerRefused, match="The answer is withdrawn, and the question waits: answer again") as refused:
        review(memory()).kickoff(run_id=RUN, answers={ADDRESS: "perhaps"})
    assert refused.value.by_run
    with pytest.raises(AnswerRefused, match="Nothing was changed: answer again"):
        review(memory()).kickoff(run_id=RUN, answers={ADDRESS: "approvedish"})
    assert review(memory()).kickoff(run_id=RUN, answers={ADDRESS: "approved"}) == "published: approved"


def test_what_an_earlier_release_has_asked_takes_any_text_and_the_run_tells_what_does_not_fit(memory):
    with pytest.raises(Suspended):
        review(memory()).kickoff(run_id=RUN)
    old = older(memory())
    with History("cut", old.provider) as history:
        history.answer(RUN, ADDRESS, "perhaps")
        with pytest.raises(AnswerRefused, match="wanted one of 'approved', 'Größe'"):
            review(old).kickoff(run_id=RUN)
        history.answer(RUN, ADDRESS, "approved")
        assert review(old).kickoff(run_id=RUN) == "published: approved"


def test_an_edit_of_what_an_earlier_release_has_asked_is_refused_by_the_kickoff_of_the_fork(memory):
    review(memory()).kickoff(run_id=RUN, answers={ADDRESS: "approved"})
    fork = review(older(memory())).fork(RUN, edits={ADDRESS: "perhaps"})
    with pytest.raises(
        AnswerRefused, match="The edit of .* wanted one of.* The branch cannot go on with it: fork again"
    ):
        fork.kickoff()
