"""A run of an agent takes further questions: each is a turn, known by its text, from where the process is."""

from __future__ import annotations

import json
import sys

import pytest
from pydantic import BaseModel

from crewlite import Agent, CheckpointConfig, History, RuntimeState, ToolCall, tool
from crewlite.errors import ConfigError, InputsChanged, OutputInvalid, QuestionsChanged, RefError, RunMismatch
from crewlite.testing import ScriptedLLM
from tests import children
from tests.cuts import Kept
from tests.parts import Stop


@tool(effect="none")
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


def reply(messages, tools):
    """Looks once for each question, and answers with all that it was told."""
    if messages[-1]["role"] == "user" and tools:
        return ToolCall("look", {"where": messages[-1]["content"]})
    return "; ".join(str(message["content"]) for message in messages[1:] if message["content"])


def pilot(script=reply, **settings):
    return Agent(role="Pilot", goal="answer", llm=ScriptedLLM(script), **settings)


def said(agent, call=-1):
    return [message["content"] for message in agent.llm.calls[call][1:]]


def test_a_reply_that_was_done_again_and_came_to_the_same_leaves_the_conversation_whole(memory):
    @tool
    def look(where: str) -> str:
        """Look."""
        return "rain"

    def says(messages):
        return ToolCall("look", {"where": "out"}) if messages[-1]["content"] == "Look out." else "wet"

    scout = Agent(role="Scout", goal="g", llm=ScriptedLLM(says), tools=[look], checkpoint=memory())
    scout.kickoff("Look out.", run_id="r")
    again = scout.fork("r", branch="x", rerun=["llm#1"])
    again.kickoff()
    with History(memory().location, memory().provider) as history:
        assert {one.address for one in history.run("r/x").steps} == {"llm#1", "tool:look", "llm#2", ""}
    again.kickoff("And now?")
    assert [one["content"] for one in scout.llm.calls[-1] if one["role"] == "tool"] == ["rain"]


def test_a_further_question_is_asked_with_all_that_was_said_before(stored):
    agent = pilot(tools=[look], checkpoint=stored())
    first = agent.kickoff("Where?", run_id="chat")
    second = agent.kickoff("And why?", run_id="chat")
    third = pilot(lambda messages: "at last", checkpoint=stored()).kickoff("And when?", run_id="chat")
    assert (first.turn, second.turn, third.turn) == (1, 2, 3)
    assert said(agent) == ["Where?", "", "seen Where?", first.raw, "And why?", "", "seen And why?"]
    with History(stored().location, stored().provider) as history:
        run = history.run("chat")
        assert run.status == "finished"
        assert [step.address for step in run.steps if step.kind in ("message", "turn")] == [
            "turn#1",
            "message#2",
            "turn#2",
            "message#3",
            "turn#3",
        ]


def test_a_question_that_was_asked_answers_from_the_record_wherever_it_stands(stored):
    agent = pilot(["one", "two", "three"], checkpoint=stored())
    questions = ["1?", "2?", "3?"]
    answers = [agent.kickoff(question, run_id="chat").raw for question in questions]
    again = pilot([], checkpoint=stored())
    outputs = [again.kickoff(question, run_id="chat") for question in questions]
    assert [(output.raw, output.turn) for output in outputs] == [(raw, n) for n, raw in enumerate(answers, 1)]
    assert {output.token_usage.total_tokens for output in outputs} == {outputs[-1].token_usage.total_tokens}
    last = again.kickoff(run_id="chat")
    assert (last.raw, last.turn) == ("three", 3)
    assert again.kickoff(run_id="chat", turn=2).raw == "two"


