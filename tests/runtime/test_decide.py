"""What becomes of a step that is asked for follows from the record, its question and the mode of replay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel, Field

from crewlite.encoding import codec
from crewlite.recovery import Fallback, Replan, Resume, Retry, Rollback
from crewlite.runtime.steps.attempts import Continuation, continuation, done_anew, following, next_attempt
from crewlite.runtime.steps.mode import MAY_DIFFER, Mode, StepQuestion
from crewlite.runtime.steps.replay import Execute, Refuse, Reraise, Reuse, decide
from crewlite.runtime.steps.required import missed
from crewlite.state.format.edits import Edit
from crewlite.state.format.outcome import Attempt, Outcome
from crewlite.state.format.record import Record

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKED, OTHER = codec.digest(["step", "Rome"]), codec.digest(["step", "Berlin"])
STRICT = Mode(strict_replay=True)


def outcome(address: str = "step:go", digest: str = ASKED, seq: int = 2, **more: object) -> Outcome:
    return Outcome(address, "step", 1, digest, "there", "", None, {}, 1.0, seq, "", **more)  # type: ignore[arg-type]


def failure(number: int = 1, *, final: bool = True, seq: int = 2, kind: str = "bug", **more: object) -> Attempt:
    known = ("step:go", "step", number, "KeyError", "x", "", 1.0, None, kind, final, seq, NOW, NOW, ASKED)
    return replace(Attempt(*known), **more)


def record(*outcomes: Outcome, failed: Attempt | None = None, **more: object) -> Record:
    made = Record(run={"inputs": {}, "definition": {}}, outcomes={one.address: one for one in outcomes})  # type: ignore[typeddict-item]
    if failed:
        made.failures[failed.address] = failed
    for name, value in more.items():
        setattr(made, name, value)
    return made


def question(digest: str = ASKED, **more: object) -> StepQuestion:
    return StepQuestion("step:go", "step", "Rome", digest, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base", "digest", "mode", "expected"),
    [
        (1, OTHER, Mode(), "edit lost"),
        (1, OTHER, STRICT, "reuse"),
        (1, ASKED, Mode(diverged=True), "reuse"),
        (1, OTHER, Mode(rolled_back=True), "run"),
        (2, OTHER, Mode(), "run"),
    ],
)
def test_an_edit_of_this_fork_holds_or_is_refused_and_never_dropped(base, digest, mode, expected):
    edited = record(outcome(edited=True), edited={"step:go": Edit(2, 1)})
    edited.run["base"] = {"seq": base}
    decision = decide(edited, question(digest), mode)
    assert getattr(decision, "why", verdict(decision).partition(",")[0]) == expected


def verdict(decision: object) -> str:
    match decision:
        case Reuse(drifted=drifted):
            return f"reuse, drifted {drifted[0]}" if drifted else "reuse"
        case Reraise():
            return "raise again"
        case Execute(diverges=True):
            return "run, and diverge"
        case Execute():
            return "run"
        case Refuse(why=why):
            return f"refuse: {why}"
    raise AssertionError(decision)


@pytest.mark.parametrize(
    ("digest", "drift", "on_drift", "expected"),
    [
        (ASKED, "diverge", "keep", "reuse"),
        (ASKED, "rerun", "error", "reuse"),
        (OTHER, "diverge", "keep", "run, and diverge"),
        (OTHER, "may_differ", "error", "run, and diverge"),
        (OTHER, "rerun", "keep", "run"),
        (OTHER, "keep", "error", "reuse, drifted step:go"),
        (OTHER, "configured", "keep", "reuse, drifted step:go"),
        (OTHER, "configured", "rerun", "run"),
        (OTHER, "configured", "error", "refuse: drifted"),
    ],
)
def test_a_recorded_step_answers_its_own_question_and_others_as_its_drift_says(digest, drift, on_drift, expected):
    assert verdict(decide(record(outcome()), question(digest, drift=drift), Mode(on_drift))) == expected


@pytest.mark.parametrize(
    ("on_drift", "once", "expected"),
    [
        ("keep", False, "reuse, drifted task:in"),
        ("rerun", False, "run"),
        ("error", False, "refuse: drifted"),
        ("rerun", True, "reuse, drifted task:in"),  # what may happen only once is not done again
        ("error", True, "reuse, drifted task:in"),
    ],
)
def test_an_outcome_made_of_kept_answers_is_kept_as_long_as_drift_is(on_drift, once, expected):
    made_of_kept = record(outcome(drifted=("task:in",)))
    assert verdict(decide(made_of_kept, question(once=once), Mode(on_drift))) == expected


@pytest.mark.parametrize(
    ("mode", "digest", "expected"),
    [
        (STRICT, ASKED, "reuse"),
        (STRICT, OTHER, "refuse: other question"),
        (replace(STRICT, on_drift="rerun"), OTHER, "run, and diverge"),
        (replace(STRICT, diverged=True), ASKED, "run"),
        (replace(STRICT, diverged=True), OTHER, "run"),
    ],
)
def test_under_strict_replay_another_question_is_an_error_until_the_run_diverges(mode, digest, expected):
    assert verdict(decide(record(outcome()), question(digest), mode)) == expected


@dataclass
class Job:
    at: datetime


class Open(BaseModel, extra="allow"):
    n: int = Field(1, alias="m")


def test_a_question_that_an_earlier_release_recorded_with_fewer_parts_is_the_same():
    job = Job(NOW.replace(fold=1))
    job.total = 3
    model = Open.model_validate({"n": 2})
    asked = codec.encode([job, model, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET"))])
    assert {"attributes", "extra", "zone"} <= {key for part in asked for key in part}
    moments = [{"$": "datetime", "v": text} for text in ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+01:00")]
    before = [
        {"$": "dataclass", "c": f"{__name__}:Job", "v": {"at": moments[0]}},
        {"$": "model", "c": f"{__name__}:Open", "v": {"n": 2}},
        moments[1],
    ]
    now = StepQuestion("step:go", "step", asked, codec.digest(["step", asked]))
    known = record(outcome(digest=codec.digest(["step", before])))
    assert verdict(decide(known, now, STRICT)) == "reuse"
    before[0]["v"]["at"] = moments[1]
    assert verdict(decide(record(outcome(digest=codec.digest(["step", before]))), now, STRICT)) != "reuse"


def test_under_strict_replay_a_fork_with_edits_keeps_the_edited_and_does_the_rest():
    edited = record(outcome(edited=True), edited={"step:go": Edit(2, 1)})
    assert verdict(decide(edited, question(OTHER), STRICT)) == "reuse"
    assert verdict(decide(record(outcome(), edited={"step:in": Edit(2, 1)}), question(OTHER), STRICT)) == "run"


@pytest.mark.parametrize(
    ("mode", "digest", "expected"),
    [
        (STRICT, ASKED, "raise again"),
        (STRICT, OTHER, "run"),
        (Mode(), ASKED, "run"),
        (replace(STRICT, rerun={"step:go": 1}), ASKED, "run"),
        (replace(STRICT, diverged=True), ASKED, "run"),
    ],
)
def test_a_failure_that_was_handled_is_raised_again_under_strict_replay(mode, digest, expected):
    assert verdict(decide(record(failed=failure()), question(digest), mode)) == expected


@pytest.mark.parametrize(
    ("mode", "late", "expected"),
    [
        (STRICT, False, "refuse: passed over"),
        (STRICT, True, "run"),
        (replace(STRICT, on_drift="rerun"), False, "run"),
        (Mode(), False, "run"),
    ],
)
def test_a_new_step_before_a_recorded_one_is_refused_unless_it_may_have_waited(mode, late, expected):
    known = record(outcome("step:first"))
    assert verdict(decide(known, question(comes_late=late), mode, {"step:first"})) == expected


@pytest.mark.parametrize(
    ("started_in", "claims", "expected"),
    [
        ([4], {1: 7}, "run"),
        ([6], {1: 7}, "run"),
        ([7], {1: 7}, "refuse: passed over"),
        ([4], {1: 7, 5: 8}, "refuse: passed over"),
        ([4, 6], {1: 7, 5: 8}, "run"),
        ([4], {1: 7, 5: 7}, "run"),  # a compaction repeats a claim
        ([4], {1: 7, 6: 8}, "run"),  # it may have merged commits of two kickoffs
    ],
)
def test_a_step_goes_before_one_that_ended_beside_it_in_the_same_kickoff(started_in, claims, expected):
    known = record(outcome("step:first", seq=6))
    for seq in started_in:
        known.events.add([("step_started", "e", "", "step:go")], seq)
    for seq, pid in claims.items():
        known.events.claim({"pid": pid}, seq)  # type: ignore[typeddict-item]
    assert verdict(decide(known, question(), STRICT, {"step:first"})) == expected


def test_a_step_whose_outcome_became_void_goes_before_those_that_had_ended_by_then():
    known = record(outcome("step:first"))
    assert verdict(decide(known, question(), STRICT, {"step:first"})) == "refuse: passed over"
    for void, expected in ((1, "refuse: passed over"), (3, "run")):
        known.void["step:go"] = void
        assert verdict(decide(known, question(), STRICT, {"step:first"})) == expected


def test_a_step_that_may_differ_runs_again_under_strict_replay_and_nothing_recorded_counts_after_it():
    other, later = question(OTHER, drift="may_differ"), {"step:later"}
    assert verdict(decide(record(outcome()), other, STRICT, later)) == "run, and diverge"
    assert verdict(decide(record(failed=failure()), other, STRICT, later)) == "run, and diverge"
    assert verdict(decide(record(outcome()), question(drift="may_differ"), STRICT, later)) == "reuse"
    assert verdict(decide(record(failed=failure()), question(drift="may_differ"), STRICT)) == "raise again"
    new = question(drift="may_differ")
    assert verdict(decide(record(outcome("step:later")), new, STRICT, later)) == "run, and diverge"
    assert verdict(decide(record(failed=failure()), new, replace(STRICT, rerun={"step:go": 1}))) == "run"
    assert missed(record(outcome()._replace(provenance={MAY_DIFFER: "yes"})), STRICT, "", {"step:go"}) == ()


@pytest.mark.parametrize("mode", [STRICT, Mode()])
def test_after_a_step_that_differs_a_call_that_may_happen_once_answers_its_own_question_and_refuses_others(mode):
    mode = replace(mode, diverged=True, differs=True)
    assert verdict(decide(record(outcome()), question(once=True), mode)) == "reuse"
    assert verdict(decide(record(outcome()), question(OTHER, once=True), mode)) == "refuse: other question"
    assert verdict(decide(record(outcome()), question(OTHER, once=True), replace(mode, on_drift="rerun"))) != "reuse"
    assert verdict(decide(record(outcome()), question(OTHER), replace(mode, diverged=False))) == "run, and diverge"


def test_what_was_recorded_after_a_step_that_may_differ_may_change_if_that_is_left_out():
    call = outcome("llm#2")._replace(provenance={MAY_DIFFER: "yes"}, order=(1,))
    known, left = record(call, outcome()._replace(order=(2,))), {"llm#2"}
    assert verdict(decide(known, question(OTHER), STRICT, left)) == "run, and diverge"
    assert verdict(decide(known, question(OTHER), STRICT)) == "refuse: other question"
    assert verdict(decide(known, question(OTHER, once=True), STRICT, left)) == "refuse: other question"
    assert missed(known, STRICT, "", {"llm#2", "step:go"}) == ()
    assert missed(known, STRICT, "", {"step:go"}) == ("step:go",)


def test_what_follows_a_failure_that_is_tried_again_is_not_missed():
    known = record(outcome("step:early", seq=1), outcome("step:late", seq=5))
    assert missed(known, STRICT, "", {"step:early", "step:late"}) == ("step:early", "step:late")
    known.attempts["step:go"] = [failure(seq=3)]
    assert missed(known, STRICT, "", {"step:early", "step:late"}) == ("step:early",)


def test_the_result_of_a_run_answers_unless_it_is_superseded():
    finished = record(outcome(""))
    whole = StepQuestion("", "flow", "Rome", OTHER)
    assert verdict(decide(finished, whole, Mode())) == "reuse"
    assert verdict(decide(finished, whole, Mode(superseded=True))) == "run"


@pytest.mark.parametrize(
    ("past", "base", "number", "borne"),
    [
        ([], 0, 1, []),
        ([failure(1, final=False, kind="timeout")], 0, 2, [Retry(kind="timeout")]),  # of an earlier release
        ([replace(failure(1, final=False), remedy=Fallback())], 0, 2, [Fallback()]),
        ([failure(1, final=False, kind="timeout", seq=3)], 5, 2, []),  # a fork has a budget of its own
        ([failure(1, final=False, kind="timeout"), failure(2)], 0, 3, []),  # so has a resume after giving up
        ([failure(1, cause="step:go/step:in")], 0, 1, []),  # a child failed, which can run again
        ([failure(1, for_author=True)], 0, 1, []),
        ([replace(failure(1), kind="method")], 0, 1, []),  # a flow goes on after its failure
        ([replace(failure(1), kind="task")], 0, 2, []),
        ([failure(1, error_type="StepTimeout")], 0, 1, []),
    ],
)
def test_the_next_attempt_and_its_budget_follow_from_the_recorded_failures(past, base, number, borne):
    run = {"inputs": {}, "definition": {}} | ({"base": {"seq": base}} if base else {})
    assert next_attempt(record(run=run, attempts={"step:go": past}), "step:go") == (number, borne)
    of_root = [replace(one, address="", kind="crew") for one in past]
    assert next_attempt(record(run=run, attempts={"": of_root}), "") == (number if borne else 1, borne)


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        (failure(), "BEGINS_ANEW"),
        (failure(cause="step:go/step:in"), "GOES_ON"),
        (failure(for_author=True), "GOES_ON"),
        (failure(error_type="DeadlineExceeded"), "GOES_ON"),
        (replace(failure(), kind="method"), "GOES_ON"),
        (replace(failure(final=False), kind="method"), "BEGINS_ANEW"),
        (failure(final=False, cause="step:go/step:in"), "BEGINS_ANEW"),
        (failure(final=False, cause="step:go/step:in", remedy=Retry(anew=False)), "GOES_ON"),
        (failure(final=False, remedy=Retry(anew=False)), "BEGINS_ANEW"),
        (failure(final=False, remedy=Rollback("first")), "GOES_ON"),
        (failure(final=False, remedy=Rollback()), "GOES_ON"),  # code goes back within its work
        (replace(failure(final=False, remedy=Rollback()), kind="task"), "BEGINS_ANEW"),  # an agent begins anew
        (replace(failure(final=False, remedy=Resume()), kind="task"), "BEGINS_ANEW"),
        (failure(holds=3), "REPEATS_FORK"),
        (failure(holds=3, cause="step:go/step:in"), "GOES_ON"),
        (failure(final=False, holds=3, remedy=Retry()), "REPEATS_FORK"),
        (failure(final=False, holds=3, remedy=Replan(hint="else")), "BEGINS_ANEW"),
    ],
)
def test_the_next_attempt_goes_on_repeats_what_a_fork_has_done_or_begins_anew(failed, expected):
    assert continuation(failed) is Continuation[expected]
    assert following(failed) == (2 if expected == "BEGINS_ANEW" else 1)


def test_an_attempt_that_repeats_what_a_fork_has_done_does_only_that_anew():
    failed = failure(holds=3, seq=6, order=(6, 0))
    ends = [("step:go/a", 3), ("step:go/b", 4), ("step:go/c", 7), ("step:other/d", 4)]
    known = record(*(outcome(at, seq=seq)._replace(order=(seq, 0)) for at, seq in ends))
    assert done_anew(known, failed, "step:go/") == [("step:go/b", "step")]
    assert done_anew(known, replace(failed, holds=0), "step:go/") == []
    known.intents["step:go/b"] = "once"
    assert done_anew(known, failed, "step:go/") == []


LATER = "step:later"


@pytest.mark.parametrize(
    ("mode", "asked", "unrequested", "expected"),
    [
        (STRICT, {}, set(), "run"),
        (STRICT, {}, {LATER}, "refuse: passed over"),
        (replace(STRICT, rolled_back=True), {}, {LATER}, "run"),
        (replace(STRICT, differs=True), {}, {LATER}, "run, and diverge"),
        (STRICT, {"drift": "may_differ"}, {LATER}, "run, and diverge"),
        (STRICT, {"drift": "may_differ", "comes_late": True}, {LATER}, "run"),
        (STRICT, {"moved": True}, {LATER}, "run, and diverge"),
        (STRICT, {"comes_late": True}, {LATER}, "run"),
        (replace(STRICT, left_in_doubt=frozenset({"tool:pay"})), {}, {"tool:pay"}, "run"),
        (
            replace(STRICT, left_in_doubt=frozenset({"tool:pay"})),
            {"caller_waits": True},
            {"tool:pay"},
            "refuse: passed over",
        ),
        (
            replace(STRICT, left_in_doubt=frozenset({"tool:pay"}), differs=True),
            {"caller_waits": True},
            {"tool:pay"},
            "run",
        ),
    ],
)
def test_a_step_of_which_nothing_is_recorded_runs_unless_recorded_ones_come_before(mode, asked, unrequested, expected):
    assert verdict(decide(record(outcome(LATER)), question(**asked), mode, unrequested)) == expected
