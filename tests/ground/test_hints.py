""" "Did you mean" never misleads: a hint is a misspelt name, or the name here for what other frameworks call so."""

from __future__ import annotations

import re

import pytest

from crewlite import LLM, Agent, CheckpointConfig, Crew, Task
from crewlite.coming_from.settings import _ELSEWHERE
from crewlite.errors import ConfigError
from crewlite.flow import flow, router, step
from crewlite.runtime.kickoffs.request import KickoffOptions

AGENT = Agent(role="r", goal="g", llm="offline")
TASK = {"description": "d", "expected_output": "x", "agent": AGENT}
MAKERS = {
    "Agent": lambda **wrong: Agent(role="r", goal="g", llm="offline", **wrong),
    "Task": lambda **wrong: Task(**TASK, **wrong),
    "Crew": lambda **wrong: Crew(tasks=[Task(**TASK)], **wrong),
    "LLM": lambda **wrong: LLM("offline", **wrong),
    "CheckpointConfig": lambda **wrong: CheckpointConfig(**wrong),
    "@step": lambda **wrong: step(**wrong),
    "@flow": lambda **wrong: flow(**wrong),
    "@router": lambda **wrong: router("begin", **wrong),
    "kickoff": lambda **wrong: Crew(tasks=[Task(**TASK)]).kickoff(**wrong),
}
TABLE = {
    "Agent": "max_retries=max_retry_limit retries=max_retry_limit timeout=max_execution_time max_turns=max_iter model=llm "
    "max_iters=max_iter instructions=backstory backstoy=backstory goals=goal toolz=tools guard=guardrail temperature= "
    "max_steps=max_iter budget=max_cost_usd tool_choice= state= prompt= output= human_input= rules= plan=planning",
    "Task": "retries=failure_policy max_retry=max_retries prompt=description descripton=description desc=description "
    "output_type=output_pydantic agents=agent timeout=max_execution_time callbacks=callback expect= result= tool=tools "
    "depends_on=! role= condition= inputs= async_exec=async_execution",
    "Crew": "agent=agents max_workers=max_concurrency tags= retries=failure_policy model=llm manger_llm=manager_llm "
    "max_token=max_tokens flow= workflow= state= hooks= inputs= processes=process callbacks= output=",
    "LLM": "temp=temperature model_name=model retries=failure_policy system=! store=! timeouts=timeout token_limit=max_tokens "
    "api_base= tools= prompt=! streaming=stream key=! logging=! cache=!",
    "CheckpointConfig": "path=location keep_last=max_checkpoints events= on_event=on_events providers=provider restore= "
    "event_types= save=",
    "@step": "max_retries=retries retry=retries deadline=timeout tries= delay= cached=cache workers= max_workers=max_concurrency "
    "effects=effect tag= retry_delays=retry_delay",
    "@flow": "max_retries=retries checkpointer=checkpoint verbos=verbose timeouts=timeout state= tasks= store=checkpoint",
    "@router": "paths=emit emits=emit label= retry=retries",
    "kickoff": "thread_id=run_id input=inputs waits=wait runid=run_id run= block= id= session_id=run_id answer=answers "
    "timeout= params=inputs",
}


@pytest.mark.parametrize("of", TABLE)
def test_a_setting_that_is_not_known_is_answered_with_the_one_that_was_meant_or_none(of):
    found = {}
    for entry in TABLE[of].split():
        wrong = entry.partition("=")[0]
        try:
            MAKERS[of](**{wrong: 1})
        except (ConfigError, TypeError) as error:
            hint = re.search(r"did you mean '(\w+)'", str(error))
            found[wrong] = hint[1] if hint else ""
        else:
            found[wrong] = "!"  # it is accepted, with a warning
    wanted = dict(entry.split("=") for entry in TABLE[of].split())
    assert found == wanted


def test_every_name_that_is_hinted_at_for_another_exists_and_no_name_here_is_called_anything_else():
    fields = {*Agent.model_fields, *Task.model_fields, *Crew.model_fields, *CheckpointConfig.model_fields}
    own = fields | set(KickoffOptions.__annotations__) | {"inputs", "messages", "temperature", "model"}
    own |= {"base_url", "timeout"}
    assert set(_ELSEWHERE) - own <= {
        "response_format",
        "args_schema",
        "requires_approval",
        "retries",
        "retry_delay",
        "emit",
    }
    assert not [name for name, others in _ELSEWHERE.items() if name in others.split()]
