"""What to do about a failure is decided purely: no clock, no chance, no waiting."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, strategies as st

from crewlite.errors import ConfigError, LLMEmptyReply, LLMError, LLMUnavailable, StepTimeout
from crewlite.recovery import DEFAULT, Abort, Failure, FailurePolicy, Fallback, Retry, Rule
from crewlite.recovery.policy import remedy_for
from crewlite.recovery.port import check_policy


def unavailable(retry_after=None):
    return Failure("unavailable", "LLMUnavailable", "429", retry_after)


def policy(*rules):
    return FailurePolicy(tuple(Rule(frozenset(kinds.split()), retries, **more) for kinds, retries, more in rules))


def delay(policy, error, past, key="k"):
    """Seconds until the next try after failures of these kinds; None if the policy gives up."""
    remedy = policy.decide(Failure.of(error, key), [Retry(kind=kind) for kind in past])
    return remedy.after if isinstance(remedy, Retry) else None


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


@pytest.mark.parametrize(
    ("told", "wait"),
    [("30", 30.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), (-1, None), (float("inf"), None), (object(), None)],
)
def test_the_wait_that_an_error_of_another_library_asks_for_may_be_of_any_type(told, wait):
    error = ConnectionError("busy")
    error.retry_after = told
    assert Failure.of(error).retry_after == wait


def test_an_error_whose_attributes_cannot_be_read_is_a_failure_like_any_other():
    class Response(ConnectionError):
        def __getattr__(self, name):
            raise RuntimeError(f"{name} was not fetched")

    failure = Failure.of(Response("lost"))
    assert (failure.kind, failure.retry_after, failure.status) == ("unavailable", None, None)


def test_without_rules_every_failure_is_given_up():
    assert FailurePolicy().decide(unavailable(), ()) == Abort()


def test_the_first_rule_that_covers_the_failure_and_is_not_spent_decides():
    mine = policy(
        ("empty", 9, {}), ("unavailable", 1, {"base": 100, "cap": 100}), ("unavailable timeout", 3, {"base": 0})
    )
    first = mine.decide(unavailable(), ())
    assert isinstance(first, Retry)
    assert first.after >= 50
    second = mine.decide(unavailable(), (first,))
    assert second.after == 0.0
    assert mine.decide(unavailable(), (first, second, second)) == Abort()
    assert mine.decide(Failure("bug", "KeyError", "x"), ()) == Abort()


def test_only_retries_count_as_tries():
    once = policy(("unavailable", 1, {}))
    assert isinstance(once.decide(unavailable(), (Abort(), Abort())), Retry)
    assert once.decide(unavailable(), (Abort(), Retry())) == Abort()


@pytest.mark.parametrize(("error", "tries"), [(LLMUnavailable("503"), 4), (TimeoutError(), 4), (LLMEmptyReply("m"), 2)])
def test_the_default_tries_what_may_work_later_and_then_gives_up(error, tries):
    failed = []
    while delay(DEFAULT, error, failed, "task:a/llm#1") is not None:
        failed.append(Failure.of(error).kind)
    assert len(failed) + 1 == tries


@pytest.mark.parametrize("error", [ValueError(), LLMError("x"), ConfigError("x"), KeyError("x"), OSError()])
def test_the_default_does_not_repeat_what_trying_again_cannot_mend(error):
    assert delay(DEFAULT, error, [], "k") is None


def test_an_empty_reply_is_asked_for_again_at_once():
    assert delay(DEFAULT, LLMEmptyReply("m"), [], "k") == 0.0


@pytest.mark.parametrize("asked", [7, 0, 0.25, 60])
def test_what_the_other_side_asks_for_is_waited_and_never_less_or_a_tenth_more(asked):
    waits = {delay(DEFAULT, LLMUnavailable("429", retry_after=asked), [], str(n)) for n in range(200)}
    assert min(waits) >= asked
    assert max(waits) <= min(asked * 1.1, 60)
    assert len(waits) > 100 or asked in (0, 60)


def test_a_wait_that_is_longer_than_a_run_should_last_is_not_begun():
    assert Failure.of(LLMUnavailable("429", retry_after=61)).kind == "later"
    assert delay(DEFAULT, LLMUnavailable("429", retry_after=61), [], "task:a/llm#1") is None


def ways(error, fallbacks=2, policy=DEFAULT):
    """The way of each attempt, until none is left: 0, then the number of the fallback."""
    past, taken = [], []
    while Abort() not in past:
        way = past.count(Fallback())
        taken.append(way)
        past.append(remedy_for(policy, Failure.of(error, "key", fallbacks - way), past))
    return taken


def test_each_way_has_the_whole_budget_before_the_next_begins():
    assert ways(LLMUnavailable("503")) == [0] * 4 + [1] * 4 + [2] * 4
    assert ways(LLMEmptyReply("m")) == [0, 0, 1, 1, 2, 2]
    assert ways(LLMError("no such model")) == [0, 1, 2]
    assert ways(LLMUnavailable("429", retry_after=3600)) == [0, 1, 2]
    assert ways(LLMError("no such model"), fallbacks=0) == [0]


def test_a_bug_is_not_tried_another_way():
    assert ways(KeyError("x")) == [0]


@given(st.lists(st.sampled_from(["unavailable", "later", "timeout", "empty", "refused"]), max_size=20))
def test_a_policy_goes_on_with_a_fallback_only_while_one_is_left(kinds):
    past = []
    for kind in kinds:
        past.append(remedy_for(DEFAULT, Failure(kind, "E", "x", fallbacks=2 - past.count(Fallback())), past))
    assert past.count(Fallback()) <= 2


class Own:
    """A policy of the user's own."""

    def __init__(self, *remedies):
        self.remedies, self.asked = list(remedies), []

    def decide(self, failure, past):
        self.asked.append((failure, past))
        return self.remedies.pop(0)


