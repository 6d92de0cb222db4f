"""A run goes on without the script that started it: what was plain is read, what was live is passed, nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crewlite import Agent, Crew, History, Process, Task, ToolCall, tool
from crewlite.errors import BindMissing, CheckpointIsBehind, ConfigError, InputsChanged, NoModel, RefError, RunMismatch
from crewlite.testing import ScriptedLLM
from tests.crew.rebuilt import Moody, Report, cut, live_crew, notify, ref, search
from tests.parts import Stop


def plain_crew(llm="offline", **fields):
    """A crew of which everything but the model is plain."""
    first = Agent(role="Researcher of {topic}", goal="find", backstory="old", llm=llm, max_iter=3)
    second = Agent(role="Editor", goal="edit", llm=llm, max_execution_time=60, checkpoint=False)
    research = Task(name="research", description="About {topic}", expected_output="x", agent=first, output_file="o.txt")
    doubt = Task(description="Doubt it", expected_output="x", agent=second, context=[])
    write = Task(name="write", description="Write", expected_output="y", agent=second, context=[doubt, research])
    return Crew(tasks=[research, doubt, write], agents=[second], **fields)


def data_of(definition):
    """A definition as plain data, to compare it with another."""
    fields = {name: getattr(definition, name) for name in type(definition).model_fields}
    data = {name: value for name, value in fields.items() if name not in ("agents", "agent", "tasks", "context")}
    if isinstance(definition, Task):
        data |= {"agent": data_of(definition.agent)}
        data |= {"context": definition.context and [task.description for task in definition.context]}
    if isinstance(definition, Crew):
        data |= {"tasks": [data_of(task) for task in definition.tasks]}
        data["checkpoint"] = None
    return data


def test_a_plain_crew_is_rebuilt_as_it_was(config):
    crew = plain_crew(verbose=False, name="plain", checkpoint=config(max_checkpoints=7, on_drift="rerun"))
    crew.kickoff({"topic": "tides"}, run_id="r")
    again = Crew.from_checkpoint(ref(config))
    assert data_of(again) == data_of(crew)
    assert again.tasks[1].context == () and again.tasks[0].context is None
    assert again.tasks[2].context == (again.tasks[1], again.tasks[0])
    assert again.tasks[1].agent is again.tasks[2].agent is again.agents[0]
    assert (again.checkpoint.max_checkpoints, again.checkpoint.on_drift) == (7, "rerun")
    assert again.checkpoint.location == config().location


def test_every_plain_field_with_a_value_of_its_own_comes_back(config):
    inner = config(on_events=["task_started"], max_checkpoints=2)
    who = Agent(role="A", goal="g", llm="offline", max_execution_time=float("inf"), verbose=True, checkpoint=inner)
    task = Task(description="d", expected_output="x", agent=who, checkpoint=False)
    crew = Crew(tasks=[task], llm="offline", process="sequential", checkpoint=config(on_save_error="raise"))
    crew.kickoff(run_id="r")
    [again] = (crew := Crew.from_checkpoint(ref(config))).tasks
    assert again.agent.max_execution_time == float("inf") and again.agent.verbose and again.checkpoint is False
    assert (again.agent.checkpoint.on_events, again.agent.checkpoint.max_checkpoints) == (("task_started",), 2)
    assert (crew.llm, crew.checkpoint.on_save_error, crew.process) == ("offline", "raise", Process.sequential)
    assert crew.kickoff().raw


def test_a_rebuilt_crew_goes_on_and_pays_nothing_twice(on_disk):
    cut(plain_crew(ScriptedLLM(["one", Stop()]), checkpoint=on_disk()), {"topic": "tides"})
    llm = ScriptedLLM(["two", "three"])
    result = Crew.from_checkpoint(ref(on_disk), bind={"llm": llm}).kickoff()
    assert [output.raw for output in result.tasks_output] == ["one", "two", "three"]
    assert result["research"].agent == "Researcher of tides" and result.run_id == "r"
    assert len(llm.calls) == 2
    assert Crew.from_checkpoint(ref(on_disk), bind={"llm": ScriptedLLM([])}).kickoff() == result


def test_the_record_stays_as_it_was_when_a_rebuilt_crew_goes_on(on_disk):
    cut(plain_crew(ScriptedLLM(["one", Stop()]), checkpoint=on_disk()), {"topic": "tides"})
    with History(on_disk().location) as history:
        before = history.run("r").definition
    Crew.from_checkpoint(ref(on_disk), bind={"llm": ScriptedLLM(["two", "three"])}).kickoff()
    with History(on_disk().location) as history:
        assert history.run("r").definition == before


@pytest.mark.parametrize("on_drift", ["keep", "rerun", "error"])
def test_a_rebuilt_crew_asks_the_same_questions(on_disk, on_drift):
    cut(plain_crew(ScriptedLLM(["one", "two", Stop()]), checkpoint=on_disk(on_drift=on_drift)), {"topic": "tides"})
    llm = ScriptedLLM(["three"])
    assert Crew.from_checkpoint(ref(on_disk), bind={"llm": llm}).kickoff().raw == "three"


def test_all_that_is_missing_is_listed_at_once(config):
    cut(live_crew(ScriptedLLM([Stop()], model="dear"), checkpoint=config(redact=["hush"])))
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(ref(config))
    assert caught.value.missing == (
        "checkpoint.redact",
        "agents.Researcher.llm",
        "agents.Researcher.tools.search",
        "tasks.research.callback",
        "tasks.task#1.output_pydantic",
    )
    assert isinstance(caught.value, ConfigError)
    for part in ("<the model 'dear'>", "<the tool 'search'>", "<the function 'notify'>", "<the class 'Report'>"):
        assert part in str(caught.value)


def test_parts_are_bound_by_their_path_or_by_its_last_word(on_disk):
    one, two = ScriptedLLM(["unused"]), ScriptedLLM(["first", '{"text": "second"}'])
    cut(live_crew(ScriptedLLM([Stop()]), checkpoint=on_disk()))
    live = {"agents.Researcher.llm": two, "llm": one, "search": search, "callback": notify, "output_pydantic": Report}
    with pytest.raises(ConfigError, match="'llm' names no part of this definition"):
        Crew.from_checkpoint(ref(on_disk), bind=live)  # the path wins, and nothing is left for the word
    del live["llm"]
    crew = Crew.from_checkpoint(ref(on_disk), bind=live)
    assert crew.tasks[0].callback is notify and crew.agents[0].tools[0].func is search.func
    assert crew.kickoff().pydantic == Report(text="second")


def test_the_last_word_binds_every_missing_part_of_that_name_and_a_path_wins(on_disk):
    cut(plain_crew(ScriptedLLM([Stop()]), checkpoint=on_disk()), {"topic": "tides"})
    one, two = ScriptedLLM([]), ScriptedLLM([])
    both = Crew.from_checkpoint(ref(on_disk), bind={"llm": one})
    assert {agent.llm for agent in both.agents} == {one} and both.llm is None
    for bind in ({"llm": one, "agents.Editor.llm": two}, {"agents.Editor.llm": two, "llm": one}):
        crew = Crew.from_checkpoint(ref(on_disk), bind=bind)
        assert [agent.llm for agent in crew.agents] == [two, one]


@pytest.mark.parametrize(
    ("key", "hint"),
    [("serch", "did you mean 'search'"), ("agents.Resercher.llm", "did you mean 'agents.Researcher.llm'"), (7, "'7'")],
)
def test_a_key_that_binds_nothing_is_an_error_with_a_guess(on_disk, key, hint):
    cut(live_crew(ScriptedLLM([Stop()]), checkpoint=on_disk()))
    live = {"llm": ScriptedLLM([]), "search": search, "callback": notify, "output_pydantic": Report}
    with pytest.raises(ConfigError, match=hint):
        Crew.from_checkpoint(ref(on_disk), bind={**live, key: 1})
    del live["search"]
    with pytest.raises(BindMissing, match=hint) as caught:
        Crew.from_checkpoint(ref(on_disk), bind={**live, key: 1})
    assert caught.value.missing == ("agents.Researcher.tools.search",)


def test_what_does_not_fit_its_place_is_refused(on_disk):
    @tool
    def fetch(query: str) -> str:
        """Fetch."""
        return query

    cut(live_crew(ScriptedLLM([Stop()]), checkpoint=on_disk()))
    live = {"llm": ScriptedLLM([]), "search": search, "callback": notify, "output_pydantic": Report}
    wrong = {"search": fetch, "callback": 3, "output_pydantic": "Report", "llm": ScriptedLLM}
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=f"{name}|callback"):
            Crew.from_checkpoint(ref(on_disk), bind={**live, name: value})
    with pytest.raises(ConfigError, match="wanted a dict of names to live objects"):
        Crew.from_checkpoint(ref(on_disk), bind=7)


def test_a_function_is_bound_as_a_tool_and_none_leaves_a_part_out(on_disk):
    def search(query: str) -> str:
        """Search anew."""
        return query

    cut(live_crew(ScriptedLLM([ToolCall("search", {"query": "q"}), Stop()]), checkpoint=on_disk()))
    live = {"llm": ScriptedLLM(["a", "b"]), "callback": None, "output_pydantic": None}
    crew = Crew.from_checkpoint(ref(on_disk), bind={**live, "search": search})
    assert crew.agents[0].tools[0].description == "Search anew."
    crew = Crew.from_checkpoint(ref(on_disk), bind={**live, "search": None})
    assert crew.agents[0].tools == () and crew.tasks[0].callback is None
    assert crew.kickoff().raw == "b"


def test_a_plain_part_is_overridden_by_its_path(on_disk):
    cut(plain_crew(ScriptedLLM(["one", Stop()]), checkpoint=on_disk()), {"topic": "tides"})
    bind = {"llm": ScriptedLLM(["two", "three"]), "agents.Editor.max_iter": 9, "tasks.write.description": "Write well"}
    crew = Crew.from_checkpoint(ref(on_disk), bind=bind)
    assert (crew.agents[0].max_iter, crew.tasks[2].description) == (9, "Write well")
    assert crew.kickoff().raw == "three"


def test_a_model_of_the_crew_is_missing_once_and_one_from_the_environment_never(on_disk, monkeypatch):
    who = Agent(role="A", goal="g")
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=on_disk())
    crew.model_copy(update={"llm": ScriptedLLM(["x"])}).kickoff(run_id="r")
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(ref(on_disk))
    assert caught.value.missing == ("llm",)
    monkeypatch.setenv("CREWLITE_MODEL", "offline")
    crew.kickoff(run_id="e")
    again = Crew.from_checkpoint(ref(on_disk, "e"))
    monkeypatch.delenv("CREWLITE_MODEL")
    with pytest.raises(NoModel):
        again.kickoff()
    assert Crew.from_checkpoint(ref(on_disk, "e"), bind={"llm": ScriptedLLM([])}).kickoff().raw


def test_two_agents_of_one_role_have_paths_of_their_own(on_disk):
    first, second = (Agent(role="Twin", goal="g", llm=ScriptedLLM([Stop()])) for _ in range(2))
    tasks = [Task(description="d", expected_output="x", agent=agent) for agent in (first, second)]
    cut(Crew(tasks=tasks, checkpoint=on_disk()))
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(ref(on_disk))
    assert caught.value.missing == ("agents.Twin.llm", "agents.Twin#2.llm")
    one, two = ScriptedLLM(["one"]), ScriptedLLM(["two"])
    crew = Crew.from_checkpoint(ref(on_disk), bind={"agents.Twin.llm": one, "agents.Twin#2.llm": two})
    assert crew.kickoff().raw == "two"


class Team(Crew):
    pass


def test_a_subclass_of_ones_own_is_live(on_disk):
    who = Moody(role="A", goal="g", llm="offline", mood="stormy")
    crew = Team(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=on_disk())
    crew.kickoff(run_id="r")
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(ref(on_disk))
    assert caught.value.missing == ("class", "agents.A.mood", "agents.A.class")
    bind = {"agents.A.class": Moody, "mood": "sunny"}
    again = Team.from_checkpoint(ref(on_disk), bind=bind)
    assert type(again) is Team and type(again.agents[0]) is Moody and again.agents[0].mood == "sunny"
    assert type(Crew.from_checkpoint(ref(on_disk), bind={**bind, "class": Team})) is Team
    assert type(Team.from_checkpoint(ref(on_disk), bind={"agents.A.class": None, "mood": None}).agents[0]) is Agent
    with pytest.raises(ConfigError, match="wanted a subclass of Agent"):
        Team.from_checkpoint(ref(on_disk), bind={**bind, "agents.A.class": Task})


def test_the_rebuilt_crew_is_bound_to_that_very_run(on_disk):
    cut(plain_crew(ScriptedLLM(["one", Stop()]), checkpoint=on_disk()), {"topic": "tides"}, run_id="old")
    crew = Crew.from_checkpoint(ref(on_disk, "latest"), bind={"llm": ScriptedLLM(["two", "three"])})
    plain_crew(ScriptedLLM(["a", "b", "c"]), checkpoint=on_disk()).kickoff({"topic": "moons"}, run_id="new")
    with pytest.raises(ConfigError, match="belongs to run 'old', not to run_id='new'"):
        crew.kickoff(run_id="new")
    with pytest.raises(InputsChanged):
        crew.kickoff({"topic": "moons"})
    assert crew.kickoff(from_checkpoint=ref(on_disk, "new")).run_id == "new"
    assert crew.kickoff(run_id="old").run_id == "old"
    assert crew.kickoff({"topic": "tides"}).raw == "three"
    with pytest.raises(ConfigError, match=r"bound_to\(None\)"):
        crew.kickoff_for_each([{"topic": "a"}])
    free = crew.bound_to(None)
    assert free.tasks == crew.tasks and free is not crew
    with pytest.raises(InputsChanged):  # it looks for runs where this one was found
        free.kickoff({"topic": "x"}, run_id="new")


def test_any_ref_will_do_and_an_old_place_is_told_to_be_behind(make_crew, on_disk):
    cut(make_crew(["one", "two", Stop()], checkpoint=on_disk()))
    with History(on_disk().location) as history:
        first, last = (place.ref for place in history.run("r").checkpoints())
    llm = ScriptedLLM(["three"])
    with pytest.raises(CheckpointIsBehind):
        Crew.from_checkpoint(first, bind={"llm": llm}).kickoff()
    for place in (last, Path(last), on_disk().location):
        Crew.from_checkpoint(place, bind={"llm": llm})
    assert Crew.from_checkpoint(last, bind={"llm": llm}).kickoff().raw == "three"


def test_fields_set_on_the_config_still_override(on_disk):
    cut(live_crew(ScriptedLLM([Stop()]), checkpoint=on_disk(redact=["hush"])))
    live = {"llm": ScriptedLLM(["a hush", "b"]), "search": search, "callback": None, "output_pydantic": None}
    crew = Crew.from_checkpoint(ref(on_disk, redact=["hush"], on_events=["llm_call_completed"]), bind=live)
    crew.kickoff()
    with History(on_disk().location) as history:
        assert {place.trigger for place in history.run("r").checkpoints()} == {"llm_call_completed"}
        assert "hush" not in json.dumps(history.run("r").definition)


def test_a_lone_agent_is_rebuilt_with_its_format_and_goes_on(on_disk):
    def agent(llm):
        return Agent(role="Clerk", goal="g", llm=llm, tools=[search], max_iter=4, checkpoint=on_disk())

    with pytest.raises(Stop):
        asked = ScriptedLLM([ToolCall("search", {"query": "q"}), Stop()])
        agent(asked).kickoff("What?", response_format=Report, run_id="r")
    with pytest.raises(BindMissing) as caught:
        Agent.from_checkpoint(ref(on_disk))
    assert caught.value.missing == ("llm", "tools.search", "response_format")
    llm = ScriptedLLM(['{"text": "found"}', "there"])
    bind = {"llm": llm, "search": search, "response_format": Report}
    again = Agent.from_checkpoint(ref(on_disk), bind=bind)
    assert (again.role, again.max_iter) == ("Clerk", 4)
    assert again.kickoff().pydantic == Report(text="found") and len(llm.calls) == 1
    assert again.bound_to(None).kickoff("Where?", run_id="other").pydantic is None
    with pytest.raises(ConfigError, match="wanted a pydantic class"):
        Agent.from_checkpoint(ref(on_disk), bind={**bind, "response_format": "Report"})


def test_a_run_of_another_kind_is_refused_with_what_to_call(on_disk):
    plain_crew(checkpoint=on_disk()).kickoff({"topic": "tides"}, run_id="c")
    Agent(role="Clerk", goal="g", llm="offline", checkpoint=on_disk()).kickoff("What?", run_id="a")
    with pytest.raises(RunMismatch, match=r"is of crew 'crew', not of an agent\. .* use Crew\.from_checkpoint"):
        Agent.from_checkpoint(ref(on_disk, "c"))
    with pytest.raises(RunMismatch, match=r"Agent\.from_checkpoint"):
        Crew.from_checkpoint(ref(on_disk, "a"))


def test_what_names_no_run_is_refused(on_disk):
    plain_crew(checkpoint=on_disk()).kickoff({"topic": "tides"}, run_id="r")
    with pytest.raises(RefError):
        Crew.from_checkpoint(ref(on_disk, "nowhere"))
    for nothing in (None, on_disk()):
        with pytest.raises(ConfigError, match="names no run"):
            Crew.from_checkpoint(nothing)
    with pytest.raises(RefError):
        Crew.from_checkpoint("./missing")
    assert not Path("missing").exists()


def test_one_thing_where_a_list_is_wanted_is_said_in_a_line():
    who = Agent(role="A", goal="g")
    task = Task(description="d", expected_output="x", agent=who)
    for make, said in [
        (lambda: Crew(tasks=task), "Crew: tasks is one Task; wanted a list of tasks: tasks=[...]"),
        (lambda: Crew(tasks=[task], agents=who), "Crew: agents is one Agent; wanted a list of agents: agents=[...]"),
        (
            lambda: Task(description="d", expected_output="x", context=task),
            "Task: context is one Task; wanted a list of tasks: context=[...]",
        ),
        (lambda: Crew(tasks="abc"), "Crew: tasks is 'abc'; wanted a list of tasks: tasks=[...]"),
        (lambda: Crew(tasks=[task], agents="A"), "Crew: agents is 'A'; wanted a list of agents: agents=[...]"),
        (
            lambda: Task(description="d", expected_output="x", context="t"),
            "Task: context is 't'; wanted a list of tasks: context=[...]",
        ),
        (lambda: Agent(role="A", goal="g", tools=search), "Agent: tools is one tool; wanted a list: tools=[...]"),
    ]:
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == said


def test_a_process_that_does_not_exist_says_which_does():
    with pytest.raises(AttributeError, match=r"no 'consensual'; this release knows Process\.sequential, Process\.hier"):
        _ = Process.consensual
    assert not hasattr(Process, "consensual") and list(Process) == [Process.sequential, Process.hierarchical]
    with pytest.raises(ConfigError, match="process is 'consensual'; wanted 'sequential'"):
        Crew(tasks=[Task(description="d", expected_output="x")], process="consensual")


def test_tools_are_bound_by_their_names_when_they_come_as_a_list(on_disk):
    who = Agent(role="A", goal="g", llm="offline", tools=[search])
    crew = Crew(tasks=[Task(description="d", expected_output="x", agent=who)], checkpoint=on_disk())
    result = crew.kickoff(run_id="r")
    again = Crew.from_checkpoint(ref(on_disk), bind=[search])
    assert again.tasks[0].agent.tools == (search,)
    assert again.kickoff().raw == result.raw
    with pytest.raises(ConfigError, match=r"tools\[0\] is an object"):
        Crew.from_checkpoint(ref(on_disk), bind=[object()])
