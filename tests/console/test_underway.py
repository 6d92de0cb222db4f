"""What runs of a run right now, for how long, and what was spent, as its events say."""

from crewlite import Usage
from crewlite.console.underway import Underway, elapsed, spent, still_open
from crewlite.events import (
    LLMCallCompletedEvent,
    LLMCallStartedEvent,
    LLMStreamChunkEvent,
    StepCompletedEvent,
    StepStartedEvent,
    TaskCompletedEvent,
    TaskStartedEvent,
)


def started(cls, address, **fields):
    return cls(run_id="r", address=address, **fields)


def ended(cls, start, **fields):
    return cls(run_id="r", address=start.address, started_event_id=start.event_id, **fields)


def test_what_has_begun_and_not_ended_is_open_with_its_time():
    now = [0.0]
    run = Underway(lambda: now[0])
    task = started(TaskStartedEvent, "task:a", task_name="a", agent_role="W", description="d", expected_output="e")
    call = started(LLMCallStartedEvent, "task:a/llm#1", model="m", messages=())
    run.hear(task, None)
    now[0] = 2.0
    run.hear(call, None)
    now[0] = 3.5
    assert [(one.title, one.depth, since) for one, since in still_open([run])] == [
        ("task a: W", 1, 3.5),
        ("model m", 2, 1.5),
    ]
    run.hear(ended(LLMCallCompletedEvent, call, model="m", response="x", call_type="llm_call", usage={}), None)
    assert [one.title for one, _ in still_open([run])] == ["task a: W"]


def test_an_open_step_of_a_flow_is_shown_with_its_type_until_it_ends():
    run = Underway()
    fetch = started(StepStartedEvent, "step:fetch", kind="step", name="fetch", step_type="web")
    run.hear(fetch, None)
    run.hear(started(StepStartedEvent, "step:fetch/step:look", kind="step", name="look"), None)
    assert [(one.title, one.depth) for one, _ in still_open([run])] == [("step fetch (web)", 1), ("step look", 2)]
    run.hear(ended(StepCompletedEvent, fetch, kind="step", name="fetch", step_type="web"), None)
    assert still_open([run]) == []


def test_when_a_task_ends_so_does_what_was_open_in_it():
    run = Underway()
    task = started(TaskStartedEvent, "task:a", description="d", expected_output="e")
    run.hear(task, None)
    run.hear(started(LLMCallStartedEvent, "task:a/llm#1", model="m", messages=()), None)
    run.hear(ended(TaskCompletedEvent, task, output=None), None)
    assert still_open([run]) == []


def test_what_has_streamed_is_counted_for_the_call_that_is_open():
    run = Underway()
    run.hear(started(LLMCallStartedEvent, "task:a/llm#1", model="m", messages=()), None)
    for text in ("Tides ", "rise."):
        run.hear(started(LLMStreamChunkEvent, "task:a/llm#1", model="m", chunk=text), None)
    assert still_open([run])[0][0].streamed == 11


def test_what_was_spent_is_the_sum_of_all_runs():
    usage = Usage(prompt_tokens=1000, completion_tokens=200, cost=0.5)
    runs = [Underway(lambda: 65.0), Underway(lambda: 65.0)]
    for run in runs:
        run.since = 0.0
        run.hear(started(LLMCallStartedEvent, "x", model="m", messages=()), usage)
    assert spent(runs) == "2 runs, 1 min 05 s, 2,400 tokens, $1.0000"
    assert spent([Underway(lambda: 0.0)]) == "0 s, 0 tokens"
    assert [elapsed(seconds) for seconds in (0.9, 59, 61, 3700)] == ["0 s", "59 s", "1 min 01 s", "1 h 01 min"]


def test_a_retry_is_counted():
    class Again:
        type, started_event_id = "recovery_started", None

    run = Underway(lambda: 0.0)
    run.hear(Again(), None)
    assert spent([run]) == "0 s, 0 tokens, 1 retry"
    run.hear(Again(), None)
    assert spent([run]) == "0 s, 0 tokens, 2 retries"
