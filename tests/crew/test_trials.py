"""`crew.test` and `crew.train`: several kickoffs in one run, which goes on where it was cut."""

import asyncio
import contextvars
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from crewlite import (
    Agent,
    BaseLLM,
    CheckpointConfig,
    ConditionalTask,
    Crew,
    FailurePolicy,
    History,
    Process,
    Task,
    event_bus,
    tool,
)
from crewlite.cli.main import main
from crewlite.errors import (
    BranchConflictError,
    BudgetExceeded,
    ConfigError,
    InDoubt,
    InputsChanged,
    NoModel,
    OutputInvalid,
    QuestionsChanged,
    RecoveryEscalated,
    RunCancelled,
    Suspended,
)
from crewlite.events import BaseEvent
from crewlite.llm import ToolCall
from crewlite.recovery import escalate
from crewlite.runtime.kickoffs.request import Progress, Request
from crewlite.testing import EventRecorder, ScriptedLLM
from tests import children
from tests.cuts import lives

FILE = "trained_agents_data.json"
LEARNED = {"suggestions": ["Name {sources}", "Be brief"], "quality": 6, "final_summary": "Good, but long."}


def says(messages):
    """What a model answers: to a trainer's question, to that of an evaluator, and to a task."""
    told, asked = messages[0]["content"], messages[-1]["content"]
    if told.startswith("You train"):
        return json.dumps(LEARNED)
    if told.startswith("You judge"):
        return json.dumps({"quality": 9 if "Do one" in asked else 4, "reason": "It is."})
    return f"{asked.splitlines()[0]} ({told.count('- ')} lessons)"


def crew_of(llm=None, *more, **fields):
    who = Agent(role="{topic} clerk", goal="g", backstory="b", llm=llm or ScriptedLLM(says))
    boss = Agent(role="Boss", goal="g", backstory="b", llm=who.llm)
    one = Task(name="one", description="Do one on {topic}", expected_output="x", agent=who)
    two = Task(name="two", description="Do two", expected_output="x", agent=boss)
    return Crew(name="a/b", tasks=[one, two, *more], **fields)


TOPIC = {"topic": "tides"}


