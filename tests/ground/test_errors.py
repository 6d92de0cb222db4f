"""One tree of errors: each known by a code that stays, each also the built-in one would catch."""

from __future__ import annotations

import inspect
import re

import pytest

from crewlite import Agent, CheckpointConfig, FailurePolicy, History, Task, errors
from crewlite.errors import CrewliteError
from crewlite.recovery import Failure, Retry
from crewlite.runtime.steps.causes import message_of, type_of
from crewlite.runtime.steps.failures import ReportedFailure, raised, written
from crewlite.testing import ScriptedLLM
from crewlite.texts.wording import an

FOUND = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, CrewliteError)]
CLASSES = list(dict.fromkeys(FOUND))  # some have an old name besides their own

MADE = [
    errors.KnowledgeMissing("a.md", ["knowledge/a.md", "a.md"]),
    errors.NoModel(["Writer", "Editor"]),
    errors.BindMissing("run 'r' in ./store", {"llm": "the model 'm'"}, ["'lm' names no part of this definition"]),
    errors.VariantsRefused("r/main", [("a", "unknown key 'modle'; did you mean 'model'?")]),
    errors.UnknownOption("@tool", {"xyz": ""}, ["effect"]),
    errors.WrongArguments("fork", "was called without config", "wanted fork(config)"),
    errors.UnknownProvider("opnai/gpt-4o", ["openai/gpt-4o"]),
    errors.MissingKey("openai/gpt-4o", ["OPENAI_API_KEY"]),
    errors.NotCodable("inputs.lock", object(), "why"),
    errors.MissingInput("topic", where="Task 'write'", given=["reader"]),
    errors.RefError("main", "names nothing", ["a", "b"]),
    errors.ChangeUnused(["step:fetch"]),
    errors.StoreError("./store", "is full"),
    errors.StoreUnusable("./store", "is a file"),
    errors.StoreBusy("./runs.db", 10.0),
    errors.JournalCorrupt("main.jsonl, line 3", "the checksum does not fit", "ref"),
    errors.SchemaTooNew("main.jsonl", 2, 1),
    errors.CheckpointMismatch("a.json", "it was changed", None),
    errors.BranchConflictError("run", "main", expected=1, found=2),
    errors.BranchExists("run", "fork/a"),
    errors.RunExists("run", "./store", "run.json", found="a" * 32, wanted="b" * 32),
    errors.CheckpointIsBehind("c0ffee42", run_id="run", branch="main", after=["task:b"], head="12345678"),
    errors.InDoubt("task:a/tool:pay", "tool pay"),
    errors.InputsChanged("run", ["topic"]),
    errors.QuestionsChanged("run", {"task:a": "answered 'About tides', and is asked 'About moons' now"}),
    errors.TaskGone("run", ["task:a"]),
    errors.TaskDrifted("run", "task:a"),
    errors.StateConflict("step:count", ["total"]),
    errors.NonDeterminism("run", "", "step:a", "step:b, and no more"),
    errors.RunCancelled("run", "main"),
    errors.RunEnded("run", "main", "is finished"),
    errors.EffectsRepeat("run@task:a", [errors.RepeatedCall("task:b/tool:pay", "{}", "2026-11-21T12:45:48", True)]),
    errors.DeadlineExceeded("flow survey", 60.0, "2026-11-21T12:45:48+00:00"),
    errors.Suspended("run", "./.checkpoints", {"human:publish": "Publish?"}),
    errors.AnswerRefused("human:publish", "'perhaps': not a boolean"),
    errors.AnswerMisfit("task 'a'", "Verdict", "good: Field required"),
    errors.AnswerMisfit("task 'a'", "Verdict", "good: Field required", address="task:a", run_id="r", branch="x"),
    errors.AnswerMisfit("task 'a'", "Verdict", "good: Field required", edited="task:a", run_id="r", branch="x"),
    errors.AnswerTimeout("human:publish", 60.0, "Publish?"),
    errors.OnLoopThread("kickoff"),
    errors.ProgramEnding("cannot schedule new futures after interpreter shutdown"),
    errors.BudgetExceeded("task 'a'", "max_tokens", limit=100, used=120, run_id="run", location="./store"),
    errors.TimeBudgetExceeded("crew 'c'", "max_execution_time", limit=1.5, used=2.0, run_id="run", branch="b"),
    errors.MaxIterations("Writer", 25),
    errors.StepTimeout("tool search", 1.5),
    errors.StepCrashed("crunch", -9),
    errors.StepDeadlock({"step:a/step:b": "step:b", "step:b/step:a": "step:a"}),
    errors.StepDeadlock({"step:b": "flow:f"}, {"step:a": "step:b"}),
    errors.StepRaised("crunch", "Boom", "no"),
    errors.Redacted("ValueError", "the key [secret]"),
    errors.LLMUnavailable("429", retry_after=7),
    errors.LLMTimeout("openai/gpt-4o", 30.0),
    errors.LLMRejected("openai/gpt-4o", 400, "bad request"),
    errors.TooManyCalls("Plan", "draft", 1000),
    errors.LLMAuthError("openai/gpt-4o", 401, "bad key"),
    errors.ContextOverflow("openai/gpt-4o", 400, "too long"),
    errors.ContentRefused("openai/gpt-4o", "I cannot"),
    errors.LLMEmptyReply("scripted"),
    errors.ScriptExhausted(3),
    errors.CallVetoed("LoopDetector", "tool look", "it has brought the same result 3 times in a row."),
    errors.CircuitOpen("model openai/gpt-4o", 5, 12.5),
    errors.RecordingMissing("replies.jsonl", "When is high water?", 3, alike=True),
    errors.RecordingDamaged("replies.jsonl, line 3", "KeyError: 'text'"),
    errors.OutputInvalid("task:a", "no field 'x'", tries=2),
    errors.RecoveryEscalated(Failure("bug", "KeyError", "x", address="step:a"), "Ask", run_id="r", location="runs"),
    errors.RecoveryAborted(Failure("bug", "KeyError", "x", attempts=2), "Too late", run_id="r", location=None),
    errors.GuardrailFailed("task 'a'", "It names a source", "it names none", tries=4),
]


