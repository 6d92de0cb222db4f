"""Errors of runs that cannot begin, resume or end as requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crewlite import kinds
from crewlite.errors.root import CrewliteError
from crewlite.texts import resuming
from crewlite.texts.resuming import branch_ref, call_again, to_go_on_with_inputs, to_resume
from crewlite.texts.wording import number_of, sentence


class CheckpointIsBehind(CrewliteError, RuntimeError):
    """The checkpoint to resume from is not the newest one of its branch."""

    code = "place_is_behind"
    ends_run = True

    def __init__(
        self, checkpoint: str, *, run_id: str, branch: str, after: Sequence[str], head: str, kind: str = "crew"
    ) -> None:
        super().__init__(
            f"Checkpoint {checkpoint} is behind the head of {run_id}/{branch}: {', '.join(after)} came after it, and "
            f"resuming there would abandon recorded work. To go on from the head, resume from {head!r} or with "
            f"run_id={run_id!r}; to start again at this checkpoint, fork it: {kind}.fork({checkpoint!r})."
        )
        self.checkpoint, self.run_id, self.branch = checkpoint, run_id, branch
        self.after, self.head = tuple(after), head


class InDoubt(CrewliteError, RuntimeError):
    """A call declared effect="once" was interrupted, or has failed: crewlite cannot know whether it took effect."""

    code = "in_doubt"
    ends_run = True
    others: Mapping[str, int] = {}  # further calls that the same kickoff can settle: how often each was begun

    def __init__(
        self,
        address: str,
        what: str,
        failed: str = "",
        arguments: str = "",
        times: int = 1,
        *,
        others: Mapping[str, int] | None = None,
        kind: str = "crew",
        run_id: str = "",
        branch: str = "",
    ) -> None:
        """`failed`: the error of its last attempt; "" if it was interrupted. `run_id`: "" without a store."""
        self.address, self.what, self.failed, self.arguments = address, what, failed.rstrip("."), arguments
        self.times, self.others, self.run_id, self.branch = times, dict(others or {}), run_id, branch
        resume = to_resume(run_id, branch) if run_id else ""
        advice = resuming.to_settle({address: times, **self.others}, resume, kind=kind)
        super().__init__(f"{self.found} {advice}.")

    @property
    def found(self) -> str:
        """What has happened to the call, and how many others are in doubt."""
        happened = f"failed ({self.failed})" if self.failed else "was interrupted"
        happened += " again" if self.times > 1 else ""
        happened += ", and it is declared effect='once', so it is not repeated."
        given, more = f" with {self.arguments}" if self.arguments else "", len(self.others)
        happened += f" {number_of(more, 'more call')} {'is' if more == 1 else 'are'} in doubt." if more else ""
        return f"{self.what} at {self.address}{given} {happened}"


class RunMismatch(CrewliteError, ValueError):
    """The recorded run does not match the kickoff."""

    code = "run_mismatch"
    ends_run = True


class InputsChanged(RunMismatch):
    """A resume was given other inputs than the recorded ones."""

    code = "inputs_changed"

    def __init__(
        self,
        run_id: str,
        names: Sequence[str],
        *,
        kind: str = "crew",
        branch: str = "main",
        masked: Sequence[str] = (),
        turn: str = "",
        set_before: Sequence[str] = (),
    ) -> None:
        """`masked`: recorded inputs with a secret; `turn`: how far one of `@persist` is; `set_before`: on the flow."""
        ref = branch_ref(run_id, branch)
        self.found = f"Run {ref!r} was started with other inputs: {', '.join(map(repr, names))}"
        self.found += f". Set on the flow before this kickoff: {', '.join(set_before)}" if set_before else ""
        if kinds.of(kind).takes_messages:
            self.found = f"Run {ref!r} has a question without an answer, and was given another"
        super().__init__(f"{self.found}. To go on, {to_go_on_with_inputs(kind, ref, names, masked, turn)}")
        self.kind, self.run_id, self.branch, self.ref, self.names = kind, run_id, branch, ref, tuple(names)
        self.turn, self.finished = turn, turn == "finished"


class TaskGone(RunMismatch):
    """A finished task of the run matches no task of the crew."""

    code = "task_gone"

    def __init__(self, run_id: str, tasks: Sequence[str]) -> None:
        super().__init__(
            f"Run {run_id!r} has finished {', '.join(tasks)}, but no task of this crew matches it. Put the task back "
            f"(tasks match by name, else by description, else by order), fork the run from a checkpoint before it, or "
            f"start a new run with another run_id."
        )
        self.run_id, self.tasks = run_id, tuple(tasks)


class QuestionsChanged(RunMismatch):
    """A finished run is asked something else than before, and no `on_drift` setting says what to do."""

    code = "questions_changed"

    def __init__(
        self,
        run_id: str,
        changed: Mapping[str, str],
        *,
        kind: str = "crew",
        branch: str = "main",
        repeats_effects: bool = False,
    ) -> None:
        ref, allow = branch_ref(run_id, branch), ", allow_effects=True" if repeats_effects else ""
        what = "; ".join(f"{address or 'it'} {how}" for address, how in changed.items())
        self.found = f"Run {ref!r} is finished, but it is asked something else now: {what}"
        steps = [address for address in changed if address]
        fork = f"fork({ref!r}, rerun={steps!r}{allow}).kickoff()" if steps else f"fork({ref!r}).kickoff('...')"
        other = f"Use the {kind} that ran this branch (of a study: study['NAME'].definition)"
        instead = "Choose another run_id" if branch == "main" else other
        super().__init__(
            f"{self.found}. {instead}; or set checkpoint=CheckpointConfig(on_drift='rerun') to run what has changed, "
            f"or 'keep' to get the recorded answers; or fork it: {kind}.{fork}."
        )
        self.run_id, self.branch, self.ref, self.changed = run_id, branch, ref, dict(changed)
        self.kind, self.repeats_effects = kind, repeats_effects


class TaskDrifted(RunMismatch):
    """A finished task is asked something else than before, with on_drift="error"."""

    code = "task_drifted"

    def __init__(self, run_id: str, address: str, changed: str = "") -> None:
        super().__init__(
            f"{address or 'The answer'} of run {run_id!r} is finished, but it is asked something else now"
            f"{f': it {changed}' if changed else ''}. Undo the change, or set checkpoint=CheckpointConfig("
            f"on_drift='keep') to keep the recorded answer, or 'rerun' to run it and its dependents again."
        )
        self.run_id, self.address = run_id, address


class StateConflict(CrewliteError, RuntimeError):
    """A step changed names of the state that others changed while it ran, with on_conflict="error"."""

    code = "state_conflict"

    def __init__(self, address: str, names: Sequence[str]) -> None:
        super().__init__(
            f"{address} has changed {', '.join(map(repr, names))} of the state, and so has another step that ran "
            f"in parallel. Give each step a name of its own in the state; or retry this step, which then begins with "
            f"the other's change; or set on_conflict='last', so that the later commit counts."
        )
        self.address, self.names = address, tuple(names)


class NonDeterminism(RunMismatch):
    """A resumed flow requests other steps than it recorded: its code, or what that code depends on, has changed."""

    code = "non_determinism"

    def __init__(self, run_id: str, address: str, expected: str, found: str, *, beside: bool = False) -> None:
        """`beside`: whether coroutines or threads requested the expected steps side by side, without keys."""
        workers = (
            "A step requested beside others is known by its question and by the coroutine that asks: if workers take "
            "jobs from one list, give each job a key, `with keyed(job):`, in a run with another run_id. "
        )
        super().__init__(
            f"{address or 'the flow'} of run {run_id!r} requests other steps than it recorded: expected {expected}; "
            f"found {found}. {workers if beside else ''}Undo the change to the code; or, if there is none, put time "
            f"and chance into a step (or sleep_until), and sort sets; or set "
            f"checkpoint=CheckpointConfig(on_drift='rerun') to run again from there."
        )
        self.run_id, self.address, self.expected, self.found = run_id, address, expected, found


class RunCancelled(CrewliteError, RuntimeError):
    """The run was cancelled, by `RunHandle.cancel`, `History.cancel` or `crewlite checkpoint cancel`."""

    code = "run_cancelled"
    ends_run = True

    def __init__(self, run_id: str, branch: str, *, kind: str = "crew") -> None:
        super().__init__(
            f"Run {run_id!r} was cancelled on branch {branch!r}. Its record is kept: {call_again(kind)} with "
            f"{to_resume(run_id, branch)} to resume it."
        )
        self.run_id, self.branch = run_id, branch


class RunEnded(CrewliteError, RuntimeError):
    """A run was to be cancelled, but has ended already."""

    code = "run_ended"

    def __init__(self, run_id: str, branch: str, how: str) -> None:
        super().__init__(
            f"{run_id}/{branch} {how} already, so there is nothing to cancel, and nothing was changed. To run it "
            f"again, fork it."
        )
        self.run_id, self.branch = run_id, branch


class DeadlineExceeded(CrewliteError, TimeoutError):
    """A flow did not end within its limit (seconds), counted from its first beginning over all resumes."""

    code = "deadline_exceeded"

    def __init__(self, what: str, limit: float, begun: str) -> None:
        super().__init__(
            f"{what} did not end within {limit:g} s of its beginning at {begun}. Its record is kept: give it a longer "
            f"timeout and start the same run again to go on, or begin a new run."
        )
        self.what, self.limit, self.begun = what, limit, begun


class Suspended(CrewliteError, RuntimeError):
    """The run waits for people and is no longer at work. It can be resumed once they have answered.

    `waiting` has the texts of the questions, by address; `History.run(ref).waiting` lists them with what fits.
    `in_doubt` has the calls that may have taken effect, and how often each was begun: the next kickoff settles them.
    """

    code = "suspended"
    ends_run = True

    def __init__(
        self,
        run_id: str,
        location: str,
        waiting: Mapping[str, str],
        branch: str = "main",
        *,
        in_doubt: Mapping[str, int] | None = None,
        kind: str = "crew",
    ) -> None:
        self.run_id, self.location, self.waiting, self.branch = run_id, location, dict(waiting), branch
        self.in_doubt = dict(in_doubt or {})
        asked = "an answer" if len(waiting) == 1 else f"{len(waiting)} answers"
        questions = [f"{address}: {question}" for address, question in waiting.items()]
        in_lines = any("\n" in question for question in questions)
        way_on = resuming.to_answer(run_id, branch, [*waiting], location, kind)
        listed = sentence("; ".join(waiting if in_lines else questions))
        text = f"Run {branch_ref(run_id, branch)!r} waits for {asked}: {listed} {way_on}"
        doubts = resuming.in_doubt(self.in_doubt, to_resume(run_id, branch), kind)
        super().__init__("\n".join([f"{text} {doubts}".rstrip(), *(questions if in_lines else ())]))


class OnLoopThread(CrewliteError, RuntimeError):
    """A blocking method was called on the thread of an event loop, which it would block."""

    code = "on_loop_thread"
    ends_run = True

    def __init__(self, verb: str, instead: str | None = None) -> None:
        self.verb, self.instead = verb, instead or f"await a{verb}()"
        called = f"{verb}()" if verb.isidentifier() else f"`{verb}`"
        super().__init__(
            f"{called} was called on the thread of a running event loop, which it would block: {self.instead}"
        )


class MaxIterations(CrewliteError, RuntimeError):
    """An agent used all its turns, and gave no final answer when it was asked for one either."""

    code = "max_iterations"

    def __init__(self, agent: str, limit: int) -> None:
        super().__init__(
            f"Agent {agent!r} gave no final answer in {number_of(limit, 'turn')} (max_iter), nor when asked for one. "
            f"Raise max_iter, or look at the tool calls it repeats: History(location).run(run_id).steps"
        )
        self.agent, self.limit = agent, limit


class TooManyCalls(CrewliteError, RecursionError):
    """A method of a flow has started more often than `max_method_calls` allows."""

    code = "too_many_calls"

    def __init__(self, flow: str, method: str, limit: int) -> None:
        super().__init__(
            f"Method {method!r} of flow {flow!r} was to start more than {number_of(limit, 'time')} (max_method_calls). "
            f"If its cycle has an end, raise max_method_calls and start the same run again: it goes on from there."
        )
        self.flow, self.method, self.limit = flow, method, limit


class StepTimeout(CrewliteError, TimeoutError):
    """A step did not end within its limit (seconds). Work in a blocked thread is abandoned, not killed."""

    code = "step_timeout"

    def __init__(self, what: str, limit: float, *, once: bool = False) -> None:
        """`once`: whether it is declared effect="once", so that the next kickoff does not repeat it."""
        again = ". Raise its limit, or start the run again."
        way_on = ", and may still take effect." if once else again  # InDoubt, or the note about the run, says to check
        super().__init__(f"{what} did not end within {limit:g} s{way_on}")
        self.what, self.limit, self.once = what, limit, once


class StepCrashed(CrewliteError, RuntimeError):
    """The separate process of a step ended without an answer. `exit_code` is negative for a signal."""

    code = "step_crashed"

    def __init__(self, step: str, exit_code: int | None) -> None:
        how = (
            f"was ended by signal {-exit_code}" if exit_code and exit_code < 0 else f"ended with exit code {exit_code}"
        )
        super().__init__(
            f"The process of step {step!r} {how}, without an answer. Its output is on stderr. If it failed at its "
            f"start: a script must kick off under `if __name__ == '__main__':`, as the process reads the script again."
        )
        self.step, self.exit_code = step, exit_code


class StepDeadlock(CrewliteError, RuntimeError):
    """Steps wait for each other's slots (max_concurrency) or futures, and none of them can ever proceed."""

    code = "step_deadlock"
    ends_run = True

    def __init__(self, waiting: Mapping[str, str], futures: Mapping[str, str] = {}) -> None:
        waits = [f"{address} waits for a slot of {limit}" for address, limit in waiting.items()]
        waits += [f"{address} waits for the future of {step}" for address, step in futures.items()]
        super().__init__(
            f"Steps wait for each other, and none can ever proceed: {'; '.join(waits)}. Raise max_concurrency, let "
            f"limited steps call each other in one direction only, or wait for futures where their steps are submitted."
        )
        self.waiting, self.futures = dict(waiting), dict(futures)


