"""Agents that have others work for them: who may be asked, with which rights, and what a kill in the middle costs."""

from __future__ import annotations

import pytest

from crewlite import Agent, Crew, History, Process, Task, ToolCall, event_bus, tool
from crewlite.errors import BindMissing, ConfigError, NoModel, Suspended
from crewlite.events import LiteAgentExecutionStartedEvent, ToolUsageErrorEvent
from crewlite.testing import ScriptedLLM
from tests.cuts import lives
from tests.parts import Stop, look

DELEGATE, ASK = "Delegate_work_to_coworker", "Ask_question_to_coworker"


def delegated(task="find it", coworker="Researcher", context="ctx"):
    return ToolCall("Delegate work to coworker", {"task": task, "context": context, "coworker": coworker})


def question(text="what is it?", coworker="Researcher", context="ctx"):
    return ToolCall(ASK, {"question": text, "context": context, "coworker": coworker})


def crew_of(lead, research, *, more=(), **fields):
    """A lead who may delegate, and a researcher with a tool."""
    boss = Agent(role="Lead", goal="lead", llm=ScriptedLLM(lead), allow_delegation=True)
    helper = Agent(role="Researcher", goal="find {what}", llm=ScriptedLLM(research), tools=[look])
    task = Task(name="t", description="Do it", expected_output="x", agent=boss, **dict(more))
    return Crew(agents=[boss, helper], tasks=[task], **fields)


def models(crew):
    return [agent.llm for agent in crew.agents]


def names_offered(heard):
    """A model that notes the names of the tools that it is offered."""

    def reply(messages, tools=()):
        heard.append([offered["function"]["name"] for offered in tools])
        return "done"

    return ScriptedLLM(reply)


def test_work_is_delegated_and_its_outcome_comes_back():
    crew = crew_of([delegated(), "reported"], [ToolCall("look", {"where": "there"}), "found"])
    assert crew.kickoff({"what": "tides"}).raw == "reported"
    lead, research = models(crew)
    assert lead.calls[-1][-1]["content"] == "found"
    system, user = research.calls[0]
    assert "find tides" in system["content"]
    assert user["content"] == "find it\n\nWhat you have to know:\nctx"


def test_a_question_is_asked_in_the_same_way():
    crew = crew_of([question(), "reported"], ["an answer"])
    crew.kickoff({"what": "tides"})
    assert models(crew)[0].calls[-1][-1]["content"] == "an answer"
    assert models(crew)[1].calls[0][-1]["content"].startswith("what is it?")


def test_only_who_may_delegate_is_offered_the_tools_and_only_where_there_is_somebody():
    heard = []
    llm = names_offered(heard)
    first, second = (
        Agent(role=role, goal="g", llm=llm, allow_delegation=may, tools=[look])
        for role, may in (("First", True), ("Second", False))
    )
    tasks = [Task(description="d", expected_output="x", agent=agent) for agent in (first, second)]
    Crew(tasks=tasks).kickoff()
    Crew(tasks=tasks[:1]).kickoff()
    first.kickoff("?")
    assert heard == [["look", DELEGATE, ASK], ["look"], ["look"], ["look"]]


def test_rights_never_widen_the_coworker_has_its_own_tools_alone():
    heard = []
    helper = Agent(role="Helper", goal="g", llm=names_offered(heard), tools=[look], allow_delegation=True)

    @tool
    def delete(what: str) -> str:
        """Delete something."""
        raise AssertionError

    boss = Agent(role="Lead", goal="g", llm=ScriptedLLM([delegated(coworker="Helper"), "x"]), allow_delegation=True)
    boss = boss.model_copy(update={"tools": (delete,)})
    Crew(
        agents=[boss, helper], tasks=[Task(description="d", expected_output="x", agent=boss, tools=[delete])]
    ).kickoff()
    assert heard == [["look"]]


def test_a_tool_that_a_coworker_lacks_is_refused_though_the_model_asks_for_it():
    crew = crew_of([delegated(), "reported"], [ToolCall("delete", {"what": "all"}), delegated(), "found"])
    crew.kickoff({"what": "tides"})
    said = [message["content"] for message in models(crew)[1].calls[-1] if message["role"] == "tool"]
    assert [text.split("Tools")[0] for text in said] == [
        "There is no tool 'delete'. ",
        "There is no tool 'Delegate work to coworker'. ",
    ]


@pytest.mark.parametrize("role", ["Researcher", "researcher", ' "Researcher" ', "[Researcher]", "RESEARCHER\n"])
def test_a_coworker_is_found_however_its_role_is_written(role):
    assert crew_of([delegated(coworker=role), "reported"], ["found"]).kickoff({"what": "w"}).raw == "reported"