def test_every_error_has_a_code_of_its_own():
    codes = [cls.__dict__.get("code") for cls in CLASSES]
    assert None not in codes, [cls.__name__ for cls in CLASSES if "code" not in cls.__dict__]
    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and code.replace("_", "").isalnum() for code in codes)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("crewlite", "CrewliteError"),
        ("config", "ConfigError"),
        ("no_model", "NoModel"),
        ("bind_missing", "BindMissing"),
        ("variants_refused", "VariantsRefused"),
        ("wrong_arguments", "WrongArguments"),
        ("not_codable", "NotCodable"),
        ("missing_input", "MissingInput"),
        ("ref", "RefError"),
        ("change_unused", "ChangeUnused"),
        ("store", "StoreError"),
        ("store_unusable", "StoreUnusable"),
        ("store_busy", "StoreBusy"),
        ("journal_corrupt", "JournalCorrupt"),
        ("schema_too_new", "SchemaTooNew"),
        ("checkpoint_mismatch", "CheckpointMismatch"),
        ("branch_conflict", "BranchConflictError"),
        ("branch_exists", "BranchExists"),
        ("place_is_behind", "CheckpointIsBehind"),
        ("in_doubt", "InDoubt"),
        ("run_mismatch", "RunMismatch"),
        ("inputs_changed", "InputsChanged"),
        ("questions_changed", "QuestionsChanged"),
        ("task_gone", "TaskGone"),
        ("task_drifted", "TaskDrifted"),
        ("non_determinism", "NonDeterminism"),
        ("run_cancelled", "RunCancelled"),
        ("run_ended", "RunEnded"),
        ("effects_repeat", "EffectsRepeat"),
        ("deadline_exceeded", "DeadlineExceeded"),
        ("suspended", "Suspended"),
        ("answer_refused", "AnswerRefused"),
        ("answer_timeout", "AnswerTimeout"),
        ("on_loop_thread", "OnLoopThread"),
        ("program_ending", "ProgramEnding"),
        ("budget_exceeded", "BudgetExceeded"),
        ("time_budget_exceeded", "TimeBudgetExceeded"),
        ("max_iterations", "MaxIterations"),
        ("step_timeout", "StepTimeout"),
        ("step_crashed", "StepCrashed"),
        ("step_deadlock", "StepDeadlock"),
        ("step_raised", "StepRaised"),
        ("redacted", "Redacted"),
        ("llm", "LLMError"),
        ("llm_unavailable", "LLMUnavailable"),
        ("llm_timeout", "LLMTimeout"),
        ("llm_rejected", "LLMRejected"),
        ("llm_auth", "LLMAuthError"),
        ("context_overflow", "ContextOverflow"),
        ("content_refused", "ContentRefused"),
        ("unknown_provider", "UnknownProvider"),
        ("missing_key", "MissingKey"),
        ("llm_empty_reply", "LLMEmptyReply"),
        ("script_exhausted", "ScriptExhausted"),
        ("call_vetoed", "CallVetoed"),
        ("circuit_open", "CircuitOpen"),
        ("recording_missing", "RecordingMissing"),
        ("recording_damaged", "RecordingDamaged"),
        ("output_invalid", "OutputInvalid"),
        ("guardrail_failed", "GuardrailFailed"),
        ("recovery_escalated", "RecoveryEscalated"),
        ("recovery_aborted", "RecoveryAborted"),
    ],
)
def test_codes_that_were_given_stay(code, name):
    assert getattr(errors, name).code == code


