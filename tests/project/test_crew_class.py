"""A class under @CrewBase makes ordinary agents, tasks and crews, with its texts in YAML files beside it."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest
from pydantic import BaseModel

from crewlite import LLM, Agent, BaseTool, Crew, History, Process, Task, ToolCall, tool as make_tool
from crewlite.errors import ConfigError
from crewlite.project import CrewBase, agent, callback, crew, llm, output_pydantic, task, tool
from crewlite.testing import ScriptedLLM

AGENTS = """
    researcher:
      role: >
        {topic} Researcher
      goal: >
        Find what matters about {topic}
      backstory: >
        You look closely.
      tools:
        - search
      max_iter: 7
      allow_delegation: false
      cache: true

    writer:
      role: Writer
      goal: Write clearly
      backstory: You write.
      llm: careful
    """
TASKS = """
    research_task:
      description: >
        Research {topic}
      expected_output: >
        Bullets
      agent: researcher

    report_task:
      description: Write about {topic}
      expected_output: A report
      agent: writer
      context:
        - research_task
      output_pydantic: Report
      callback: keep
      output_file: out/{topic}.md
    """
SAID = '{"title": "Tides"}'


@pytest.fixture
def files(tmp_path):
    """`files(agents, tasks)` writes the two YAML files of a crew and returns their folder."""

    def write(agents=AGENTS, tasks=TASKS, folder="config"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        (tmp_path / folder / "agents.yaml").write_text(dedent(agents), encoding="utf-8")
        (tmp_path / folder / "tasks.yaml").write_text(dedent(tasks), encoding="utf-8")
        return tmp_path / folder

    return write


def research_crew(folder, model, kept, **more):
    """The class of a crew, as it is usually written."""

    @CrewBase
    class Research:
        agents_config = folder / "agents.yaml"
        tasks_config = folder / "tasks.yaml"

        @output_pydantic
        class Report(BaseModel):
            title: str

        @llm
        def careful(self):
            return model

        @tool
        def search(self):
            @make_tool
            def search(query: str) -> str:
                """Search the archive."""
                return f"found {query}"

            return search

        @callback
        def keep(self, output):
            kept.append(output.raw)

        @agent
        def researcher(self) -> Agent:
            return Agent(config=self.agents_config["researcher"], llm=model, verbose=False)

        @agent
        def writer(self) -> Agent:
            return Agent(config=self.agents_config["writer"])

        @task
        def research_task(self) -> Task:
            return Task(config=self.tasks_config["research_task"])

        @task
        def report_task(self) -> Task:
            return Task(config=self.tasks_config["report_task"])

        @crew
        def crew(self) -> Crew:
            return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential, **more)

    return Research


def test_agents_and_tasks_of_a_class_are_lists_that_its_methods_may_change(files):
    made = research_crew(files(), ScriptedLLM(["a", SAID]), [])()
    made.tasks.append(Task(description="Check it", expected_output="A line", agent=made.agents[0]))
    made.agents += [Agent(role="Guest", goal="look on")]
    crew = made.crew()
    assert ([one.name for one in crew.tasks], len(crew.agents)) == (["research_task", "report_task", None], 3)


def test_a_class_and_two_files_make_a_crew_that_works(files, tmp_path):
    kept, model = [], ScriptedLLM([ToolCall("search", {"query": "moon"}), "the moon", SAID])
    result = research_crew(files(), model, kept)().crew().kickoff(inputs={"topic": "tides"})
    assert result.pydantic.title == result["title"] == "Tides"
    assert [output.name for output in result.tasks_output] == ["research_task", "report_task"]
    assert kept == [SAID]
    assert (tmp_path / "out/tides.md").read_text() == SAID
    first, _, last = model.calls
    assert "tides Researcher" in first[0]["content"]
    assert "Research tides" in first[1]["content"]
    assert "the moon" in last[1]["content"]
    assert "You write." in last[0]["content"]


def test_what_the_methods_make_are_ordinary_definitions(files):
    made = research_crew(files(), ScriptedLLM([]), [])()
    researcher, writer = made.agents
    assert (researcher.role, researcher.goal) == ("{topic} Researcher", "Find what matters about {topic}"), "stripped"
    assert (researcher.max_iter, [one.name for one in researcher.tools]) == (7, ["search"])
    research, report = made.tasks
    assert (research.agent, report.agent, report.context) == (researcher, writer, (research,))
    assert report.output_pydantic.__name__ == "Report"
    assert (research.name, report.output_file) == ("research_task", "out/{topic}.md")
    assert made.researcher() is made.researcher()
    assert made.crew() is made.crew()
    assert made.crew().tasks == (research, report)
    assert made.crew().name == "Research", "named after its class"


def test_two_instances_share_nothing(files):
    cls = research_crew(files(), ScriptedLLM([]), [])
    one, two = cls(), cls()
    assert one.crew() is not two.crew()
    assert one.researcher() is not two.researcher()


def test_what_code_says_wins_over_the_file(files):
    folder, model = files(), ScriptedLLM([])

    @CrewBase
    class Other:
        agents_config = folder / "agents.yaml"
        tasks_config = str(folder / "tasks.yaml")

        @llm
        def careful(self):
            raise AssertionError("nobody asks for it")

        @tool
        def search(self): ...

        @callback
        def keep(self, output): ...

        @output_pydantic
        class Report(BaseModel):
            title: str

        @agent
        def researcher(self):
            return Agent(config=self.agents_config["researcher"], tools=[], max_iter=None, goal="another")

        @agent
        def writer(self):
            return Agent(config=self.agents_config["writer"], llm=model)

        @task
        def research_task(self):
            return Task(config=self.tasks_config["research_task"], name="first", agent=self.writer())

        @task
        def report_task(self):
            return Task(config=self.tasks_config["report_task"], context=[])

    made = Other()
    assert (made.researcher().goal, made.researcher().tools, made.researcher().max_iter) == ("another", (), 7)
    assert made.writer().llm is model
    assert (made.research_task().name, made.research_task().agent) == ("first", made.writer())
    assert made.report_task().context == ()
    assert made.agents_config["writer"]["role"] == "Writer", "as plain data too"
    with pytest.raises(ConfigError, match="agents.yaml has no 'writr'; did you mean 'writer'"):
        made.agents_config["writr"]


def test_files_are_looked_for_beside_the_class(files, tmp_path, monkeypatch):
    files(folder="beside/config", tasks="", agents="clerk:\n  role: Clerk\n  goal: answer\n")
    program = """
        from crewlite import Agent, Crew, Task
        from crewlite.project import CrewBase, agent, crew, task

        @CrewBase
        class Office:
            @agent
            def clerk(self):
                return Agent(config=self.agents_config["clerk"], llm="offline")

            @task
            def answer(self):
                return Task(description="Answer", expected_output="x", agent=self.clerk())

            @crew
            def crew(self):
                return Crew(agents=self.agents, tasks=self.tasks)
        """
    (tmp_path / "beside/office.py").write_text(dedent(program), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "beside")
    try:
        from office import Office

        assert Office().crew().agents[0].role == "Clerk"
    finally:
        sys.modules.pop("office", None)


def test_a_class_needs_no_files():
    @CrewBase
    class Alone:
        @agent
        def clerk(self):
            return Agent(role="Clerk", goal="answer", llm="offline")

        @task
        def answer(self):
            return Task(description="Answer", expected_output="x", agent=self.clerk())

        @crew
        def crew(self):
            return Crew(agents=self.agents, tasks=self.tasks, name="by hand")

    assert Alone().crew().kickoff().raw
    assert Alone().crew().name == "by hand"
    with pytest.raises(ConfigError, match="there is no such file"):
        Alone().agents_config["clerk"]


def test_a_class_below_has_the_methods_of_the_one_above(files):
    above = research_crew(files(), ScriptedLLM([]), [])

    @CrewBase
    class Below(above):
        @agent
        def editor(self):
            return Agent(role="Editor", goal="edit")

        @agent
        def writer(self):
            return Agent(config=self.agents_config["writer"], llm="offline")

    assert [one.role for one in Below().agents] == ["{topic} Researcher", "Writer", "Editor"]
    assert Below().report_task().agent.llm == "offline"


def test_a_class_without_crewbase_says_what_is_missing():
    class Office:
        @crew
        def crew(self):
            return Crew(agents=self.agents, tasks=self.tasks)

        @task
        def write(self):
            return self.desk

    with pytest.raises(ConfigError, match=r"@crew crew of Office uses self.agents, .* put it on Office"):
        Office().crew()
    with pytest.raises(AttributeError, match="desk"):
        Office().write()


def test_a_method_that_returns_nothing_says_so():
    @CrewBase
    class Wrong:
        @agent
        def clerk(self):
            Agent(role="Clerk", goal="answer")

    with pytest.raises(ConfigError, match="@agent clerk of Wrong returned None; wanted an Agent"):
        _ = Wrong().agents


def test_a_run_of_such_a_crew_goes_on_and_is_forked_like_any(files, memory):
    folder, config = files(), memory()

    def crew_of(says):
        return research_crew(folder, ScriptedLLM(says), [], checkpoint=config)().crew()

    class Cut(Exception):
        pass

    with pytest.raises(Cut):
        crew_of(["the moon", Cut()]).kickoff({"topic": "tides"}, run_id="r")
    assert crew_of([SAID]).kickoff(run_id="r")["title"] == "Tides"
    with History(config.location, provider=config.provider) as history:
        ref = history.run("r").checkpoints()[0]
        assert ref.address == "task:research_task"
    other = crew_of(['{"title": "Waves"}']).fork(ref.ref, edits={"task:research_task": "the wind"})
    assert other.kickoff()["title"] == "Waves"


def test_a_model_may_be_named_in_the_file(files):
    folder = files("clerk:\n  role: Clerk\n  goal: answer\n  llm: openai/gpt-4o\n", "")

    @CrewBase
    class Named:
        agents_config, tasks_config = folder / "agents.yaml", folder / "tasks.yaml"

        @agent
        def clerk(self):
            return Agent(config=self.agents_config["clerk"])

    assert Named().clerk().llm == "openai/gpt-4o"
    assert isinstance(Named().clerk().with_(llm=LLM("openai/gpt-4o")).llm, LLM)


def test_tools_of_the_class_may_come_as_a_list(files):
    folder = files("clerk:\n  role: Clerk\n  goal: answer\n  tools: [both]\n", "")

    class One(BaseTool):
        name: str = "one"
        description: str = "One."

        def _run(self) -> str:
            return "1"

    @CrewBase
    class Listed:
        agents_config, tasks_config = folder / "agents.yaml", folder / "tasks.yaml"

        @tool
        def both(self):
            return [One(), One(name="two")]

        @agent
        def clerk(self):
            return Agent(config=self.agents_config["clerk"])

    assert [one.name for one in Listed().clerk().tools] == ["one", "two"]


def test_the_entries_may_be_written_in_the_class():
    @CrewBase
    class Written:
        agents_config = {"clerk": {"role": "Clerk", "goal": "answer", "llm": "offline"}}
        tasks_config = {"answer": {"description": "Answer", "expected_output": "x", "agent": "clerk"}}

        @agent
        def clerk(self):
            return Agent(config=self.agents_config["clerk"])

        @task
        def answer(self):
            return Task(config=self.tasks_config["answer"])

    assert Written().answer().agent is not None
    assert Written().clerk().role == "Clerk"


def test_a_config_is_a_mapping_of_fields():
    assert Agent(config={"role": "Clerk", "goal": "answer"}, goal="ask").goal == "ask"
    assert Task(config=None, description="d", expected_output="x").description == "d"
    with pytest.raises(ConfigError, match="Agent: config is a str; wanted a mapping of field names to values"):
        Agent(config="clerk")
    with pytest.raises(ConfigError, match="it has no field 'gaol'; did you mean 'goal'"):
        Agent(config={"role": "Clerk", "gaol": "answer"})


@pytest.mark.parametrize("entry", [None, "a clerk", ["role"]])
def test_an_entry_in_the_class_that_is_no_mapping_is_told(entry):
    @CrewBase
    class Written:
        agents_config = {"clerk": entry}
        tasks_config = {}

    with pytest.raises(ConfigError, match=r"clerk is (None|an? \w+); wanted a mapping of its fields"):
        _ = Written().agents_config


def test_a_class_that_names_mcp_servers_says_where_their_tools_go():
    @CrewBase
    class Office:
        pass

    @CrewBase
    class Served:
        mcp_server_params = [{"url": "http://127.0.0.1:1/mcp"}]  # noqa: RUF012 - as programs for CrewAI have it

    assert Office().get_mcp_tools("search") == []
    with pytest.raises(ConfigError, match=r"Served.get_mcp_tools: agents have tools; instead: .* of an MCP client"):
        Served().get_mcp_tools()
