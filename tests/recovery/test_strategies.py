"""Remedies, strategies and policies by type of failure are values, and deciding is pure, bounded and the same."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle, islice
from typing import get_args

import pytest
from hypothesis import given, strategies as st

from crewlite.errors import ConfigError, LLMAuthError, LLMUnavailable
from crewlite.recovery import (
    DEFAULT,
    Abort,
    Compensate,
    Escalate,
    Failure,
    FailurePolicy,
    FailureType,
    Fallback,
    Remedy,
    Replan,
    Resume,
    Retry,
    Rollback,
    Rule,
    RulesClassifier,
    Suspend,
    Symptom,
    abort,
    backoff_and_retry,
    chain,
    compensate,
    escalate,
    replan,
    resume_from_subgoal,
    retry,
    retry_with_tool_manifest,
    rollback_to_checkpoint,
    sequence,
    suspend,
)
from crewlite.recovery.failure import FailureKind
from crewlite.recovery.policy import remedy_for
from crewlite.recovery.remedy import as_data, is_attempt, remedy_of
from crewlite.state.format.outcome import recorded_remedy

TYPES = st.sampled_from(FailureType)
TEXTS = st.text(max_size=8)
FLAT = st.one_of(
    st.builds(Fallback),
    st.builds(Abort, TEXTS, type=st.none() | TYPES),
    st.builds(Escalate, TEXTS, type=TYPES),
    st.builds(Suspend, TEXTS, type=TYPES),
    st.builds(Replan, TEXTS, type=TYPES),
    st.builds(Resume, TEXTS, TEXTS, type=TYPES),
    st.builds(Rollback, st.none() | TEXTS, TEXTS, type=TYPES),
    st.builds(
        Retry,
        st.floats(0, 1e6),
        st.just("bug"),
        st.booleans(),
        TEXTS,
        st.none() | st.lists(TEXTS, max_size=2).map(tuple),
        type=st.none() | TYPES,
    ),
)
FAILURES = st.builds(
    Failure,
    st.sampled_from(get_args(FailureKind)),
    st.just("SomeError"),
    TEXTS,
    st.none() | st.floats(0, 1e4),
    st.just("task:a/tool:b"),
    st.integers(0, 2),
    type=TYPES,
    permanent=st.booleans(),
)
LEAVES = st.one_of(
    st.builds(retry, st.integers(0, 4)),
    st.builds(backoff_and_retry, st.integers(0, 6)),
    st.builds(retry_with_tool_manifest, st.none() | st.just(["look"]), st.integers(0, 3)),
    st.builds(replan, st.none() | TEXTS, st.integers(0, 3)),
    st.builds(rollback_to_checkpoint, st.none() | TEXTS, st.integers(0, 3)),
    st.builds(resume_from_subgoal, st.none() | TEXTS, st.integers(0, 3)),
    st.builds(suspend),
    st.builds(escalate),
    st.builds(abort),
)
STRATEGIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(compensate, inner),
        st.builds(chain, inner, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda several: sequence(*several)),
    ),
    max_leaves=4,
)
POLICIES = st.builds(
    lambda default, by_type, most: FailurePolicy(
        default=default, max_recovery_attempts=most, **{kind.name: strategy for kind, strategy in by_type.items()}
    ),
    st.none() | STRATEGIES,
    st.dictionaries(TYPES, STRATEGIES, max_size=3),
    st.none() | st.integers(0, 5),
)


@given(FLAT | st.builds(Compensate, FLAT, type=TYPES))
def test_a_remedy_is_read_from_its_record_as_it_was(remedy):
    record = json.loads(json.dumps(recorded_remedy(remedy)))
    assert remedy_of(record, "bug") == remedy
    assert repr(remedy_of(record, "bug")) == repr(remedy)


def test_a_record_of_earlier_and_of_later_releases_is_read():
    assert remedy_of({"do": "retry", "after": 2.0, "anew": False}, "timeout") == Retry(2.0, "timeout", anew=False)
    assert (remedy_of({"do": "fallback"}, ""), remedy_of({"do": "abort"}, "")) == (Fallback(), Abort())
    assert remedy_of({"do": "meditate", "for": "an hour"}, "bug") is None
    assert remedy_of({"do": "compensate", "then": {"do": "meditate"}}, "bug") is None
    assert remedy_of({"do": "replan", "type": "stage_fright", "mood": 3}, "bug") == Replan(type=FailureType.UNKNOWN)


def test_the_record_of_a_remedy_of_today_is_as_it_was():
    assert as_data(Retry(0.5, "bug")) == {"do": "retry", "after": 0.5}
    assert as_data(Retry(kind="bug", anew=False)) == {"do": "retry", "after": 0.0, "anew": False}
    assert (as_data(Fallback()), as_data(Abort())) == ({"do": "fallback"}, {"do": "abort"})
    assert repr(Retry(0.01, "bug")) == "Retry(after=0.01, kind='bug')"


@given(POLICIES, st.lists(FAILURES, min_size=1, max_size=5))
def test_a_policy_ends_every_history_of_failures_within_its_budget_and_decides_the_same_again(policy, failures):
    past: list[Remedy] = []
    for failure in islice(cycle(failures), 60):
        remedy = remedy_for(policy, failure, past)
        assert remedy == remedy_for(policy, failure, list(past))
        if not is_attempt(remedy):  # it gives up, or a person says what follows
            break
        if failure.permanent:
            assert isinstance(remedy, Fallback | Compensate)
        past.append(remedy)
    recoveries = [remedy for remedy in past if not isinstance(remedy, Fallback)]
    assert all(remedy.type is not None for remedy in recoveries)
    assert len(recoveries) <= policy.max_recovery_attempts


@given(STRATEGIES, TYPES, st.lists(FLAT, max_size=6))
def test_no_type_of_failure_uses_up_the_budget_of_another(strategy, kind, past):
    failure = Failure("bug", "KeyError", "x", type=kind)
    own = [remedy for remedy in past if remedy.type == kind]
    assert strategy.decide(failure, past) == strategy.decide(failure, own)


def chosen(policy, failure, times):
    """The remedies that follow as many failures alike."""
    past = []
    for _ in range(times):
        past.append(remedy_for(policy, failure, past))
    return [type(remedy).__name__ for remedy in past]


LOST = Failure("bug", "AssertionError", "claimed 100 but got 42", type=FailureType.HALLUCINATED_STATE, address="task:b")


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        (retry(max_attempts=2), ["Retry", "Retry", "Escalate"]),
        (replan(max_replans=1), ["Replan", "Escalate"]),
        (sequence(retry(), replan(), rollback_to_checkpoint()), ["Retry", "Replan", "Rollback", "Escalate"]),
        (chain(retry(1), chain(replan(max_replans=1), suspend())), ["Retry", "Replan", "Suspend", "Suspend"]),
        (chain(retry(1), abort("enough")), ["Retry", "Abort"]),
        (compensate(), ["Compensate"]),
        (resume_from_subgoal(max_attempts=1), ["Resume", "Escalate"]),
    ],
    ids=repr,
)
def test_a_strategy_and_what_follows_when_its_budget_is_spent(strategy, names):
    assert chosen(strategy, LOST, len(names)) == names


def test_the_hint_tells_what_failed_and_what_to_do_otherwise():
    (hint,) = {replan().decide(LOST, ()).hint, rollback_to_checkpoint().decide(LOST, ()).hint}
    assert hint == (
        "The last attempt failed at task:b: claimed 100 but got 42. "
        "State only what the results of tools and steps show, and check it against them."
    )
    assert replan("Use the archive").decide(LOST, ()).hint == "Use the archive"
    assert retry_with_tool_manifest(["look"]).decide(LOST, ()).hint.endswith("The tools are: look.")
    assert resume_from_subgoal().decide(LOST, ()).subgoal == "task:b"


def test_a_service_gets_the_wait_that_it_asks_for_unless_that_is_too_long():
    asks = Failure.of(LLMUnavailable("429", retry_after=70), "task:a/llm#1")
    patient = backoff_and_retry(cap=90).decide(asks, ())
    assert isinstance(patient, Retry)
    assert 70 <= patient.after <= 77
    assert backoff_and_retry().decide(asks, ()) == Escalate(
        "The service asks to wait 70 s, longer than the 60 s that backoff_and_retry allows (cap)",
        type=FailureType.UNKNOWN,
    )
    plain = Failure.of(ConnectionError(), "task:a/llm#1")
    waits = [backoff_and_retry(9, base=1, cap=8).decide(plain, [Retry(type=plain.type)] * n).after for n in range(6)]
    assert all(low / 2 <= wait <= low for wait, low in zip(waits, [1, 2, 4, 8, 8, 8], strict=True))


def test_rules_decide_before_strategies_and_their_retries_count_for_themselves():
    policy = FailurePolicy((Rule({"unavailable"}, 4, base=0),), default=replan(max_replans=2))
    failure = Failure("unavailable", "LLMUnavailable", "503")
    assert chosen(policy, failure, 7) == ["Retry"] * 4 + ["Replan"] * 2 + ["Escalate"]


def test_a_fallback_is_tried_before_a_strategy_gives_up():
    failure = Failure("unavailable", "LLMUnavailable", "503", fallbacks=1)
    assert FailurePolicy(default=escalate()).decide(failure, ()) == Fallback()
    assert FailurePolicy(default=retry(1)).decide(failure, ()) == Retry(type=FailureType.UNKNOWN)


def test_what_no_attempt_can_mend_is_not_tried_again():
    policy = FailurePolicy(default=retry(), UNKNOWN=rollback_to_checkpoint(), EXTERNAL_FAULT=suspend())
    for error in (LLMAuthError("m", 401, "bad key"), ConfigError("x")):
        assert isinstance(policy.decide(Failure.of(error), ()), Escalate)


def test_the_limits_of_a_step_and_of_a_run():
    policy = FailurePolicy(default=retry(9), max_recovery_attempts=2, max_recovery_attempts_per_run=5)
    failure = Failure("bug", "KeyError", "x")
    assert chosen(policy, failure, 3) == ["Retry", "Retry", "Escalate"]
    whole = Failure("bug", "KeyError", "x", recoveries=5)
    assert policy.decide(whole, ()) == Escalate(
        "The budget of 5 remedies of this run (max_recovery_attempts_per_run) is used up", type=FailureType.UNKNOWN
    )
    assert FailurePolicy(default=escalate()).max_recovery_attempts == 3
    assert FailurePolicy(TIMEOUT=backoff_and_retry(5), default=chain(retry(4), replan())).max_recovery_attempts == 7


@pytest.mark.parametrize(
    ("last", "attempts"),
    [
        (suspend(), 0),
        (escalate("Call Ann"), 0),
        (abort("enough"), 0),
        (compensate(), 0),
        (compensate(suspend()), 0),
        (sequence(replan(), suspend()), 1),
        (chain(replan(max_replans=4), suspend()), 4),
        (DEFAULT, 0),
    ],
)
@pytest.mark.parametrize("told", [False, True])
def test_the_last_link_of_a_chain_is_reached_whatever_the_first_has_spent(last, attempts, told):
    policy = FailurePolicy(UNKNOWN=chain(retry(6), last))
    failure = Failure("bug", "KeyError", "x", is_told=told)
    remedies = chosen(policy, failure, 7 + attempts)
    assert remedies[:6] == ["Retry"] * 6
    assert remedies[-1] == type(last.decide(failure, [Replan(type=failure.type)] * attempts)).__name__


def test_a_person_is_asked_also_when_a_budget_is_spent():
    policy = FailurePolicy(default=chain(retry(2), suspend()), max_recovery_attempts=2, max_recovery_attempts_per_run=2)
    failure = Failure("bug", "KeyError", "x", recoveries=2)
    assert isinstance(policy.decide(failure, [Retry(type=failure.type)] * 2), Suspend)


@pytest.mark.parametrize("by", ["other remedies", "its budget", "the run's budget"])
def test_a_budget_that_is_spent_before_the_first_link_leads_to_the_question_behind_it(by):
    own = {"its budget": {"max_recovery_attempts": 1}, "the run's budget": {"max_recovery_attempts_per_run": 1}}
    policy = FailurePolicy(CONSTRAINT_IGNORED=replan(), UNKNOWN=chain(retry(6), suspend()), **own.get(by, {}))
    failure = Failure("bug", "KeyError", "x", is_told=True, recoveries=1 if by == "the run's budget" else 0)
    past = [Replan(type=FailureType.CONSTRAINT_IGNORED)] * (
        1 if by == "its budget" else 7 if by == "other remedies" else 0
    )
    assert isinstance(policy.decide(failure, past), Suspend)


def test_a_policy_shows_what_was_set():
    assert repr(FailurePolicy(TIMEOUT=backoff_and_retry(5))).count("max_recovery") == 0
    assert "classifier" not in repr(FailurePolicy(default=retry()))
    mine = RulesClassifier(loop_window=5)
    shown = repr(FailurePolicy(classifier=mine, max_recovery_attempts=2, max_recovery_attempts_per_run=5))
    assert shown == (
        f"FailurePolicy(rules=(), classifier={mine!r}, max_recovery_attempts=2, max_recovery_attempts_per_run=5)"
    )


def test_policies_are_values_and_need_a_classifier_only_for_strategies():
    one, other = (FailurePolicy(DEFAULT.rules, TIMEOUT=retry(), default=escalate()) for _ in range(2))
    assert (one, hash(one), one.classifier) == (other, hash(other), RulesClassifier())
    assert one != FailurePolicy(DEFAULT.rules, TIMEOUT=retry(1), default=escalate())
    assert DEFAULT.classifier is None
    with pytest.raises(AttributeError):
        one.default = None


WRITTEN = """
rules:
  - {kinds: [unavailable], retries: 2}
