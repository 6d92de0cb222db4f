"""Classifiers that ask a model what went wrong."""

from __future__ import annotations

from typing import Any

from crewlite.lazy import lazy
from crewlite.recovery.checks import whole
from crewlite.recovery.classify import check_classifier
from crewlite.recovery.failure import Failure
from crewlite.recovery.rules import RulesClassifier
from crewlite.recovery.types import FailureType

classifier = lazy("crewlite.agent.classifier")  # on a higher floor, as it asks a model in a recorded step


class LLMClassifier:
    """Asks a model for the type of a failure. It never raises: where the model fails, the type is UNKNOWN.

    `llm`: a model or its name. A model that is given by name answers in at most `max_tokens` tokens. `max_steps`: the
    number of recorded steps before the failure that the model is shown, 1 or more.
    """

    def __init__(self, llm: Any, *, max_tokens: int = 100, max_steps: int = 10) -> None:
        whole("LLMClassifier", 1, max_tokens=max_tokens, max_steps=max_steps)
        self.llm, self.max_steps = classifier.model_of(llm, max_tokens), max_steps

    async def classify(self, failure: Failure) -> Failure:
        """Return the failure with the type that the model names, and its reason as evidence."""
        found: Failure = await classifier.classified_by_model(self.llm, failure, self.max_steps)
        return found


class HybridClassifier:
    """Classifies by rules, and asks a model only about failures that they leave UNKNOWN.

    `llm`: a model, its name, or an LLMClassifier. `rules`: a RulesClassifier of your own.
    """

    def __init__(self, llm: Any, rules: RulesClassifier | None = None) -> None:
        self.rules: RulesClassifier = check_classifier(rules, "HybridClassifier") or RulesClassifier()
        self.model = llm if isinstance(llm, LLMClassifier) else LLMClassifier(llm)

    async def classify(self, failure: Failure) -> Failure:
        """Return the failure with its type and the evidence for it."""
        by_rules = self.rules.classify(failure)
        return by_rules if by_rules.type is not FailureType.UNKNOWN else await self.model.classify(failure)
