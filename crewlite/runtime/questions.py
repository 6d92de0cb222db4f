"""Whether recorded answers belong to the questions that are asked now, and what a kickoff does if they do not.

Pure functions over data: what a definition asks now is compared with what the recorded outcomes answered. Nothing here
reads a store, waits or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from crewlite.state.format.record import Record

OnDrift = Literal["keep", "rerun", "error"]
Verdict = Literal["stored", "go on", "refused", "drifted"]

_SHOWN = 80  # characters of a question that a message shows


@dataclass(frozen=True, slots=True)
class Drifted:
    """A finished step that is asked something else now than it answered."""

    address: str
    answered: Mapping[str, str]
    """Texts of the question that it answered; none where the record does not tell."""
    asked: Mapping[str, str]
    """The same texts of what it is asked now."""

    def __str__(self) -> str:
        differing = [name for name, text in self.asked.items() if self.answered.get(name, text) != text]
        name = differing[0] if differing else next(iter(self.asked), "")
        answered, asked = (" ".join(texts.get(name, "").split()) for texts in (self.answered, self.asked))
        if not self.asked:
            return "answered something else than is asked now"
        if not self.answered:
            return f"is asked {_shown(asked)} now, and answered something else"
        if not differing:
            return f"is asked {_shown(asked)} of another agent, in another shape or on another basis now"
        if name == "description":
            return f"answered {_shown(answered, asked)}, and is asked {_shown(asked, answered)} now"
        label = name.replace("_", " ")
        return f"answered with the {label} {_shown(answered, asked)}, and has {_shown(asked, answered)} now"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a definition asks now, beside what its run answered."""

    drifted: tuple[Drifted, ...] = ()
    same_steps: bool = True
    """Whether it asks for the same steps in the same order."""
    compared: frozenset[str] = frozenset()
    """The steps that were compared: those of them that are not in `drifted` answer what they are asked now."""


def drifted(
    record: Record,
    address: str,
    fingerprint: str,
    texts: Mapping[str, str],
    recorded_texts: Callable[[], Mapping[str, str]],
) -> Drifted | None:
    """How a finished step is asked something else than it answered; None if it is not, or has not finished.

    `fingerprint` and `texts` are of what it is asked now; `recorded_texts` finds those of what it answered where they
    were not recorded with the answer.
    """
    outcome = record.outcomes.get(address)
    if outcome is None or outcome.edited or outcome.fingerprint == fingerprint:
        return None
    return Drifted(address, outcome.question or recorded_texts(), texts)


def decide_result(
    record: Record, now: Comparison, fingerprint: str, on_drift: OnDrift | None
) -> tuple[Verdict, tuple[Drifted, ...]]:
    """What a kickoff does about the recorded result, if there is one, and the drifted steps that are the reason.

    `fingerprint` is of what the root step is asked now. Of a stored result, the drifted steps are those whose answers
    it keeps, also those that were kept when it was made.
    """
    outcome = record.outcomes.get("")
    if outcome is None:
        return "go on", ()
    same_result = outcome.fingerprint == fingerprint
    if not same_result and record.inputs_of("") != record.run["inputs"]:
        return "go on", ()
    kept = now.drifted or tuple(Drifted(at, {}, {}) for at in outcome.drifted if at not in now.compared)
    return decide(replace(now, drifted=kept), on_drift, same_result=same_result), kept


def decide(now: Comparison, on_drift: OnDrift | None, *, same_result: bool) -> Verdict:
    """What a kickoff of a finished run does.

    stored: return the recorded result. go on: run what has changed. refused: raise QuestionsChanged.
    drifted: raise TaskDrifted.
    `on_drift` is None where nobody has said it. `same_result`: the result was made for the very question that is asked
    now, so whoever repeats a kickoff gets its result again, kept answers included.
    """
    if now.drifted:
        if on_drift == "error":
            return "drifted"
        if on_drift == "rerun":
            return "go on"
        if on_drift is None and not same_result:
            return "refused"
    return "stored" if now.same_steps else "go on"


def is_another(recorded: tuple[str, str], now: tuple[str, str], default_name: str) -> bool:
    """Whether a run, by its kind and name, is of another definition. A default name tells nothing."""
    if recorded[0] != now[0]:
        return True
    before, after = recorded[1].strip(), now[1].strip()
    return before != after and default_name not in (before, after)


def have_in_common(recorded: Sequence[Sequence[str | None]], now: Sequence[Sequence[str | None]]) -> bool:
    """Whether two lists of tasks, each given as what it is known by, share a name or a question."""
    known = {key for keys in recorded for key in keys if key}
    return any(key in known for keys in now for key in keys if key)


def _shown(text: str, other: str = "") -> str:
    """A question, shortened to the part where it begins to differ from another."""
    if len(text) <= _SHOWN:
        return repr(text)
    same = next((n for n, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))
    begin = max(0, min(same - _SHOWN // 4, len(text) - _SHOWN))
    end = begin + _SHOWN
    return repr(f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}")
