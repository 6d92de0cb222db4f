"""Names of CrewAI that crewlite does not have, and what to write instead.

Each line states a fact about this release. If crewlite has nothing in place of a name, its line only says so.
"""

from __future__ import annotations

PAGE = "docs/crewai.md"
"""The page of the documentation that tells it in full."""
SETTINGS_PAGE = "docs/crewai-names.md"
"""The page with the table of settings."""
_KNOWN = "what a run should know goes into its inputs, or is looked up by a tool"
_FEEDBACK = "a run without a terminal waits by itself: kickoff(answers=...) answers it"
_FAILURE = "a tool that cannot do its work raises an error, which the model is told; BaseTool(failure_policy=...)"
_CHAT = "agent.kickoff(text, run_id=...) continues a conversation"
_SKILLS = "agents have tools: Agent(tools=[...])"
_HOOKS = (
    "@event_bus.on(LLMCallCompletedEvent), or of another event, looks at calls; a BaseLLM or BaseTool of your own "
    "changes what goes in and out; with crewlite.around(hook): wraps attempts; a guard refuses a call"
)
_STREAM = "the events of a run, as they happen: flow.stream(...), with for or async for"
_STATE = "what a run should know is kept in its state"
_MODULE: dict[str, str] = {
    "load_crew": "Crew.from_yaml(...) makes a crew of its files",
    "load_crew_and_kickoff": "Crew.from_yaml(...) makes a crew of its files",
    "EnvVar": "a tool reads the environment itself",
    "ToolFailure": _FAILURE,
    "ToolFailurePolicy": _FAILURE,
    "HumanFeedbackPending": _FEEDBACK,
    "HumanFeedbackProvider": _FEEDBACK,
    "PendingFeedbackContext": _FEEDBACK,
    "ChatState": _CHAT,
    "ConversationConfig": _CHAT,
    "ConversationalConfig": _CHAT,
    "ConversationalInputs": _CHAT,
}
_FILES: dict[str, str] = {
    "crewlite.flow.persistence": "a store of your own is a provider: CheckpointConfig(provider=...)",
    "crewlite.flow.async_feedback": _FEEDBACK,
    "crewlite.agents.crew_agent_executor": "steps: from crewlite.agents.parser import AgentAction, AgentFinish",
    "crewlite.tasks.hallucination_guardrail": "a model judges by a rule: Task(guardrail='...'), or LLMGuardrail(...)",
    "crewlite.hooks": _HOOKS,
    "crewlite.llms.hooks": _HOOKS,
    "crewlite.a2a": "a tool asks the other agent",
    "crewlite.agents.agent_adapters": "a tool, or a BaseLLM of your own, asks an agent of another framework",
    "crewlite.experimental": _CHAT,
    "crewlite.rag": _KNOWN,
    "crewlite.security": "a crew is known by its name, a run by its run_id; secrets are never written",
    "crewlite.skills": _SKILLS,
    "crewlite.tools.tool_failure": _FAILURE,
    "crewlite.types.streaming": "a crew, agent or flow streams the events of a run: crew.stream(...)",
    "crewlite.utilities.exceptions": "errors: from crewlite.errors import ...",
    "crewlite.utilities": "events: from crewlite.events import ...; the bus: from crewlite import event_bus",
    "crewlite.knowledge": _KNOWN,
    "crewlite.memory": _KNOWN,
    "crewlite.mcp": "agents have tools: Agent(tools=[...])",
    "crewlite.telemetry": "there is no telemetry, so there is nothing to switch off",
}
_RUN: dict[str, str] = {
    "replay": "fork a checkpoint: crew.fork(ref).kickoff(), or crewlite checkpoint fork",
    "calculate_usage_metrics": "crew.usage_metrics after a kickoff, or token_usage of its result",
    "query_knowledge": _KNOWN,
    "create_crew_knowledge": _KNOWN,
    "reset_memories": "there is no memory, so there is nothing to reset",
    "id": "a crew is known by its name, a run by its run_id",
    "key": "a crew is known by its name, a run by its run_id",
    "fingerprint": "a crew is known by its name, a run by its run_id",
}
_TIMES = "the times of its steps: History(location).run(run_id).steps"
_TASK: dict[str, str] = {
    "id": "a task is known by its name",
    "key": "a task is known by its name",
    "fingerprint": "a task is known by its name",
    "start_time": _TIMES,
    "end_time": _TIMES,
    "execution_duration": _TIMES,
    "execute": "task.execute_sync(), or a crew: Crew(tasks=[task]).kickoff()",
    "execute_async": "a task runs in a crew: await Crew(tasks=[task]).akickoff()",
    "prompt": "what its model was asked: History(location).run(run_id).prompt(address)",
}
_AGENT: dict[str, str] = dict.fromkeys(("id", "key", "fingerprint"), "an agent is known by its role")
_FLOW: dict[str, str] = {
    "from_declaration": "a flow is a class of your own, class MyFlow(Flow), or a function with @flow",
    "from_pending": _FEEDBACK,
    "resume": _FEEDBACK,
    "resume_async": _FEEDBACK,
    "astream": _STREAM,
    "stream_events": _STREAM,
    "handle_turn": _CHAT,
    "stream_turn": _CHAT,
    "chat": _CHAT,
    "method_outputs": "what its methods returned are steps of the run: History(location).run(run_id).steps",
    "flow_id": "each run has an id: self.state.id, or self.state['id'] of a mapping",
    "usage_metrics": "a run has its usage: flow.submit().usage, or History(location).run(run_id).usage",
    "remember": _STATE,
    "recall": _STATE,
    "extract_memories": _STATE,
}
_OF = {"Crew": _RUN, "Task": _TASK, "Agent": _AGENT, "Flow": _FLOW}
_OF_EVERY_RESULT = ("raw", "pydantic", "token_usage", "own_usage", "run_id", "drifted", "durability")
_OF_RESULTS = {
    "Crew": (*_OF_EVERY_RESULT, "json_dict", "tasks_output", "to_dict"),
    "Agent": (*_OF_EVERY_RESULT, "agent_role", "turn", "usage_metrics"),
}
"""Attributes of what a kickoff returns, which is looked for in the definition where a fork was not kicked off."""


def missing_import(module: str, name: str) -> ImportError | None:
    """Build the error for a name of CrewAI that a module of crewlite lacks; None for any other name.

    It is an ImportError, because `from crewlite import ...` replaces the text of an AttributeError.
    """
    instead = _MODULE.get(name) or (_KNOWN if name.startswith(("Knowledge", "Memory")) else None)
    return ImportError(f"{module} has no {name!r}: {instead} ({PAGE})") if instead else None


def missing_module(name: str) -> ModuleNotFoundError | None:
    """Build the error for a module of CrewAI that crewlite lacks; None for any other module."""
    for path, instead in _FILES.items():
        if name == path or name.startswith(f"{path}."):
            return ModuleNotFoundError(f"There is no module {name!r}: {instead} ({PAGE})", name=name)
    return None


def instead_of(kind: type, attribute: str) -> str | None:
    """Return what to write instead of a method or field of CrewAI or of a result; None for any other attribute."""
    names = [cls.__name__ for cls in kind.__mro__]
    if any(attribute in _OF_RESULTS.get(name, ()) for name in names):
        return f"it is of a result: kickoff().{attribute}, and of a fork: fork(ref).kickoff().{attribute}"
    told = next((_OF[name].get(attribute) for name in names if name in _OF), None)
    return f"{told} ({PAGE})" if told else None
