"""Names and verbs of LangGraph, DBOS and Temporal that crewlite lacks, and what to write instead."""

from __future__ import annotations

_BEGIN = "kickoff(...) begins a run, or goes on with the run of its run_id; await akickoff(...) in async code"
_AGAIN = "the same kickoff again goes on: kickoff(run_id=...), with answers={address: answer} for what it waits for"
_PLACES = "what is recorded: History(location).run(run_id), and its .checkpoints()"
_EACH = "each set of inputs is a run of its own, kicked off in a pool of threads; in a flow, step.map(items)"
_GRAPH = "a graph is a class whose methods say what starts them: from crewlite.flow import Flow, listen, router, start"
_KEPT = "a setting says where runs are kept: checkpoint=CheckpointConfig(location='runs.db'), or InMemoryProvider()"
_DURABLE = "a function becomes durable by @flow, and what it calls by @step: from crewlite.flow import flow, step"
_ASK = "from crewlite.flow import ask: ask(question) waits for a person, who answers by kickoff(answers={...})"
_TIMER = "from crewlite.flow import sleep_for, sleep_until"

VERBS: dict[str, str] = {
    **dict.fromkeys(("invoke", "ainvoke", "run", "arun", "run_sync", "start", "execute", "start_workflow"), _BEGIN),
    **dict.fromkeys(("resume", "aresume", "retry", "recover"), _AGAIN),
    **dict.fromkeys(("get_state", "aget_state", "get_state_history", "aget_state_history"), _PLACES),
    **dict.fromkeys(("update_state", "aupdate_state"), "fork(ref, edits={'method:plan.state.tone': value}).kickoff()"),
    **dict.fromkeys(("batch", "abatch", "kickoff_for_each", "akickoff_for_each", "kickoff_for_each_async"), _EACH),
    **dict.fromkeys(("add_node", "add_edge", "add_conditional_edges", "compile"), _GRAPH),
    "astream": "the events of a run, as they happen: stream(...), with for or async for",
}
"""What is done with a definition elsewhere, by the name that it has there."""

IMPORTS: dict[str, str] = {
    **dict.fromkeys(("StateGraph", "MessageGraph", "MessagesState", "START", "END"), _GRAPH),
    **dict.fromkeys(("MemorySaver", "InMemorySaver", "SqliteSaver", "AsyncSqliteSaver", "PostgresSaver"), _KEPT),
    **dict.fromkeys(("interrupt", "Command"), _ASK),
    "Send": "a step for each item: step.map(items)",
    **dict.fromkeys(("DBOS", "workflow", "entrypoint", "activity"), _DURABLE),
    **dict.fromkeys(("sleep", "Sleep"), _TIMER),
}
"""What is imported elsewhere."""
