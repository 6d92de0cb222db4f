"""A task that is done only if its condition says so: the verdict is recorded, and a task that is skipped is seen."""

from __future__ import annotations

import pytest

from crewlite import Agent, ConditionalTask, Crew, History, Task, TaskOutput, event_bus
from crewlite.errors import BindMissing, ConfigError, OutputInvalid, QuestionsChanged, TaskDrifted
from crewlite.events import StepCompletedEvent, TaskCompletedEvent
from crewlite.testing import ScriptedLLM
from tests.cuts import lives
from tests.parts import Fact, Stop, asked


def short(output):
    return len(output.raw) < 5


def crew_of(replies, condition=short, *, more=(), last=True, **fields):
    llm = replies if isinstance(replies, ScriptedLLM) else ScriptedLLM(replies)
    who = Agent(role="W", goal="g", llm=llm)
    about = {"expected_output": "x", "agent": who}
    tasks = [
        Task(name="draft", description="Draft", **about),
        ConditionalTask(name="extend", description="Extend", condition=condition, **about, **dict(more)),
    ]
    return Crew(tasks=[*tasks, *([Task(name="print", description="Print", **about)] if last else ())], **fields)


def test_it_is_done_if_its_condition_holds_for_the_output_before_it():
    heard = []

    async def condition(output):
        heard.append(output)
        return "yes"

    assert crew_of(["a", "b", "c"], condition).kickoff()["extend"].raw == "b"
    assert [type(one) for one in heard] == [TaskOutput]
    assert heard[0].raw == "a"


@pytest.mark.parametrize("said", ["no", " False\n", "N"])
def test_a_condition_that_returns_a_text_that_says_no_is_refused(said):
    with pytest.raises(ConfigError, match=r"task 'extend': its condition returned the text '.*return True or False"):
        crew_of(["a", "b", "c"], lambda output: said).kickoff()


def test_else_it_is_skipped_and_nobody_builds_on_it():
    crew = crew_of(["long enough", "printed"])
    result = crew.kickoff()
    assert result.raw == "printed"
    skipped = result["extend"]
    assert (skipped.skipped, skipped.raw, skipped.pydantic, skipped.agent) == (True, "", None, "W")
    assert "## draft" in asked(crew)[-1] and "## extend" not in asked(crew)[-1]


def test_the_result_is_that_of_the_last_task_that_was_done():
    result = crew_of(['{"word": "enough"}'], more={"output_pydantic": Fact}, last=False).kickoff()
    assert (result.raw, result.pydantic) == ('{"word": "enough"}', None)
    assert [output.skipped for output in result.tasks_output] == [False, True]


def test_a_skipped_task_is_visible(stored):
    heard = []
    event_bus.on(TaskCompletedEvent, lambda source, event: heard.append((event.address, event.output.skipped)))
    event_bus.on(StepCompletedEvent, lambda source, event: heard.append((event.address, event.kind)))
    crew_of(["long enough", "printed"], checkpoint=stored()).kickoff(run_id="r")
    assert heard == [
        ("task:draft", False),
        ("task:extend/condition#1", "condition"),
        ("task:extend", True),
        ("task:print", False),
    ]
    with History(stored().location, stored().provider) as history:
        steps = {step.address: step.value for step in history.run("r").steps}
        assert [checkpoint.tasks[-1] for checkpoint in history.run("r").checkpoints()][1] == "task:extend"
    assert steps["task:extend/condition#1"] is False


