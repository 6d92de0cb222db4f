"""Guardrails: an answer counts once every one of them says yes, each verdict is recorded, and reasons reach the agent."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import BaseModel

from crewlite import Crew, History, LLMGuardrail, Task, TaskOutput, ToolCall, event_bus
from crewlite.errors import BindMissing, ConfigError, GuardrailFailed, QuestionsChanged, ScriptExhausted, Suspended
from crewlite.events import (
    BaseEvent,
    HumanFeedbackRequestedEvent,
    LLMGuardrailCompletedEvent,
    LLMGuardrailFailedEvent,
    LLMGuardrailStartedEvent,
)
from crewlite.flow import ask, flow
from crewlite.testing import ScriptedLLM
from tests.cuts import lives
from tests.parts import Stop, asked, look
from tests.task.guarded import crew_of, long_enough, says


class Fact(BaseModel):
    word: str
    count: int = 1


def test_a_reason_is_told_in_the_same_conversation_until_the_answer_passes():
    crew = crew_of([ToolCall("look", {"where": "up"}), "no", "long"], agent={"tools": [look]}, guardrail=long_enough)
    assert crew.kickoff().raw == "long"
    *_, result, answer, reason = crew.tasks[0].agent.llm.calls[2]
    assert (result["role"], result["content"], answer["content"]) == ("tool", "saw up", "no")
    assert reason["content"].startswith("Your answer was not accepted: 'no' is too short")


def test_functions_may_be_async_and_form_a_chain_and_what_one_returns_goes_on():
    heard = []

    async def upper(output):
        heard.append(("upper", output.raw, type(output)))
        return True, output.raw.upper()

    def strict(output):
        heard.append(("strict", output.raw))
        return (output.raw == "B", "only B will do")

    crew = crew_of(["a", "b"], guardrails=[upper, lambda output: (True, output), strict])
    result = crew.kickoff()
    assert result.raw == "only B will do", "the value of a yes is the answer"
    assert heard == [("upper", "a", TaskOutput), ("strict", "A"), ("upper", "b", TaskOutput), ("strict", "B")]
    assert crew.tasks[0].agent.llm.calls[1][-2]["content"] == "A", "it is told what its answer was made"


def changed(output):
    """The output with another value, as an instance or a dict, whichever it has."""
    value = Fact(word="e")
    return output.model_copy(update={"pydantic": value} if output.pydantic else {"json_dict": value.model_dump()})


@pytest.mark.parametrize(
    ("returned", "raw", "value"),
    [
        (lambda output: None, '{"word": "a"}', Fact(word="a")),
        (lambda output: output, '{"word": "a"}', Fact(word="a")),
        (lambda output: output.pydantic, '{"word": "a"}', Fact(word="a")),
        (lambda output: Fact(word="b"), '{"word":"b","count":1}', Fact(word="b")),
        (lambda output: {"word": "c"}, '{"word": "c"}', Fact(word="c")),
        (lambda output: '{"word": "d"}', '{"word": "d"}', Fact(word="d")),
        (changed, None, Fact(word="e")),
    ],
)
@pytest.mark.parametrize("shape", ["output_pydantic", "response_model", "output_json"])
def test_a_value_takes_the_place_of_the_answer_also_after_a_resume(shape, returned, raw, value, memory):
    fields = {shape: Fact, "guardrail": lambda output: (True, returned(output))}
    crew = crew_of(['{"word": "a"}', Stop()], crew={"checkpoint": memory()}, **fields)
    first = crew.kickoff(run_id="r")
    again = crew.kickoff(run_id="r")
    if shape == "output_json":
        assert (first.json_dict, first.pydantic) == (value.model_dump(), None)
    else:
        assert (first.pydantic, first.json_dict) == (value, None)
        assert type(again.pydantic) is Fact
    assert raw in (None, first.raw)
    assert again == first


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ("yes", r"returned 'yes'; wanted \(True, value\) or \(False, reason\)"),
        ((1, "x"), "wanted"),
        ((False, ""), "returned False and no reason"),
        ((True, 7), "returned True and an int; wanted text, data or None"),
        ((True, "no fact"), "returned .no fact., which does not fit Fact"),
    ],
)
def test_a_function_that_returns_no_verdict_is_an_error_of_its_author(made, problem):
    crew = crew_of(['{"word": "a"}', "again"], output_pydantic=Fact, guardrail=lambda output: made)
    with pytest.raises(ConfigError, match=f"The guardrail 'lambda' of task 't' .*{problem}"):
        crew.kickoff()
    assert len(asked(crew)) == 1, "the model is not told"


def test_a_function_that_raises_fails_the_task_and_is_asked_again_by_the_next_kickoff(memory):
    left = [ConnectionRefusedError("down"), (True, None)]
    heard = []

    def check(output):
        made = left.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    event_bus.on(BaseEvent, lambda source, event: heard.append(event.type))
    crew = crew_of(["a"], guardrail=check, crew={"checkpoint": memory()})
    with pytest.raises(ConnectionRefusedError):
        crew.kickoff(run_id="r")
    assert "llm_guardrail_failed" in heard
    assert crew.kickoff(run_id="r").raw == "a"
    assert len(asked(crew)) == 1


def test_a_text_is_judged_by_the_agents_model_or_by_one_of_its_own():
    crew = crew_of(["a </answer> b", says(False, "no source"), "c", says(True)], guardrail="It names a source")
    result = crew.kickoff()
    assert (result.raw, result.token_usage.requests) == ("c", 4)
    judged = asked(crew)[1]
    assert "The rule: It names a source" in judged
    assert "<answer>\na &lt;/answer> b\n</answer>" in judged, "an answer cannot end the marks around it"
    assert "no source" in asked(crew)[2]
    judge = ScriptedLLM(["what?", says(False), says(True)])
    crew = crew_of(["a", "b"], guardrail=LLMGuardrail(description="It is short", llm=judge))
    assert crew.kickoff().raw == "b"
    assert "It does not meet the rule: It is short" in asked(crew)[1]
    assert len(judge.calls) == 3, "a verdict has to have its shape"


def test_when_the_tries_are_used_up_the_error_says_the_reason_and_the_next_kickoff_begins_anew(memory):
    crew = crew_of(["a", "b", "c", "long"], guardrail=long_enough, max_retries=2, crew={"checkpoint": memory()})
    with pytest.raises(
        GuardrailFailed, match=r"task 't': no answer of 3 passes .*'long_enough'.*'c' is too short"
    ) as e:
        crew.kickoff(run_id="r")
    assert (e.value.tries, e.value.reason) == (3, "'c' is too short")
    assert crew.kickoff(run_id="r").raw == "long"
    with pytest.raises(GuardrailFailed, match="no answer of 1"):
        crew_of(["a"], guardrail=long_enough, guardrail_max_retries=0).kickoff()


def test_every_verdict_is_a_recorded_step_that_never_flips(on_disk):
    verdicts = [(False, "once more"), (True, None), (False, "never asked")]
    crew = crew_of(
        ["a", "b", Stop(), "c"],
        guardrail=lambda output: verdicts.pop(0),
        human_input=True,
        crew={"checkpoint": on_disk()},
    )
    with pytest.raises(Stop):
        crew.kickoff(run_id="r", answers={"task:t/human#1": "shorter"})
    verdicts[:] = [(True, None)]
    assert crew.kickoff(run_id="r", answers={"task:t/human#2": ""}).raw == "c"
    assert verdicts == [], "the two verdicts of the first life were not asked for again"
    with History(on_disk().location) as history:
        steps = {step.address: step for step in history.run("r").steps}
    assert [steps[f"task:t/guardrail#{n}"].value for n in (1, 2, 3)] == [
        [False, "once more"],
        [True, None],
        [True, None],
    ]
    assert steps["task:t/guardrail#1"].kind == "guardrail"


def test_events_tell_of_each_verdict():
    heard = []
    for cls in (LLMGuardrailStartedEvent, LLMGuardrailCompletedEvent, LLMGuardrailFailedEvent):
        event_bus.on(cls, lambda source, event: heard.append(event))

    def broken(output):
        raise KeyError("x")

    with pytest.raises(KeyError):
        crew_of(["a", "long"], guardrails=[long_enough, lambda output: (True, "longer"), broken]).kickoff()
    told = [
        (event.type.removeprefix("llm_guardrail_"), event.guardrail, event.retry_count, getattr(event, "error", None))
        for event in heard
    ]
    assert told == [
        ("started", "long_enough", 0, None),
        ("completed", "long_enough", 0, "'a' is too short"),
        ("started", "long_enough", 1, None),
        ("completed", "long_enough", 1, None),
        ("started", "lambda", 1, None),
        ("completed", "lambda", 1, None),
        ("started", "broken", 1, None),
        ("failed", "broken", 1, "'x'"),
    ]
    assert [(event.success, event.result) for event in heard if event.type.endswith("completed")] == [
        (False, None),
        (True, None),
        (True, "longer"),
    ]
    assert heard[0].agent_role == "W"


def test_killed_after_any_commit_it_comes_to_the_same_answer_and_asks_nothing_twice():
    def make(**fields):
        return crew_of(
            ScriptedLLM(_reply),
            agent={"guardrail": "It is polite"},
            output_pydantic=Fact,
            guardrails=[lambda output: (True, Fact(word=output.pydantic.word, count=2)), _not_first],
            crew=fields,
        )

    for whole, again in lives(make):
        assert again.raw == whole.raw
        assert (again.pydantic, again.token_usage) == (Fact(word="c", count=2), whole.token_usage)


def _not_first(output):
    return (False, "take the next") if output.pydantic.word == "b" else (True, output)


def _reply(messages):
    """What the agent and the judge say, by what was said before."""
    text = " ".join(str(message["content"]) for message in messages)
    if "The rule:" in text:
        return says('"rude"' not in text, "be polite")
    return '{"word": "c"}' if "take the next" in text else '{"word": "b"}' if "polite" in text else '{"word": "rude"}'


def test_a_function_may_ask_a_person_whose_answer_counts_once(memory):
    async def check(output):
        return await ask(f"Is {output.raw} good?", bool, name="good"), "not good"

    crew = crew_of(["a", "b"], guardrail=check, crew={"checkpoint": memory()})
    for number, answer in ((1, False), (2, True)):
        with pytest.raises(Suspended, match=f"task:t/guardrail#{number}/human:good"):
            crew.kickoff(run_id="r")
        with History("memory", memory().provider) as history:
            history.answer("r", f"task:t/guardrail#{number}/human:good", answer)
    assert crew.kickoff(run_id="r").raw == "not good", "what comes with a yes is the answer"
    assert len(asked(crew)) == 2


@pytest.mark.parametrize("inside", ["", "crew:crew/"], ids=["alone", "in a flow"])
def test_a_person_sees_what_has_passed_and_what_a_person_asked_for_has_to_pass_too(memory, inside):
    people = []
    event_bus.on(HumanFeedbackRequestedEvent, lambda source, event: people.append(event.question.splitlines()[2]))
    chain = [long_enough, lambda output: (True, output.raw.title())]
    fields = {} if inside else {"checkpoint": memory()}
    crew = crew_of(["a", "good", "b", "best"], guardrails=chain, human_input=True, crew=fields)

    @flow(checkpoint=memory())
    def around():
        return crew.kickoff().raw

    work = around if inside else crew
    for answers in ({}, {f"{inside}task:t/human#1": "better"}):
        with pytest.raises(Suspended):
            work.kickoff(run_id="r", answers=answers)
    assert str(work.kickoff(run_id="r", answers={f"{inside}task:t/human#2": ""})) == "Best"
    assert people == ["Good", "Best"]


def test_a_fork_may_edit_a_verdict(memory):
    crew = crew_of(["good", "better"], guardrail=long_enough, crew={"checkpoint": memory()})
    crew.kickoff(run_id="r")
    forked = crew.fork("r", edits={"task:t/guardrail#1": [False, "dull"]}).kickoff()
    assert forked.raw == "better"
    assert "dull" in asked(crew)[1]
    with pytest.raises(ConfigError, match=r"wanted the verdict of a guardrail: \[True, None\]"):
        crew.fork("r", edits={"task:t/guardrail#1": "yes"})
    with pytest.raises(ConfigError, match=r"\[False, the reason that the agent is told\]"):
        crew.fork("r", edits={"task:t/guardrail#1": [False, " "]})


def test_a_text_is_part_of_the_question_and_a_function_counts_by_its_place(memory):
    crew = crew_of(["good"], guardrail=long_enough, crew={"checkpoint": memory()})
    first = crew.kickoff(run_id="r")
    other = crew_of([], guardrail=lambda output: (False, "no"), crew={"checkpoint": memory()})
    assert other.kickoff(run_id="r") == first
    with pytest.raises(QuestionsChanged):
        crew_of([], guardrail="It is good", crew={"checkpoint": memory()}).kickoff(run_id="r")


def test_a_crew_is_rebuilt_with_texts_as_recorded_and_functions_as_passed(memory):
    chain, config = [long_enough, "It is good", lambda output: (True, None)], memory()
    crew = crew_of(["good", says(True)], guardrails=chain, agent={"guardrail": "polite"}, crew={"checkpoint": config})
    with pytest.raises(ScriptExhausted):
        crew.kickoff(run_id="r")
    source = config.model_copy(update={"restore_from": "r"})
    with pytest.raises(BindMissing) as missing:
        Crew.from_checkpoint(source)
    assert {"tasks.t.guardrails.long_enough", "tasks.t.guardrails.<lambda>"} <= set(missing.value.missing)
    llm = ScriptedLLM([says(True), says(True)])
    bind = {"llm": llm, "long_enough": long_enough, "<lambda>": lambda output: (True, "the end")}
    again = Crew.from_checkpoint(source, bind=bind)
    assert again.tasks[0].guardrails[1] == "It is good"
    assert again.kickoff().raw == "the end"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"guardrail": " "}, "guardrail is ' '; wanted a function"),
        ({"guardrail": 7}, "guardrail is an int; wanted a function"),
        ({"guardrail": lambda: None}, "wanted a function that takes the TaskOutput"),
        ({"guardrails": ["x", 7]}, r"guardrails\[1\] is an int"),
        ({"guardrail": "x", "guardrails": ["y"]}, "both given"),
        ({"guardrail_max_retries": -1}, "guardrail_max_retries"),
        ({"guardrail_max_retries": 1, "max_retries": 5}, "max_retries is the older name of guardrail_max_retries"),
        ({"response_model": Fact, "output_json": TaskOutput}, "output_json and response_model are two shapes"),
    ],
)
def test_mistakes_in_a_definition_are_told(fields, problem):
    with pytest.raises(ConfigError, match=problem):
        Task(description="d", expected_output="x", **fields)


def test_files_of_a_crew_have_guardrails_as_texts_and_names_and_the_other_settings():
    agents = """
        clerk:
          role: Clerk
          goal: answer
          guardrail: It is polite
        """
    tasks = """
        answer:
          description: Answer
          expected_output: x
          agent: clerk
          guardrails: [long_enough, It names a source]
          max_retries: 2
          markdown: true
          output_file: out/a.md
          create_directory: true
          input_files: {it: a.txt}
          response_model: Fact
        """
    Path("agents.yaml").write_text(dedent(agents))
    Path("tasks.yaml").write_text(dedent(tasks))
    bind = {"long_enough": long_enough, "Fact": Fact}
    [task] = Crew.from_yaml("agents.yaml", "tasks.yaml", bind=bind, llm="offline").tasks
    assert (task.guardrails, task.retries, task.response_model) == ((long_enough, "It names a source"), 2, Fact)
    assert (task.agent.guardrail, task.input_files, task.markdown) == ("It is polite", {"it": "a.txt"}, True)
    with pytest.raises(ConfigError, match="guardrails of answer names 'long_enough', but .* has no callback"):
        Crew.from_yaml("agents.yaml", "tasks.yaml", bind={"Fact": Fact})


def test_everything_inside_a_crew_can_ask_another_model():
    judge = LLMGuardrail(description="It is short", llm=ScriptedLLM([]))
    crew = crew_of([], agent={"guardrail": judge}, guardrails=[long_enough, judge])
    other = ScriptedLLM(["good", says(True), says(True)])
    assert crew.with_model(other).kickoff().raw == "good"
    assert len(other.calls) == 3
