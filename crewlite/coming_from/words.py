"""What settings of crewlite are called elsewhere: in CrewAI, LangGraph, the SDKs of OpenAI, Pydantic AI, DBOS, Prefect.

If a setting is unknown, and is called like this elsewhere, the error names the setting of the same meaning, if the
definition has one.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    "inputs": "input_data params parameters arguments",
    "requires_approval": "needs_approval human_approval",
    "human_input": "human_in_the_loop",
    "step_callback": "on_step",
    "callback": "on_complete",
    "context": "depends_on dependencies",
}
"""Names of other frameworks by the name here."""


def same_here(name: str, known: Iterable[str]) -> str | None:
    """Return the name among `known` for what other frameworks call `name`; None if there is none."""
    there = set(known)
    return next((own for own, names in _ELSEWHERE.items() if own in there and name.lower() in names.split()), None)
