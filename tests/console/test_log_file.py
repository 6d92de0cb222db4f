"""`Crew(output_log_file=...)`: what a run does, in a file."""

import json
import threading
from pathlib import Path

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.errors import ConfigError
from crewlite.testing import ScriptedLLM


def crew_of(reply="done", **fields):
    clerk = Agent(role="Clerk", goal="g", llm=ScriptedLLM(lambda messages: reply, delay=0.01))
    return Crew(name="c", tasks=[Task(name="one", description="{n}", expected_output="x", agent=clerk)], **fields)


def test_each_kickoff_appends_its_progress_and_a_secret_is_not_in_it():
    crew = crew_of("it is hunter2", output_log_file=True, checkpoint=CheckpointConfig(redact=["hunter2"]))
    for n in (1, 2):
        crew.kickoff({"n": n})
    text = Path("logs.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.endswith("task one: Clerk has finished")]
    assert len({line.split()[2] for line in lines}) == len(lines) == 2, "each line names its run"
    assert "hunter2" not in text
    assert not crew_of(output_log_file=False).kickoff({"n": 3}).drifted
    assert Path("logs.txt").read_text(encoding="utf-8") == text, "nobody listens any more"


@pytest.mark.parametrize("name", ["logs.txt", "logs.json"])
def test_no_control_character_of_a_run_reaches_a_terminal_that_shows_the_file(name):
    clerk = Agent(role="Clerk \x1b]0;title\x07 \x9b31m \u202e", goal="g", llm=ScriptedLLM(lambda messages: "done"))
    Crew(tasks=[Task(description="d", expected_output="x", agent=clerk)], output_log_file=name).kickoff()
    text = Path(name).read_text(encoding="utf-8")
    assert "title" in text
    assert text.replace("\n", "").isprintable()


def test_runs_side_by_side_write_only_what_is_theirs():
    crews = {
        n: crew_of(f"hunter2 {n}", output_log_file=f"{n}.json", checkpoint=CheckpointConfig(redact=["hunter2"]))
        for n in range(4)
    }
    threads = [
        threading.Thread(target=crew.kickoff, args=({"n": n},), kwargs={"run_id": f"r{n}"}) for n, crew in crews.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in crews:
        text = Path(f"{n}.json").read_text(encoding="utf-8")
        events = [json.loads(line) for line in text.splitlines()]
        assert {event["run_id"] for event in events} == {f"r{n}"}
        assert [event["type"] for event in events if event["type"].startswith("task")] == [
            "task_started",
            "task_completed",
        ]
        assert "hunter2" not in text


def test_a_file_that_cannot_be_written_is_told_before_anything_is_paid_or_stops_nothing(caplog):
    crew = crew_of(output_log_file="no/such/logs.txt")
    with pytest.raises(ConfigError, match="output_log_file is 'no/such/logs.txt', which cannot be written"):
        crew.kickoff({"n": 1})
    assert not crew.tasks[0].agent.llm.calls
    with pytest.raises(ConfigError, match="output_log_file is an int; wanted True or False, or text, or a path"):
        crew_of(output_log_file=3)
    if Path("/dev/full").exists():
        assert crew_of(output_log_file="/dev/full").kickoff({"n": 1}).raw == "done"
        assert caplog.text.count("cannot be written any more; the run goes on") == 1