def test_the_same_words_are_another_question_where_the_turn_says_so(stored):
    agent = pilot(["one", "two", "three"], checkpoint=stored())
    agent.kickoff("Go on", run_id="chat")
    assert agent.kickoff("Go on", run_id="chat").raw == "one"
    assert agent.kickoff("Go on", run_id="chat", turn=2).raw == "two"
    assert agent.kickoff("Go on", run_id="chat", turn=2).raw == "two", "said again, it is not asked again"
    assert agent.kickoff("Go on", run_id="chat", turn=1).raw == "one"
    with pytest.raises(RunMismatch, match="Turn 2 of conversation 'chat' has other messages.*turn=3"):
        agent.kickoff("Stop", run_id="chat", turn=2)
    with pytest.raises(
        ConfigError, match="turn is 4, and conversation 'chat' has 2 turns; wanted at most 3, and a message for turn 3"
    ):
        agent.kickoff("Stop", run_id="chat", turn=4)
    with pytest.raises(ConfigError, match="its first turn is 1"):
        agent.kickoff("Hello", run_id="another", turn=2)
    with pytest.raises(ConfigError, match="turn is 0; wanted the number"):
        agent.kickoff("Hello", run_id="chat", turn=0)


def test_the_same_words_are_another_question_once_there_was_a_later_turn(stored, caplog):
    said = ["Shall I?", "Yes", "And then?", "Yes"]
    agent = pilot(["one", "two", "three", "four"], checkpoint=stored())
    assert [agent.kickoff(words, run_id="chat").raw for words in said] == ["one", "two", "three", "four"]
    assert "has the same messages" not in caplog.text
    assert agent.kickoff("Yes", run_id="chat").turn == 4
    assert "turn 4 of 4 has the same messages" in caplog.text and "pass turn=5" in caplog.text, (
        "it may not be what is meant"
    )


def test_a_program_that_is_run_again_hears_each_recorded_answer_though_words_are_repeated(tmp_path):
    program = tmp_path / "chat.py"
    program.write_text(CHAT)
    told = [
        json.loads(children.run([sys.executable, program], capture_output=True, text=True).stdout) for _ in range(2)
    ]
    assert told == [[[1, "1"], [2, "2"], [3, "3"], [4, "4"]]] * 2


CHAT = """
import json
from crewlite import Agent
from crewlite.testing import ScriptedLLM

pilot = Agent(role="Pilot", goal="g", llm=ScriptedLLM(lambda said: str(len(said) // 2)), checkpoint=True)
said = [pilot.kickoff(words, run_id="chat") for words in ("Shall I?", "Yes", "And then?", "Yes")]
print(json.dumps([[output.turn, output.raw] for output in said]))
"""


def test_a_question_that_was_cut_is_finished_before_another_is_asked(stored):
    agent = pilot(["one", Stop(), "two", "three"], checkpoint=stored())
    agent.kickoff("1?", run_id="chat")
    with pytest.raises(Stop):
        agent.kickoff("2?", run_id="chat")
    with pytest.raises(InputsChanged, match="has a question without an answer"):
        agent.kickoff("3?", run_id="chat")
    assert agent.kickoff("1?", run_id="chat").raw == "one", "an earlier answer does not wait for it"
    assert len(agent.llm.calls) == 2
    assert agent.kickoff(run_id="chat").raw == "two"
    assert agent.kickoff("3?", run_id="chat").raw == "three"


def test_a_question_that_was_cut_has_no_recorded_answer_to_speak_of(stored, caplog):
    agent = pilot([Stop(), "one"], checkpoint=stored())
    with pytest.raises(Stop):
        agent.kickoff("1?", run_id="chat")
    assert agent.kickoff("1?", run_id="chat").raw == "one"
    assert "recorded answer" not in caplog.text


def test_an_earlier_answer_of_another_agent_is_not_passed_off_as_this_ones(stored):
    agent = pilot(["one", "two"], checkpoint=stored())
    agent.kickoff("1?", run_id="chat")
    agent.kickoff("2?", run_id="chat")
    other = Agent(role="Pilot", goal="joke", llm=ScriptedLLM(["three"]), checkpoint=stored())
    for question, changed in (
        ("1?", "turn#1 is asked '1\\?' as before, but something else has changed: its agent, context, output type"),
        ("2?", "it answered with the goal '.*', and has 'joke' now"),
    ):
        with pytest.raises(QuestionsChanged, match=changed):
            other.kickoff(question, run_id="chat")
    kept = other.with_(checkpoint=stored(on_drift="keep")).kickoff("1?", run_id="chat")
    assert (kept.raw, kept.drifted) == ("one", True)
    assert other.kickoff("3?", run_id="chat").raw == "three", "a further question is the other agent's to answer"


