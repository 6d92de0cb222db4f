"""A crew of JSON files is the crew that the same texts make in code, and their mistakes are told with their lines."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import BaseModel

from crewlite import Agent, Process, event_bus
from crewlite.errors import ConfigError
from crewlite.events import StepReplayedEvent
from crewlite.knowledge import StringKnowledgeSource
from crewlite.llm import LLM
from crewlite.project import load_crew, load_crew_and_kickoff
from crewlite.task import ConditionalTask
from crewlite.tools import BaseTool

PILOT = """
    {
      // who answers
      "role": "Pilot of {port}", /* a "port"
         is an input */
      "goal": "Answer",
      "backstory": "You watch the water. See https://example.com/tides // and so on",
      "llm": "offline",
      "settings": {"verbose": false, "max_iter": 4,},
    }
    """
CREW = """
    {
      "name": "Harbour",
      "agents": ["pilot"],
      "tasks": [
        {"name": "ask", "description": "High water at {port}?", "expected_output": "A time", "agent": "pilot"},
        {
          "name": "say",
          "description": "Say it \\ud83d\\ude00",
          "expected_output": "A line",
          "agent": "pilot",
          "context": ["ask"],
        },
      ],
      "process": "sequential",
      "inputs": {"port": "Brest"},
    }
    """


def write(name, text):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")


def harbour(crew=CREW, pilot=PILOT):
    write("harbour/crew.jsonc", crew)
    write("harbour/agents/pilot.jsonc", pilot)
    return Path("harbour/crew.jsonc")


def told(**files):
    with pytest.raises(ConfigError) as caught:
        load_crew(harbour(**files))
    return str(caught.value).replace("harbour/", "")


def test_a_crew_has_what_its_files_say():
    crew, inputs = load_crew(harbour())
    assert (crew.name, crew.process, inputs) == ("Harbour", Process.sequential, {"port": "Brest"})
    assert [task.name for task in crew.tasks] == ["ask", "say"]
    assert crew.tasks[1].context == (crew.tasks[0],)
    assert crew.tasks[1].description == "Say it \N{GRINNING FACE}"
    pilot = crew.agents[0]
    assert (pilot.role, pilot.max_iter, pilot.llm) == ("Pilot of {port}", 4, "offline")
    assert pilot.backstory.endswith("https://example.com/tides // and so on")


def test_it_runs_with_the_inputs_of_its_file_or_those_that_are_given():
    harbour()
    result = load_crew_and_kickoff("harbour/crew.jsonc", {"port": "Calais"})
    assert [output.name for output in result.tasks_output] == ["ask", "say"]
    assert [output.agent for output in result.tasks_output] == ["Pilot of Calais"] * 2
    assert load_crew_and_kickoff("harbour/crew.jsonc").tasks_output[0].agent == "Pilot of Brest"


def test_it_is_recorded_like_any_crew():
    recorded = load_crew(harbour(CREW.replace('"process"', '"checkpoint": true, "process"')))
    first = recorded[0].kickoff(recorded[1], run_id="noon")
    again, inputs = load_crew("harbour/crew.jsonc")
    replayed = []
    with event_bus.scoped_handlers():
        event_bus.on(StepReplayedEvent, lambda source, event: replayed.append(event.address))
        assert again.kickoff(inputs, run_id="noon").raw == first.raw
    assert replayed == [""]


class Time(BaseModel):
    hour: int


class Watcher(Agent):
    watch: str = "day"


class TideTable(BaseTool):
    name: str = "tide_table"
    description: str = "The tides of a port."

    def _run(self, port: str) -> str:
        return f"{port}: noon"


def known(output):
    return bool(output.raw)


def test_a_file_names_functions_classes_and_tools_that_are_passed():
    crew = CREW.replace(
        '"name": "say",',
        '"name": "say", "type": "ConditionalTask", "condition": {"python": "office.known"}, '
        '"output_pydantic": {"python": "office.Time"}, "input_files": {"notes": "notes.txt"},',
    )
    pilot = PILOT.replace('"llm": "offline"', '"llm": {"model": "openai/gpt-4o", "temperature": 0.5}').replace(
        '"goal"',
        '"type": {"python": "office.Watcher"}, "watch": "night", "tools": ["custom:tide_table", "SerperDevTool"], "goal"',
    )
    write("harbour/notes.txt", "Spring tide.")
    bind = {"office.known": known, "office.Time": Time, "office.Watcher": Watcher}
    search = TideTable(name="search")
    made, _ = load_crew(harbour(crew, pilot), bind={**bind, "tide_table": TideTable(), "SerperDevTool": search})
    say, pilot_made = made.tasks[1], made.agents[0]
    assert isinstance(say, ConditionalTask)
    assert (say.condition, say.output_pydantic) == (known, Time)
    assert Path(say.input_files["notes"]).read_text(encoding="utf-8") == "Spring tide."
    assert isinstance(pilot_made, Watcher)
    assert pilot_made.watch == "night"
    assert [tool.name for tool in pilot_made.tools] == ["tide_table", "search"]
    assert isinstance(pilot_made.llm, LLM)
    assert pilot_made.llm.temperature == 0.5


def test_no_file_causes_an_import():
    write("harbour/office.py", "raise AssertionError('imported')")
    write("harbour/tools/tide_table.py", "raise AssertionError('imported')")
    text = told(
        crew=CREW.replace('"name": "say",', '"name": "say", "guardrail": {"python": "office.known"},'),
        pilot=PILOT.replace('"goal"', '"type": {"python": "office.Watcher"}, "tools": ["custom:tide_table"], "goal"'),
    )
    for problem in (
        "guardrail of say names 'office.known', but load_crew has no callback with that name; it has none. "
        "Pass it: load_crew(..., bind={'office.known': ...})",
        "tools of pilot names 'tide_table', but load_crew has no tool with that name; it has none. "
        "Pass it: load_crew(..., bind={'tide_table': ...})",
        "type of pilot is {'python': 'office.Watcher'}; wanted Agent, agent, or the name of a subclass of Agent in "
        "load_crew(..., bind=...)",
    ):
        assert problem in text


def test_a_manager_may_have_a_file_of_its_own():
    write("harbour/agents/chief.json", '{"role": "Chief", "goal": "Manage", "backstory": "b"}')
    crew, _ = load_crew(
        harbour(CREW.replace('"sequential"', '"hierarchical", "manager_agent": "chief"')),
    )
    assert crew.manager_agent.role == "Chief"
    assert [agent.role for agent in crew.agents] == ["Pilot of {port}"]


def test_all_mistakes_of_all_files_are_told_at_once():
    crew = """
        {
          "agents": ["pilot", "pilto"],
          "proces": "sequential",
          "tasks": [
            {"name": "ask", "description": "x", "agent": "pilto", "context": ["sya"]},
            {"name": "ask", "description": "x", "expected_output": "y", "guardrail": {"python": "nowhere.check"}}
          ]
        }
        """
    pilot = """
        {
          "role": "Pilot",
          "gaol": "Answer",
          "tools": ["custom:tide_table"],
          "type": "Sailor",
          "settings": {
            "max_iter": "many"
          }
        }
        """
    text = told(crew=crew, pilot=pilot)
    for line in (
        "9 mistakes in the files of load_crew:",
        "agents/pilot.jsonc, line 1: goal of pilot is missing",
        "agents/pilot.jsonc, line 3: pilot has the key 'gaol', which an agent does not have; did you mean 'goal'?",
        "agents/pilot.jsonc, line 4: tools of pilot names 'tide_table', but load_crew has no tool with that name",
        "agents/pilot.jsonc, line 5: type of pilot is 'Sailor'; wanted Agent, agent, or the name of a subclass",
        "agents/pilot.jsonc, line 7: max_iter of pilot is 'many'; wanted a whole number",
        "crew.jsonc, line 2: agents names 'pilto', but agents has no file pilto.jsonc; did you mean 'pilot'?",
        "crew.jsonc, line 3: crew has the key 'proces', which a crew does not have; did you mean 'process'?",
    ):
        assert line in text


def test_a_source_of_knowledge_is_passed_by_its_name_and_one_that_is_not_passed_is_told():
    named = '{"python": "office.tides"}'
    crew = CREW.replace('"process"', f'"knowledge_sources": [{named}], "process"')
    pilot = PILOT.replace('"goal"', f'"knowledge_sources": [{named}], "goal"')
    text = told(crew=crew, pilot=pilot)
    for of in ("crew.jsonc, line 14: knowledge_sources of crew", "pilot.jsonc, line 5: knowledge_sources of pilot"):
        assert f"{of} names 'office.tides', but load_crew has no object with that name. Pass it: load_crew(" in text
    tides = StringKnowledgeSource(content="High water at noon.")
    made, _ = load_crew(harbour(crew, pilot), bind={"office.tides": tides})
    assert [*made.knowledge_sources, *made.agents[0].knowledge_sources] == [tides, tides]


def test_two_tasks_of_one_name_and_a_task_that_is_not_there_are_told():
    crew = CREW.replace('"name": "say"', '"name": "ask"').replace('"context": ["ask"]', '"context": ["sya"]')
    text = told(crew=crew)
    assert "crew.jsonc, line 6: the name 'ask' is repeated; each of tasks needs a name of its own" in text
    assert "context of ask names 'sya', but load_crew has no task with that name" in text


def test_agents_and_inputs_of_a_wrong_type_are_told():
    text = told(crew=CREW.replace('["pilot"]', '"pilot"').replace('{"port": "Brest"}', "[1]"))
    assert "crew.jsonc, line 3: agents is a str; wanted a list of names" in text
    assert "crew.jsonc, line 15: inputs is a list; wanted an object" in text


ODD = [
    "5",
    "true",
    '""',
    "[]",
    "{}",
    "[[]]",
    "[{}]",
    "[null]",
    '{"a": {}}',
    '{"python": ["x"]}',
    '["pilot", ["pilot"]]',
]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize(
    ("file", "key"),
    [
        *(("pilot", key) for key in ("type", "llm", "tools", "guardrail", "step_callback", "settings")),
        *(("crew", key) for key in ("agents", "manager_agent", "llm", "before_kickoff_callbacks", "inputs", "tasks")),
        *(("task", key) for key in ("type", "name", "agent", "context", "tools", "guardrails", "output_pydantic")),
    ],
)
def test_any_value_in_the_place_of_a_name_is_taken_or_told(file, key, value):
    crew, pilot = CREW, PILOT
    if file == "pilot":
        pilot = re.sub(rf'"{key}": .*,\n', "", pilot).replace('"role"', f'"{key}": {value}, "role"')
    elif file == "task":
        crew = re.sub(rf'("name": "say",)(.*)"{key}": [^,]*,', r"\1\2", crew, flags=re.DOTALL).replace(
            '"description": "Say', f'"{key}": {value}, "description": "Say'
        )
    else:
        crew = CREW.replace('"process"', f'"{key}": {value}, "process"')
        crew = re.sub(r'"agents": \["pilot"\],', "", crew) if key == "agents" else crew
    try:
        load_crew(harbour(crew, pilot))
    except ConfigError as error:
        assert "harbour/" in str(error), "it names the file"


def test_an_agent_is_named_by_a_text_and_has_its_file_in_the_folder():
    write("harbour/pilot.jsonc", PILOT)
    text = told(crew=CREW.replace('["pilot"]', '["pilot", {"role": "Mate"}, "../pilot", null]'))
    assert "crew.jsonc, line 3: agents[1] is {'role': 'Mate'}; wanted the name of an agent" in text
    assert "crew.jsonc, line 3: agents[3] is None; wanted the name of an agent" in text
    assert "crew.jsonc, line 3: agents names '../pilot', but agents has no file ../pilot.jsonc; " in text
    text = told(crew=CREW.replace('["pilot"]', f'["pilot", "{"x" * 300}"]'))
    assert f"has no file {'x' * 300}.jsonc; it has pilot" in text


def test_settings_are_an_object_and_repeat_no_key():
    text = told(pilot=PILOT.replace('"goal"', '"max_iter": 3, "goal"'))
    assert text == "agents/pilot.jsonc, line 8: max_iter of pilot is repeated; it was first set in line 5"
    text = told(pilot=PILOT.replace('{"verbose": false, "max_iter": 4,}', '["max_iter", 4]'))
    assert text == "agents/pilot.jsonc, line 8: settings of pilot is ['max_iter', 4]; wanted an object"


def test_a_file_that_is_no_json_is_told_with_its_line():
    assert told(crew='{\n"agents": ["pilot"],\n"tasks": [}\n').startswith("crew.jsonc, line 3: invalid JSON")
    assert told(crew="[1]") == "crew.jsonc, line 1: wanted an object: {...}"
    with pytest.raises(ConfigError, match="nowhere.jsonc cannot be read"):
        load_crew("nowhere.jsonc")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_crew(dedent(CREW))  # the text itself
    with pytest.raises(ConfigError, match="cannot be read"):
        load_crew("a\0b")


def test_a_mistake_inside_a_value_says_where_it_is():
    text = told(
        crew=CREW.replace('"process"', '"checkpoint": {"locaton": "x"}, "process"'),
        pilot=PILOT.replace(
            '"goal"', '"planning_config": {"max_stepps": 3}, "knowledge_sources": ["fees.csv"], "goal"'
        ),
    )
    for line in (
        "checkpoint of crew: CheckpointConfig: it has no field 'locaton'; did you mean 'location'?",
        "planning_config of pilot: PlanningConfig: it has no field 'max_stepps'; did you mean 'max_steps'?",
        "knowledge_sources of pilot: There is no knowledge file 'fees.csv': looked for it at",
    ):
        assert line in text
