"""What to do about a failure is decided purely: no clock, no chance, no waiting."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from crewlite.errors import ConfigError, LLMEmptyReply, LLMError, LLMUnavailable, StepTimeout
from crewlite.recovery import DEFAULT, Abort, Failure, FailurePolicy, Ladder, Retry, Rule


def unavailable(retry_after=None):
    return Failure("unavailable", "LLMUnavailable", "429", retry_after)


def policy(*rules):
    return FailurePolicy(tuple(Rule(frozenset(kinds.split()), retries, **more) for kinds, retries, more in rules))


class Throttled(Exception):
    retry_after = 3.0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (LLMUnavailable("429"), "unavailable"),
        (ConnectionResetError(), "unavailable"),
        (BrokenPipeError(), "unavailable"),
        (TimeoutError(), "timeout"),
        (StepTimeout("llm", 1.0), "timeout"),
        (LLMEmptyReply("m"), "empty"),
        (LLMError("no such model"), "refused"),
        (ConfigError("x"), "refused"),
        (ValueError("rate limit 429, please try again later"), "bug"),
        (KeyError("timeout"), "bug"),
        (OSError("x"), "bug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_a_failure_is_known_by_the_type_of_its_error_never_by_its_words(error, kind):
    failure = Failure.of(error)
    assert (failure.kind, failure.error_type, failure.message) == (kind, type(error).__qualname__, str(error))


def test_a_failure_keeps_how_long_it_was_asked_to_wait():
    assert Failure.of(LLMUnavailable("429", retry_after=7)).retry_after == 7
    assert Failure.of(Throttled()).retry_after == 3.0
    assert Failure.of(ValueError()).retry_after is None


def test_without_rules_every_failure_is_given_up():
    assert FailurePolicy().decide(unavailable(), ()) == Abort()


def test_the_first_rule_that_covers_the_failure_and_is_not_spent_decides():
    mine = policy(
        ("empty", 9, {}), ("unavailable", 1, {"base": 100, "cap": 100}), ("unavailable timeout", 3, {"base": 0})
    )
    first = mine.decide(unavailable(), ())
    assert isinstance(first, Retry)
    assert first.delay >= 50
    second = mine.decide(unavailable(), (first,))
    assert second.delay == 0.0
    assert mine.decide(unavailable(), (first, second, second)) == Abort()
    assert mine.decide(Failure("bug", "KeyError", "x"), ()) == Abort()


def test_only_retries_count_as_tries():
    once = policy(("unavailable", 1, {}))
    assert isinstance(once.decide(unavailable(), (Abort(), Abort())), Retry)
    assert once.decide(unavailable(), (Abort(), Retry())) == Abort()


@pytest.mark.parametrize(("error", "tries"), [(LLMUnavailable("503"), 4), (TimeoutError(), 4), (LLMEmptyReply("m"), 2)])
def test_the_default_tries_what_may_work_later_and_then_gives_up(error, tries):
    failed = []
    while DEFAULT.delay(error, failed, "task:a/llm#1") is not None:
        failed.append(DEFAULT.kind(error))
    assert len(failed) + 1 == tries


@pytest.mark.parametrize("error", [ValueError(), LLMError("x"), ConfigError("x"), KeyError("x"), OSError()])
def test_the_default_does_not_repeat_what_trying_again_cannot_mend(error):
    assert DEFAULT.delay(error, [], "k") is None


def test_an_empty_reply_is_asked_for_again_at_once():
    assert DEFAULT.delay(LLMEmptyReply("m"), [], "k") == 0.0


@pytest.mark.parametrize("asked", [7, 0, 0.25, 60])
def test_what_the_other_side_asks_for_is_waited_and_never_less_or_a_tenth_more(asked):
    waits = {DEFAULT.decide(unavailable(asked), (), key=str(n)).delay for n in range(200)}
    assert min(waits) >= asked
    assert max(waits) <= min(asked * 1.1, 60)
    assert len(waits) > 100 or asked in (0, 60)


def test_a_wait_that_is_longer_than_a_run_should_last_is_not_begun():
    assert Failure.of(LLMUnavailable("429", retry_after=61)).kind == "later"
    assert DEFAULT.delay(LLMUnavailable("429", retry_after=61), [], "task:a/llm#1") is None


LADDER = Ladder(3, DEFAULT)


def failures(error, ways=LADDER):
    """The way of each attempt, until none is left."""
    past, taken = [], []
    while True:
        taken.append(ways.way(past))
        if ways.delay(error, past, "key") is None:
            return taken
        past.append(ways.kind(error))


def test_each_way_has_the_whole_budget_before_the_next_begins():
    assert failures(LLMUnavailable("503")) == [0] * 4 + [1] * 4 + [2] * 4
    assert failures(LLMEmptyReply("m")) == [0, 0, 1, 1, 2, 2]
    assert failures(LLMError("no such model")) == [0, 1, 2]
    assert failures(LLMUnavailable("429", retry_after=3600)) == [0, 1, 2]
    assert failures(LLMError("no such model"), Ladder(1, DEFAULT)) == [0]


def test_a_bug_is_not_tried_another_way():
    assert failures(KeyError("x")) == [0]


@given(st.lists(st.sampled_from(["unavailable", "later", "timeout", "empty", "refused"]), max_size=20))
def test_the_way_follows_from_the_failures_alone_and_never_goes_back(past):
    ways = [LADDER.way(past[:n]) for n in range(len(past) + 1)]
    assert ways == sorted(ways)
    assert set(ways) <= {0, 1, 2}


@given(st.integers(0, 12), st.text(max_size=20), st.floats(0.001, 5), st.floats(0.001, 90))
def test_delays_double_up_to_the_cap_with_half_of_it_left_to_jitter(past, key, base, cap):
    mine = policy(("unavailable", 99, {"base": base, "cap": cap}))
    delay = mine.delay(LLMUnavailable("429"), ["unavailable"] * past, key)
    whole = min(base * 2**past, cap)
    assert whole * 0.5 <= delay <= whole


@given(st.integers(0, 2), st.text(max_size=20))
def test_the_same_question_gets_the_same_answer(past, key):
    assert DEFAULT.delay(LLMUnavailable("429"), ["unavailable"] * past, key) == DEFAULT.delay(
        LLMUnavailable("429"), ["unavailable"] * past, key
    )


def test_runs_that_failed_together_do_not_come_back_together():
    delays = {DEFAULT.delay(LLMUnavailable("429"), [], f"task:t{n}/llm#1") for n in range(100)}
    assert len(delays) == 100


def test_deciding_and_delaying_are_one_decision():
    for past in range(5):
        remedy = DEFAULT.decide(unavailable(), (Retry(),) * past, key="k")
        assert DEFAULT.delay(LLMUnavailable("429"), ["unavailable"] * past, "k") == (
            remedy.delay if isinstance(remedy, Retry) else None
        )


def test_a_very_late_try_has_a_delay_all_the_same():
    mine = policy(("unavailable", 10_000, {}))
    assert mine.delay(LLMUnavailable("429"), ["unavailable"] * 5_000, "k") <= 60


def test_a_rule_without_retries_gives_up():
    assert policy(("timeout", 0, {})).delay(TimeoutError(), [], "k") is None


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (
            lambda: Rule(frozenset({"timeuot"}), 1),
            r"'timeuot' is no kind of failure \(did you mean 'timeout'\?\); wanted some of unavailable, later",
        ),
        (lambda: Rule({3}, 1), "3 is no kind of failure; wanted"),
        (lambda: Rule("unavailable", 1), r"'unavailable'; wanted a set of them, such as \{'timeout'\}"),
        (lambda: Rule(None, 1), "kinds is None"),
        (lambda: Rule({"timeout"}, -1), "retries is -1; wanted a whole number, 0 or more"),
        (lambda: Rule({"timeout"}, "5"), "retries is '5'"),
        (lambda: Rule({"timeout"}, True), "retries is True"),
        (lambda: Rule({"timeout"}, 1, base=-1), "base is -1; wanted seconds"),
        (lambda: Rule({"timeout"}, 1, cap="9"), "cap is '9'; wanted seconds"),
        (lambda: Rule({"timeout"}, 1, cap=float("nan")), "cap is nan"),
        (lambda: FailurePolicy(Rule({"timeout"}, 1)), r"wanted a tuple of rules, such as \(Rule\(\.\.\.\),\)"),
        (lambda: FailurePolicy(({"timeout"},)), "wanted a tuple of rules"),
    ],
)
def test_what_cannot_be_a_rule_or_policy_is_told_when_it_is_made(made, match):
    with pytest.raises(ConfigError, match=match):
        made()


def test_kinds_and_rules_may_be_given_in_any_collection():
    lists = FailurePolicy([Rule(["timeout"], 1)])
    assert lists == policy(("timeout", 1, {}))
    assert hash(lists) == hash(policy(("timeout", 1, {})))


def test_policies_are_values():
    assert policy(("timeout", 1, {})) == policy(("timeout", 1, {}))
    assert hash(DEFAULT)
    with pytest.raises(AttributeError):
        DEFAULT.rules = ()


def test_each_kind_of_failure_has_a_budget_of_its_own():
    assert DEFAULT.delay(LLMEmptyReply("m"), ["unavailable"] * 3, "k") == 0.0
    assert DEFAULT.delay(LLMEmptyReply("m"), ["empty"], "k") is None
    assert DEFAULT.delay(LLMUnavailable("429"), ["empty", "unavailable"], "k") is not None