LONG = "word-4711 " * 1_000 + "x" * 20_000


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls.__init__ is CrewliteError.__init__])
def test_an_error_leaves_out_the_middle_of_a_long_value_and_keeps_what_is_wanted(cls):
    said = str(cls(f"max_iter is {LONG!r}; wanted a whole number\nin crew.yaml"))
    assert said.startswith("max_iter is 'word-4711 word-4711")
    assert said.endswith(" characters …] wanted a whole number\nin crew.yaml")
    assert len(said) < 2_100
    assert set(re.findall(r"[\w-]*4711", said)) == {"word-4711"}  # no word in part: it might be a secret


def test_an_error_that_repeats_a_shortened_one_leaves_out_no_more():
    shortened = errors.ConfigError(f"max_iter is {LONG!r}; wanted a whole number")
    assert str(errors.ConfigError(f"variant 'terse': {shortened}")) == f"variant 'terse': {shortened}"


def test_an_error_keeps_every_line_of_a_long_list():
    said = "\n".join(f"line {number}: unknown key" for number in range(1_000))
    assert str(errors.ConfigError(said)) == said


def test_an_error_that_lists_all_that_is_wrong_lists_all():
    names = [f"number {number}" for number in range(300)]
    refused = errors.VariantsRefused("run", [(name, "unknown key 'modle'") for name in names])
    missing = errors.BindMissing("crew 'c'", dict.fromkeys(names, "a model"))
    assert all(f"{name!r}: " in str(error) for name in names for error in (refused, missing))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Agent(role="a", goal="b", llm=ScriptedLLM([]), max_iter=LONG),
        lambda: Task(description="a", expected_output="b", output_file=LONG),
        lambda: CheckpointConfig(on_events=[LONG]),
        lambda: History(".").run(LONG),
        lambda: Retry(LONG),
        lambda: FailurePolicy(rules=LONG),
    ],
)
def test_a_long_value_is_never_shown_whole(wrong):
    with pytest.raises(CrewliteError) as raised:
        wrong()
    assert len(str(raised.value)) < 4_000


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not CrewliteError])
def test_every_error_is_also_a_built_in_one(cls):
    others = [base for base in cls.__mro__ if base.__module__ == "builtins"]
    assert any(base not in (Exception, BaseException, object) for base in others)
    assert cls.__doc__


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_every_error_says_something_and_keeps_what_its_message_was_made_of(error):
    assert len(str(error)) >= 3
    assert "\n" not in str(error)
    assert str(error) in repr(error) or repr(error)
    if type(error).__init__ is not CrewliteError.__init__:
        assert vars(error), f"{type(error).__name__} keeps no data"


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_every_error_is_raised_again_as_itself_and_told_without_naming_its_type_twice(error):
    failure = ReportedFailure(type_of(error), message_of(error), "", data := written(error))
    again = raised("crunch", failure)
    if "fields" in data:  # all but those that hold an object of the user's
        assert (type(again), str(again)) == (type(error), str(error))
    assert not message_of(error).startswith(type_of(error))


def test_every_error_with_a_message_of_its_own_was_made_here():
    own = {cls for cls in CLASSES if "__init__" in cls.__dict__} - {CrewliteError}
    assert own <= {type(error) for error in MADE}


def test_the_tree_is_drawn_as_it_is():
    drawing = errors.__doc__ or ""
    assert not [cls.__name__ for cls in CLASSES if cls.__name__ not in drawing]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("topik", ["mood", "topic"], "topic"),
        ("backstry", ["role", "backstory"], "backstory"),
        ("gaol", ["role", "goal"], "goal"),
        ("retry", ["retries", "retry_delay"], "retries"),
        ("apikey", ["api_key"], "api_key"),
        ("callbacks", ["callback"], "callback"),
        ("max_rpm", ["max_iter", "max_tool_output"], None),
        ("callbacks", ["fallbacks"], None),
        ("max_retries", ["max_tokens"], None),
        ("method_execution_finished", ["agent_execution_started"], None),
    ],
)
def test_a_name_is_only_hinted_at_if_it_is_spelt_alike_and_means_alike(name, known, hint):
    assert errors.meant(name, known) == (f"did you mean {hint!r}?" if hint else "")


