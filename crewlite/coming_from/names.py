"""Modules, classes and methods of CrewAI that crewlite lacks, and what to write instead.

Each entry states a fact about this release, and then all names that it is told of. If crewlite has nothing in place of
a name, the fact only says so.
"""

from __future__ import annotations

from collections.abc import Mapping

_KNOWN = "what a run should remember goes into its inputs, or is looked up by a tool"
_SEARCHED = "passages of knowledge are found by their words, without a store: Agent(knowledge_sources=[...])"
_QUERY = "what is found for a text: Knowledge(sources=[...]).query(text)"
_LOADS = "a subclass of KnowledgeSource returns the texts of other files from load_content, as in docs/knowledge.md"
_FEEDBACK = "a run without a terminal waits by itself: kickoff(answers=...) answers it"
_FAILURE = "a tool that cannot do its work raises an error, which the model is told; BaseTool(failure_policy=...)"
_CHAT = "agent.kickoff(text, run_id=...) continues a conversation"
_SKILLS = "agents have tools: Agent(tools=[...])"
_MCP = "tools of an MCP client, such as LangChain's adapters, go into Agent(tools=[...])"
_HOOKS = (
    "a handler looks at calls, @event_bus.on(LLMCallCompletedEvent) or ToolUsageStartedEvent; a guard refuses them, "
    "FailurePolicy(guards=[...]); a BaseLLM or BaseTool of your own changes what goes in and out; with "
    "crewlite.around(hook): wraps attempts"
)
_STREAM = "the events of a run, as they happen: flow.stream(...), with for or async for"
_INSIDE = "it is a part of CrewAI's own works, and nothing stands for it"
_STEPS = "steps of an agent: from crewlite.agents.parser import AgentAction, AgentFinish"
_DELEGATING = "who may delegate has tools for it: Agent(allow_delegation=True)"
_FILES = "load_crew(...) makes a crew of JSON files, Crew.from_yaml(...) of YAML files"
_CALLS = "a tool is called by crewlite alone; events tell of it: from crewlite.events import ToolUsageStartedEvent"
_DECLARED = "a flow is a class of your own, class MyFlow(Flow), or a function with @flow"
_PICTURE = "flow.plot(filename, run_id=...) writes the page, flow.mermaid() the text; MyFlow.graph is the graph as data"
_PROVIDER = "every provider is asked with LLM('provider/model')"
_HANDLERS = "handlers of an event are called in the order in which they subscribed"
_SHAPED = "Task(output_pydantic=...) has an answer in that shape, and tells the model what does not fit"
_TEMPLATES = "prompts are crewlite's; Agent(system_template=..., prompt_template=...) puts them into other words"
_GUARDRAIL = "a guardrail returns (True, value) or (False, reason)"
_PACE = "max_rpm=... of a crew, a task or an agent"
_PROGRESS = "progress is shown with verbose=True; the loggers are named crewlite"
_LOG_FILE = "Crew(output_log_file=...) writes a log"
_TRIALS = "crew.test(...) scores answers, and crew.train(...) learns from feedback"
_STREAMS = "a crew, agent or flow streams the events of a run: crew.stream(...), with .text() and .result"
_CHUNKS = (
    "LLMStreamChunkEvent.chunk is the text of a piece; a reply has text and tool_calls: from crewlite import LLMReply"
)
_CHECKPOINTS = "what a checkpoint holds: History(location).checkpoint(ref)"
_TOOL_CALLS = "calls of tools are steps: History(location).run(run_id).steps"
_WINDOW = "what no longer fits is summarised: Agent(respect_context_window=True)"
_ASKED = "what its model was asked: History(location).run(run_id).prompt(address)"


def _by_name(facts: Mapping[str, str]) -> dict[str, str]:
    return {name: fact for fact, names in facts.items() for name in names.split()}


