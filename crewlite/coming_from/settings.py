"""Settings of CrewAI that crewlite lacks, and what settings of crewlite are called elsewhere.

A value of a lacking setting is accepted if the program works without it: False, None, an empty value, or the `accepted`
one. For a setting with `warns`, a warning is logged. Fields that crewlite has are not looked up in that table.

An unknown setting may be one of LangGraph, the SDKs of OpenAI, Pydantic AI, DBOS or Prefect: the error then names the
setting of the same meaning, if the definition has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from crewlite.texts.logs import logger

log = logger("crewlite")
ANY = object()
"""Stands for any value: the `accepted` one of a setting without which every program works."""


class Setting(NamedTuple):
    """A setting of CrewAI that crewlite lacks."""

    of: str
    """The names of the classes that have it, separated by spaces."""
    name: str
    accepted: object
    """The value that is accepted besides False, None and empty ones; ANY to accept all."""
    here: str
    """The behaviour of crewlite, whether it is set or not."""
    instead: str = ""
    """The code to write for the effect of the setting."""
    warns: bool = False
    """Whether to log a warning when a value that is accepted asks for something."""

    def accepts(self, value: object) -> bool:
        """Return whether this value can be ignored."""
        if self.accepted is ANY or value is None or value is False:
            return True
        if isinstance(value, str | list | tuple | dict | set) and not value:
            return True
        return self.accepted is not None and type(value) is type(self.accepted) and value == self.accepted


_NO_LEARNING = "a run knows its inputs and the outputs of its tasks"
_CHAT = "models are asked with chat completions, and hear the whole conversation"
_VERTEX = "Vertex AI is a provider of its own"
_VERTEX_NAME = "LLM('vertex_ai/gemini-...', vertex_project=..., vertex_location=...)"
_OF_MCP = "tools=[...], which takes tools of an MCP client, such as LangChain's adapters"
_CAPITALS = "names begin with a small letter; CrewAI ignores this one, too"
_BY_WORDS = "passages of knowledge are found by their words, which needs no model and no store"
_GIVE_IT = "pass it in inputs, or give the agent a tool that looks it up"

SETTINGS: tuple[Setting, ...] = (
    *(
        Setting(of, name, ANY, _CAPITALS, f"{name.lower()}=...", warns=True)
        for of, name in (
            ("Agent Crew", "Memory"),
            ("Agent Crew", "Verbose"),
            ("Agent Task", "Tools"),
            ("Crew", "Process"),
        )
    ),
    Setting("Agent", "name", ANY, "an agent is known by its role"),
    Setting("Agent Crew", "description", ANY, "the model is not shown it, as in CrewAI"),
    Setting("Agent Crew", "memory", True, _NO_LEARNING, _GIVE_IT, warns=True),
    Setting("Crew", "short_term_memory", None, _NO_LEARNING, _GIVE_IT),
    Setting("Crew", "long_term_memory", None, _NO_LEARNING, _GIVE_IT),
    Setting("Crew", "entity_memory", None, _NO_LEARNING, _GIVE_IT),
    Setting("Crew", "external_memory", None, _NO_LEARNING, _GIVE_IT),
    Setting("Crew", "memory_config", None, _NO_LEARNING, _GIVE_IT),
    Setting("Agent Crew Knowledge", "embedder", ANY, _BY_WORDS, warns=True),
    Setting("Agent Knowledge", "embedder_config", ANY, _BY_WORDS, warns=True),
    Setting("KnowledgeConfig", "score_threshold", ANY, _BY_WORDS, "KnowledgeConfig(results_limit=...)", warns=True),
    Setting("Knowledge KnowledgeSource", "storage", None, _BY_WORDS),
    Setting("Knowledge KnowledgeSource", "collection_name", ANY, "each agent and crew searches its own sources"),
    Setting("Knowledge KnowledgeSource", "metadata", ANY, "a passage has the name of its source"),
    Setting("KnowledgeSource", "source_type", ANY, "what a file is follows from its name"),
    Setting(
        "Agent Crew",
        "cache",
        ANY,
        "a result of a tool is used again where the tool's cache_function says so; what is recorded never runs again",
    ),
    Setting(
        "Agent",
        "allow_code_execution",
        ANY,
        "no code is run, as in CrewAI 1.15",
        "give the agent a tool that runs it",
        warns=True,
    ),
    Setting(
        "Agent",
        "output_pydantic",
        ANY,
        "an answer has the form that its task asks for, as in CrewAI",
        "Task(output_pydantic=...)",
        warns=True,
    ),
    Setting("Agent", "code_execution_mode", ANY, "no code is run, as in CrewAI 1.15"),
    Setting(
        "Agent Crew",
        "function_calling_llm",
        ANY,
        "the agent's own model asks for its tools",
        "Agent(llm=...)",
        warns=True,
    ),
    Setting("Agent Crew", "skills", None, "agents have tools", "tools=[...]"),
    Setting("Agent", "mcps", None, "agents have tools", _OF_MCP),
    Setting("CrewBase", "mcp_server_params", None, "agents have tools", _OF_MCP),
    Setting("Agent", "apps", None, "agents have tools", "tools=[...]"),
    Setting("Agent", "a2a", None, "agents have tools", "tools=[...], one of which asks the other agent"),
    Setting("Agent", "callbacks", None, "steps are events", "event_bus.on(...)"),
    Setting(
        "Agent Task Crew BaseTool @tool",
        "tool_failure_policy",
        None,
        "the model is told",
        "BaseTool(failure_policy=...)",
    ),
    Setting("Agent Task Crew", "security_config", None, "secrets are never written"),
    Setting("Task", "verbose", ANY, "progress is shown where the agent or the crew says verbose=True"),
    *(
        Setting("Task", name, ANY, "tasks run in the order of the list", "context=[...]", warns=True)
        for name in ("dependencies", "depends_on")
    ),
    Setting("Task", "converter_cls", None, "the model is told what does not fit", "Task(output_pydantic=...)"),
    Setting("Task", "allow_crewai_trigger_context", ANY, "nothing triggers a run"),
    Setting("Crew", "share_crew", True, "nothing is sent to anybody"),
    Setting("Crew", "tracing", True, "nothing is sent to anybody", "event_bus.on(BaseEvent, ...)", warns=True),
    Setting("Crew", "prompt_file", None, "prompts are crewlite's", "say it in the texts of tasks and agents"),
    Setting("Crew", "chat_llm", ANY, "there is no chat with a crew"),
    Setting("Crew", "id", ANY, "a crew is known by its name, a run by its run_id"),
    Setting("Crew", "config", None, "a crew of files is made by Crew.from_yaml", "Crew.from_yaml(...)"),
    Setting("Agent", "from_repository", None, "there is no repository of agents", "Agent(role=..., goal=...)"),
    Setting("Task", "prompt_context", None, "a task is given what its context says", "Task(context=...)"),
    Setting("Crew", "full_output", ANY, "the result has every task's output"),
    Setting("Crew", "language", ANY, "prompts are English; the model answers as it is asked to"),
    Setting("PlanningConfig", "llm", None, "an agent plans with its own model", "Agent(llm=...)"),
    Setting("PlanningConfig", "step_timeout", None, "a step has no limit of its own", "Agent(max_execution_time=...)"),
    Setting("PlanningConfig", "system_prompt", None, "prompts are crewlite's", "say it in the agent's goal"),
    Setting("PlanningConfig", "plan_prompt", None, "prompts are crewlite's", "say it in the agent's goal"),
    Setting("PlanningConfig", "refine_prompt", None, "prompts are crewlite's", "say it in the agent's goal"),
    Setting("Flow", "persistence", None, "a flow is kept with its checkpoints", "checkpoint=True"),
    Setting("Flow", "tracing", True, "nothing is sent to anybody", "event_bus.on(BaseEvent, ...)", warns=True),
    Setting("Flow", "memory", None, _NO_LEARNING, "keep it in the state, which is recorded"),
    Setting("Flow", "suppress_flow_events", ANY, "events go to those who listen, and to nobody else"),
    Setting("Flow", "input_provider", None, "people answer in the terminal, or later", "history.answer(...)"),
    Setting(
        "BaseTool @tool", "result_schema", ANY, "the model is given what a tool returns; a pydantic object as JSON"
    ),
    Setting("BaseTool", "env_vars", ANY, "a tool reads the environment itself"),
    Setting(
        "kickoff",
        "restore_from_state_id",
        None,
        "a run begins with its inputs",
        "kickoff(inputs={...}) with the fields of that state",
    ),
    Setting("kickoff", "input_files", None, "files belong to tasks, crews and agents", "Task(input_files=...)"),
    Setting("test", "openai_model_name", None, "a model scores the answers", "test(eval_llm=...)"),
    Setting(
        "@human_feedback",
        "provider",
        None,
        "a run without a terminal waits by itself",
        "a handler of human_feedback_requested tells people; kickoff(answers=...) or History.answer(...) answers",
    ),
    Setting("@human_feedback", "learn", None, "nothing is learned from feedback"),
    Setting("@human_feedback", "learn_source", ANY, "nothing is learned from feedback"),
    Setting("@human_feedback", "learn_strict", ANY, "nothing is learned from feedback"),
    Setting("LLM", "callbacks", None, "calls are events", "@event_bus.on(LLMCallCompletedEvent)"),
    Setting("LLM", "is_litellm", ANY, "every provider is litellm's"),
    Setting("LLM", "verbose", ANY, "progress is shown where the agent or the crew says verbose=True"),
    Setting("LLM", "api", "completions", _CHAT, "LLM('openai/responses/...')"),
    Setting("LLM", "auto_chain", None, _CHAT),
    Setting("LLM", "builtin_tools", None, _CHAT, "Agent(tools=[...])"),
    *(Setting("LLM", name, None, _VERTEX, _VERTEX_NAME) for name in ("project", "location", "use_vertexai")),
    Setting("LLM", "additional_params", None, "further arguments of litellm are in extra", "LLM(extra={...})"),
    Setting("LLM", "interceptor", None, "attempts can be wrapped", "crewlite.around(...)"),
)

_BY_NAME = {(cls, setting.name): setting for setting in SETTINGS for cls in setting.of.split()}


def without_accepted(classes: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the given settings without those that are accepted and ignored.

    `classes` are the names of a class and its bases. Logs a warning for an ignored setting that asks for something.
    """
    kept = {}
    for name, value in given.items():
        setting = setting_of(classes, name)
        if setting is None or not setting.accepts(value):
            kept[name] = value
        elif setting.warns and value:
            log.warning("%s: %s has no effect: %s", classes[0], name, why_not(classes, name))
    return kept