def test_a_step_applies_the_remedy_that_a_policy_chooses_and_notes_what_it_answers():
    failure = Failure("bug", "KeyError", "x", fallbacks=1)
    assert remedy_for(Own(Retry(3)), failure, ()) == Retry(3, kind="bug")
    assert remedy_for(Own(Fallback()), failure, ()) == Fallback()
    assert remedy_for(Own(Fallback()), Failure("bug", "KeyError", "x"), ()) == Abort(), "there is none"
    asked = Own(Abort())
    assert remedy_for(asked, failure, [Retry(1)]) == Abort()
    assert asked.asked == [(failure, (Retry(1),))]


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (None, r"Own.decide returned None; wanted Retry\(after\), Fallback\(\) or Abort\(\)"),
        (3.0, "Own.decide returned 3.0"),
        (Retry, "Own.decide returned <class"),
    ],
)
def test_what_is_no_remedy_is_told(returned, match):
    with pytest.raises(ConfigError, match=match):
        remedy_for(Own(returned), unavailable(), ())


def test_an_error_of_a_policy_is_told_with_its_cause():
    with pytest.raises(ConfigError, match="Own.decide raised IndexError: pop from empty list") as caught:
        remedy_for(Own(), unavailable(), ())
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_a_policy_that_would_end_the_program_is_told_as_any_other_error_of_it(error):
    class Ends:
        def decide(self, failure, past):
            raise error

    with pytest.raises(ConfigError, match=f"Ends.decide raised {type(error).__name__}"):
        remedy_for(Ends(), unavailable(), ())


@pytest.mark.parametrize("after", [-1, "2", None, True, float("nan"), float("inf")])
def test_a_retry_waits_a_number_of_seconds(after):
    with pytest.raises(ConfigError, match="Retry: after is .*; wanted seconds, 0 or more"):
        Retry(after)


@pytest.mark.parametrize("policy", [3, "retry", Retry(1), Own, FailurePolicy])
def test_what_cannot_decide_is_no_policy(policy):
    with pytest.raises(ConfigError, match=r"X: failure_policy is .*; wanted a FailurePolicy, or an object with decide"):
        check_policy(policy, "X")


def test_whatever_can_decide_is_a_policy():
    mine = Own()
    assert [check_policy(one, "X") for one in (None, mine, DEFAULT)] == [None, mine, DEFAULT]


@given(st.integers(0, 12), st.text(max_size=20), st.floats(0.001, 5), st.floats(0.001, 90))
def test_delays_double_up_to_the_cap_with_half_of_it_left_to_jitter(past, key, base, cap):
    mine = policy(("unavailable", 99, {"base": base, "cap": cap}))
    wait = delay(mine, LLMUnavailable("429"), ["unavailable"] * past, key)
    whole = min(base * 2**past, cap)
    assert whole * 0.5 <= wait <= whole


@given(st.integers(0, 2), st.text(max_size=20))
def test_the_same_question_gets_the_same_answer(past, key):
    assert delay(DEFAULT, LLMUnavailable("429"), ["unavailable"] * past, key) == delay(
        DEFAULT, LLMUnavailable("429"), ["unavailable"] * past, key
    )


def test_runs_that_failed_together_do_not_come_back_together():
    delays = {delay(DEFAULT, LLMUnavailable("429"), [], f"task:t{n}/llm#1") for n in range(100)}
    assert len(delays) == 100


def test_a_very_late_try_has_a_delay_all_the_same():
    mine = policy(("unavailable", 10_000, {}))
    assert delay(mine, LLMUnavailable("429"), ["unavailable"] * 5_000, "k") <= 60


def test_a_rule_without_retries_gives_up():
    assert delay(policy(("timeout", 0, {})), TimeoutError(), []) is None


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (
            lambda: Rule(frozenset({"timeuot"}), 1),
            r"'timeuot' is not a kind of failure \(did you mean 'timeout'\?\); wanted some of unavailable, later",
        ),
        (lambda: Rule({3}, 1), "3 is not a kind of failure; wanted"),
        (lambda: Rule("unavailable", 1), r"'unavailable'; wanted a set of kinds of failure, such as \{'timeout'\}"),
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
    assert delay(DEFAULT, LLMEmptyReply("m"), ["unavailable"] * 3, "k") == 0.0
    assert delay(DEFAULT, LLMEmptyReply("m"), ["empty"], "k") is None
    assert delay(DEFAULT, LLMUnavailable("429"), ["empty", "unavailable"], "k") is not None