IMPORTS = _by_name(
    {
        _FILES: "AgentDefinition CrewAgentDefinition CrewDefinition CrewTaskDefinition PythonReferenceDefinition",
        "Agent(config=...) takes the fields of a file": "load_agent",
        _FAILURE: "ToolFailure ToolExecutionFailedError",
        "a call beyond BaseTool(max_usage_count=...) is refused, which the model is told": (
            "ToolUsageLimitExceededError"
        ),
        _FEEDBACK: "HumanFeedbackPending HumanFeedbackProvider PendingFeedbackContext ConsoleProvider InputProvider "
        "InputResponse HumanFeedbackCollapseError",
        _CHAT: "AgentMessage ChatState Conversation RouterConfig",
        _KNOWN: "Memory",
        _SEARCHED: "KnowledgeStorage BaseKnowledgeStorage",
        "no model words the query: KnowledgeRetrievalCompletedEvent has it": (
            "KnowledgeEventBase KnowledgeQuery KnowledgeSearchQuery"
        ),
        _MCP: "MCP",
        _SKILLS: "Skill",
        "a tool asks the other agent": "A2A",
        "an agent works alone with Agent(...).kickoff(text)": "LiteAgent",
        _STEPS: "CrewAgentExecutor AgentExecutor",
        "a tool says itself which results are used again: BaseTool(cache_function=...)": "CacheHandler",
        _CALLS: "ToolsHandler",
        _INSIDE: "OutputParserError Entity ExecutionContext flow_config FlowMeta strip_jsonc_comments",
        "from crewlite.events import CheckpointEventType": "CheckpointEventType",
        "crew.train(...) writes a JSON file that Crew(trained_agents_file=...) reads": "CrewTrainingHandler",
        _HANDLERS: "Depends CircularDependencyError",
        "each step of a plan is looked at: StepObservationStartedEvent, StepObservationCompletedEvent": "PlanStep",
        "handlers of BaseEvent hear every event: @event_bus.on(BaseEvent)": (
            "CheckpointBaseEvent CheckpointForkBaseEvent CheckpointRestoreBaseEvent CrewBaseEvent FlowEvent "
            "LLMEventBase LLMGuardrailBaseEvent ObservationEvent ContextWindowSummarizationEvent ReasoningEvent "
            "ToolUsageEvent"
        ),
        "a store of your own is a provider: CheckpointConfig(provider=...)": "FlowPersistence",
        _PICTURE: "FlowStructure build_flow_structure visualize_flow_structure",
        _DECLARED: "Expression",
        "an output has what it was asked for: output.pydantic, output.json_dict, output.raw": "OutputFormat",
        _GUARDRAIL: "LLMGuardrailResult",
        _PACE: "RPMController",
        _PROGRESS: "Logger Printer",
        _LOG_FILE: "FileHandler",
        _SHAPED: "Converter InternalInstructor",
        "from crewlite.errors import ContextOverflow": "LLMContextLengthExceeded",
        "each signal has its event: from crewlite.events import SigTermEvent, SigIntEvent": "SignalType on_signal",
        _CHUNKS: "Delta StreamingChoices FunctionArgs AccumulatedToolArgs",
        "a call of a tool has its name and its arguments: from crewlite import ToolCall": "FunctionCall",
        "LLMCallCompletedEvent.call_type is 'llm_call' or 'tool_call'": "LLMCallType",
        "a recorded step that is used again emits StepReplayedEvent": "is_replaying",
        _TEMPLATES: "I18N Prompts",
    }
)
"""By name, or by how a name begins. The longest beginning counts."""
MODULES = _by_name(
    {
        "a tool asks the other agent": "a2a events.types.a2a_events",
        _INSIDE: "agent.internal agent.utils agents.agent_builder agents.constants constants crews.utils "
        "events.event_context events.types.event_bus_types flow.constants flow.flow_config flow.flow_context "
        "flow.flow_trackable flow.flow_wrappers flow.types project.utils project.wrappers state.checkpoint_listener "
        "types.callback types.utils utilities",
        "a tool, or a BaseLLM of your own, asks an agent of another framework": "agents.agent_adapters",
        _STEPS: "agents.agent_executor agents.crew_agent_executor",
        "a tool says itself which results are used again: BaseTool(cache_function=...)": (
            "agents.cache tools.cache_tools"
        ),
        "Agent(planning=True) carries a plan out and looks at each step": (
            "agents.planner_observer agents.step_executor"
        ),
        _CALLS: "agents.tools_handler tools.tool_calling tools.tool_types tools.tool_usage",
        "nothing is sent to anybody; @event_bus.on(BaseEvent) hears all that happens": (
            "auth context events.listeners events.types.env_events plus_api"
        ),
        "the command is crewlite: crewlite --help": "cli",
        "people answer in the terminal, or later: kickoff(answers=...)": "core",
        _HANDLERS: "events.depends events.handler_graph",
        "a listener is a subclass of crewlite.events.BaseEventListener": "events.event_listener",
        "events: from crewlite.events import EventType": "events.event_types",
        _STREAM: "events.stream_context",
        _HOOKS: "events.types.hook_events hooks llms.hooks",
        _KNOWN: "events.types.memory_events memory tools.memory_tools",
        _SEARCHED: "knowledge.storage knowledge.utils rag",
        _LOADS: "knowledge.source.utils",
        _MCP: "events.types.mcp_events mcp tools.mcp_native_tool tools.mcp_tool_wrapper",
        _SKILLS: "events.types.skill_events flow.skill skills",
        _PROGRESS: "events.utils utilities.logger utilities.printer",
        "each run has an id: kickoff(run_id=...)": "execution",
        f"{_CHAT}; {_TRIALS}": "experimental",
        _CHAT: "flow.conversation flow.conversational flow.conversational_definition "
        "flow.conversational_mixin types.crew_chat",
        _FEEDBACK: "flow.async_feedback flow.input_provider",
        _DECLARED: "flow.expressions flow.flow_definition",
        "a store of your own is a provider: CheckpointConfig(provider=...)": "flow.persistence",
        _PICTURE: "flow.visualization",
        _PROVIDER: "llm_overlay llms.cache llms.constants llms.providers llms.third_party",
        _WINDOW: "llms.context_window",
        "LLM(max_retries=...), or a failure_policy": "llms.retry",
        "the types of crewlite need no plugin": "mypy",
        _FILES: "project.crew_definition project.json_loader",
        "a crew is known by its name, a run by its run_id; secrets are never written": "security",
        "settings stand where they are used: Crew(...), Agent(...), CheckpointConfig(...)": "settings",
        "the events of a run: History(location).run(run_id).events()": "state.event_record",
        "a provider follows from CheckpointConfig(location=...)": "state.provider.utils",
        "a model judges by a rule: Task(guardrail='...'), or LLMGuardrail(...)": "tasks.hallucination_guardrail",
        "an output has what it was asked for: output.pydantic, output.json_dict, output.raw": "tasks.output_format",
        "there is no telemetry, so there is nothing to switch off": "telemetry",
        _DELEGATING: "tools.agent_tools",
        _FAILURE: "tools.tool_failure",
        _STREAMS: "utilities.streaming",
        "events: from crewlite.events import ...; the bus: from crewlite import event_bus": "utilities.events",
        _TRIALS: "utilities.evaluators utilities.training_handler",
        _SHAPED: "utilities.converter utilities.internal_instructor utilities.pydantic_schema_parser",
        _GUARDRAIL: "utilities.guardrail utilities.guardrail_types",
        _PACE: "utilities.rpm_controller",
        _LOG_FILE: "utilities.file_handler",
        "errors: from crewlite.errors import ContextOverflow, or another one": "utilities.exceptions",
        _TEMPLATES: "utilities.i18n utilities.prompts",
        "runs are kept where CheckpointConfig(location=...) says": "utilities.paths",
        "crewlite.__version__": "version",
    }
)
"""By path, without `crewlite.`; also for what is below it."""
_MEMBERS: dict[str, dict[str, str]] = {
    "BaseEvent": {
        "TaskStartedEvent has the task; others: event.address": "task task_id from_task",
        "event.agent_role": "agent agent_id agent_key from_agent agent_info",
        "where it happened: event.address, event.source_name and event.parent_event_id": (
            "source_fingerprint source_type fingerprint_metadata task_name call_id previous_event_id "
            "triggered_by_event_id emission_sequence"
        ),
        "a handler takes the state as a third argument: def handler(source, event, state)": "state",
        "LLMCallStartedEvent has them": "messages",
        "event.source has it": "temperature top_p max_tokens stream seed stop_sequences",
        _TOOL_CALLS: "run_attempts delegations failure retry_count",
    },
    "EventBus": {
        _INSIDE: "runtime_state set_runtime_state reset_runtime_state register_entity",
        "event_bus.emit(source, event), in async code too": "aemit",
        "event_bus.on(TaskCompletedEvent, handler)": "register_handler",
        "the events of a run: History(location).run(run_id).events()": "replay",
        "event_bus.flush() waits for handlers, and the end of the process does too": "shutdown",
        _HANDLERS: "validate_dependencies",
    },
    "ConditionalTask": {
        "task.condition(output)": "should_execute",
        "the output of a task that was left out has output.skipped": "get_skipped_task_output",
    },
    "CheckpointConfig": {"config.on_events": "trigger_all trigger_events"},
    "Crew": {
        "fork a checkpoint: crew.fork(ref).kickoff(), or crewlite checkpoint fork": "replay",
        "flows of methods have it; the page of a run: crewlite checkpoint export RUN FILE.html": "plot",
        "the names of its placeholders: crew.input_names()": "fetch_inputs",
        "crew.usage_metrics after a kickoff, or token_usage of its result": "calculate_usage_metrics",
        "the events of a run: History(location).run(run_id).events()": "execution_logs",
        "the outputs of tasks: result.tasks_output": "task_execution_output_json_files",
        _KNOWN: "create_crew_memory",
        _SEARCHED: "create_crew_knowledge reset_knowledge",
        _QUERY: "query_knowledge aquery_knowledge",
        "there is no memory, so there is nothing to reset": "reset_memories",
        _CHECKPOINTS: "execution_context checkpoint_inputs checkpoint_train checkpoint_kickoff_event_id",
        _INSIDE: "entity_type",
        "a crew is known by its name, a run by its run_id": "id key fingerprint",
    },
    "Task": {
        "a task is known by its name": "id key fingerprint",
        "the times of its steps: History(location).run(run_id).steps": "start_time end_time execution_duration",
        _TOOL_CALLS: "used_tools tools_errors delegations processed_by_agents increment_tools_errors "
        "increment_delegations",
        "attempts are recorded: History(location).run(run_id).attempts": "retry_count",
        "task.execute_sync(), or a crew: Crew(tasks=[task]).kickoff()": "execute",
        "a task runs in a crew: await Crew(tasks=[task]).akickoff()": "execute_async aexecute_sync",
        _ASKED: "prompt",
        "a kickoff fills in its inputs, and changes no task": (
            "interpolate_inputs_and_add_conversation_history checkpoint_original_description "
            "checkpoint_original_expected_output"
        ),
        "the loggers are named crewlite": "logger",
    },
    "Agent": {
        "an agent is known by its role": "id key fingerprint set_fingerprint",
        _INSIDE: "agent_executor executor_class create_agent_executor cache_handler i18n entity_type",
        "a crew gives an agent what it needs when it is kicked off": (
            "tools_handler set_cache_handler set_rpm_controller crew adapted_agent"
        ),
        _SEARCHED: "knowledge_storage set_knowledge knowledge_search_query",
        _QUERY: "agent_knowledge_context crew_knowledge_context",
        _DELEGATING: "get_delegation_tools",
        _SKILLS: "get_platform_tools get_mcp_tools set_skills get_code_execution_tools",
        "Agent(multimodal=True) looks at pictures": "get_multimodal_tools",
        _SHAPED: "get_output_converter",
        "a kickoff fills in its inputs, and changes no agent": "interpolate_inputs",
        "agent.planning, or agent.planning_config": "planning_enabled",
        "a task runs in a crew: await Crew(tasks=[task]).akickoff()": "aexecute_task",
        "await agent.akickoff(text)": "message",
        _ASKED: "last_messages",
        _TOOL_CALLS: "tools_results last_tool_failures reset_tool_failures",
        _WINDOW: "use_better_compaction",
        _CHECKPOINTS: "execution_context checkpoint_kickoff_event_id",
    },
    "Flow": {
        _DECLARED: "from_declaration flow_definition",
        _FEEDBACK: "from_pending resume resume_async pending_feedback",
        _STREAM: "astream stream_events",
        _CHAT: "handle_turn stream_turn chat",
        "what its methods returned are steps of the run: History(location).run(run_id).steps": "method_outputs",
        "each run has an id: self.state.id, or self.state['id'] of a mapping": "flow_id",
        "a run has its usage: flow.submit().usage, or History(location).run(run_id).usage": "usage_metrics",
        "what a run should know is kept in its state": "remember recall extract_memories",
        "flow.kickoff(run_id=...) goes on with a run": "reload",
        _CHECKPOINTS: "checkpoint_completed_methods checkpoint_method_outputs checkpoint_state "
        "checkpoint_method_counts execution_context",
        _INSIDE: "defer_trace_finalization is_crewai_internal entity_type",
    },
    "BaseLLM": {
        "LLM(...) takes it by name, and has it in llm.extra": (
            "frequency_penalty presence_penalty n logit_bias logprobs top_logprobs max_completion_tokens thinking "
            "additional_params"
        ),
        _WINDOW: "get_context_window_size context_window_size summarize_messages "
        "is_context_window_overflowing_threshold",
        "Agent(max_tool_output=...) says how much of a result a model is shown": "is_tool_result_overflowing_threshold",
        "calls are events: @event_bus.on(LLMCallCompletedEvent)": "set_callbacks set_env_callbacks",
        "a result has its usage: result.token_usage": "get_input_tokens_count get_token_usage_summary",
        _PROVIDER: "llm_type is_litellm",
        "a model is known by its name: llm.model": "is_anthropic",
        "a result has its cost: result.token_usage.cost": "completion_cost",
        "llm.base_url": "api_base",
        "llm.stop": "stop_sequences",
        "llm.plain_settings()": "to_config_dict",
        "LLM(stream=True), and a crew, agent or flow streams the events of a run: agent.stream(text)": "stream_events",
        "llm.tool_protocol is 'native' or 'text'": "supports_function_calling",
        "texts in llm.stop go to the model": "supports_stop_words",
        "files are of tasks, crews and agents: Task(input_files=...)": "prefer_upload get_file_uploader",
        _INSIDE: "format_text_content",
    },
    "BaseTool": {
        "each run counts the calls of its tools: BaseTool(max_usage_count=...)": (
            "current_usage_count reset_usage_count has_reached_max_usage_count"
        ),
        "the model is given what a tool returns; a pydantic object as JSON": "format_output_for_agent",
        "how a model is told of it: tool.schema_for_model": "formatted_description",
        "a description stays as it is; how a model is told of it: tool.schema_for_model": "description_updated",
        "tool.takes has the names of its arguments, tool.arguments the model that checks them": "args",
        "tool.run(query=...)": "invoke",
        "await tool.arun(query=...)": "ainvoke",
        "a tool is known by its name": "tool_type",
        "a tool is used as it is: tools=[tool]": "to_structured_tool",
    },
    "CrewOutput": {_TOOL_CALLS: "tool_failures has_tool_failures"},
    "LiteAgentOutput": {
        _TOOL_CALLS: "tool_failures has_tool_failures",
        "plans and what came of them are steps: History(location).run(run_id).steps": (
            "plan had_plan replan_count last_replan_reason from_todo_items todos completed_todos failed_todos"
        ),
        _ASKED: "messages",
        "result.pydantic.model_dump()": "to_dict",
    },
    "Usage": {
        "usages are added up: usage + other": "add_usage_metrics",
        "the usage of a part of a run: History(location).run(run_id).usage_of(address)": "delta_since",
        "LLMReply(usage=Usage(prompt_tokens=..., completion_tokens=...))": "from_provider_dict",
        "they are among prompt_tokens": "cache_creation_tokens",
    },
    "TaskOutput": {
        _TOOL_CALLS: "tool_failures has_tool_failures",
        _ASKED: "messages",
        "it has what it was asked for: output.pydantic, output.json_dict, output.raw": "output_format",
    },
}
MEMBERS = {kind: _by_name(facts) for kind, facts in _MEMBERS.items()}
"""Methods and fields by class."""