def setting_of(classes: list[str], name: str) -> Setting | None:
    """Return the setting of this name that one of the classes has in CrewAI; None if there is none."""
    return next((found for cls in classes if (found := _BY_NAME.get((cls, name)))), None)


def settings_of(classes: list[str]) -> list[str]:
    """Return the names of the settings that one of the classes has in CrewAI, without those that CrewAI ignores."""
    return [name for cls, name in _BY_NAME if cls in classes and name.islower()]  # see _CAPITALS


def why_not(classes: list[str], name: str) -> str:
    """Return the text for an error about such a field: what crewlite does, and what to write; "" for other fields."""
    setting = setting_of(classes, name)
    if setting is None:
        return ""
    return f"{setting.here}; instead: {setting.instead}" if setting.instead else setting.here


_ELSEWHERE: dict[str, str] = {
    "llm": "model model_name llm_model chat_model model_id",
    "model": "model_name model_id deployment_name engine",
    "backstory": "instructions system_prompt system_message persona",
    "description": "prompt instructions instruction desc",
    "tools": "functions toolkit",
    "max_iter": "max_iterations max_turns max_steps recursion_limit max_loops",
    "max_retry_limit": "max_retries retries max_attempts",
    "max_retries": "num_retries",
    "retries": "max_retries max_attempts max_tries attempts",
    "retry_delay": "retry_delay_seconds interval_seconds backoff retry_backoff",
    "failure_policy": "retry_policy on_failure on_error retries max_retries max_attempts max_tries",
    "timeout": "time_limit deadline timeout_seconds request_timeout start_to_close_timeout",
    "max_execution_time": "timeout time_limit deadline timeout_seconds",
    "max_cost_usd": "budget max_cost max_budget cost_limit",
    "max_tokens": "max_output_tokens max_completion_tokens token_limit",
    "max_concurrency": "max_workers concurrency parallelism max_parallel",
    "output_pydantic": "output_type output_schema result_type response_format",
    "response_format": "output_type output_schema result_type response_model",
    "args_schema": "input_schema parameters",
    "temperature": "temp",
    "base_url": "api_base endpoint",
    "checkpoint": "checkpointer persist persistence store storage durable",
    "location": "path directory db_path connection_string database_url",
    "max_checkpoints": "keep keep_last retention",
    "run_id": "thread_id session_id workflow_id",
    "messages": "message prompt question query input inputs text user_message",
    "inputs": "input_data params parameters arguments",
    "requires_approval": "needs_approval human_approval",
    "human_input": "human_in_the_loop",
    "step_callback": "on_step",
    "callback": "on_complete",
    "emit": "paths",
}
"""Names of other frameworks by the name here."""


def same_here(name: str, known: Iterable[str]) -> str | None:
    """Return the name among `known` for what other frameworks call `name`; None if there is none."""
    there = set(known)
    return next((own for own, names in _ELSEWHERE.items() if own in there and name.lower() in names.split()), None)