@pytest.mark.parametrize(
    "error",
    [
        errors.CircuitOpen("tool pay", 1, 3.0),
        errors.MaxIterations("Writer", 1),
        errors.TooManyCalls("Shop", "pay", 1),
        errors.OutputInvalid("task 'bill'", "no JSON", tries=1),
        errors.ScriptExhausted(1),
    ],
    ids=lambda error: error.code,
)
def test_one_of_something_is_no_more_than_one(error):
    assert re.search(r"\b1 \w+(?<!s)\b", str(error))


@pytest.mark.parametrize("word", ["an Agent", "a Task", "an LLM", "a TaskOutput", "a UUID", "an integer"])
def test_a_word_has_its_article(word):
    assert an(word.split()[1]) == word


def test_a_candidate_is_named_once():
    error = errors.RefError("main", "names two things", ["b", "a", "b"])
    assert (error.candidates, str(error)) == (("b", "a"), "'main' names two things. Candidates: b, a.")


def test_a_message_names_a_few_of_many_candidates():
    error = errors.RefError("main", "names nothing", [f"run-{at}" for at in range(20)])
    assert str(error).endswith("Candidates: run-0, run-1, run-2, run-3, run-4, run-5 and 14 more.")
    assert len(error.candidates) == 20


def test_a_state_that_another_process_has_changed_is_held_by_nobody():
    said = str(errors.BranchConflictError("prices", "main", expected=1, found=2, kind="state"))
    assert said.startswith("State 'prices' is at commit 2, and commit 1 was expected: another process has changed it")
    assert "then open it again" in said
    assert "held" not in said


def test_an_error_of_a_trial_names_the_verb_that_goes_on_with_it():
    failure = Failure("bug", "KeyError", "x", address="step:a")
    there = {"run_id": "r", "location": "runs", "kind": "trial"}
    made = [
        errors.RunCancelled("r", "main", kind="trial"),
        errors.BudgetExceeded("task 'a'", "max_tokens", limit=100, used=120, **there),
        errors.RecoveryEscalated(failure, "Ask", **there),
        errors.RecoveryAborted(failure, "Too late", **there),
        errors.BranchConflictError("r", "main", expected=1, found=2, kind="trial"),
        errors.BranchConflictError("r", "main", holder="process 7 on h", kind="trial"),
        errors.Suspended("r", "runs", {"human:ok": "Ok?"}, kind="trial"),
        errors.InDoubt("task:a/tool:pay", "tool pay", kind="trial"),
        errors.InputsChanged("r", ["topic"], kind="trial"),
    ]
    for error in made:
        assert "call test or train of the crew" in str(error)
        assert "kick off" not in str(error)


HOMES = {
    "answers": "AnswerMisfit AnswerRefused AnswerTimeout",
    "definition": "BindMissing ConfigError KnowledgeMissing MissingInput MissingKey NoModel NotCodable UnknownOption UnknownProvider VariantsRefused WrongArguments",
    "effects": "EffectsRepeat",
    "guards": "CallVetoed CircuitOpen",
    "llm": "ContentRefused ContextOverflow LLMAuthError LLMEmptyReply LLMError LLMRejected LLMTimeout LLMUnavailable RecordingDamaged RecordingMissing ScriptExhausted",
    "record": "BranchConflictError BranchExists ChangeUnused CheckpointMismatch JournalCorrupt RefError RunExists SchemaTooNew StoreBusy StoreError StoreUnusable",
    "recovery": "RecoveryAborted RecoveryEscalated",
    "root": "CrewliteError",
    "run": "CheckpointIsBehind DeadlineExceeded GuardrailFailed InDoubt InputsChanged MaxIterations NonDeterminism OnLoopThread OutputInvalid QuestionsChanged Redacted RunCancelled RunEnded RunMismatch StateConflict StepCrashed StepDeadlock StepRaised StepTimeout Suspended TaskDrifted TaskGone TooManyCalls",
    "stops": "BudgetExceeded ProgramEnding TimeBudgetExceeded",
}


def test_records_find_the_errors_of_earlier_releases_by_their_modules():
    """A recorded failure names the class of its error, `module:Name`. One that moved would come back as StepRaised."""
    classes = {name: getattr(errors, name) for name in errors.__all__}
    homes = {name: cls.__module__ for name, cls in classes.items() if isinstance(cls, type) and hasattr(cls, "code")}
    assert homes == {name: f"crewlite.errors.{module}" for module, names in HOMES.items() for name in names.split()}
