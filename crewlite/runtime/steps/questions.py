"""Compare the questions that a definition asks its steps now with the recorded ones, and decide what a kickoff does.

A step's question is what it is asked: the task's texts, the agent, the outputs it builds on. A finished step whose
question has changed since has drifted. Questions to people are in human.py.

Pure functions over data: nothing here reads a store, waits or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from crewlite.state.format.earlier import has_other_inputs
from crewlite.state.format.record import Record

OnDrift = Literal["keep", "rerun", "error"]
ResultVerdict = Literal["stored", "go on", "refused", "drifted"]

FILE = "input file "
"""The prefix of the field that holds an input file of a task; the name of the file follows."""
KNOWLEDGE = "knowledge"
"""The prefix of the field that holds passages of knowledge; the name of their source follows, if it has one."""
_SHOWN = 80  # characters of a text that a message shows


@dataclass(frozen=True, slots=True)
class Drifted:
    """A finished step whose question has changed since it finished."""

    address: str
    answered: Mapping[str, str]
    """The texts of the step's question when it finished, by field; empty if the record does not hold them."""
    asked: Mapping[str, str]
    """The texts of the step's question now, by field."""

    def __str__(self) -> str:
        differing = [name for name, text in self.asked.items() if self.answered.get(name, text) != text]
        name = differing[0] if differing else next(iter(self.asked), "")
        answered, asked = (" ".join(texts.get(name, "").split()) for texts in (self.answered, self.asked))
        if not self.asked:
            return "answered another question than it is asked now"
        if not self.answered:
            return f"is asked {_shown(asked)} now, and answered another question"
        if not differing and (knew := _knew(self.answered, self.asked)):
            return f"answered {knew}, unlike now"
        if not differing:
            agent = "" if "role" in self.answered else "agent, "
            parts = f"{agent}context, output type, knowledge, input files, guardrails, markdown or condition"
            return f"is asked {_shown(asked)} as before, but something else has changed: its {parts}"
        if name == "description":
            return f"answered {_shown(answered, asked)}, and is asked {_shown(asked, answered)} now"
        if name.startswith((FILE, KNOWLEDGE)):
            changed = (one for one in differing if one.startswith((FILE, KNOWLEDGE)))
            return f"answered when {', '.join(changed)} held something else"
        label = name.replace("_", " ")
        return f"answered with the {label} {_shown(answered, asked)}, and has {_shown(asked, answered)} now"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a definition's questions with the recorded ones."""

    drifted: tuple[Drifted, ...] = ()
    same_steps: bool = True
    """Whether the definition has the recorded steps in the recorded order."""
    compared: frozenset[str] = frozenset()
    """The steps that were compared. Those among them that are not in `drifted` still answer their question."""


def drifted(
    record: Record,
    address: str,
    fingerprint: str,
    texts: Mapping[str, str],
    recorded_texts: Callable[[], Mapping[str, str]],
) -> Drifted | None:
    """Compare the question of a finished step with its recorded one; return None if both are the same.

    Returns None also for a step that was edited, or has not finished.

    `fingerprint`: the digest of the question now; `texts`: the texts in it. `recorded_texts` is called for the texts of
    the recorded question if they were not recorded with the outcome.
    """
    outcome = record.outcomes.get(address)
    if outcome is None or outcome.edited or outcome.fingerprint == fingerprint:
        return None
    return Drifted(address, outcome.question or recorded_texts(), texts)


def decide_result(
    record: Record, now: Comparison, fingerprint: str, on_drift: OnDrift | None
) -> tuple[ResultVerdict, tuple[Drifted, ...]]:
    """Return (what a kickoff does with the recorded result, the drifted steps that are the reason).

    stored: return the result. go on: run the steps that changed. refused: raise QuestionsChanged. drifted: raise
    TaskDrifted. With "stored", the drifted steps are those whose answers the result keeps, including any it kept when
    it was recorded. `fingerprint`: the digest of the root step's question now: if the result answers exactly that,
    repeating the kickoff returns it again. `on_drift` is None if no setting gives it.
    """
    outcome = record.outcomes.get("")
    if outcome is None:
        return "go on", ()
    same_result = outcome.fingerprint == fingerprint
    if not same_result and has_other_inputs(record, ""):
        return "go on", ()
    kept = now.drifted or tuple(Drifted(at, {}, {}) for at in outcome.drifted if at not in now.compared)
    if kept and on_drift == "error":
        return "drifted", kept
    if kept and on_drift is None and not same_result:
        return "refused", kept
    return ("stored" if now.same_steps and not (kept and on_drift == "rerun") else "go on"), kept


def is_another(recorded: tuple[str, str], now: tuple[str, str], default_name: str) -> bool:
    """Return whether two definitions, given as (kind, name), differ. A default name equals any name."""
    if recorded[0] != now[0]:
        return True
    before, after = recorded[1].strip(), now[1].strip()
    return before != after and default_name not in (before, after)


def have_in_common(recorded: Sequence[Sequence[str | None]], now: Sequence[Sequence[str | None]]) -> bool:
    """Return whether two lists of tasks, each task given as its names and texts, share a name or a text."""
    known = {key for keys in recorded for key in keys if key}
    return any(key in known for keys in now for key in keys if key)


def _knew(answered: Mapping[str, str], asked: Mapping[str, str]) -> str:
    """Return which passages of knowledge were added to or removed from a step's question; "" if none were."""
    gone = [name for name in answered if name.startswith(KNOWLEDGE) and name not in asked]
    new = [name for name in asked if name.startswith(KNOWLEDGE) and name not in answered]
    return " and ".join(f"{word} {', '.join(names)}" for word, names in (("with", gone), ("without", new)) if names)


def _shown(text: str, other: str = "") -> str:
    """Return a text in quotes. Of a long one, return the 80 characters around its first difference from `other`."""
    if len(text) <= _SHOWN:
        return repr(text)
    same = next((n for n, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))
    begin = max(0, min(same - _SHOWN // 4, len(text) - _SHOWN))
    end = begin + _SHOWN
    return repr(f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}")
