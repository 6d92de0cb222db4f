"""Fault scripts: what goes wrong in the calls of one part of a crew or flow, in words, so that a table can hold it.

The n-th call of that part goes as the n-th word says: `ok`, one of ERRORS, which is raised, or one of ANSWERS, which a
model gives instead of a good one. After the script everything works.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections import Counter
from dataclasses import replace

from pydantic import BaseModel, ValidationError

from crewlite import ToolCall
from crewlite.errors import (
    AnswerTimeout,
    ConfigError,
    ContentRefused,
    ContextOverflow,
    DeadlineExceeded,
    LLMAuthError,
    LLMEmptyReply,
    LLMRejected,
    LLMTimeout,
    LLMUnavailable,
    MissingInput,
    NoModel,
)
from crewlite.recovery import DEFAULT, Retry
from crewlite.testing import ScriptedLLM, faults


class HttpError(Exception):
    """An error as HTTP libraries raise it: the status says what is wrong."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status_code = status


class Hour(BaseModel):
    hour: int


def _invalid():
    try:
        Hour(hour="noon")
    except ValidationError as error:
        return error


def _no_json():
    try:
        json.loads("{noon")
    except json.JSONDecodeError as error:
        return error


ERRORS = {
    "503": lambda: LLMUnavailable("scripted: status 503"),
    "429": lambda: LLMUnavailable("scripted: status 429", retry_after=7),
    "429 for an hour": lambda: LLMUnavailable("scripted: status 429", retry_after=3600),
    "no reply in time": lambda: LLMTimeout("scripted", 30),
    "empty reply": lambda: LLMEmptyReply("scripted"),
    "context overflow": lambda: ContextOverflow("scripted", 400, "maximum context length"),
    "rejected key": lambda: LLMAuthError("scripted", 401, "no such key"),
    "bad request": lambda: LLMRejected("scripted", 400, "no such parameter"),
    "quota used up": lambda: LLMRejected("scripted", 402, "insufficient_quota"),
    "refused to answer": lambda: ContentRefused("scripted", "I may not"),
    "ConfigError": lambda: ConfigError("Crew: no tasks"),
    "no model": lambda: NoModel("agent 'Pilot'"),
    "missing input": lambda: MissingInput("port", where="task t", given=()),
    "deadline over": lambda: DeadlineExceeded("flow f", 60, "12:00"),
    "no answer in time": lambda: AnswerTimeout("human:go", 60, "Go?"),
    "HTTP 402": lambda: HttpError(402),
    "HTTP 404": lambda: HttpError(404),
    "HTTP 429": lambda: HttpError(429),
    "HTTP 503": lambda: HttpError(503),
    "HTTP 504": lambda: HttpError(504),
    "lost connection": lambda: ConnectionResetError("lost connection"),
    "too slow": lambda: TimeoutError("too slow"),
    "rate limit in words": lambda: RuntimeError("Error: too many requests"),
    "wrong shape": _invalid,
    "no JSON": _no_json,
    "made up": lambda: AssertionError("it claims 100 tides, but the table holds 42"),
    "off topic": lambda: ValueError("The text is off-topic"),
    "part missing": lambda: ValueError("2 parts of the plan are missing"),
    "loop": lambda: RuntimeError("stuck in a loop"),
    "unknown tool": lambda: LookupError("There is no tool named 'tides'"),
    "TypeError": lambda: TypeError("tide() takes no arguments"),
    "KeyError": lambda: KeyError("Brest"),
    "ZeroDivisionError": lambda: ZeroDivisionError("division by zero"),
}
ANSWERS = {
    "a guess": "11:40, I guess",
    "no object": "at noon",
    "wrong field": '{"tide": 11}',
    "unknown tool called": ToolCall("sink", {}),
    "wrong arguments": ToolCall("look", {"harbour": "Brest"}),
    "another look": ToolCall("look", {"port": "Brest"}),
}


class AtOnce:
    """A policy whose waits take no time; `waited` is how long they would have been, in seconds."""

    def __init__(self, policy):
        self.policy, self.classifier, self.guards, self.waited = policy, policy.classifier, policy.guards, 0.0

    def decide(self, failure, past):
        remedy = self.policy.decide(failure, past)
        if not isinstance(remedy, Retry):
            return remedy
        self.waited += remedy.after
        return replace(remedy, after=0.0)


class Place:
    """What the builders below are given: the script, the policy, and the calls counted so far."""

    def __init__(self, script, policy):
        self.script, self.policy, self.calls = script, AtOnce(policy) if policy else None, Counter()
        self.alone = AtOnce(DEFAULT)  # what model calls do without a policy, but for the waits

    @property
    def waited(self):
        """How long the policy would have waited, in seconds."""
        return (self.policy or self.alone).waited

    def part(self, kind, work, *, fails=False):
        """`work`, counted as a call of this kind. `fails`: it goes as the script says."""

        @functools.wraps(work)
        def call(*args, **kwargs):
            return work(*args, **kwargs)

        @functools.wraps(work)
        async def acall(*args, **kwargs):
            return await work(*args, **kwargs)

        made = acall if inspect.iscoroutinefunction(work) else call
        return self._counted(kind, self._spoiled(made) if fails else made)

    def llm(self, reply="done", *, fails=False, only=None, **fields):
        """A model. `reply`: a text, or a function of the messages. `only`: says which calls the script is for."""

        def good(messages):
            return reply(messages) if callable(reply) else reply

        bad = self._spoiled(good) if fails else good

        def answer(messages):
            return bad(messages) if only is None or only(messages) else good(messages)

        llm = ScriptedLLM(self._counted("model", answer), **fields)
        if self.policy is None:
            llm.failure_policy = self.alone
        return llm

    def _counted(self, kind, work):
        @functools.wraps(work)
        def call(*args, **kwargs):
            self.calls[kind] += 1
            return work(*args, **kwargs)

        @functools.wraps(work)
        async def acall(*args, **kwargs):
            self.calls[kind] += 1
            return await work(*args, **kwargs)

        return acall if inspect.iscoroutinefunction(work) else call

    def _spoiled(self, work):
        said = iter([ANSWERS.get(word) for word in self.script if word not in ERRORS])

        @functools.wraps(work)
        def call(*args, **kwargs):
            return next(said, None) or work(*args, **kwargs)

        good = work if inspect.iscoroutinefunction(work) else call
        return faults(good, *[ERRORS[word]() if word in ERRORS else None for word in self.script])
