"""Rewrite the library's errors, which advise in Python, for people at a command line."""

from __future__ import annotations

from crewlite import errors, kinds
from crewlite.cli.definitions import culprit
from crewlite.cli.shell import Again
from crewlite.state.format.addresses import is_question
from crewlite.texts.secrets import Secrets


def said(error: BaseException, ref: str | None, again: Again) -> str:
    """Return an error's text with advice for the command line. `ref` names the run, if there is one."""
    if not isinstance(error, errors.CrewliteError):
        return Secrets.of().mask(f"{type(error).__name__}: {errors.text_of(error)}{culprit(error)}")
    if isinstance(error, errors.RunCancelled):
        return f"Run {error.run_id!r} was cancelled on branch {error.branch!r}. Its record is kept."
    if isinstance(error, errors.BudgetExceeded):
        return f"{error.found}. Raise {error.setting} in the definition of the {error.of}."
    if isinstance(error, errors.QuestionsChanged):
        return _changed(error, again)
    if isinstance(error, errors.AnswerMisfit) and error.address:
        return _misfit(error, ref or "RUN", again)
    return _with_advice(error, ref or "RUN", again) or errors.text_of(error)


def of_answer(error: errors.AnswerRefused, ref: str, again: Again) -> str:
    """Return the text of an error where a person is answering: the command that changes an answer, if there is one."""
    return _refused(error, ref, again) if error.second else errors.text_of(error)


def _with_advice(error: errors.CrewliteError, ref: str, again: Again) -> str | None:
    match error:
        case errors.InDoubt():
            advice = again.to_settle(ref, {error.address: error.times, **error.others})
            return f"{error.found} {advice}"
        case errors.AnswerRefused():
            return _refused(error, ref, again)
        case errors.MissingInput():
            return f"{error.found}. Pass {' '.join(f'--input {name}=VALUE' for name in error.names)}"
        case errors.NoModel():
            names = ", ".join(repr(agent) for agent in error.agents)
            return f"No model for {names}. Choose one: --model M, or the environment's CREWLITE_MODEL."
        case errors.InputsChanged():
            return _inputs_changed(error, again)
        case errors.CheckpointIsBehind():
            where = f"{error.run_id}/{error.branch}"
            return (
                f"Checkpoint {error.checkpoint} is behind the head of {where}: {', '.join(error.after)} came after it, "
                f"and resuming there would abandon recorded work. To go on from the head: "
                f"{again.line('resume', where)} - to start again at this checkpoint: "
                f"{again.line('fork', error.checkpoint)}"
            )
        case errors.BranchConflictError():
            return _conflict(error, again)
        case errors.BranchExists():
            where = f"{error.run_id}/{error.branch}"
            return (
                f"Run {error.run_id!r} has a branch {error.branch!r} already. Choose another --branch, or leave it "
                f"out; to resume the existing branch: {again.line('resume', where)}"
            )
        case errors.BindMissing():
            only_models = all(path.rpartition(".")[2] == "llm" for path in error.missing)
            model = "" if again.model else " --model M gives every missing model." if only_models else ""
            parts = "; ".join(f"{path} ({wanted})" for path, wanted in zip(error.missing, error.wanted, strict=True))
            return (
                f"The definition of {error.where} has live parts, which no record holds: {parts}. "
                f"Name the definition: --crew package.module:attribute, or crew in [tool.crewlite] of "
                f"pyproject.toml.{model}"
            )
    return None


def _conflict(error: errors.BranchConflictError, again: Again) -> str | None:
    where, held = f"{error.run_id}/{error.branch}", error.found is None
    if error.state_id:
        return (
            f"{where} is being run by {error.holder}: it is a turn of the state {error.state_id!r}, and the next one "
            f"begins when it has ended. To wait for that, add --wait"
        )
    if error.problem:
        return None
    found = f"is being run by {error.holder}" if held else "was changed by another process in the meantime"
    wait = ("--wait",) if held else ()
    return (
        f"{where} {found}. {'To wait for its result' if held else 'Wait for it to end, then'}: "
        f"{again.line('resume', where, *wait)} - "
        f"or continue beside it on a fork: {again.line('fork', where)}"
    )


def _changed(error: errors.QuestionsChanged, again: Again) -> str:
    changed = [word for address in error.changed if address for word in ("--rerun", address)]
    changed += ["--allow-effects"] if error.repeats_effects else []
    return (
        f"{error.found}. To have both answers, choose another run id; to run the changed steps on a fork: "
        f"{again.line('fork', error.ref, *changed)} - or say in the definition what to do: "
        f"CheckpointConfig(on_drift='rerun' or 'keep')"
    )


def _misfit(error: errors.AnswerMisfit, ref: str, again: Again) -> str:
    """Return the text of an error after which only a fork, or the class as it was, lets the run go on."""
    rerun = f"to run it again on a fork: {again.line('fork', ref, '--rerun', error.address)}"
    if error.edited:
        other = again.line("fork", ref, "--edit", f"{error.address}=VALUE")
        return f"{error.found}. To fork with another edit: {other} - {rerun}"
    return f"{error.found}. Use the class as it was then; or, {rerun}"


def _inputs_changed(error: errors.InputsChanged, again: Again) -> str:
    inputs = [word for name in error.names for word in ("--input", f"{name}=VALUE")]
    others = ["--message", "TEXT"] if kinds.of(error.kind).takes_messages else inputs
    if error.turn == "unfinished":
        instead = f"to give it up: {again.line('delete', error.ref)}"
    elif error.turn == "finished":
        instead = "for the next turn, pass another --operation-id"
    else:
        instead = f"to try others: {again.line('fork', error.ref, *others)}"
    return f"{error.found}. To go on: {again.line('resume', error.ref)} - {instead}"


def _refused(error: errors.AnswerRefused, ref: str, again: Again) -> str:
    if error.edit:
        follows = "The branch cannot go on with it" if error.by_run else "Nothing was forked"
        return (
            f"{error.found}. {follows}. Fork again with an answer that fits: --edit {error.address}=VALUE, or as JSON "
            f"--edit {error.address}:=VALUE"
        )
    if error.unused:
        other = Again(again.location).line("answer", ref, error.address, "VALUE", "--replace")
        return f"{error.found}. The run has not used that answer yet. To put another in its place: {other}"
    if error.second:
        other = again.line("fork", ref, "--edit", f"{error.address}=VALUE")
        return f"{error.found}. To continue with another answer: {other}"
    if error.other_call:
        now = again.line("resume", ref, "--rerun", error.address)
        return f"{error.found}. If that one took no effect or both are wanted, make the one that is asked now: {now}"
    other = again.line("resume", ref, "--answer", f"{error.address}=VALUE")
    still = "The question still waits" if is_question(error.address) else "The call is still in doubt"
    return f"{error.found}. {still}: {other}"
