"""A misspelt label, task or address is told to be that, with what may be meant; only what was dropped is told as such."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from crewlite import Agent, Crew, History, Task
from crewlite.cli.main import main
from crewlite.errors import RefError
from crewlite.testing import ScriptedLLM

NONE_HERE = "names no checkpoint of this branch"


def crew_of(config):
    agent = Agent(role="W", goal="g", llm=ScriptedLLM(lambda messages: "x"))
    tasks = [
        Task(name=name, description=name, expected_output="x", agent=agent) for name in ("facts", "style", "final")
    ]
    return Crew(tasks=tasks, checkpoint=config)


@pytest.fixture(params=["as it was", "pruned"])
def ran(request, config):
    """A maker of configurations of a store in which crew_of has run, and perhaps the first checkpoints are gone."""
    crew_of(config()).kickoff(run_id="r")
    with History(config().location, provider=config().provider) as history:
        history.label("r", "good")
        if request.param == "pruned":
            assert len(history.prune(keep_last=1).checkpoints) == 2
    return config


@pytest.mark.parametrize(
    ("ref", "problem", "candidate"),
    [
        ("r@label:goood", "it has no label 'goood'; did you mean 'good'?", "@label:good"),
        ("r@label:other", "it has no label 'other'.", "@label:good"),
        ("r@task:fnal", "it has no step 'task:fnal'; did you mean 'task:final'?", "(task:final)"),
        ("r@task:styel/llm#1", "it has no step 'task:styel/llm#1'; did you mean 'task:style/llm#1'?", "(task:final)"),
        ("r@final", "it has no step 'final'; did you mean 'task:final'?", "(task:final)"),
        ("r@task:other", "it has no step 'task:other'.", "(task:final)"),
    ],
)
def test_a_misspelt_place_is_not_told_as_pruned(ran, ref, problem, candidate):
    with History(ran().location, provider=ran().provider) as history, pytest.raises(RefError) as missing:
        history.checkpoint(ref)
    assert f"{NONE_HERE}: {problem}" in str(missing.value)
    assert candidate in str(missing.value.candidates)


def test_a_step_without_a_checkpoint_is_told_as_such(config):
    crew_of(config()).kickoff(run_id="r")
    with History(config().location, provider=config().provider) as history:
        with pytest.raises(RefError, match=f"{NONE_HERE}: none was made at task:style/llm#1"):
            history.checkpoint("r@task:style/llm#1")
        history.fork("r@task:facts", branch="f")
        with pytest.raises(RefError, match=f"{NONE_HERE}: task:final has not begun there"):
            history.checkpoint("r/f@task:final")
        (dropped,) = history.prune(keep_last=1).checkpoints
        for place in ("task:style", "task:style/llm#1", dropped, dropped[-8:]):
            with pytest.raises(RefError, match=f"{NONE_HERE} any more: 1 checkpoint of it was pruned"):
                history.checkpoint(f"r@{place}")


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("task:styel", "task:style"),
        ("task:styel/llm#1", "task:style/llm#1"),
        ("task:style/lm#1", "task:style/llm#1"),
        ("task:style/llm#2", "task:style/llm#1"),
        ("style", "task:style"),
        ("sytle", "task:style"),
        ("task:other", None),
        ("task:other/llm#1", None),
    ],
)
def test_a_misspelt_address_is_not_told_as_pruned(ran, address, meant):
    crew = crew_of(ran())
    for act in (
        lambda: crew.fork("r", edits={address: "x"}),
        lambda: crew.fork("r", rerun=[address]),
        lambda: crew.kickoff(run_id="r", rerun=[address]),
    ):
        with pytest.raises(RefError) as missing:
            act()
        text = str(missing.value)
        assert "prune" not in text
        assert f"did you mean '{meant}'?" in text if meant else "did you mean" not in text
        assert "task:style" in missing.value.candidates


def test_the_steps_inside_an_edited_step_are_not_told_as_pruned(config):
    crew_of(config()).kickoff(run_id="r")
    crew_of(config()).fork("r", branch="x", edits={"task:style": "y"})
    with pytest.raises(RefError, match="is inside task:style, of which only the outcome is recorded: it was edited"):
        crew_of(config()).fork("r/x", edits={"task:style/llm#1": "z"})


def test_the_command_hints_at_the_step_to_show(on_disk):
    crew_of(on_disk()).kickoff(run_id="r")
    words = ["checkpoint", "show", "r", "--step", "task:fnal", "--location", on_disk().location]
    done = CliRunner().invoke(main, words, prog_name="crewlite")
    assert "names no step that is recorded of r/main; did you mean 'task:final'? Candidates: task:final" in done.stderr