def test_a_coworker_that_is_not_there_is_an_error_that_the_model_is_told():
    heard = []
    event_bus.on(ToolUsageErrorEvent, lambda source, event: heard.append(event.error))
    crew = crew_of([delegated(coworker="Lead"), "reported"], [])
    crew.kickoff({"what": "tides"})
    assert "there is no coworker 'Lead'; coworkers are: Researcher" in heard[0]


def test_a_coworker_that_comes_to_no_answer_is_told_of_too():
    crew = crew_of([delegated(), "reported"], lambda messages: ToolCall("look", {"where": "there"}))
    assert crew.kickoff({"what": "tides"}).raw == "reported"
    assert "MaxIterations" in models(crew)[0].calls[-1][-1]["content"]


def test_a_failure_in_the_middle_of_a_coworkers_work_resumes_there(on_disk):
    replies = [ToolCall("look", {"where": "here"}), ToolCall("look", {"where": "there"}), Stop(), "found"]
    crew = crew_of([delegated(), "reported"], replies, checkpoint=on_disk())
    with pytest.raises(Stop):
        crew.kickoff({"what": "tides"}, run_id="r")
    assert crew.kickoff(run_id="r").raw == "reported"
    assert [len(model.calls) for model in models(crew)] == [2, 4]
    assert models(crew)[1].calls[3] == models(crew)[1].calls[2]


def test_a_delegation_is_an_agent_step_inside_the_call(stored):
    started = []
    event_bus.on(LiteAgentExecutionStartedEvent, lambda source, event: started.append((source.role, event.tools)))
    crew = crew_of([delegated(), "reported"], [ToolCall("look", {"where": "here"}), "found"], checkpoint=stored())
    result = crew.kickoff({"what": "tides"}, run_id="r")
    with History(stored().location, stored().provider) as history:
        steps = [step.address for step in history.run("r").steps]
    inner = "task:t/tool:Delegate work to coworker/agent:Researcher"
    assert steps == [
        "task:t/llm#1",
        f"{inner}/llm#1",
        f"{inner}/tool:look",
        f"{inner}/llm#2",
        inner,
        "task:t/tool:Delegate work to coworker",
        "task:t/llm#2",
        "task:t",
        "",
    ]
    assert started == [("Researcher", ("look",))]
    assert result.token_usage.requests == 4


def test_a_coworkers_call_that_needs_approval_waits_for_a_person(on_disk):
    crew = crew_of([delegated(), "reported"], [ToolCall("look", {"where": "there"}), "found"], checkpoint=on_disk())
    careful = look.model_copy(update={"requires_approval": True})
    lead, helper = crew.agents
    helper = helper.model_copy(update={"tools": (careful,)})
    crew = crew.model_copy(update={"agents": (lead, helper)})
    with pytest.raises(Suspended) as caught:
        crew.kickoff({"what": "tides"}, run_id="r")
    [(address, asked)] = caught.value.waiting.items()
    assert address.startswith("task:t/tool:Delegate work to coworker/agent:Researcher/")
    assert asked.startswith("Researcher wants to call look")
    assert crew.kickoff(run_id="r", answers={address: True}).raw == "reported"
    assert [len(model.calls) for model in models(crew)] == [2, 2]


def test_killed_after_any_commit_it_ends_as_it_would_have():
    def make(**fields):
        return crew_of(_lead, _research, **fields)

    for whole, again in lives(make, inputs={"what": "tides"}):
        assert again == whole
        assert again.raw == "reported: found saw there"


def _lead(messages):
    last = messages[-1]
    if last["role"] == "user":
        return [delegated(), question()]
    return f"reported: {last['content']}"


def _research(messages):
    return (
        ToolCall("look", {"where": "there"}) if messages[-1]["role"] == "user" else f"found {messages[-1]['content']}"
    )


def managed(manager, workers=("Researcher", "Writer"), *, agent=None, tasks=1, **fields):
    people = [
        Agent(role=role, goal="g", llm=ScriptedLLM(lambda _, r=role: f"by {r}"), tools=[look]) for role in workers
    ]
    who = next((one for one in people if one.role == agent), None)
    work = [Task(name=f"t{n}", description=f"Do {n}", expected_output="x", agent=who) for n in range(tasks)]
    staff = {"manager_llm": manager} if isinstance(manager, ScriptedLLM) else {"manager_agent": manager}
    return Crew(agents=people, tasks=work, process=Process.hierarchical, **staff, **fields)


