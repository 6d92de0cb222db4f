"""Whatever takes keywords says which one was meant: a misspelt one is never Python's own TypeError, nor dropped."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
from collections.abc import MutableMapping
from functools import cached_property, partial
from typing import get_args

import pytest

import crewlite
from crewlite import (
    LLM,
    Agent,
    CheckpointConfig,
    ConditionalTask,
    Crew,
    Flow,
    History,
    LLMGuardrail,
    LLMReply,
    PlanningConfig,
    RuntimeState,
    Task,
    Usage,
    around,
    ask,
    listen,
    project,
    recovery,
    router,
    start,
    step,
    tool,
)
from crewlite.errors import ConfigError, UnknownOption, WrongArguments
from crewlite.flow import flow, human_feedback, persist, recoverable
from crewlite.flow.persistence import SQLiteFlowPersistence
from crewlite.runtime.kickoffs.handle import RunHandle
from crewlite.runtime.steps.future import StepFuture, StepFutures
from crewlite.state.run_history import RunHistory
from tests.ground.smallest import AGENT, CREW, TASK, Gauge, Plan

MAKERS = [Agent, Task, Crew, ConditionalTask, LLMGuardrail, PlanningConfig, CheckpointConfig, Gauge, partial(LLM, "m")]
STRATEGIES = [value for name in recovery.__all__ if inspect.isfunction(value := getattr(recovery, name))]
REMEDIES = [value for value in get_args(recovery.Remedy) if value.__match_args__]
CLASSIFIERS = [recovery.HybridClassifier, recovery.LLMClassifier, recovery.RulesClassifier, recovery.Symptom]
GUARDS = [recovery.CircuitBreaker, recovery.LoopDetector, recovery.RiskThreshold]
RECOVERY = [*STRATEGIES, *REMEDIES, *CLASSIFIERS, *GUARDS, recovery.Rule]
FUNCTIONS = [
    *(around, ask, flow, human_feedback, listen, persist, recoverable, router, SQLiteFlowPersistence, start, step),
    tool,
]
OF_THE_ENGINE = {"check_edit", "check_rebuilds", "input_names", "rebuilt", "settle", "secret_sources", "identity"}
OF_THE_ENGINE |= {"bound_to", "check", "check_inputs", "expecting", "keep_runs", "known_by", "may_use", "problems_in"}
OF_THE_ENGINE |= {"coworkers_in", "inner_settings", "people", "required_inputs", "input_types", "fields_in", "taught"}
OF_THE_ENGINE |= {"from_yaml"}  # its other keywords are fields of the crew that it makes


def _is_verb(name):
    return not name.startswith(("_", "as_", "with_")) and name not in OF_THE_ENGINE


def verbs():
    for made in (AGENT, TASK, CREW, Plan()):
        kind = type(made)
        for name in filter(_is_verb, dir(kind)):
            home = next((cls for cls in kind.__mro__ if name in vars(cls)), object)
            if home.__module__.startswith(("crewlite", Plan.__module__)) and inspect.isroutine(
                getattr(made, name, None)
            ):
                yield pytest.param(getattr(made, name), id=f"{kind.__name__}.{name}")


def named(value):
    return getattr(value, "__name__", "LLM")


def keywords_of(value):
    taken = inspect.signature(value).parameters.values()
    return [one.name for one in taken if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD) and one.name[1:]]


def methods():
    yield pytest.param(partial(History, "."), id="History")
    for cls in (History, RunHistory, RunHandle, RuntimeState, StepFuture, StepFutures):
        own = {
            name: one
            for base in cls.__mro__
            if base.__module__.startswith("crewlite")
            for name, one in vars(base).items()
        }
        for name in sorted(own.keys() - vars(MutableMapping).keys()):
            if not name.startswith("_") and not isinstance(own[name], property | cached_property):
                method = getattr(cls, name)
                called = method if isinstance(own[name], classmethod | staticmethod) else partial(method, None)
                yield pytest.param(called, id=f"{cls.__name__}.{name}")


def called(value, *args, **given):
    found = value(*args, **given)
    if inspect.iscoroutine(found):
        asyncio.run(found)


MAKERS_AND_FUNCTIONS = [pytest.param(one, id=named(one)) for one in (*MAKERS, *FUNCTIONS, *RECOVERY)]


@pytest.mark.parametrize("value", [*MAKERS_AND_FUNCTIONS, *verbs(), *methods()])
def test_a_misspelt_keyword_is_told_with_the_one_that_was_meant(value):
    for keyword in keywords_of(value):
        word = max(keyword.split("_"), key=len)
        wrong = keyword.replace(word, word + word[-1])
        with pytest.raises(ConfigError, match=f"'{wrong}'.*did you mean '{keyword}'"):
            called(value, **{wrong: 1})


@pytest.mark.parametrize(
    ("decorator", "defaults"),
    [
        (tool, {"effect": "idempotent", "timeout": None, "result_as_answer": False, "requires_approval": False}),
        (step, {"name": None, "cache": False, "retries": None, "retry_delay": 0.0, "runtime": "inline"}),
        (flow, {"name": None, "retries": 0, "max_concurrency": None, "verbose": False}),
        (recoverable, {"policy": None, "max_recovery_attempts": None, "name": None, "verbose": False}),
        (start, {"retries": None, "timeout": None, "runtime": "inline"}),
        (listen, {"retries": None, "timeout": None, "runtime": "inline"}),
        (router, {"emit": None, "retries": None, "timeout": None, "runtime": "inline"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_help_shows_the_options_of_a_decorator_with_their_defaults(decorator, defaults):
    parameters = inspect.signature(decorator).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
    assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())
    shown = pydoc.render_doc(decorator, renderer=pydoc.plaintext)
    assert all(f"{name}: " in shown and f" = {default!r}" in shown for name, default in defaults.items())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: tool("t", effct="once", timeot=3),
            r"@tool has no option 'effct' \(did.*'effect'.*and.*'timeout'\?\)$",
        ),
        (
            lambda: CREW.kickoff(imputs={}, runid="a"),
            r"kickoff of a crew has .*'inputs'\?\) and no option 'runid' \(.*",
        ),
        (lambda: LLM("openai/m", temprature=1, sed=2), r"'temprature'.*'temperature'.*'sed'.*'seed'"),
        (lambda: Agent(role="r", toolz=[], max_inter=2, memry=True), r"'tools'.*'max_iter'.*'memory'"),
        (lambda: CREW.kickoff_for_each([], resume=True), r"no option 'resume' \(.*run_id='NAME': the same call again"),
        (lambda: CREW.kickoff_for_each([], answers={}), r"'answers' \(.*kickoff\(run_id='NAME.0', answers={...}\)"),
        (lambda: CREW.test(1, openai_model_name="m"), r"no option 'openai_model_name' \(.*test\(eval_llm=...\)\)"),
        (lambda: Plan().kickoff(restore_from_state_id="a"), r"'restore_from_state_id' \(.*kickoff\(inputs={...}\)"),
        (lambda: human_feedback("Good?", provider=print), r"'provider' \(.*kickoff\(answers=...\)"),
        (lambda: CREW.kickoff(on_drift="rerun"), r"'on_drift' \(.*checkpoint=CheckpointConfig\(on_drift=...\)\)"),
        (lambda: Plan().kickoff(location="x"), r"'location' \(.*checkpoint=CheckpointConfig\(location=...\)\)"),
        (lambda: AGENT.kickoff("x", output_pydantic=int), r"'output_pydantic' \(an agent takes response_format=...\)"),
        (
            lambda: CREW.kickoff(topic="tides"),
            r"no option 'topic'; it takes: .*; values of your own: inputs=\{'topic': ...\}$",
        ),
        (
            lambda: CREW.submit(topic="tides"),
            r"no option 'topic'; it takes: .*; values of your own: inputs=\{'topic': ...\}$",
        ),
        (
            lambda: CREW.stream(topic="tides"),
            r"no option 'topic'; it takes: .*; values of your own: inputs=\{'topic': ...\}$",
        ),
        (
            lambda: CREW.preview(topic="tides"),
            r"no option 'topic'; it takes: .*; values of your own: inputs=\{'topic': ...\}$",
        ),
        (
            lambda: CREW.test(1, topic="tides"),
            r"no option 'topic'; it takes: .*; values of your own: inputs=\{'topic': ...\}$",
        ),
        (
            lambda: CREW.train(1, topic="tides"),
            r"no option 'topic'; it takes: .*; values of your own: inputs=\{'topic': ...\}$",
        ),
        (lambda: CREW.kickoff_for_each(topic="tides"), r"'topic'; it takes: .*: inputs=\[\{'topic': ...\}, ...\]$"),
        (lambda: Plan().kickoff(topic="tides"), r"no option 'topic'; it takes: inputs.*: inputs=\{'topic': ...\}$"),
        (lambda: AGENT.kickoff(prompt="When?"), r"no option 'prompt' \(did you mean 'messages'\?\)$"),
        (lambda: AGENT.kickoff(inputs={}), r"no option 'inputs' \(did you mean 'messages'\?\)$"),
        (lambda: tool(name="search"), r"@tool has no option 'name' \(without its name: @tool\('search'\)\)$"),
        (
            lambda: tool(description="x"),
            r"@tool has no option 'description' \(the docstring of the function says it\)$",
        ),
        (lambda: flow(func=print), r"@flow has no option 'func' \(without its name: @flow\(func\)\)$"),
        (lambda: step("search"), r"@step was given 'search'; wanted a function, or @step\(name='search'\)$"),
        (lambda: flow("search"), r"@flow was given 'search'; wanted a function, or @flow\(name='search'\)$"),
        (lambda: recoverable("search"), r"@recoverable was given 'search'; wanted a function, or @recoverable\(name="),
        (lambda: project.agent(), r"^@agent was called without .*: write @agent without parentheses$"),
        (
            lambda: project.task(name="x"),
            r"^@task has no option 'name'; it takes: function; write @task without parentheses$",
        ),
        (
            lambda: project.CrewBase(name="x"),
            r"^@CrewBase has no option 'name'; it takes: none; write @CrewBase without",
        ),
        (lambda: project.CrewBase(), r"^@CrewBase was called without .*: write @CrewBase without parentheses$"),
        (
            lambda: project.output_json(),
            r"^@output_json was called without .*: write @output_json without parentheses$",
        ),
        (lambda: crewlite.flow(print), r"^crewlite.flow is a module, .*; write `from crewlite.flow import flow`$"),
        (lambda: LLMReply(txt="x", tool_call=()), r"'txt' \(did you mean 'text'.*'tool_calls'"),
        (lambda: Usage(promt_tokens=3, input_tokens=2), r"Usage has no .*'prompt_tokens'.*'input_tokens'"),
    ],
)
def test_all_are_told_at_once_with_what_to_write(call, told):
    with pytest.raises(ConfigError, match=told):
        call()


def test_it_is_the_type_error_that_python_would_raise():
    with pytest.raises(TypeError) as caught:
        CREW.kickoff(xyz=1)
    assert isinstance(caught.value, UnknownOption)
    assert caught.value.options == ("xyz",)


def test_a_setting_of_crewai_without_an_effect_is_accepted():
    @tool("gauge", result_schema=Task)
    def gauge(at: str) -> str:
        """Reads the gauge."""
        return at

    assert gauge.name == "gauge"
    assert human_feedback("Good?", learn=False, learn_source="hitl", provider=None)
    assert "result_schema" not in vars(Gauge(result_schema=Task))


@pytest.mark.parametrize("name", ["from_declaration", "from_pending"])
def test_a_class_method_of_crewai_says_what_to_write(name):
    with pytest.raises(AttributeError, match=f"Plan has no attribute '{name}'; a "):
        getattr(Plan, name)


@pytest.mark.parametrize(
    ("name", "value"), [("memory", object()), ("persistence", object()), ("input_provider", object())]
)
def test_a_class_attribute_that_is_a_setting_of_crewai_says_what_to_write(name, value):
    with pytest.raises(ConfigError, match=f"a flow has no setting '{name}'; .*instead: "):
        type("F", (Flow,), {name: value, "go": start()(lambda self: 1)})


def test_a_coroutine_function_is_still_known_as_one():
    assert inspect.iscoroutinefunction(CREW.akickoff_for_each)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CREW.kickoff({}, "run"), "kickoff of a crew takes only inputs without a name, and was given 2 such"),
        (lambda: CREW.kickoff_for_each([{}], "run", 3), "takes only inputs without a name, and was given 3 such"),
        (lambda: asyncio.run(CREW.akickoff_for_each([{}], "run")), "kickoff_for_each of a crew takes only inputs"),
        (
            lambda: History("here", None, "x"),
            "History takes only location and provider without a name, and was given 3",
        ),
    ],
)
def test_arguments_that_want_a_name_are_told_as_the_program_calls_the_function(call, message):
    with pytest.raises(WrongArguments, match=message):
        call()


def needed_by(value):
    taken = inspect.signature(value).parameters.values()
    return [one.name for one in taken if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize(
    "value",
    [one for one in (*MAKERS_AND_FUNCTIONS, *verbs()) if needed_by(one.values[0]) and "post_init" not in one.id],
)
def test_a_missing_argument_is_told_with_what_is_wanted(value):
    with pytest.raises(ConfigError, match=f"{needed_by(value)[0]}.*(wanted|is missing)"):
        called(value)


def test_what_to_fork_is_told_in_words():
    with pytest.raises(
        TypeError, match=r"^fork was called without config; wanted fork\(config\), where config is a ref"
    ):
        CREW.fork()
    with pytest.raises(WrongArguments, match=r"^Rule was called without retries; wanted Rule\(kinds, retries\)$"):
        recovery.Rule({"bug"})


@pytest.mark.parametrize("made", [AGENT, TASK, CREW, Plan()], ids=lambda made: type(made).__name__)
def test_a_verb_that_is_called_on_a_class_says_to_make_an_object(made):
    wants_object = {
        "kickoff",
        "akickoff",
        "kickoff_async",
        "submit",
        "stream",
        "preview",
        "apreview",
        "explore",
        "aexplore",
    }
    wants_object |= {"execute_sync", "execute_task", "kickoff_for_each", "akickoff_for_each", "test", "train", "ask"}
    for name in filter(lambda name: hasattr(type(made), name), wants_object):
        with pytest.raises(ConfigError, match="was called on the class.*object"):
            called(getattr(type(made), name))


def test_inputs_do_not_pass_for_the_object_of_a_verb():
    with pytest.raises(
        TypeError, match=r"kickoff was called on the class Plan; call it on an object: Plan\(...\).kickoff"
    ):
        Plan.kickoff({"topic": "tides"})


def test_a_verb_of_a_class_may_be_called_with_an_object():
    class Mine(Plan):
        def preview(self, *args, **given):
            return Plan.preview(self, *args, **given)

    with pytest.raises(ConfigError, match="preview has no recorded run"):
        Mine().preview()


def test_a_misspelt_import_says_which_name_was_meant():
    with pytest.raises(AttributeError, match=r"^crewlite has no 'Agnet'; did you mean 'Agent'\?$"):
        crewlite.Agnet  # noqa: B018
