"""Modules, classes and methods of CrewAI that crewlite lacks, and what to write instead.

Each line states a fact about this release. If crewlite has nothing in place of a name, its line only says so.
"""

from __future__ import annotations

_KNOWN = "what a run should know goes into its inputs, or is looked up by a tool"
_FEEDBACK = "a run without a terminal waits by itself: kickoff(answers=...) answers it"
_FAILURE = "a tool that cannot do its work raises an error, which the model is told; BaseTool(failure_policy=...)"
_CHAT = "agent.kickoff(text, run_id=...) continues a conversation"
_SKILLS = "agents have tools: Agent(tools=[...])"
_MCP = "tools of an MCP client, such as LangChain's adapters, go into Agent(tools=[...])"
_HOOKS = (
    "@event_bus.on(LLMCallCompletedEvent), or of another event, looks at calls; a BaseLLM or BaseTool of your own "
    "changes what goes in and out; with crewlite.around(hook): wraps attempts; a guard refuses a call"
)
_STREAM = "the events of a run, as they happen: flow.stream(...), with for or async for"
_STATE = "what a run should know is kept in its state"
_INSIDE = "it is a part of CrewAI's own works, and nothing stands for it"
_STEPS = "steps of an agent: from crewlite.agents.parser import AgentAction, AgentFinish"
_DELEGATING = "who may delegate has tools for it: Agent(allow_delegation=True)"
_SENT = "nothing is sent to anybody; @event_bus.on(BaseEvent) hears all that happens"
_FILES = "Crew.from_yaml(...) makes a crew of its files"
_CALLS = "a tool is called by crewlite alone; events tell of it: from crewlite.events import ToolUsageStartedEvent"
_DECLARED = "a flow is a class of your own, class MyFlow(Flow), or a function with @flow"
_PICTURE = "flow.plot(filename, run_id=...) writes the page, flow.mermaid() the text; MyFlow.graph is the graph as data"
_PROVIDER = "every provider is asked with LLM('provider/model')"
_RETRIED = "LLM(max_retries=...), or a failure_policy"
_HANDLERS = "handlers of an event are called in the order in which they subscribed"
_SHAPED = "Task(output_pydantic=...) has an answer in that shape, and tells the model what does not fit"
_TEMPLATES = "prompts are crewlite's; Agent(system_template=..., prompt_template=...) puts them into other words"
_ANY = "handlers of BaseEvent hear every event: @event_bus.on(BaseEvent)"
_SIGNALS = "each signal has its event: from crewlite.events import SigTermEvent, SigIntEvent"
_CHUNKS = (
    "LLMStreamChunkEvent.chunk is the text of a piece; a reply has text and tool_calls: from crewlite import LLMReply"
)