classifier: {rules: {constraints: [secret], symptoms: [{type: goal_drift, words: poem}]}}
EXTERNAL_FAULT: {backoff_and_retry: {max_attempts: 5, base: 0.5}}
hallucinated_state: {rollback_to_checkpoint: "step:plan"}
SCHEMA_MISMATCH: {sequence: [retry, {replan: {hint: Answer in JSON}}]}
TIMEOUT: {chain: {first: {retry: 1}, then: {compensate: {then: abort}}}}
default: escalate
max_recovery_attempts_per_run: 20
"""
SAME = FailurePolicy(
    (Rule({"unavailable"}, 2),),
    classifier=RulesClassifier([Symptom("goal_drift", words="poem")], ["secret"]),
    EXTERNAL_FAULT=backoff_and_retry(5, base=0.5),
    HALLUCINATED_STATE=rollback_to_checkpoint("step:plan"),
    SCHEMA_MISMATCH=sequence(retry(), replan("Answer in JSON")),
    TIMEOUT=chain(retry(1), compensate(abort())),
    default=escalate(),
    max_recovery_attempts_per_run=20,
)


def test_a_policy_is_built_from_yaml_as_from_code(tmp_path):
    assert FailurePolicy.from_yaml(WRITTEN) == SAME
    file = tmp_path / "policy.yaml"
    file.write_text(WRITTEN, encoding="utf-8")
    assert FailurePolicy.from_yaml(file) == FailurePolicy.from_yaml(str(file)) == SAME
    assert FailurePolicy.from_yaml("default: escalate") == FailurePolicy(default=escalate())


def test_all_mistakes_in_a_written_policy_are_told_at_once():
    wrong = {
        "EXTERNAL_FALT": "retry",
        "TIMEOUT": "rety",
        "GOAL_DRIFT": {"replan": {"max_replan": 2}},
        "UNKNOWN": {"sequence": ["retry", {"retry": -1}]},
        "rules": [{"kinds": ["timeuot"], "retries": 1}, "timeout", {"kinds": ["timeout"]}],
        "classifier": "llm",
        "default": {"retry": 1, "replan": 2},
    }
    with pytest.raises(ConfigError) as caught:
        FailurePolicy.from_dict(wrong)
    for part in (
        "EXTERNAL_FALT is no setting of a policy (did you mean 'EXTERNAL_FAULT'?)",
        "TIMEOUT: 'rety' is no strategy (did you mean 'retry'?)",
        "GOAL_DRIFT: replan has no argument 'max_replan' (did you mean 'max_replans'?)",
        "UNKNOWN: sequence: retry: retry: max_attempts is -1; wanted a whole number, 0 or more",
        "rules: Rule: 'timeuot' is not a kind of failure (did you mean 'timeout'?)",
        "rules: 'timeout' is no Rule (wanted a mapping of its settings)",
        "rules: missing a required argument: 'retries' (it takes kinds, retries, base, cap)",
        "classifier: 'llm' cannot be written here (wanted rules; give any other as an object)",
        "default: {'retry': 1, 'replan': 2} is no strategy (wanted one of retry, backoff_and_retry,",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: FailurePolicy(TIME_OUT=retry()), r"'TIME_OUT' is no type of failure \(did you mean 'TIMEOUT'\?\)"),
        (lambda: FailurePolicy(TIMEOUT="retry"), r"TIMEOUT is 'retry'; wanted a strategy, such as escalate\(\)"),
        (lambda: FailurePolicy(default=retry), "default is <function retry"),
        (lambda: FailurePolicy(max_recovery_attempts=-1), "max_recovery_attempts is -1; wanted a whole number"),
        (
            lambda: FailurePolicy(classifier=RulesClassifier),
            r"wanted a RulesClassifier\(\), or an object with classify",
        ),
        (lambda: FailurePolicy.from_yaml(3), "policy is 3; wanted the path of a YAML file"),
        (lambda: retry("3"), "retry: max_attempts is '3'; wanted a whole number, 0 or more"),
        (lambda: backoff_and_retry(base=-1), "backoff_and_retry: base is -1; wanted seconds"),
        (lambda: retry_with_tool_manifest("look"), r"wanted a list of names, such as \['look'\]"),
        (lambda: sequence(), r"sequence\(\) has no strategies"),
        (lambda: chain(retry(), 3), "chain: then is 3; wanted a strategy"),
        (lambda: Replan(hint=3), "Replan: hint is 3; wanted a text"),
        (lambda: Retry(tools="look"), "Retry: tools is 'look'; wanted the names of tools"),
        (lambda: Compensate("abort"), "Compensate: then is 'abort'; wanted a remedy"),
        (lambda: FailurePolicy.from_yaml("a: [b"), "The policy is not valid YAML"),
        (lambda: FailurePolicy.from_yaml(""), "The policy is empty; wanted settings, such as `TIMEOUT: retry`"),
        (lambda: FailurePolicy.from_yaml("# later\n"), "The policy is empty"),
        (lambda: FailurePolicy.from_yaml("TIMEOUT: retry\nTIMEOUT: abort\n"), "TIMEOUT in line 1 and in line 2"),
        (
            lambda: FailurePolicy.from_yaml("timeout: retry\nTIMEOUT: abort\n"),
            "TIMEOUT is given twice, in two spellings",
        ),
        (
            lambda: FailurePolicy.from_yaml("guards:\n- loop_detector: {window: 2, window: 3}\n"),
            "names settings twice: window in line 2 and in line 2. Keep one",
        ),
        (lambda: FailurePolicy.from_yaml("nowhere.yaml"), "nowhere.yaml cannot be read"),
        (lambda: FailurePolicy.from_yaml("TIMEOUT: 2026-02-30"), "The policy is not valid YAML: day "),
        (lambda: FailurePolicy.from_yaml("TIMEOUT: " + "[" * 3000), "The policy is not valid YAML: maximum recursion"),
        (lambda: FailurePolicy.from_dict(["retry"]), "wanted a mapping"),
    ],
)
def test_what_cannot_be_a_strategy_or_a_policy_is_told_when_it_is_made(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


def test_a_failure_that_a_model_is_told_of_is_escalated_only_by_the_strategy_for_its_type():
    told = Failure("bug", "ValueError", "no such port", is_told=True)
    for policy in (FailurePolicy(default=escalate()), FailurePolicy(UNKNOWN=retry(1)), retry(1)):
        assert remedy_for(policy, told, [Retry(type=FailureType.UNKNOWN)]) in (Abort(), Abort(type=FailureType.UNKNOWN))
    assert isinstance(FailurePolicy(UNKNOWN=escalate()).decide(told, ()), Escalate)
    assert isinstance(FailurePolicy(UNKNOWN=chain(retry(0), escalate())).decide(told, ()), Escalate)


def test_the_hint_of_each_attempt_is_another_so_that_code_which_goes_back_asks_anew_with_it():
    strategy = rollback_to_checkpoint(max_rollbacks=3)
    hints = [
        strategy.decide(replace(Failure.of(ValueError("made up"), "step:b"), attempts=number), ()).hint
        for number in (1, 2, 3)
    ]
    assert len(set(hints)) == 3
    assert hints[2].startswith("Attempt 3 failed at step:b: made up.")