class StepRaised(CrewliteError, RuntimeError):
    """Stands for an error that a step raised in a separate process or before a resume, and that cannot be rebuilt.

    The error's class is not loaded here, or its arguments cannot be recorded. `error_type` names the class, `trace` is
    the traceback.
    """

    code = "step_raised"

    def __init__(self, step: str, error_type: str, message: str, trace: str = "") -> None:
        super().__init__(f"{error_type} in step {step!r}: {message}")
        self.step, self.error_type, self.message, self.trace = step, error_type, message, trace


class Redacted(CrewliteError, RuntimeError):
    """Replaces an error whose text held a configured secret. In the new text the secret is masked."""

    code = "redacted"

    def __init__(self, error_type: str, message: str, *, ends_run: bool = False) -> None:
        super().__init__(f"{error_type}: {message}")
        self.error_type, self.message, self.ends_run = error_type, message, ends_run


class GuardrailFailed(CrewliteError, ValueError):
    """A guardrail has refused every answer to a task, until its retries were used up."""

    code = "guardrail_failed"

    def __init__(self, task: str, guardrail: str, reason: str, *, tries: int) -> None:
        super().__init__(
            f"{task}: no answer of {tries} passes the guardrail {guardrail!r}. Its last reason: {reason.rstrip('.')}. "
            f"Start the run again for a new attempt, raise guardrail_max_retries, or relax the guardrail."
        )
        self.task, self.guardrail, self.reason, self.tries = task, guardrail, reason, tries


class OutputInvalid(CrewliteError, ValueError):
    """A task's answer does not have the shape it was asked for."""

    code = "output_invalid"

    def __init__(self, task: str, problem: str, *, tries: int) -> None:
        super().__init__(
            f"{task}: the answer does not fit the output schema after {number_of(tries, 'try', 'tries')}: {problem}. "
            f"Start the run again for a new attempt, or relax the schema."
        )
        self.task, self.problem, self.tries = task, problem, tries
