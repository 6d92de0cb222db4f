"""Live progress: what a verbose run shows, and what it never shows."""

import asyncio
import io
import sys
import time

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, Crew, LLMReply, Task, ToolCall, Usage, tool
from crewlite.console.progress import shown
from crewlite.errors import AnswerTimeout, ConfigError, LLMUnavailable, Suspended
from crewlite.events.base import BaseEvent
from crewlite.events.event_bus import event_bus
from crewlite.flow import ask, flow, step
from crewlite.recovery.policy import MaxRetries
from crewlite.testing import ScriptedLLM


class Amount(BaseModel):
    euro: int


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


def crew(replies, *, role="Reader", task="read", name="library", verbose=True, checkpoint=None):
    reader = Agent(role=role, goal="Know", llm=ScriptedLLM(replies), tools=[look_up])
    reading = Task(name=task, description="Read", expected_output="Words", agent=reader)
    return Crew(name=name, tasks=[reading], verbose=verbose, checkpoint=checkpoint)


def test_a_verbose_run_tells_what_it_does(capsys):
    used = Usage(prompt_tokens=1200, completion_tokens=34)
    crew([ToolCall("look_up", {"word": "tide"}), LLMReply(text="done", usage=used)]).kickoff()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("▸ crew library begins (run ")
    assert lines[1:] == [
        "▸ task read: Reader begins",
        "✓ model scripted: 0 tokens, so far 0 tokens",
        "▸ tool look_up(word='tide')",
        "✓ tool look_up: 12 characters",
        "✓ model scripted: 1,234 tokens, so far 1,234 tokens",
        "✓ task read: Reader has finished",
        "✓ crew library has finished: 1,234 tokens",
    ]


def test_a_quiet_run_says_nothing(capsys):
    crew(["done"], verbose=False).kickoff()
    assert capsys.readouterr() == ("", "")


def test_a_lone_agent_can_be_verbose_too(capsys):
    Agent(role="Hermit", goal="Think", llm=ScriptedLLM(["so"]), verbose=True).kickoff("Well?")
    out = capsys.readouterr().out
    assert "agent Hermit begins" in out
    assert "» Hermit: so" in out
    assert "agent Hermit has finished" in out


def test_only_its_own_run_is_shown(capsys):
    loud, quiet = crew(["a"], task="loud"), crew(["b"], task="quiet", verbose=False)

    async def both():
        await asyncio.gather(loud.akickoff(), quiet.akickoff())

    asyncio.run(both())
    out = capsys.readouterr().out
    assert out.count("task loud") == 2
    assert "quiet" not in out


def test_runs_that_are_shown_at_once_are_each_shown_once(capsys):
    crew(lambda messages: "done").kickoff_for_each([{}, {}])
    assert capsys.readouterr().out.count("task read: Reader begins") == 2


def test_checkpoints_and_what_is_reused_are_shown(capsys, tmp_path):
    config = CheckpointConfig(location=tmp_path)
    crew(["done"], checkpoint=config).kickoff(run_id="r")
    assert "● checkpoint " in capsys.readouterr().out
    crew([], checkpoint=config).kickoff(run_id="r")
    assert "↺ the result from the record" in capsys.readouterr().out


def test_a_failed_model_call_is_told_once_in_full_without_its_name_and_advice(capsys):
    said = "openai/x could not answer (status 503): the service is under maintenance until noon. Start the run again."

    class Fails(ScriptedLLM):
        async def acall(self, messages, **context):
            raise LLMUnavailable(said)

    agent = Agent(role="Pilot", goal="g", llm=Fails([], model="openai/x"), verbose=True, failure_policy=MaxRetries(1))
    with pytest.raises(LLMUnavailable):
        agent.kickoff("Well?")
    told = "LLMUnavailable: could not answer (status 503): the service is under maintenance until noon"
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(f"✗ model openai/x: {told}; try 2 in ") for line in lines)
    assert f"✗ model openai/x failed: {told}" in lines


def test_a_crew_without_a_name_is_a_crew(capsys):
    Crew(tasks=crew(["done"]).tasks, verbose=True).kickoff()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("▸ crew begins (run ")
    assert lines[-1].startswith("✓ crew has finished: ")


def test_a_failure_is_shown_with_its_reason(capsys):
    with pytest.raises(ValueError, match="no paper"):
        crew([ValueError("no paper")]).kickoff()
    out = capsys.readouterr().out
    assert "✗ model scripted failed: ValueError: no paper" in out
    assert "✗ task read: Reader failed: ValueError: no paper" in out
    assert "✗ crew library stopped: ValueError: no paper" in out