def test_in_a_hierarchical_crew_the_manager_does_each_task_through_the_agents():
    heard = []

    def manage(messages, tools=()):
        heard.append([offered["function"]["name"] for offered in tools])
        return delegated(coworker="Writer") if messages[-1]["role"] == "user" else f"checked: {messages[-1]['content']}"

    crew = managed(ScriptedLLM(manage), tasks=2)
    result = crew.kickoff()
    assert [(output.agent, output.raw) for output in result.tasks_output] == [
        ("Crew Manager", "checked: by Writer")
    ] * 2
    assert heard[0] == [DELEGATE, ASK]
    assert [len(agent.llm.calls) for agent in crew.agents] == [0, 2]


def test_a_task_with_an_agent_is_delegated_to_that_agent_alone():
    manager = ScriptedLLM([delegated(coworker="Writer"), delegated(coworker="Researcher"), "checked"])
    managed(manager, agent="Researcher").kickoff()
    said = [message["content"] for message in manager.calls[-1] if message["role"] == "tool"]
    assert "there is no coworker 'Writer'; coworkers are: Researcher" in said[0]
    assert said[1] == "by Researcher"


def test_a_manager_agent_of_ones_own_takes_the_place():
    llm = ScriptedLLM([delegated(), "checked"])
    boss = Agent(role="Boss of {what}", goal="lead", backstory="strict", llm=llm)
    result = managed(boss).kickoff({"what": "tides"})
    assert result.tasks_output[0].agent == "Boss of tides"
    assert "You are Boss of tides. strict" in llm.calls[0][0]["content"]


def test_a_task_with_the_manager_as_its_agent_is_delegated_to_anybody(on_disk):
    llm = ScriptedLLM([delegated(), Stop(), "by Researcher", "checked"])
    boss = Agent(role="Boss", goal="lead", llm=llm)
    people = [Agent(role=role, goal="g", llm=llm) for role in ("Researcher", "Writer")]
    task = Task(name="t", description="Do it", expected_output="x", agent=boss)
    fields = {"agents": people, "tasks": [task], "process": "hierarchical", "manager_agent": boss}
    with pytest.raises(Stop):
        Crew(**fields, checkpoint=on_disk()).kickoff(run_id="r")
    again = Crew.from_checkpoint(on_disk(restore_from="r"), bind={"llm": llm})
    assert again.tasks[0].agent is again.manager_agent
    result = again.kickoff()
    assert (result.raw, result["t"].agent, len(llm.calls)) == ("checked", "Boss", 4)
    with pytest.raises(ConfigError, match="or with the manager as its agent, needs agents="):
        Crew(tasks=[task], process="hierarchical", manager_agent=boss)


def test_what_cannot_be_managed_is_refused():
    people = [Agent(role="A", goal="g", llm="offline")]
    task = Task(description="d", expected_output="x")
    with pytest.raises(ConfigError, match="needs manager_llm=... or manager_agent=..."):
        Crew(agents=people, tasks=[task], process=Process.hierarchical)
    with pytest.raises(ConfigError, match="manager_agent is also one of the agents"):
        Crew(agents=people, tasks=[task], process=Process.hierarchical, manager_agent=people[0])
    with pytest.raises(ConfigError, match="needs agents="):
        Crew(tasks=[task], process=Process.hierarchical, manager_llm="offline")
    with pytest.raises(ConfigError, match="manager_agent has tools"):
        boss = Agent(role="B", goal="g", llm="offline", tools=[look])
        Crew(agents=people, tasks=[task], process="hierarchical", manager_agent=boss)
    with pytest.raises(ConfigError, match="has no agent"):
        Crew(agents=people, tasks=[task])
    with pytest.raises(NoModel, match="Boss"):
        Crew(agents=people, tasks=[task], process="hierarchical", manager_agent=Agent(role="Boss", goal="g")).kickoff()


def _manage(messages):
    if messages[-1]["role"] == "user":
        return [delegated(), question(coworker="Writer")]
    return " and ".join(message["content"] for message in messages if message["role"] == "tool")


def test_a_hierarchical_crew_is_killed_after_any_commit_and_ends_as_it_would_have():
    for whole, again in lives(lambda **fields: managed(ScriptedLLM(_manage), tasks=2, **fields)):
        assert again == whole
        assert again.raw == "by Researcher and by Writer"


