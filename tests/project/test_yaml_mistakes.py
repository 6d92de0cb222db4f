"""All that is wrong in the files of a crew is told at once, each with file and line, before anything is made."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from crewlite import Agent, Crew, Task, ToolCall, tool
from crewlite.errors import ConfigError
from crewlite.project import CrewBase, agent, task
from crewlite.testing import ScriptedLLM


def write(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(dedent(text).lstrip("\n"))


GOOD_AGENTS = """
    clerk:
      role: Clerk
      goal: answer
    """
GOOD_TASKS = """
    answer:
      description: Answer {question}
      expected_output: x
      agent: clerk
    """


def told(agents=GOOD_AGENTS, tasks=GOOD_TASKS, **bind):
    write("agents.yaml", agents)
    write("tasks.yaml", tasks)
    with pytest.raises(ConfigError) as caught:
        Crew.from_yaml("agents.yaml", "tasks.yaml", bind=bind)
    return str(caught.value)


def test_all_mistakes_of_both_files_are_told_at_once():
    agents = """
        clerk:
          role: >
            Clerk
          gaol: know
          tools: [serch]
          max_iter: many
          apps: [mail]
          role: Other
        """
    tasks = """
        answer:
          description: 3
          expected_outptu: x
          agent: clrk
          context: answer
          output_file: ../x
        lonely:
        """
    assert told(agents, tasks, search=print).splitlines() == [
        "13 mistakes in the files of Crew.from_yaml:",
        "  agents.yaml, line 1: goal of clerk is missing",
        "  agents.yaml, line 4: clerk has the key 'gaol', which an agent does not have; did you mean 'goal'?",
        "  agents.yaml, line 5: tools of clerk names 'serch', but Crew.from_yaml has no tool with that name; did you mean "
        "'search'?",
        "  agents.yaml, line 6: max_iter of clerk is 'many'; wanted a whole number",
        "  agents.yaml, line 7: clerk has the key 'apps', which an agent does not have: agents have tools; instead: tools=[...]",
        "  agents.yaml, line 8: role of clerk is repeated; it was first set in line 2",
        "  tasks.yaml, line 1: expected_output of answer is missing",
        "  tasks.yaml, line 2: description of answer is 3; wanted text",
        "  tasks.yaml, line 3: answer has the key 'expected_outptu', which a task does not have; did you mean "
        "'expected_output'?",
        "  tasks.yaml, line 4: agent of answer names 'clrk', but Crew.from_yaml has no agent with that name; did you mean "
        "'clerk'?",
        "  tasks.yaml, line 5: context of answer is 'answer'; wanted a list of names: context: [...]",
        "  tasks.yaml, line 6: output_file of answer is '../x', which goes up with '..'; a file of a task is inside the "
        "working directory, unless Task(output_file_anywhere=True)",
        "  tasks.yaml, line 7: lonely has no keys below it; wanted `key: value` lines, indented",
    ]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("clerk: [a, b", 1, "invalid YAML"),
        ("clerk:\n  role: " + "[" * 3000 + "]" * 3000, 1, "it is nested too deeply to be read"),
        ("clerk:\n  role: 2026-02-30\n", 2, "2026-02-30 is no timestamp: day "),
        (f"clerk:\n  max_iter: {'7' * 5000}\n", 2, f"{'7' * 39}… is no int: Exceeds the limit"),
        ("clerk:\n  role: a\n\tgoal: b\n", 3, "invalid YAML"),
        ("clerk:\n  role: a\x07\n", 2, r"invalid YAML: it holds the character '\x07', which is not allowed"),
        ("- clerk\n", 1, "wanted names, each with keys below it"),
        ("clerk: !!python/object/apply:os.system [ls]\n", 1, "clerk has no keys below it"),
        (
            "clerk:\n  role: !!python/name:os.system x\n  goal: g\n",
            2,
            "invalid YAML: could not determine a constructor",
        ),
        ("clerk:\n  role: r\n  goal: 2026-01-01\n", 3, "goal of clerk is datetime.date"),
        ("clerk:\n  role: r\n  goal: g\n  allowed_tools: look\n", 4, "allowed_tools of clerk is 'look'; wanted a list"),
        ("clerk:\n  role: r\n  goal: g\nclerk:\n  role: s\n  goal: g\n", 4, "clerk is repeated"),
        ("clerk:\n  role: r\n  goal: g\n  tools: &a [*a]\n", 4, "tools of clerk"),
        ("clerk:\n  role: r\n  goal: g\n  verbose: loud\n", 4, "verbose of clerk is 'loud'; wanted True or False"),
        ("clerk:\n  role: r\n  goal: g\n  max_iter: 0\n", 4, "max_iter of clerk is 0; wanted a number greater than"),
        ("clerk:\n  role: r\n  goal: g\n  max_rpm: true\n", 4, "max_rpm of clerk is True; wanted a number"),
        ("clerk:\n  role: r\n  goal: g\n  llm: [x]\n", 4, "llm of clerk is ['x']; wanted a name"),
    ],
)
def test_a_mistake_is_told_with_its_line(text, line, what):
    message = told(text)
    assert f"agents.yaml, line {line}: {what}" in message
    assert "tasks.yaml" not in message or "invalid YAML" not in message, "what follows from it is not told"


def test_a_key_like_no_other_is_left_out_with_a_warning(caplog):
    write("agents.yaml", GOOD_AGENTS + "  config: {}\n")
    write("tasks.yaml", GOOD_TASKS + "  llm: someone\n      search_query: tides\n")

    @CrewBase
    class Office:
        agents_config, tasks_config = str(Path("agents.yaml").resolve()), str(Path("tasks.yaml").resolve())

        @agent
        def clerk(self):
            return Agent(config=self.agents_config["clerk"])

        @task
        def answer(self):
            return Task(config=self.tasks_config["answer"])

    for made in (Crew.from_yaml("agents.yaml", "tasks.yaml"), Crew(agents=Office().agents, tasks=Office().tasks)):
        assert made.with_(llm="offline").kickoff({"question": "When?"}).tasks_output[0].agent == "Clerk"
    assert (
        "agents.yaml, line 4: clerk has the key 'config', which an agent does not have; it is left out" in caplog.text
    )
    assert "tasks.yaml, line 6: answer has the key 'search_query', which a task does not have" in caplog.text


def test_a_file_that_is_not_there_or_no_text_is_told():
    open("tasks.yaml", "w").close()
    with pytest.raises(ConfigError, match=r"task.yaml cannot be read: .*; did you mean 'tasks.yaml'\?"):
        Crew.from_yaml("task.yaml", "tasks.yaml")
    with pytest.raises(ConfigError, match="'nowhere', which is no folder; wanted one with agents.yaml and tasks.yaml"):
        Crew.from_yaml("nowhere")
    with open("agents.yaml", "wb") as file:
        file.write(b"clerk:\n  role: \xff\n")
    with pytest.raises(ConfigError, match="agents.yaml cannot be read: .*utf-8"):
        Crew.from_yaml("agents.yaml", "tasks.yaml")


def test_settings_of_crewai_that_ask_for_nothing_are_accepted():
    write(
        "agents.yaml",
        GOOD_AGENTS.rstrip() + "\n      allow_delegation: false\n      memory: false\n      cache: true\n",
    )
    write(
        "tasks.yaml", GOOD_TASKS.rstrip() + "\n      async_execution: false\n      human_input: false\n      context:\n"
    )
    crew = Crew.from_yaml("agents.yaml", "tasks.yaml", llm=ScriptedLLM(["yes"]))
    assert crew.kickoff({"question": "?"}).raw == "yes"


def test_anchors_and_merged_keys_are_read():
    agents = """
        base: &base
          role: Clerk
          goal: answer
          backstory: old
        other:
          <<: *base
          role: Other
        """
    write("agents.yaml", agents)
    write("tasks.yaml", GOOD_TASKS.replace("clerk", "other"))
    crew = Crew.from_yaml("agents.yaml", "tasks.yaml")
    assert [(one.role, one.goal) for one in crew.agents] == [("Clerk", "answer"), ("Other", "answer")]


def test_what_files_cannot_hold_is_bound_by_name():
    @tool
    def search(query: str) -> str:
        """Search the archive."""
        return f"found {query}"

    write("agents.yaml", GOOD_AGENTS.rstrip() + "\n      tools: [search]\n      llm: scripted\n")
    write("tasks.yaml", GOOD_TASKS.rstrip() + "\n      callback: keep\n")
    kept, llm = [], ScriptedLLM([ToolCall("search", {"query": "q"}), "yes"])
    bind = {"search": search, "scripted": llm, "keep": lambda output: kept.append(output.raw)}
    crew = Crew.from_yaml("agents.yaml", "tasks.yaml", bind=bind, checkpoint=True)
    assert crew.kickoff({"question": "?"}, run_id="r").raw == "yes"
    assert kept == ["yes"]
    assert [task.name for task in crew.tasks] == ["answer"]
    again = Crew.from_yaml("agents.yaml", "tasks.yaml", bind=bind, checkpoint=True)
    assert again.kickoff(run_id="r").raw == "yes", "recorded"
    write("tasks.yaml", GOOD_TASKS)
    listed = Crew.from_yaml("agents.yaml", "tasks.yaml", bind=[search])
    assert listed.agents[0].tools == (search,)
    assert listed.agents[0].llm == "scripted"
    with pytest.raises(ConfigError, match="bind is a str; wanted a dict of names and objects, or a list of tools"):
        Crew.from_yaml("agents.yaml", "tasks.yaml", bind="search")


def test_a_task_that_builds_on_itself_is_told():
    tasks = """
        one:
          description: d
          expected_output: x
          agent: clerk
          context: [two]
        two:
          description: d
          expected_output: x
          agent: clerk
          context: [one]
        """
    assert told(GOOD_AGENTS, tasks).startswith("one depends on itself, through the tasks in its context. Remove")


def test_a_class_tells_the_mistakes_of_its_files_when_they_are_first_read():
    write("agents.yaml", "clerk:\n  role: Clerk\n  tools: [serch]\n")
    write("tasks.yaml", GOOD_TASKS.replace("clerk", "clrk"))
    here = Path.cwd()

    @CrewBase
    class Office:
        agents_config, tasks_config = here / "agents.yaml", here / "tasks.yaml"

        @agent
        def clerk(self):
            return Agent(config=self.agents_config["clerk"], goal="given in code")

    with pytest.raises(ConfigError) as caught:
        _ = Office().agents
    assert str(caught.value).splitlines() == [
        "2 mistakes in the files of Office:",
        f"  {here}/agents.yaml, line 3: tools of clerk names 'serch', but Office has no tool with that name; "
        "it has none. A method of Office with @tool adds it: def serch(self)",
        f"  {here}/tasks.yaml, line 4: agent of answer names 'clrk', but Office has no agent with that name; did you mean 'clerk'?",
    ]