IMPORTS: dict[str, str] = {
    "load_crew": _FILES,
    "load_agent": "Agent(config=...) takes the fields of a file",
    "EnvVar": "a tool reads the environment itself",
    "ToolFailure": _FAILURE,
    "ToolExecutionFailedError": _FAILURE,
    "ToolUsageLimitExceededError": "a call beyond BaseTool(max_usage_count=...) is refused, which the model is told",
    "HumanFeedbackPending": _FEEDBACK,
    "HumanFeedbackProvider": _FEEDBACK,
    "PendingFeedbackContext": _FEEDBACK,
    "ConsoleProvider": _FEEDBACK,
    "InputProvider": _FEEDBACK,
    "InputResponse": _FEEDBACK,
    "AgentMessage": _CHAT,
    "ChatState": _CHAT,
    "Conversation": _CHAT,
    "RouterConfig": _CHAT,
    "Knowledge": _KNOWN,
    "Memory": _KNOWN,
    "MCP": _MCP,
    "Skill": _SKILLS,
    "A2A": "a tool asks the other agent",
    "LiteAgent": "an agent works alone with Agent(...).kickoff(text)",
    "CrewAgentExecutor": _STEPS,
    "AgentExecutor": _STEPS,
    "CacheHandler": "a tool says itself which results are used again: BaseTool(cache_function=...)",
    "ToolsHandler": _CALLS,
    "OutputParserError": _INSIDE,
    "Entity": _INSIDE,
    "ExecutionContext": _INSIDE,
    "CheckpointEventType": "from crewlite.events import CheckpointEventType",
    "CrewTrainingHandler": "crew.train(...) writes a JSON file that Crew(trained_agents_file=...) reads",
    "Depends": _HANDLERS,
    "CircularDependencyError": _HANDLERS,
    "PlanStep": "each step of a plan is looked at: StepObservationStartedEvent, StepObservationCompletedEvent",
    "CheckpointBaseEvent": _ANY,
    "CheckpointForkBaseEvent": _ANY,
    "CheckpointRestoreBaseEvent": _ANY,
    **dict.fromkeys(("CrewBaseEvent", "FlowEvent", "LLMEventBase", "LLMGuardrailBaseEvent", "ObservationEvent"), _ANY),
    "ContextWindowSummarizationEvent": _ANY,
    "ReasoningEvent": _ANY,
    "ToolUsageEvent": _ANY,
    "FlowPersistence": "a store of your own is a provider: CheckpointConfig(provider=...)",
    "FlowStructure": _PICTURE,
    "build_flow_structure": _PICTURE,
    "visualize_flow_structure": _PICTURE,
    "flow_config": _INSIDE,
    "Expression": _DECLARED,
    "FlowMeta": _INSIDE,
    "HumanFeedbackCollapseError": _FEEDBACK,
    **dict.fromkeys(("AgentDefinition", "CrewAgentDefinition", "CrewDefinition", "CrewTaskDefinition"), _FILES),
    "PythonReferenceDefinition": _FILES,
    "strip_jsonc_comments": _INSIDE,
    "OutputFormat": "an output has what it was asked for: output.pydantic, output.json_dict, output.raw",
    "LLMGuardrailResult": "a guardrail returns (True, value) or (False, reason)",
    "RPMController": "max_rpm=... of a crew, a task or an agent",
    "Printer": "progress is shown with verbose=True",
    "Logger": "progress is shown with verbose=True; the loggers are named crewlite",
    "FileHandler": "Crew(output_log_file=...) writes a log",
    "Converter": _SHAPED,
    "InternalInstructor": _SHAPED,
    "LLMContextLengthExceededError": "from crewlite.errors import ContextOverflow",
    **dict.fromkeys(("SignalType", "on_signal"), _SIGNALS),
    **dict.fromkeys(("Delta", "StreamingChoices", "FunctionArgs", "AccumulatedToolArgs"), _CHUNKS),
    "FunctionCall": "a call of a tool has its name and its arguments: from crewlite import ToolCall",
    "LLMCallType": "LLMCallCompletedEvent.call_type is 'llm_call' or 'tool_call'",
    "is_replaying": "a recorded step that is used again emits StepReplayedEvent",
    **dict.fromkeys(("I18N", "Prompts"), _TEMPLATES),
}
"""By name, or by how a name begins. The longest beginning counts."""
MODULES: dict[str, str] = {
    "a2a": "a tool asks the other agent",
    "agent.internal": _INSIDE,
    "agent.utils": _INSIDE,
    "agents.agent_adapters": "a tool, or a BaseLLM of your own, asks an agent of another framework",
    "agents.agent_builder": _INSIDE,
    "agents.agent_executor": _STEPS,
    "agents.cache": "a tool says itself which results are used again: BaseTool(cache_function=...)",
    "agents.constants": _INSIDE,
    "agents.crew_agent_executor": _STEPS,
    "agents.planner_observer": "Agent(planning=True) carries a plan out and looks at each step",
    "agents.step_executor": "Agent(planning=True) carries a plan out and looks at each step",
    "agents.tools_handler": _CALLS,
    "auth": _SENT,
    "cli": "the command is crewlite: crewlite --help",
    "constants": _INSIDE,
    "context": _SENT,
    "core": "people answer in the terminal, or later: kickoff(answers=...)",
    "crews.utils": _INSIDE,
    "events.depends": _HANDLERS,
    "events.event_context": _INSIDE,
    "events.event_listener": "a listener is a subclass of crewlite.events.BaseEventListener",
    "events.event_types": "events: from crewlite.events import EventType",
    "events.handler_graph": _HANDLERS,
    "events.listeners": _SENT,
    "events.stream_context": _STREAM,
    "events.types.a2a_events": "a tool asks the other agent",
    "events.types.env_events": _SENT,
    "events.types.event_bus_types": _INSIDE,
    "events.types.hook_events": _HOOKS,
    "events.types.knowledge_events": _KNOWN,
    "events.types.mcp_events": _MCP,
    "events.types.memory_events": _KNOWN,
    "events.types.skill_events": _SKILLS,
    "events.utils": "progress is shown with verbose=True",
    "execution": "each run has an id: kickoff(run_id=...)",
    "experimental": _CHAT,
    "flow.async_feedback": _FEEDBACK,
    "flow.constants": _INSIDE,
    "flow.conversation": _CHAT,
    "flow.conversational": _CHAT,
    "flow.conversational_definition": _CHAT,
    "flow.conversational_mixin": _CHAT,
    "flow.expressions": _DECLARED,
    "flow.flow_config": _INSIDE,
    "flow.flow_context": _INSIDE,
    "flow.flow_definition": _DECLARED,
    "flow.flow_trackable": _INSIDE,
    "flow.flow_wrappers": _INSIDE,
    "flow.input_provider": _FEEDBACK,
    "flow.persistence": "a store of your own is a provider: CheckpointConfig(provider=...)",
    "flow.skill": _SKILLS,
    "flow.types": _INSIDE,
    "flow.visualization": _PICTURE,
    "hooks": _HOOKS,
    "knowledge": _KNOWN,
    "llm_overlay": _PROVIDER,
    "llms.cache": _PROVIDER,
    "llms.constants": _PROVIDER,
    "llms.context_window": "what no longer fits is summarised: Agent(respect_context_window=True)",
    "llms.hooks": _HOOKS,
    "llms.providers": _PROVIDER,
    "llms.retry": _RETRIED,
    "llms.third_party": _PROVIDER,
    "mcp": _MCP,
    "memory": _KNOWN,
    "mypy": "the types of crewlite need no plugin",
    "plus_api": _SENT,
    "project.crew_definition": _FILES,
    "project.crew_loader": _FILES,
    "project.json_loader": _FILES,
    "project.utils": _INSIDE,
    "project.wrappers": _INSIDE,
    "rag": _KNOWN,
    "security": "a crew is known by its name, a run by its run_id; secrets are never written",
    "settings": "settings stand where they are used: Crew(...), Agent(...), CheckpointConfig(...)",
    "skills": _SKILLS,
    "state.checkpoint_listener": _INSIDE,
    "state.event_record": "the events of a run: History(location).run(run_id).events()",
    "state.provider.utils": "a provider follows from CheckpointConfig(location=...)",
    "tasks.hallucination_guardrail": "a model judges by a rule: Task(guardrail='...'), or LLMGuardrail(...)",
    "tasks.output_format": "an output has what it was asked for: output.pydantic, output.json_dict, output.raw",
    "telemetry": "there is no telemetry, so there is nothing to switch off",
    "tools.agent_tools": _DELEGATING,
    "tools.cache_tools": "a tool says itself which results are used again: BaseTool(cache_function=...)",
    "tools.mcp_native_tool": _MCP,
    "tools.mcp_tool_wrapper": _MCP,
    "tools.memory_tools": _KNOWN,
    "tools.tool_calling": _CALLS,
    "tools.tool_failure": _FAILURE,
    "tools.tool_types": _CALLS,
    "tools.tool_usage": _CALLS,
    "types.callback": _INSIDE,
    "types.crew_chat": _CHAT,
    "types.streaming": "a crew, agent or flow streams the events of a run: crew.stream(...)",
    "types.utils": _INSIDE,
    "utilities": "events: from crewlite.events import ...; the bus: from crewlite import event_bus; nothing else",
    "utilities.evaluators": "crew.test(...) scores answers, and crew.train(...) learns from feedback",
    "utilities.exceptions": "errors: from crewlite.errors import ContextOverflow, or another one",
    **dict.fromkeys(("utilities.i18n", "utilities.prompts"), _TEMPLATES),
    "utilities.paths": "runs are kept where CheckpointConfig(location=...) says",
    "version": "crewlite.__version__",
}
"""By path, without `crewlite.`; also for what is below it."""
_NAMED = "a crew is known by its name, a run by its run_id"
_CHECKPOINTS = "what a checkpoint holds: History(location).checkpoint(ref)"
_RUN: dict[str, str] = {
    "replay": "fork a checkpoint: crew.fork(ref).kickoff(), or crewlite checkpoint fork",
    "plot": "flows of methods have it; the page of a run: crewlite checkpoint export RUN FILE.html",
    "fetch_inputs": "the names of its placeholders: crew.input_names()",
    "calculate_usage_metrics": "crew.usage_metrics after a kickoff, or token_usage of its result",
    "execution_logs": "the events of a run: History(location).run(run_id).events()",
    "task_execution_output_json_files": "the outputs of tasks: result.tasks_output",
    "query_knowledge": _KNOWN,
    "aquery_knowledge": _KNOWN,
    "create_crew_knowledge": _KNOWN,
    "create_crew_memory": _KNOWN,
    "reset_knowledge": _KNOWN,
    "reset_memories": "there is no memory, so there is nothing to reset",
    "execution_context": _CHECKPOINTS,
    "checkpoint_inputs": _CHECKPOINTS,
    "checkpoint_train": _CHECKPOINTS,
    "checkpoint_kickoff_event_id": _CHECKPOINTS,
    "entity_type": _INSIDE,
    **dict.fromkeys(("id", "key", "fingerprint"), _NAMED),
}
_TIMES = "the times of its steps: History(location).run(run_id).steps"
_TOOL_CALLS = "calls of tools are steps: History(location).run(run_id).steps"
_TASK: dict[str, str] = {
    **dict.fromkeys(("id", "key", "fingerprint"), "a task is known by its name"),
    **dict.fromkeys(("start_time", "end_time", "execution_duration"), _TIMES),
    **dict.fromkeys(("used_tools", "tools_errors", "delegations", "processed_by_agents"), _TOOL_CALLS),
    **dict.fromkeys(("increment_tools_errors", "increment_delegations"), _TOOL_CALLS),
    "retry_count": "attempts are recorded: History(location).run(run_id).attempts",
    "execute": "task.execute_sync(), or a crew: Crew(tasks=[task]).kickoff()",
    "execute_async": "a task runs in a crew: await Crew(tasks=[task]).akickoff()",
    "aexecute_sync": "a task runs in a crew: await Crew(tasks=[task]).akickoff()",
    "prompt": "what its model was asked: History(location).run(run_id).prompt(address)",
    "interpolate_inputs_and_add_conversation_history": "a kickoff fills in its inputs, and changes no task",
    "checkpoint_original_description": "a kickoff fills in its inputs, and changes no task",
    "checkpoint_original_expected_output": "a kickoff fills in its inputs, and changes no task",
    "logger": "the loggers are named crewlite",
}
_PARTS = "a crew gives an agent what it needs when it is kicked off"
_AGENT: dict[str, str] = {
    **dict.fromkeys(("id", "key", "fingerprint", "set_fingerprint"), "an agent is known by its role"),
    **dict.fromkeys(("agent_executor", "executor_class", "create_agent_executor", "cache_handler", "i18n"), _INSIDE),
    **dict.fromkeys(("tools_handler", "set_cache_handler", "set_rpm_controller", "crew", "adapted_agent"), _PARTS),
    **dict.fromkeys(("knowledge_storage", "set_knowledge", "agent_knowledge_context"), _KNOWN),
    **dict.fromkeys(("crew_knowledge_context", "knowledge_search_query"), _KNOWN),
    **dict.fromkeys(("get_delegation_tools",), _DELEGATING),
    **dict.fromkeys(("get_platform_tools", "get_mcp_tools", "set_skills", "get_code_execution_tools"), _SKILLS),
    "get_multimodal_tools": "Agent(multimodal=True) looks at pictures",
    "get_output_converter": _SHAPED,
    "interpolate_inputs": "a kickoff fills in its inputs, and changes no agent",
    "planning_enabled": "agent.planning, or agent.planning_config",
    "aexecute_task": "a task runs in a crew: await Crew(tasks=[task]).akickoff()",
    "message": "await agent.akickoff(text)",
    "last_messages": "what its model was asked: History(location).run(run_id).prompt(address)",
    "tools_results": _TOOL_CALLS,
    "last_tool_failures": _TOOL_CALLS,
    "reset_tool_failures": _TOOL_CALLS,
    "use_better_compaction": "what no longer fits is summarised: Agent(respect_context_window=True)",
    "execution_context": _CHECKPOINTS,
    "checkpoint_kickoff_event_id": _CHECKPOINTS,
    "entity_type": _INSIDE,
}
_FLOW: dict[str, str] = {
    "from_declaration": _DECLARED,
    "flow_definition": _DECLARED,
    **dict.fromkeys(("from_pending", "resume", "resume_async", "pending_feedback"), _FEEDBACK),
    **dict.fromkeys(("astream", "stream_events"), _STREAM),
    **dict.fromkeys(("handle_turn", "stream_turn", "chat"), _CHAT),
    "method_outputs": "what its methods returned are steps of the run: History(location).run(run_id).steps",
    "flow_id": "each run has an id: self.state.id, or self.state['id'] of a mapping",
    "usage_metrics": "a run has its usage: flow.submit().usage, or History(location).run(run_id).usage",
    **dict.fromkeys(("remember", "recall", "extract_memories"), _STATE),
    "reload": "flow.kickoff(run_id=...) goes on with a run",
    **dict.fromkeys(("checkpoint_completed_methods", "checkpoint_method_outputs", "checkpoint_state"), _CHECKPOINTS),
    **dict.fromkeys(("checkpoint_method_counts", "execution_context"), _CHECKPOINTS),
    **dict.fromkeys(("defer_trace_finalization", "is_crewai_internal", "entity_type"), _INSIDE),
}
_HANDED_ON = "LLM(...) takes it by name, and has it in llm.extra"
_WINDOW = "what no longer fits is summarised: Agent(respect_context_window=True)"
_OF_LLM: dict[str, str] = {
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "n", "logit_bias", "logprobs"), _HANDED_ON),
    **dict.fromkeys(("top_logprobs", "max_completion_tokens", "thinking", "additional_params"), _HANDED_ON),
    **dict.fromkeys(("get_context_window_size", "context_window_size", "summarize_messages"), _WINDOW),
    "is_context_window_overflowing_threshold": _WINDOW,
    "is_tool_result_overflowing_threshold": "Agent(max_tool_output=...) says how much of a result a model is shown",
    **dict.fromkeys(("set_callbacks", "set_env_callbacks"), "calls are events: @event_bus.on(LLMCallCompletedEvent)"),
    **dict.fromkeys(
        ("get_input_tokens_count", "get_token_usage_summary"), "a result has its usage: result.token_usage"
    ),
    **dict.fromkeys(("llm_type", "is_litellm"), _PROVIDER),
    "is_anthropic": "a model is known by its name: llm.model",
    "completion_cost": "a result has its cost: result.token_usage.cost",
    "api_base": "llm.base_url",
    "stop_sequences": "llm.stop",
    "to_config_dict": "llm.plain_settings()",
    "stream_events": "LLM(stream=True), and a crew, agent or flow streams the events of a run: agent.stream(text)",
    "supports_function_calling": "llm.tool_protocol is 'native' or 'text'",
    "supports_stop_words": "texts in llm.stop go to the model",
    **dict.fromkeys(
        ("prefer_upload", "get_file_uploader"), "files are of tasks, crews and agents: Task(input_files=...)"
    ),
    "format_text_content": _INSIDE,
}
_COUNTED = "each run counts the calls of its tools: BaseTool(max_usage_count=...)"
_TOOL: dict[str, str] = {
    **dict.fromkeys(("current_usage_count", "reset_usage_count", "has_reached_max_usage_count"), _COUNTED),
    "format_output_for_agent": "the model is given what a tool returns; a pydantic object as JSON",
    "formatted_description": "how a model is told of it: tool.schema_for_model",
    "description_updated": "a description stays as it is; how a model is told of it: tool.schema_for_model",
    "args": "tool.takes has the names of its arguments, tool.arguments the model that checks them",
    "invoke": "tool.run(query=...)",
    "ainvoke": "await tool.arun(query=...)",
    "tool_type": "a tool is known by its name",
    "to_structured_tool": "a tool is used as it is: tools=[tool]",
}
_ASKED = "what its model was asked: History(location).run(run_id).prompt(address)"
_FAILED = dict.fromkeys(("tool_failures", "has_tool_failures"), _TOOL_CALLS)
_PLAN = "plans and what came of them are steps: History(location).run(run_id).steps"
_ANSWER: dict[str, str] = {
    **_FAILED,
    **dict.fromkeys(("plan", "had_plan", "replan_count", "last_replan_reason", "from_todo_items"), _PLAN),
    **dict.fromkeys(("todos", "completed_todos", "failed_todos"), _PLAN),
    "messages": _ASKED,
    "to_dict": "result.pydantic.model_dump()",
}
_OF_USAGE: dict[str, str] = {
    "add_usage_metrics": "usages are added up: usage + other",
    "delta_since": "the usage of a part of a run: History(location).run(run_id).usage_of(address)",
    "from_provider_dict": "LLMReply(usage=Usage(prompt_tokens=..., completion_tokens=...))",
    "cache_creation_tokens": "they are among prompt_tokens",
}
_BUS: dict[str, str] = {
    **dict.fromkeys(("runtime_state", "set_runtime_state", "reset_runtime_state", "register_entity"), _INSIDE),
    "aemit": "event_bus.emit(source, event), in async code too",
    "register_handler": "event_bus.on(TaskCompletedEvent, handler)",
    "replay": "the events of a run: History(location).run(run_id).events()",
    "shutdown": "event_bus.flush() waits for handlers, and the end of the process does too",
    "validate_dependencies": _HANDLERS,
}
_PLACE = "where it happened: event.address, event.source_name and event.parent_event_id"
_OF_EVENTS: dict[str, str] = {
    **dict.fromkeys(("task", "task_id", "from_task"), "TaskStartedEvent has the task; others: event.address"),
    **dict.fromkeys(("agent", "agent_id", "agent_key", "from_agent", "agent_info"), "event.agent_role"),
    **dict.fromkeys(("source_fingerprint", "source_type", "fingerprint_metadata", "task_name", "call_id"), _PLACE),
    **dict.fromkeys(("previous_event_id", "triggered_by_event_id", "emission_sequence"), _PLACE),
    "state": "a handler takes the state as a third argument: def handler(source, event, state)",
    "messages": "LLMCallStartedEvent has them",
    **dict.fromkeys(("temperature", "top_p", "max_tokens", "stream", "seed", "stop_sequences"), "event.source has it"),
    **dict.fromkeys(("run_attempts", "delegations", "failure", "retry_count"), _TOOL_CALLS),
}
MEMBERS: dict[str, dict[str, str]] = {
    "BaseEvent": _OF_EVENTS,
    "EventBus": _BUS,
    "ConditionalTask": {
        "should_execute": "task.condition(output)",
        "get_skipped_task_output": "the output of a task that was left out has output.skipped",
    },
    "CheckpointConfig": dict.fromkeys(("trigger_all", "trigger_events"), "config.on_events"),
    "Crew": _RUN,
    "Task": _TASK,
    "Agent": _AGENT,
    "Flow": _FLOW,
    "BaseLLM": _OF_LLM,
    "BaseTool": _TOOL,
    "CrewOutput": _FAILED,
    "LiteAgentOutput": _ANSWER,
    "Usage": _OF_USAGE,
    "TaskOutput": {
        **_FAILED,
        "messages": _ASKED,
        "output_format": "it has what it was asked for: output.pydantic, output.json_dict, output.raw",
    },
}
"""Methods and fields by class."""
