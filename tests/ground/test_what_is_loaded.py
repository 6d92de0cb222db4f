"""What is loaded when: nothing heavy with the package, and all that a run may come to before its first step."""

from __future__ import annotations

import pytest

from tests.ground.modules import ask, modules

HEAVY = ("litellm", "sqlite_utils", "jinja2", "rich", "click", "textual", "sqlite3")


@pytest.mark.parametrize(
    "code", ["import crewlite", "from crewlite import Agent, Crew, Task", "import crewlite.events"]
)
def test_importing_the_package_loads_nothing_heavy(code):
    loaded = ask(f"{code}\nimport json, sys\nprint(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))")
    assert set(HEAVY) & set(loaded) == set()


def test_importing_the_package_loads_none_of_its_rooms():
    loaded = ask("import crewlite, json, sys\nprint(json.dumps([m for m in sys.modules if m.startswith('crewlite.')]))")
    assert loaded == []


def test_a_definition_loads_of_the_record_and_the_engine_only_what_it_says_itself():
    code = "from crewlite import Agent, Crew, Task\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    loaded = [name for name in ask(code) if name.startswith(("crewlite.state.", "crewlite.runtime."))]
    engine = [
        "crewlite.runtime.kickoffs",
        "crewlite.runtime.kickoffs.definition_verbs",
        "crewlite.runtime.kickoffs.request",
        "crewlite.runtime.kickoffs.runnable",
    ]
    assert loaded == [*engine, "crewlite.state.config"]


def test_a_definition_loads_nothing_that_only_a_kickoff_or_an_error_needs():
    code = "from crewlite import Agent, Crew, Task\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    later = {"concurrent.futures", "crewlite.crew.learned", "crewlite.crew.scores", "crewlite.system.disk", "difflib"}
    assert not later & set(ask(code))


FIRST = """
import json, sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM

agent = Agent(role="Writer", goal="write", backstory="", llm=ScriptedLLM(["yes"]))
task = Task(description="say yes", expected_output="yes", agent=agent)
Crew(agents=[agent], tasks=[task], checkpoint=CheckpointConfig(location={place!r})).kickoff()
print(json.dumps([name.removeprefix("crewlite.") for name in sys.modules]))
"""
LATER = """agent.delegation agent.guarding agent.reasoning crew.learned crew.planning
    events.types.guardrail_events events.types.knowledge_events events.types.trial_events
    knowledge.passages runtime.exploring runtime.kickoffs.handle runtime.kickoffs.joining runtime.kickoffs.preview
    runtime.kickoffs.resume_checks state.providers.memory state.providers.sqlite
    state.verbs.fork state.verbs.transfer"""
ANY = """events.types.checkpoint_events events.types.recovery_events events.types.step_events
    runtime.people.suspending state.journal.compaction"""


def test_a_first_kickoff_loads_nothing_that_only_other_runs_need(tmp_path):
    """Such as what a plan, a resume, a fork or another store needs: what the program says before anything is paid."""
    loaded = set(ask(FIRST.format(place=str(tmp_path / "store"))))
    assert not set(LATER.split()) & loaded
    assert set(ANY.split()) <= loaded  # what any run may come to
    assert {f"crewlite.{name}" for name in LATER.split()} <= modules().keys()


SECOND = """
import json, sys
from crewlite import Agent, CheckpointConfig, ConditionalTask, Crew, Task
from crewlite.testing import ScriptedLLM

class Looking(ScriptedLLM):
    async def acall(self, request):
        before.append(set(sys.modules))
        return await super().acall(request)

def task(agent, **more):
    return Task(description="say yes", expected_output="yes", agent=agent, **more)

before = []
llm = Looking(["yes", {reply}, "yes"])
first = Agent(role="Writer", goal="write", backstory="", llm=llm)
second = Agent(role="Reader", goal="read", backstory="", llm=llm, {agent})
more = {{{task}}}
later = ConditionalTask(description="say yes", expected_output="yes", agent=second, **more) if "condition" in more else task(second, **more)
store = CheckpointConfig(location={place!r})
crew = Crew(agents=[first, second], tasks=[task(first), later], checkpoint=store)
crew.kickoff()
print(json.dumps(sorted(name for name in sys.modules.keys() - before[0] if name.startswith("crewlite."))))
"""


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"task": "'callback': lambda output: None"},
        {"task": "'condition': lambda output: True"},
        {"task": "'guardrail': lambda output: (True, output)"},
        {"agent": "knowledge_sources=[StringKnowledgeSource(content='say yes')]"},
        {"agent": "allow_delegation=True"},
        {"agent": "reasoning=True", "reply": '\'{"steps": ["say it"]}\''},
        {"reply": "TimeoutError('slow')"},
    ],
    ids=str,
)
def test_what_the_later_tasks_of_a_crew_come_to_is_loaded_before_its_first_step(tmp_path, said):
    """As an import in the middle of a run may find no free file descriptor, or another release on the disk."""
    parts = {"task": "", "agent": "", "reply": "'yes'"} | said
    imports = "from crewlite.knowledge import StringKnowledgeSource\n" if "knowledge" in parts["agent"] else ""
    assert ask(imports + SECOND.format(place=str(tmp_path / "store"), **parts)) == []