def test_a_program_that_only_reads_finds_the_result_of_a_trial():
    crew = crew_of(checkpoint=True)
    crew.train(1, inputs=TOPIC, feedback=["Better."], run_id="training")
    crew.test(1, crew.agents[0].llm, TOPIC, run_id="test")
    read = "from crewlite import History; print(*(type(History().run(name).result).__name__ for name in ('training', 'test')))"
    done = children.run([sys.executable, "-c", read], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CrewTrainingResult", "CrewTestResult"]


def heard():
    types = []
    event_bus.on(BaseEvent, lambda source, event: types.append(event.type))
    return types


def test_each_answer_is_scored_and_the_scores_make_a_table():
    told, judge = [], ScriptedLLM(says)
    event_bus.on(BaseEvent, lambda source, event: told.append(event))
    skipped = ConditionalTask(
        name="three", description="d", expected_output="x", agent=Agent(role="C", goal="g", llm=judge),
        condition=lambda output: False,
    )  # fmt: skip
    result = crew_of(None, skipped).test(2, judge, TOPIC)
    assert result["one"] == (9.0, 9.0)
    assert result["two"] == (4.0, 4.0)
    assert (result.quality, result.model, len(result.seconds)) == (6.5, "scripted", 2)
    assert result.scores[0].reason == "It is."
    assert result.token_usage.requests == 8
    with pytest.raises(KeyError, match="scored were one, two"):
        result["three"]
    assert str(result).splitlines()[:4] == [
        "task     run 1  run 2  mean  agent",
        "one        9.0    9.0   9.0  tides clerk",
        "two        4.0    4.0   4.0  Boss",
        "crew       6.5    6.5   6.5",
    ]
    types = [event.type for event in told]
    assert types[0] == "crew_test_started"
    assert types[-1] == "crew_test_completed"
    iteration = ["agent_evaluation_started", "task_evaluation", "agent_evaluation_completed"] * 2 + ["crew_test_result"]
    assert [kind for kind in types if "evaluation" in kind or kind == "crew_test_result"] == iteration * 2
    outcome = [event for event in told if event.type == "crew_test_result"]
    assert [(event.iteration, event.quality, event.model) for event in outcome] == [
        (1, 6.5, "scripted"),
        (2, 6.5, "scripted"),
    ]
    assert result.seconds == tuple(event.execution_duration for event in outcome)
    assert "Do two (0 lessons)" in judge.calls[1][1]["content"], "the evaluator sees the answer"


def test_a_test_that_is_killed_anywhere_goes_on_and_pays_nothing_twice():
    def verb(crew, run_id):
        return crew.test(2, ScriptedLLM(says), TOPIC, run_id=run_id)

    for whole, again in lives(lambda **fields: crew_of(**fields), verb):
        assert again.model_copy(update={"seconds": whole.seconds}) == whole


def test_a_model_that_gives_no_score_fails_the_test_which_goes_on_from_there(on_disk):
    types, judge = heard(), ScriptedLLM(["no", "no", "no", *[json.dumps({"quality": 11, "reason": ""})] * 3])
    crew = crew_of(checkpoint=on_disk())
    for _ in range(2):
        with pytest.raises(OutputInvalid):
            crew.test(1, judge, TOPIC, run_id="r")
    assert types.count("agent_evaluation_failed") == types.count("crew_test_failed") == 2
    assert len(crew.tasks[0].agent.llm.calls) == 2, "the crew was not asked again"
    assert crew.test(1, ScriptedLLM(says), TOPIC, run_id="r").quality == 6.5


def test_what_agents_learn_from_feedback_is_told_to_them_and_is_part_of_what_they_are_asked(on_disk):
    types, llm = heard(), ScriptedLLM(says)

    async def better(output):
        return None if output.name == "two" else f"Longer, {output.agent}."

    result = crew_of(llm).train(2, inputs=TOPIC, feedback=better)
    assert [(lesson.role, lesson.answer) for lesson in result.lessons] == [
        ("{topic} clerk", "Do one on tides (0 lessons)"),
        ("{topic} clerk", "Do one on tides (1 lessons)"),
    ]
    assert str(result) == "{topic} clerk (6.0 of 10)\n- Name {sources}\n- Be brief"
    assert result.token_usage.requests == 5
    assert "Feedback: Longer, tides clerk." in llm.calls[-1][1]["content"]
    assert (types[0], types[-1], "task_evaluation" in types) == ("crew_train_started", "crew_train_completed", True)
    with open(FILE, encoding="utf-8") as file:
        assert json.load(file) == {"{topic} clerk": LEARNED | {"quality": 6.0}}

    setting = on_disk()
    before = crew_of(checkpoint=setting)
    before.kickoff(TOPIC, run_id="r")
    trained = crew_of(checkpoint=setting, trained_agents_file=FILE)
    with pytest.raises(QuestionsChanged, match="backstory"):
        trained.kickoff(TOPIC, run_id="r")
    answers = trained.kickoff({"topic": "winds"}).tasks_output
    assert [output.raw for output in answers] == ["Do one on winds (2 lessons)", "Do two (0 lessons)"]
    assert "- Name {sources}" in trained.tasks[0].agent.llm.calls[0][0]["content"], "suggestions have no placeholders"

    trained.train(1, FILE, TOPIC, feedback=[{"two": "Shorter."}])
    with open(FILE, encoding="utf-8") as file:
        assert list(json.load(file)) == ["{topic} clerk", "Boss"], "what others have learned stays"


def test_a_crew_stays_as_it_is_in_all_kickoffs_of_its_training():
    def feedback(output):
        with pytest.raises(ConfigError, match="cannot be set while a run is at work"):
            crew.tasks[0].description = "other"
        return "Longer."

    crew = crew_of(ScriptedLLM(says))
    crew.train(2, inputs=TOPIC, feedback=feedback)
    crew.tasks[0].description = "other"


def test_trainings_that_end_at_once_write_one_file_and_none_is_lost():
    def trains(role):
        who = Agent(role=role, goal="g", llm=ScriptedLLM(says))
        task = Task(description="Do one", expected_output="x", agent=who)
        Crew(tasks=[task]).train(1, FILE, feedback=["Shorter."])

    roles = [f"Clerk {number}" for number in range(8)]
    with ThreadPoolExecutor(len(roles)) as pool:
        list(pool.map(trains, roles))
    with open(FILE, encoding="utf-8") as file:
        assert sorted(json.load(file)) == roles


def test_a_training_that_is_killed_anywhere_goes_on_and_pays_nothing_twice():
    files = []

    def verb(crew, run_id):
        if os.path.exists(FILE):
            os.unlink(FILE)
        result = crew.train(2, FILE, TOPIC, feedback=lambda output: "Better.", run_id=run_id)
        with open(FILE, encoding="utf-8") as file:
            files.append(file.read())
        return result

    for whole, again in lives(lambda **fields: crew_of(trained_agents_file=FILE, **fields), verb):
        assert again == whole
    assert len(set(files)) == 1


def test_a_person_is_asked_for_feedback_and_a_manager_learns_too(on_disk):
    crew = crew_of(checkpoint=on_disk(), process=Process.hierarchical, manager_llm=ScriptedLLM(says))
    with pytest.raises(Suspended) as waits, EventRecorder() as heard:
        crew.train(1, inputs=TOPIC, run_id="r")
    assert heard.types[-1] == "human_feedback_requested", "and nothing of a flow, which it is not to its caller"
    assert list(waits.value.waiting) == ["human:feedback.1.one"]
    assert "To resume it, call test or train of the crew again with run_id='r', answers=" in str(waits.value)
    with pytest.raises(
        InputsChanged, match="other inputs: 'n_iterations'. To go on, call test or train of the crew again, as it"
    ):
        crew.train(2, inputs=TOPIC, run_id="r")
    answers = {"human:feedback.1.one": "Delegate.", "human:feedback.1.two": ""}
    result = crew.train(1, inputs=TOPIC, run_id="r", answers=answers)
    assert list(result.agents) == ["Crew Manager"]
    again = crew_of(trained_agents_file=FILE, process=Process.hierarchical, manager_llm=ScriptedLLM(says))
    assert "- Be brief" in (again.kickoff(TOPIC) and again.manager_llm.calls[0][0]["content"])


def test_a_test_with_a_call_in_doubt_is_told_to_be_called_again(on_disk):
    @tool(effect="once", timeout=0.01)
    async def pay() -> str:
        """Pay."""
        await asyncio.sleep(60)

    payer = Agent(role="Payer", goal="g", llm=ScriptedLLM([[ToolCall("pay", {})]]), tools=[pay])
    task = Task(name="pay", description="Pay", expected_output="x", agent=payer)
    crew, at = Crew(name="shop", tasks=[task], checkpoint=on_disk()), "crew:shop/task:pay/tool:pay"
    advice = f"call test or train of the crew again with run_id='r', answers={{{at!r}: <its result>}} if it did"
    for _ in range(2):
        with pytest.raises(InDoubt, match=re.escape(advice)):
            crew.test(1, ScriptedLLM(says), TOPIC, run_id="r")
    again = "call test or train of the crew again with "
    shown = CliRunner().invoke(main, ["checkpoint", "show", "r", "--location", str(on_disk().location)]).output
    assert f"  if it did      {again}run_id='r', answers={{'{at}': RESULT}}\n" in shown
    assert f"  if it did not  {again}run_id='r', rerun=['{at}']\n" in shown
    assert "to go on" not in shown
    answer = ["checkpoint", "answer", "r", at, "paid", "--location", str(on_disk().location)]
    assert f"If it did: {again}run_id='r', answers=" in CliRunner().invoke(main, answer).stderr
    for branch, resume in (("main", "run_id='r'"), ("b", "from_checkpoint='r/b'")):
        cut = Request(progress=Progress(run_id="r", location="l", branch=branch))
        assert cut.how_to_go_on("trial") == f"To go on: {again}{resume}"
        cut.progress.unsettled = {at: 1}
        assert f"then {again}{resume}, answers=" in cut.how_to_go_on("trial")


def test_agents_of_one_role_learn_together_and_the_model_is_asked_once():
    llm = ScriptedLLM(says)
    twin = Task(name="three", description="Do three", expected_output="x", agent=Agent(role="Boss", goal="h", llm=llm))
    result = crew_of(llm, twin).train(1, inputs=TOPIC, feedback=[{"two": "Shorter.", "three": "Longer."}])
    assert list(result.agents) == ["Boss"]
    assert result.token_usage.requests == 4
    assert all(said in llm.calls[-1][1]["content"] for said in ("Shorter.", "Longer."))


def test_without_feedback_nothing_is_learned_and_no_file_is_written():
    result = crew_of().train(1, inputs=TOPIC, feedback=[""])
    assert str(result) == "no feedback was given, and nothing was learned"
    assert not os.path.exists(FILE)


def test_a_failure_in_a_training_is_told(on_disk):
    types, crew = heard(), crew_of(checkpoint=on_disk())
    with pytest.raises(ConfigError, match="returned 3; wanted text, or None"):
        crew.train(1, inputs=TOPIC, feedback=lambda output: 3, run_id="r")
    assert types.count("crew_train_failed") == 1


def written(text):
    with open("t.json", "w") as file:
        file.write(text)
    return "t.json"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda crew: crew.test(0, "offline"), "test: n_iterations is 0; wanted a whole number, 1 or more"),
        (lambda crew: crew.train(True), "wanted a whole number"),
        (lambda crew: crew.train(1, "t.pkl"), "plain JSON and never a pickle; name it 't.json'"),
        (lambda crew: crew.train(1, "."), "is a directory"),
        (lambda crew: crew.train(1, written("[]")), "t.json is no file of trained agents"),
        (lambda crew: crew.train(2, feedback=["x"]), "feedback has 1 item for 2 iterations"),
        (lambda crew: crew.train(1, feedback="x"), "wanted a function that takes the TaskOutput, a list"),
        (lambda crew: crew.train(1, feedback=[{"ine": "x"}]), "a mapping of task name to text (one, two)"),
        (lambda crew: crew.train(1), "asks people"),
        (lambda crew: crew.train(1, feedback=["x"], run_id="r"), "this crew has no store to record runs in"),
        (lambda crew: crew.bound_to("r").test(1, "offline"), "bound to one run, but a test starts several"),
        (lambda crew: crew.with_(trained_agents_file="no.json").kickoff(TOPIC), "there is no file no.json"),
        (
            lambda crew: crew.with_(trained_agents_file=written(json.dumps({"Nobody": LEARNED}))).kickoff(TOPIC),
            "t.json is about the agents Nobody, but this crew has {topic} clerk, Boss",
        ),
        (lambda crew: crew.with_(trained_agents_file=written('{"Boss": {}}')).kickoff(TOPIC), "Boss.suggestions: "),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_before_anything_is_paid(ask, said):
    crew = crew_of()
    with pytest.raises(ConfigError) as refused:
        ask(crew)
    assert said in str(refused.value)
    assert not crew.tasks[0].agent.llm.calls