def test_a_hierarchical_crew_is_forked_like_any(stored):
    crew = managed(ScriptedLLM(_manage), tasks=2, checkpoint=stored())
    crew.kickoff(run_id="r")
    inner = "task:t1/tool:Ask_question_to_coworker/agent:Writer/llm#1"
    with History(stored().location, stored().provider) as history:
        assert inner in {step.address for step in history.run("r").steps}
    fork = crew.fork("r", branch="f", edits={inner: "by hand"})
    assert fork.kickoff().raw == "by Researcher and by hand"


@pytest.mark.parametrize("own", [False, True])
def test_a_hierarchical_crew_is_rebuilt(stored, own):
    manager = ScriptedLLM([delegated(), Stop()], model="managing")
    boss = Agent(role="Boss", goal="lead", llm=manager) if own else manager
    with pytest.raises(Stop):
        managed(boss, tasks=2, checkpoint=stored()).kickoff(run_id="r")
    with pytest.raises(BindMissing) as caught:
        Crew.from_checkpoint(stored(restore_from="r"))
    path = "agents.Boss.llm" if own else "manager_llm"
    assert path in caught.value.missing
    bind = {path: ScriptedLLM(["a", "b"]), "llm": ScriptedLLM([]), "look": look}
    again = Crew.from_checkpoint(stored(restore_from="r"), bind=bind)
    assert [agent.role for agent in again.agents] == ["Researcher", "Writer"]
    assert (again.process, bool(again.manager_agent)) == (Process.hierarchical, own)
    assert [output.raw for output in again.kickoff().tasks_output] == ["a", "b"]


def test_everybody_asks_the_model_that_a_crew_is_given():
    llm = ScriptedLLM(_manage)
    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM([]))
    crew = managed(boss).with_model(ScriptedLLM(lambda messages: _manage(messages) if _leads(messages) else "same"))
    assert crew.kickoff().raw == "same and same"
    crew = managed(ScriptedLLM([])).with_model(llm)
    assert crew.manager_llm is llm


def _leads(messages):
    return "Boss" in messages[0]["content"]


@pytest.mark.parametrize("other", ["Researcher", " 'researcher' "])
def test_coworkers_whose_roles_a_model_cannot_tell_apart_are_refused(other):
    boss = Agent(role="Lead", goal="lead", allow_delegation=True)
    people = [boss, *(Agent(role=role, goal="g") for role in ("Researcher", other))]
    task = Task(name="t", description="Do it", expected_output="x", agent=boss)
    with pytest.raises(ConfigError, match="two coworkers of the role .*esearcher.*; wanted roles that differ"):
        Crew(agents=people, tasks=[task])
    with pytest.raises(ConfigError, match="two coworkers of the role"):
        Crew(agents=people[1:], tasks=[task.with_(agent=None)], process=Process.hierarchical, manager_llm="offline")
    nobody = task.with_(agent=boss.with_(allow_delegation=False))
    assert Crew(agents=people[1:], tasks=[nobody], llm=ScriptedLLM(["done"])).kickoff().raw == "done"


def test_roles_that_inputs_make_alike_are_refused_before_anything_is_paid():
    boss = Agent(role="Lead", goal="lead", llm=(llm := ScriptedLLM([])), allow_delegation=True)
    people = [boss, *(Agent(role=role, goal="g", llm=llm) for role in ("{one}", "{two}"))]
    crew = Crew(agents=people, tasks=[Task(name="t", description="Do it", expected_output="x", agent=boss)])
    with pytest.raises(ConfigError, match="Task 't' has two coworkers of the role 'W'"):
        crew.kickoff({"one": "W", "two": "W"})


def test_a_tool_of_ones_own_cannot_have_the_name_of_one_that_delegates():
    @tool("Delegate work to coworker")
    def mine(task: str) -> str:
        """Mine."""
        return "mine"

    with pytest.raises(ConfigError, match="tool of its own named 'Delegate work to coworker'"):
        crew_of([], [], more={"tools": [mine]})


def test_settings_for_a_manager_that_nobody_has_are_left_out_with_a_warning(caplog):
    llm = ScriptedLLM(["done"])
    lead = Agent(role="Lead", goal="lead", llm=llm)
    boss = Agent(role="Boss", goal="lead", llm=llm)
    task = Task(name="t", description="Do it", expected_output="x", agent=lead)
    crew = Crew(tasks=[task], manager_llm="offline", manager_agent=boss)
    assert (crew.manager_llm, crew.manager_agent, crew.people()) == (None, None, (lead,))
    assert crew.kickoff()["t"].agent == "Lead"
    assert caplog.text.count("has no effect without process=Process.hierarchical") == 2
