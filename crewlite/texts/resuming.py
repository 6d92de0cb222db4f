"""How messages name a branch, and what its user calls to resume it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from crewlite import kinds
from crewlite.texts.wording import listed

_NAMED = 10  # questions, or calls in doubt
_KICK_OFF = re.compile(
    r"(?:[,;]? (?:or|then)|\.|^) ?(?:kick off|start) (?:the (?:same )?run )?again(?: to (?:go on|retry))?\.",
    re.IGNORECASE,
)


def branch_ref(run_id: str, branch: str) -> str:
    """Return the ref that a branch is resumed by: "order-7", or "order-7/trial" for another branch than main."""
    return run_id if branch == "main" else f"{run_id}/{branch}"


def to_resume(run_id: str, branch: str) -> str:
    """Return the argument with which a kickoff resumes a branch: "run_id='order-7'"."""
    return f"{'run_id' if branch == 'main' else 'from_checkpoint'}={branch_ref(run_id, branch)!r}"


def in_shell(words: str, location: str) -> str:
    """Return a command of `crewlite checkpoint` that is about the store at this location, wherever it is called."""
    return f"crewlite checkpoint {words} --location {shlex.quote(location)}"


def call_again(kind: str) -> str:
    """Return what to do to resume a run, by the kind of its definition: "kick off again"."""
    return f"{call(kind)} again"


def call(kind: str) -> str:
    """Return what to do to join or resume a run, by the kind of its definition: "kick off".

    A trial is resumed by the verb that began it, which the record does not name.
    """
    return "call test or train of the crew" if kinds.of(kind) is kinds.TRIAL else "kick off"


def to_go_on_with_inputs(kind: str, ref: str, names: Sequence[str], masked: Sequence[str], turn: str) -> str:
    """Return how to go on with a run that was given other inputs than its own: see InputsChanged."""
    if kinds.of(kind) is kinds.TRIAL:
        return f"{call_again(kind)}, as it was called then; for another trial, use another run_id."
    if kinds.of(kind).takes_messages:
        return (
            f"kick off without messages or with those of that question, and ask the new one after that; to ask it in "
            f"place of the first, fork the run: agent.fork({ref!r}).kickoff('...'), or use another run_id."
        )
    if turn == "finished":
        return "repeat the request as it was; for the next turn, pass another operation_id, and no run_id."
    if turn:
        return (
            f"kick off with run_id={ref!r} and no inputs, or as before; if it fails each time, give the run up "
            f"with History(location).delete({ref!r}): then the next kickoff of the id begins with the state before it."
        )
    others, secret = (", ".join(f"{name!r}: ..." for name in some) for some in (names, masked))
    how = "with all recorded inputs, secrets too" if masked else "without inputs or with the recorded ones"
    fork = f"{kind}.fork({ref!r}, inputs={{{others}}}).kickoff({secret and f'{{{secret}}}'})"
    return f"kick off {how}; to try other inputs, fork the run: {fork}, or use another run_id."


def nth_attempt(address: str, attempt: int) -> str:
    """Return how `rerun` names an attempt at a call: by the address, and from the second on with the number."""
    return address if attempt == 1 else f"{address}!{attempt}"


def to_answer(run_id: str, branch: str, addresses: Sequence[str], location: str, kind: str) -> str:
    """Return how to answer questions, by the next kickoff, from another program or in a shell, and how to go on."""
    ref, again = branch_ref(run_id, branch), call_again(kind)
    several = len(addresses) > 1
    quoted, word = ("ADDRESS", "ADDRESS") if several else (repr(addresses[0]), addresses[0])
    command = in_shell(shlex.join(["answer", ref, word, "VALUE"]), location)
    return (
        f"To resume it, {again} with {to_resume(run_id, branch)}, {_all_as_dict('answers', addresses)}; or answer "
        f"{'each ' if several else ''}with History({location!r}).answer({ref!r}, {quoted}, ...) or {command}, then "
        f"{again}."
    )


def in_doubt(calls: Mapping[str, int], resume: str, kind: str) -> str:
    """Return the sentences that say which calls are in doubt, and how one kickoff settles that; "" for no calls."""
    return f"{may_have_taken_effect(calls)} {to_settle(calls, resume, kind=kind)}." if calls else ""


def may_have_taken_effect(calls: Collection[str]) -> str:
    """Return the sentence that says which calls are in doubt."""
    return f"{listed([*calls], _NAMED)} may have taken effect."


def to_settle(calls: Mapping[str, int], resume: str = "", *, kind: str) -> str:
    """Return in words, without a full stop, how one kickoff settles the doubt about all of these calls.

    `calls`: how often each was begun, by address; `resume`: such as "run_id='order-7'"; `kind`: of the definition.
    """
    again = f"{call_again(kind)} with {resume and f'{resume}, '}{_all_as_dict('answers', [*calls], '<its result>')}"
    rerun = f"rerun=[{listed([repr(nth_attempt(at, times)) for at, times in calls.items()], _NAMED)}]"
    if len(calls) == 1:
        return f"Check whether it took effect, then {again} if it did, or {rerun} if it did not"
    return f"Check of each whether it took effect, then {again} for those that did, and {rerun} for those that did not"


def _all_as_dict(name: str, addresses: Sequence[str], value: str = "...") -> str:
    """Return an argument of a kickoff that has an item for each address: "answers={'human:a': ..., 'human:b': ...}"."""
    return f"{name}={{{listed([f'{address!r}: {value}' for address in addresses], _NAMED)}}}"


def without_advice(text: str) -> str:
    """Return an error's text without the advice to kick off again, for readers who are told otherwise how to go on."""
    return _KICK_OFF.sub(".", text).removeprefix(".")