def test_without_a_model_that_scores_the_argument_for_it_is_named(monkeypatch):
    monkeypatch.delenv("CREWLITE_MODEL", raising=False)
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(["done"]))
    crew = Crew(tasks=[Task(name="t", description="Do it", expected_output="text", agent=agent)])
    with pytest.raises(
        NoModel, match=r"'Crew Evaluator'\. Pass the model that scores, test\(\.\.\., eval_llm=\.\.\.\), or set"
    ):
        crew.test(1)


def test_the_command_says_how_a_test_goes_on_and_a_fork_of_it_does(tmp_path):
    crew = crew_of(checkpoint=CheckpointConfig(location=tmp_path / "here"))
    with pytest.raises(PermissionError):
        crew.test(1, ScriptedLLM([PermissionError("key expired")]), TOPIC, run_id="r")
    for words in (["show", "r"], ["resume", "r"]):
        said = CliRunner().invoke(main, ["checkpoint", *words, "--location", str(tmp_path / "here")])
        assert "call test or train of the crew again with run_id='r'" in " ".join(said.output.split())
    with History(tmp_path / "here") as history:
        history.fork("r", branch="other")
    said = CliRunner().invoke(main, ["checkpoint", "show", "r/other", "--location", str(tmp_path / "here")])
    assert "from_checkpoint='r/other'" in said.output
    assert crew.test(1, ScriptedLLM(says), TOPIC, from_checkpoint="r/other").quality == 6.5
    assert len(crew.tasks[0].agent.llm.calls) == 2


