"""A path that no file can have is refused with an error of crewlite, whatever is given it: never with a raw one."""

import pytest

from crewlite import Agent, Crew, FailurePolicy, History, Task
from crewlite.errors import CrewliteError
from crewlite.project import load_crew
from crewlite.state import CheckpointConfig, SqliteProvider
from crewlite.testing import RecordedLLM, ScriptedLLM
from tests.ground.smallest import Plan


def crew(llm=None, crew_settings=None, **settings):
    agent = Agent(role="Pilot", goal="answer", llm=llm or ScriptedLLM(["six"]))
    task = Task(name="t", description="When?", expected_output="a time", agent=agent, **settings)
    return Crew(tasks=[task], **crew_settings or {})


def stored(**settings):
    crew(crew_settings={"checkpoint": CheckpointConfig(**settings)}).kickoff(run_id="r")


def exported(path):
    stored(location="runs")
    History("runs").export("r", path)


TAKES_A_PATH = {
    "location": lambda path: stored(location=path),
    "database": lambda path: stored(location=path, provider=SqliteProvider()),
    "History": lambda path: History(path).runs(),
    "export": exported,
    "import": lambda path: History("runs").import_run(path),
    "from_checkpoint": Crew.from_checkpoint,
    "output_file": lambda path: crew(output_file=path),
    "output_log_file": lambda path: crew(crew_settings={"output_log_file": path}).kickoff(),
    "knowledge": lambda path: crew(crew_settings={"knowledge_sources": [f"{path}.txt"]}).kickoff(),
    "input_files": lambda path: crew(input_files={"a": path}).kickoff(),
    "train": lambda path: crew().train(1, path),
    "plot": lambda path: Plan().plot(path),
    "FailurePolicy": FailurePolicy.from_yaml,
    "load_crew": load_crew,
    "RecordedLLM": lambda path: crew(RecordedLLM(path)).kickoff(),
}


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b", "x" * 5000], ids=["nul", "surrogate", "long"])
@pytest.mark.parametrize("taker", TAKES_A_PATH)
def test_a_path_that_no_file_can_have_is_refused(tmp_path, monkeypatch, taker, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CrewliteError):
        TAKES_A_PATH[taker](path)