def test_texts_are_shown_as_text_without_markup_or_control(capsys):
    crew([ToolCall("look_up", {"word": "\x1b[2J[bold]\n"}), "done"], role="[red]Eve\x1b]0;x\x07\u202e").kickoff()
    out = capsys.readouterr().out
    assert r"word='\x1b[2J[bold]\n'" in out
    assert r"[red]Eve\x1b]0;x\x07\u202e begins" in out
    assert "\x1b" not in out


def test_a_stream_that_takes_no_tick_gets_ascii(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    crew(["done"], role="Zoë").kickoff()
    out = raw.getvalue().decode("ascii")
    assert "> crew library begins" in out
    assert r"+ task read: Zo\xeb has finished" in out


def told(capsys):
    return [line.strip() for line in capsys.readouterr().out.splitlines() if "checkpoint" not in line]


def test_a_verbose_flow_tells_its_steps_with_their_types(capsys):
    @step(type="fetch")
    def fetch(n):
        return n

    @step(name="breaks")
    def broken():
        raise ValueError("no paper")

    @flow(verbose=True)
    def sums():
        fetch(1)
        crew(["done"]).kickoff()
        broken()

    with pytest.raises(ValueError, match="no paper"):
        sums.kickoff()
    lines = told(capsys)
    assert lines[0].startswith("▸ flow sums begins (run ")
    assert lines[1:3] == ["▸ step fetch (fetch)", "✓ step fetch (fetch)"]
    assert lines.count("✓ task read: Reader has finished") == 1
    assert lines[-3:] == [
        "▸ step breaks",
        "✗ step breaks failed: ValueError: no paper",
        "✗ flow sums stopped: ValueError: no paper",
    ]


def test_a_question_its_wait_and_its_answer_are_shown(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    @flow(checkpoint=CheckpointConfig(location=tmp_path), verbose=True)
    def asks():
        return ask("Go\x1b[2J on?", bool, name="on")

    with pytest.raises(Suspended):
        asks.kickoff(run_id="r")
    assert told(capsys)[1:] == ["◇ human:on asks: Go\\x1b[2J on?", "◇ flow asks waits for human:on"]
    asks.kickoff(run_id="r", answers={"human:on": True})
    assert told(capsys)[-3:] == [
        "▸ flow asks goes on (run r)",
        "✓ human:on is answered: True",
        "✓ flow asks has finished",
    ]


def test_an_answer_is_shown_as_what_it_is_and_not_as_it_is_recorded(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    @flow(checkpoint=CheckpointConfig(location=tmp_path), verbose=True)
    def asks():
        return ask("How much?", Amount, name="amount")

    asks.kickoff(run_id="r", answers={"human:amount": Amount(euro=3)})
    assert "✓ human:amount is answered: Amount(euro=3)" in told(capsys)


def test_a_question_that_nobody_answers_in_time_is_not_told_to_be_answered(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    @flow(checkpoint=CheckpointConfig(location=tmp_path), verbose=True)
    def asks():
        return ask("Go on?", bool, name="on", timeout=0.01)

    with pytest.raises((Suspended, AnswerTimeout)):
        asks.kickoff(run_id="r")
    time.sleep(0.02)
    with pytest.raises(AnswerTimeout):
        asks.kickoff(run_id="r")
    shown = told(capsys)
    assert "✓ human:on has no answer" in shown
    assert "is answered" not in "".join(shown)


def test_an_error_is_told_in_short_as_each_step_it_goes_through_tells_it(capsys):
    with pytest.raises(ValueError, match="no paper"):
        crew([ValueError("no paper " * 40)]).kickoff()
    failed = [line for line in capsys.readouterr().out.splitlines() if "✗" in line]
    assert len(failed) == 3
    assert all(len(line) < 170 and "ValueError: no paper" in line for line in failed)


def test_a_retry_says_what_failed_and_when_it_is_tried_again(capsys):
    class Again(BaseEvent):
        type: str = "recovery_started"
        kind: str = "llm"
        name: str = "openai/x"
        attempt: int = 1
        error: str = "too busy"
        error_type: str = "LLMUnavailable"
        failure: str = "unavailable"
        failure_type: str = ""
        remedy: str = "retry"
        delay: float = 1.26

    with shown(lambda: "r"):
        event_bus.emit(None, Again(run_id="r", address="llm#1"))
    assert "✗ model openai/x: LLMUnavailable: too busy; try 2 in 1.3 s" in capsys.readouterr().out


# --- inside a flow


def without_ids(out):
    """What was printed, without the id of the run."""
    return [line.partition(" (run ")[0] for line in out.splitlines()]


def test_a_verbose_crew_prints_in_a_flow_what_it_prints_alone(capsys):
    def loud():
        used = Usage(prompt_tokens=5, completion_tokens=2, requests=1)
        return crew([ToolCall("look_up", {"word": "tide"}), LLMReply(text="done", usage=used)])

    @flow
    def quiet():
        crew(["first"], verbose=False).kickoff()
        return loud().kickoff().raw

    loud().kickoff()
    alone = without_ids(capsys.readouterr().out)
    quiet.kickoff()
    assert without_ids(capsys.readouterr().out) == alone
    assert alone[-1] == "✓ crew library has finished: 7 tokens"


def test_steps_have_the_names_in_a_flow_that_they_have_alone(capsys, tmp_path):
    config = CheckpointConfig(location=tmp_path)

    def fails_first(run):
        agent = Agent(role="Reader", goal="g", llm=ScriptedLLM(["one", ValueError("no paper"), "two"]))
        tasks = [Task(description="Read", expected_output="x", agent=agent) for _ in range(2)]
        loud = Crew(tasks=tasks, verbose=True, output_log_file=str(tmp_path / f"{run}.txt"))

        def lines():
            printed = without_ids(capsys.readouterr().out)
            return [line for line in printed if "checkpoint" not in line and "recorded step" not in line]

        return loud, lines

    loud, lines = fails_first("alone")
    with pytest.raises(ValueError, match="no paper"):
        loud.kickoff(run_id="alone", from_checkpoint=config)
    first = lines()
    loud.kickoff(run_id="alone", from_checkpoint=config)
    second = lines()

    loud, lines = fails_first("inside")
    quiet = flow(checkpoint=config)(lambda: loud.kickoff().raw)
    with pytest.raises(ValueError, match="no paper"):
        quiet.kickoff(run_id="inside")
    assert lines() == first
    quiet.kickoff(run_id="inside")
    assert lines() == second
    assert "  ▸ task#2: Reader begins" in first
    assert "  ↺ task#1 from the record" in second
    assert "crew:" not in (tmp_path / "inside.txt").read_text(encoding="utf-8")


def test_a_verbose_agent_prints_in_a_flow_what_it_prints_alone(capsys):
    hermit = Agent(role="Hermit", goal="Think", llm=ScriptedLLM(lambda messages: "so"), verbose=True)

    @flow
    async def quiet():
        return (await hermit.akickoff("Well?")).raw

    hermit.kickoff("Well?")
    alone = without_ids(capsys.readouterr().out)
    quiet.kickoff()
    assert without_ids(capsys.readouterr().out) == alone
    assert "▸ agent Hermit begins" in alone


def test_a_verbose_flow_shows_all_that_is_inside_it_once(capsys):
    @flow(verbose=True)
    def loud():
        return crew(["done"]).kickoff().raw

    loud.kickoff()
    lines = without_ids(capsys.readouterr().out)
    assert [line.strip() for line in lines] == [
        "▸ flow loud begins",
        "▸ crew library begins",
        "▸ task read: Reader begins",
        lines[3].strip(),
        "✓ task read: Reader has finished",
        lines[5].strip(),
        lines[6].strip(),
    ]
    assert lines[3].startswith("      ✓ model scripted")
    assert lines[6].startswith("✓ flow loud has finished: ")


def test_a_crew_that_a_tool_of_a_verbose_crew_kicks_off_is_shown_once(capsys):
    @tool
    def delegate(what: str) -> str:
        """Have others do it."""
        return crew(["inner"], name="inner").kickoff().raw

    boss = Agent(role="Boss", goal="g", llm=ScriptedLLM([ToolCall("delegate", {"what": "x"}), "ok"]), tools=[delegate])
    task = Task(description="Do", expected_output="x", agent=boss)
    Crew(tasks=[task], verbose=True).kickoff()
    assert capsys.readouterr().out.count("crew inner begins") == 1
    Crew(tasks=[task.model_copy(update={"agent": boss.model_copy(update={"llm": ScriptedLLM(["ok"])})})]).kickoff()
    assert capsys.readouterr().out == ""


def test_of_crews_side_by_side_in_a_flow_only_the_verbose_one_is_shown(capsys):
    loud, quiet = crew(["a"], task="loud"), crew(["b"], task="quiet", verbose=False)

    @flow
    async def both():
        await asyncio.gather(loud.akickoff(), quiet.akickoff())

    both.kickoff()
    out = capsys.readouterr().out
    assert "task loud" in out
    assert "task quiet" not in out


@pytest.mark.parametrize(("level", "shown"), [(0, False), (1, True), (2, True)])
def test_a_level_as_programs_for_early_crewai_give_it_is_on_or_off(level, shown):
    agent = Agent(role="r", goal="g", verbose=level)
    task = Task(description="d", expected_output="e", agent=agent)
    assert (agent.verbose, Crew(tasks=[task], verbose=level).verbose) == (shown, shown)


def test_what_is_not_true_or_false_is_no_verbose_of_a_flow():
    with pytest.raises(ConfigError, match="verbose is 'yes'; wanted True or False"):
        flow(verbose="yes")(lambda: None)