def test_a_trial_that_is_stopped_names_the_verb_that_goes_on_with_it(tmp_path):
    def stopped(error, run_id, llm=None, **fields):
        crew = crew_of(llm, checkpoint=CheckpointConfig(location=tmp_path), **fields)
        with pytest.raises(error) as caught:
            crew.test(1, ScriptedLLM(says), TOPIC, run_id=run_id)
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        assert "kick off" not in said
        return said

    def cancelling(messages):
        if "Do one" in messages[-1]["content"]:
            with History(tmp_path) as history:
                history.cancel("c")
        return says(messages)

    class Twice(BaseLLM):
        def call(self, messages):  # in a thread: the loop must be free for the other trial
            told.append(contextvars.Context().run(stopped, BranchConflictError, "d"))
            return says(messages)

    told = []
    go_on = "call test or train of the crew again with run_id="
    assert f"{go_on}'a'" in stopped(BudgetExceeded, "a", max_tokens=1)
    failing = {"llm": ScriptedLLM([ValueError("no")]), "failure_policy": FailurePolicy(default=escalate())}
    assert f"{go_on}'b'" in stopped(RecoveryEscalated, "b", **failing)
    assert f"{go_on}'c'" in stopped(RunCancelled, "c", llm=ScriptedLLM(cancelling))
    crew_of(Twice(), checkpoint=CheckpointConfig(location=tmp_path)).test(1, ScriptedLLM(says), TOPIC, run_id="d")
    assert "call test or train of the crew with run_id='d', wait=True" in told[0]