def test_the_verdict_never_flips_on_a_resume(on_disk):
    verdicts = [True, False]

    def condition(output):
        return verdicts.pop(0)

    crew = crew_of(["a", Stop(), "b", "c"], condition, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r")["extend"].raw == "b"
    assert verdicts == [False]


def test_nor_does_it_in_a_new_attempt_at_the_task(on_disk):
    verdicts = [True, False]
    replies = ["a", "no shape", "no shape", "no shape", '{"word": "b"}', "c"]
    more = {"output_pydantic": Fact}
    crew = crew_of(replies, lambda output: verdicts.pop(0), more=more, checkpoint=on_disk())
    with pytest.raises(OutputInvalid):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r")["extend"].pydantic == Fact(word="b")
    with History(on_disk().location) as history:
        assert "task:extend!2/llm#1" in {step.address for step in history.run("r").steps}
    assert verdicts == [False]


def test_a_skipped_task_stays_skipped_in_the_stored_result(stored):
    crew = crew_of(["long enough", "printed"], checkpoint=stored())
    first = crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r") == first
    assert first["extend"].skipped


def test_a_condition_that_fails_is_asked_again_by_the_next_kickoff(on_disk):
    verdicts = [Stop(), False]

    def condition(output):
        if isinstance(verdict := verdicts.pop(0), Exception):
            raise verdict
        return verdict

    crew = crew_of(["a", "b"], condition, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff(run_id="r")
    assert crew.kickoff(run_id="r")["extend"].skipped
    assert len(asked(crew)) == 2


def test_a_fork_that_edits_the_output_before_it_decides_anew(stored):
    crew = crew_of(["long enough", "printed", "extended", "again"], more={"context": []}, checkpoint=stored())
    assert crew.kickoff(run_id="r")["extend"].skipped
    result = crew.fork("r", branch="f", edits={"task:draft": "tiny"}).kickoff()
    assert [output.raw for output in result.tasks_output] == ["tiny", "extended", "again"]


def test_a_fork_may_say_what_a_skipped_task_came_to(stored):
    crew = crew_of(["long enough", "printed", "again"], checkpoint=stored())
    crew.kickoff(run_id="r")
    result = crew.fork("r", branch="f", edits={"task:extend": "by hand"}).kickoff()
    assert (result["extend"].raw, result["extend"].skipped, result.raw) == ("by hand", False, "again")


def test_a_fork_may_say_what_its_condition_comes_to(stored):
    crew = crew_of(["long enough", "printed", "extended", "again"], checkpoint=stored())
    crew.kickoff(run_id="r")
    result = crew.fork("r", branch="f", edits={"task:extend/condition#1": True}).kickoff()
    assert [output.raw for output in result.tasks_output] == ["long enough", "extended", "again"]


@pytest.mark.parametrize("draft", ["tiny", "long enough"])
@pytest.mark.parametrize("beside", [False, True])
def test_killed_after_any_commit_it_ends_as_it_would_have(draft, beside):
    def make(**fields):
        llm = ScriptedLLM(lambda messages: draft if messages[-1]["content"].startswith("Draft") else "more")
        return crew_of(llm, more={"async_execution": beside}, **fields)

    for whole, again in lives(make):
        assert again == whole
        assert again["extend"].skipped is (draft == "long enough")


def test_it_cannot_be_the_first_and_it_needs_a_condition():
    who = Agent(role="W", goal="g", llm="offline")
    task = ConditionalTask(description="Extend", expected_output="x", agent=who, condition=short)
    with pytest.raises(ConfigError, match="'Extend' is the first, so its condition has no output to decide by"):
        Crew(tasks=[task])
    with pytest.raises(ConfigError, match="'condition' is missing"):
        ConditionalTask(description="Extend", expected_output="x", agent=who)


def test_it_is_rebuilt_with_its_condition_bound_again(stored):
    with pytest.raises(Stop):
        crew_of(["a", Stop()], checkpoint=stored()).kickoff(run_id="r")
    with pytest.raises(BindMissing, match=r"tasks\.extend\.condition"):
        Crew.from_checkpoint(stored(restore_from="r"), bind={"llm": ScriptedLLM([])})
    bind = {"llm": ScriptedLLM(["b", "c"]), "condition": lambda output: False}
    again = Crew.from_checkpoint(stored(restore_from="r"), bind=bind)
    assert isinstance(again.tasks[1], ConditionalTask)
    assert again.kickoff()["extend"].raw == "b", "the verdict was recorded"


def plain(crew):
    """The crew with its conditional task made a plain one."""
    first, second, *rest = crew.tasks
    second = Task(**{name: getattr(second, name) for name in ("name", "description", "expected_output", "agent")})
    return Crew(tasks=[first, second, *rest], checkpoint=crew.checkpoint)


@pytest.mark.parametrize("finished", [False, True])
def test_a_task_that_was_skipped_and_has_no_condition_now_is_asked_something_else(on_disk, finished):
    def run(replies, on_drift=None):
        return crew_of(replies, checkpoint=on_disk(on_drift=on_drift))

    first = run(["long enough", "printed" if finished else Stop()])
    if finished:
        first.kickoff(run_id="r")
    else:
        with pytest.raises(Stop):
            first.kickoff(run_id="r")
    with pytest.raises(TaskDrifted, match="markdown or condition"):
        plain(run([], "error")).kickoff(run_id="r")
    if finished:
        with pytest.raises(QuestionsChanged):
            plain(run([])).kickoff(run_id="r")
    result = plain(run(["extended", "again"], "rerun")).kickoff(run_id="r")
    assert [output.raw for output in result.tasks_output] == ["long enough", "extended", "again"]
    assert plain(run([], "rerun")).kickoff(run_id="r") == result


def test_one_that_is_kept_all_the_same_is_listed(on_disk):
    with pytest.raises(Stop):
        crew_of(["long enough", Stop()], checkpoint=on_disk()).kickoff(run_id="r")
    result = plain(crew_of(["printed"], checkpoint=on_disk(on_drift="keep"))).kickoff(run_id="r")
    assert (result["extend"].skipped, result.drifted) == (True, ("task:extend",))


@pytest.mark.parametrize("verdict", ["no", "false", [], 0, None])
def test_an_edit_of_its_condition_has_to_be_true_or_false(stored, verdict):
    crew = crew_of(["long enough", "printed"], checkpoint=stored())
    crew.kickoff(run_id="r")
    with pytest.raises(ConfigError, match=r"task:extend/condition#1 .*wanted True or False"):
        crew.fork("r", branch="f", edits={"task:extend/condition#1": verdict})


@pytest.mark.parametrize("condition", [lambda: True, lambda output, more: True, True])
def test_a_condition_that_cannot_be_called_with_an_output_is_found_at_definition(condition):
    with pytest.raises(ConfigError, match="condition is .*wanted a function that takes the TaskOutput"):
        crew_of([], condition)
