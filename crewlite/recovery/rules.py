"""Classify a failure by rules: without a model, from the failure alone, and always the same.

What failed counts before what came before it: an error that the work has recovered from earlier decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from crewlite.errors import ConfigError
from crewlite.recovery.checks import whole
from crewlite.recovery.failure import Failure
from crewlite.recovery.symptoms import BY_STATUS, BY_WORDS, SYMPTOMS, Symptom
from crewlite.recovery.types import Evidence, FailureType, RecordedStep

_FROM_TRAJECTORY = 0.6
"""How far signs in the recorded steps are trusted: less than any in the error itself, but for a weak one."""


@dataclass(frozen=True, slots=True)
class RulesClassifier:
    """Names the type of a failure by `SYMPTOMS`, the recorded steps, and symptoms of your own, which come first.

    `constraints`: texts that no answer may hold, whatever their case. `loop_window`: the number of equal calls in a row
    that make a loop.

    >>> from crewlite.recovery import Failure, Symptom
    >>> mine = RulesClassifier([Symptom("goal_drift", words="poem")])
    >>> mine.classify(Failure.of(ValueError("wrote a poem"))).type
    <FailureType.GOAL_DRIFT: 'goal_drift'>
    """

    symptoms: Sequence[Symptom] = ()
    constraints: Sequence[str] = ()
    loop_window: int = 3

    def __post_init__(self) -> None:
        for name, kind, example in (("symptoms", Symptom, "Symptom(...)"), ("constraints", str, "'a text'")):
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not all(isinstance(one, kind) for one in given):
                raise ConfigError(f"RulesClassifier: {name} is {given!r}; wanted a list, such as [{example}]")
            object.__setattr__(self, name, tuple(given))
        whole("RulesClassifier", 2, loop_window=self.loop_window)

    def classify(self, failure: Failure) -> Failure:
        """Return the failure with its type, and with the evidence for that type, the strongest first."""
        found = sorted(self._signs(failure), key=lambda sign: -sign[1].confidence)
        chosen = found[0][0] if found else FailureType.UNKNOWN
        return replace(failure, type=chosen, evidence=tuple(one for of, one in found if of == chosen))

    def _signs(self, failure: Failure) -> Iterator[tuple[FailureType, Evidence]]:
        symptoms = (*self.symptoms, *SYMPTOMS)
        if failure.type is not FailureType.UNKNOWN:
            yield failure.type, Evidence("the error itself", failure.error_type)
        for symptom in symptoms:
            yield from ((symptom.type, one) for one in _in_error(symptom, failure))
        tail = failure.trajectory[-self.loop_window :]
        if len(tail) == self.loop_window and tail[0].tool and all(_call(one) == _call(tail[0]) for one in tail):
            yield FailureType.LOOP_DETECTED, _seen("equal calls", f"{tail[0].tool} was called {len(tail)} times alike")
        if not failure.trajectory:
            return
        last = failure.trajectory[-1]
        for text in self.constraints:
            if text.casefold() in last.said.casefold():
                yield FailureType.CONSTRAINT_IGNORED, _seen("constraint", f"the answer holds {text!r}")
        for symptom in symptoms:
            if symptom.words and re.search(symptom.words, last.error, re.IGNORECASE):
                yield symptom.type, _seen("words of the last step", last.error)


def _in_error(symptom: Symptom, failure: Failure) -> Iterator[Evidence]:
    """Yield the signs of a symptom in the error itself."""
    most, classes = symptom.confidence, failure.classes or (failure.error_type,)
    if name := next((name for name in classes if name in symptom.errors), None):
        yield Evidence("class of the error", name, most)
    if failure.status in symptom.statuses:
        yield Evidence("status", f"status {failure.status}", min(BY_STATUS, most))
    if symptom.words and re.search(symptom.words, failure.message, re.IGNORECASE):
        yield Evidence("words", failure.message, min(BY_WORDS, most))


def _call(step: RecordedStep) -> tuple[object, ...]:
    return step.tool, step.input, step.output


def _seen(rule: str, text: str) -> Evidence:
    return Evidence(rule, text, _FROM_TRAJECTORY)