def test_each_turn_may_want_its_own_shape(stored):
    class Depth(BaseModel):
        metres: int

    agent = pilot(["hello", '{"metres": 4}', "bye"], checkpoint=stored())
    agent.kickoff("Hello", run_id="chat")
    assert agent.kickoff("How deep?", run_id="chat", response_format=Depth).pydantic == Depth(metres=4)
    assert agent.kickoff("Bye", run_id="chat").raw == "bye"
    assert agent.kickoff("How deep?", run_id="chat", turn=2, response_format=Depth).pydantic == Depth(metres=4)


@pytest.mark.parametrize("shapes", [(True, False, False), (False, True, False), (True, False, True)])
def test_a_program_with_a_shape_for_some_turns_is_run_again(stored, shapes):
    class Depth(BaseModel):
        metres: int

    def talk(agent):
        asked = [(f"{n}?", {"response_format": Depth} if shape else {}) for n, shape in enumerate(shapes)]
        return [agent.kickoff(question, run_id="chat", **more).raw for question, more in asked]

    def answer(messages):
        return '{"metres": 4}'

    whole = talk(pilot(answer, checkpoint=stored()))
    assert talk(pilot([], checkpoint=stored())) == whole


def test_a_conversation_is_forked_at_any_turn(stored):
    agent = pilot(lambda messages: f"answer {len(messages)}", checkpoint=stored(on_events=True))
    for question in ("1?", "2?", "3?"):
        agent.kickoff(question, run_id="chat")
    with History(stored().location, stored().provider) as history:
        second = history.run("chat").checkpoints()[1]
    other = agent.fork(stored(restore_from=second.id), branch="other")
    other.kickoff("Or else?")
    assert said(agent) == ["1?", "answer 2", "2?", "answer 4", "Or else?"]
    other.kickoff("And then?")
    assert said(agent)[-3:] == ["Or else?", "answer 6", "And then?"]
    assert agent.kickoff(run_id="chat").turn == 3
    edited = agent.fork(stored(restore_from="chat"), edits={"message#2": "What?"})
    calls = len(agent.llm.calls)
    assert edited.kickoff().turn == 3
    assert [said(agent, n)[-1] for n in range(calls, len(agent.llm.calls))] == ["What?", "3?"]
    for wrong in (5, [], [{"role": "user"}], [{"role": "user", "content": 5}], [{"content": {"type": "text"}}]):
        with pytest.raises(ConfigError, match="wanted a text, or a list of messages"):
            agent.fork(stored(restore_from="chat"), edits={"message#2": wrong})


def test_a_ref_names_a_turn_and_a_fork_counts_on_from_there(stored, caplog):
    agent = pilot(lambda messages: f"answer {len(messages)}", checkpoint=stored(on_events=True))
    for question in ("1?", "2?", "3?"):
        agent.kickoff(question, run_id="chat")
    other = agent.fork(stored(restore_from="chat@turn#2"), branch="other")
    for _ in range(2):
        assert other.kickoff("1?", turn=3).turn == 3
    assert said(agent) == ["1?", "answer 2", "2?", "answer 4", "1?"]
    again = pilot([], checkpoint=stored(restore_from="chat/other", on_events=True))
    assert again.kickoff("1?").turn == 3, "words that were said on the fork are known as those"
    assert other.kickoff("And then?").turn == 4
    first = agent.fork(stored(restore_from="chat@turn#1"), branch="first").kickoff("2?")
    assert (first.turn, said(agent)) == (2, ["1?", "answer 2", "2?"])
    for ref in ("chat@turn#4", "chat@turn#0", "chat@turn#x"):
        with pytest.raises(RefError):
            agent.fork(stored(restore_from=ref))


def test_a_reply_that_an_edit_has_replaced_takes_what_followed_it_along(stored):
    kept = stored()
    pilot([ToolCall("look", {"where": "x"}), "It is there."], tools=[look], checkpoint=kept).kickoff(
        "Where?", run_id="c"
    )
    with History(kept.location, kept.provider) as history:
        history.fork("c", branch="e", edits={"llm#1": "I do not know."})
    agent = pilot(["Further."], tools=[look], checkpoint=kept)
    agent.fork("c/e", branch="g").kickoff("And now?")
    assert said(agent) == ["Where?", "I do not know.", "And now?"]


def test_a_failed_turn_begins_anew_alone(stored):
    class Depth(BaseModel):
        metres: int

    agent = pilot(["one", "no", "no", "no", '{"metres": 1}'], checkpoint=stored())
    agent.kickoff("1?", run_id="chat")
    with pytest.raises(OutputInvalid):
        agent.kickoff("2?", run_id="chat", response_format=Depth)
    assert agent.kickoff("2?", run_id="chat", response_format=Depth).pydantic == Depth(metres=1)
    assert said(agent) == ["1?", "one", "2?"]
    assert len(agent.llm.calls) == 5


def test_a_killed_script_run_again_asks_nothing_twice_and_hears_the_same():
    questions = ["1?", "2?", "3?"]

    def script(provider):
        agent = pilot(tools=[look], checkpoint=CheckpointConfig(location="here", provider=provider))
        return [agent.kickoff(question, run_id="chat").raw for question in questions], len(agent.llm.calls)

    kept = Kept()
    answers, calls = script(kept)
    for count in range(1, len(kept.commits) + 1):
        provider = kept.cut(count)
        with History("here", provider) as history:
            recorded = sum(step.kind == "llm" and step.status == "finished" for step in history.run("chat").steps)
        again, more = script(provider)
        assert (again, recorded + more) == (answers, calls), f"killed after commit {count}"


def test_a_turn_of_a_long_conversation_stores_no_more_than_one_of_a_short(tmp_path):
    store = tmp_path / "store"
    agent = pilot(["yes"] * 40, checkpoint=CheckpointConfig(location=store))
    sizes = []
    for number in range(10, 50):
        agent.kickoff(f"{number}?", run_id="chat")
        sizes.append((store / "journal" / "chat" / "main.jsonl").stat().st_size)
    early, late = sizes[5] - sizes[4], sizes[-1] - sizes[-2]
    assert late < early + 50, "numbers have more digits"


def test_what_an_earlier_turn_has_kept_in_the_state_is_seen_by_a_later_one(stored):
    @tool(effect="none")
    def count() -> str:
        """Count."""
        state = RuntimeState.current()
        state["count"] = state.get("count", 0) + 1
        state.setdefault("log", []).append(state["count"])
        state.collection("notes").add({"count": state["count"]})
        return f"{state['count']} {state['log']} {len(state.collection('notes'))}"

    def script(messages):
        counts = messages[-1]["content"] == "Count!"
        return ToolCall("count", {}) if counts else messages[-1]["content"]

    def clerk():
        return pilot(script, tools=[count], checkpoint=stored())

    counted = ["1 [1] 1", "2 [1, 2] 2", "3 [1, 2, 3] 3"]
    for run_id, asked, told in (("a", ["Hello", *["Count!"] * 3], ["Hello", *counted]), ("b", ["Count!"] * 3, counted)):
        said = [clerk().kickoff(words, run_id=run_id, turn=n).raw for n, words in enumerate(asked, 1)]
        assert said == told
        with History(stored().location, stored().provider) as history:
            run = history.run(run_id)
            assert (run.values["log"], len(run.collections["notes"])) == ([1, 2, 3], 3)
