"""What `replay.decide` needs besides the record: the question, what the outcome rests on, the mode of replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from crewlite.durable import Step
from crewlite.encoding.codec import Json
from crewlite.step_parts import Drift


class Basis(NamedTuple):
    """What an outcome depends on besides its own question: the enclosing questions, and what their models heard."""

    digest: str = ""
    """A digest of the basis; "" if only the root step encloses the step."""
    after: int = 0
    """The number of the latest commit that an enclosing step reacts to. Outcomes in earlier commits are outdated."""

    def holds(self, seq: int, recorded: str | None) -> bool:
        """Return whether an outcome in commit `seq`, with the basis digest `recorded`, is valid on this basis too."""
        return seq >= self.after and (recorded is None or recorded == self.digest)


RESTS_ON = "rests_on"
"""The key in the provenance of an outcome under which the digest of its basis is recorded."""
MAY_DIFFER = "may_differ"
"""The drift of a step that may differ, and a key in the provenance of its outcome."""
DIFFERS = "differs"
"""A key in the provenance of an outcome whose code had `Mode.differs`."""


class StepQuestion(NamedTuple):
    """What a step is asked: its address, its question as JSON, and how a changed question is handled."""

    address: str
    kind: str
    asked: Json
    digest: str
    drift: Drift = "diverge"
    once: bool = False
    """Whether a repeated call would do harm."""
    comes_late: bool = False
    """Whether the earlier run may have requested this step, not begun it yet, and recorded later ones meanwhile."""
    caller_waits: bool = False
    """Whether the code requests nothing more before this step has ended."""
    is_early: bool = False
    """Whether the step may differ and is requested before steps that were recorded before it."""
    after: int | None = None
    """See `Step.after`."""
    basis: Basis = Basis()
    """What the outcome depends on besides the question. An outcome that the fork itself has edited holds on any
    basis."""
    moved: bool = False
    """Whether the address differs from the one that the order of the calls gives: see `once_addresses`."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How the record answers requests for the steps inside one step. Child steps inherit it."""

    on_drift: Literal["keep", "rerun", "error"] = "keep"
    strict_replay: bool = False
    """As `Step.strict_replay` of the step: the code must request the recorded steps, so any other request is an
    error."""
    diverged: bool = False
    """Whether an earlier step differs from the record, so that no later recorded outcome applies."""
    rolled_back: bool = False
    """Whether a rollback precedes the code, which may then ask recorded steps other questions."""
    differs: bool = False
    """Whether the code has changed, added or left out a step that may differ. Later steps may then differ too, but
    calls with effect="once" still answer from the record."""
    superseded: bool = False
    """Whether the recorded result of the run answers another question than this kickoff asks."""
    rerun: Mapping[str, int] = field(default_factory=dict)
    """See `Run.rerun`."""
    left_in_doubt: frozenset[str] = frozenset()
    """See `Run.left_in_doubt`."""

    @property
    def binds(self) -> bool:
        """Whether code that has not changed must request the recorded steps again."""
        return self.strict_replay and not (self.diverged or self.rolled_back or self.on_drift == "rerun")

    @property
    def goes_otherwise(self) -> bool:
        """Whether the code may ask recorded steps other questions than before, although it has not changed."""
        return self.rolled_back or self.differs

    def reruns(self, *, once: bool = False) -> bool:
        """Return whether a step whose question has changed runs again. `once`: whether its repetition would do harm."""
        return self.rolled_back or self.on_drift == "rerun" or (self.differs and not once)

    def provenance(self, step: Step[Any]) -> Mapping[str, str] | None:
        """Return the provenance to record with the end of a step: the step's own, MAY_DIFFER and DIFFERS."""
        provenance = step.provenance
        if step.drift == MAY_DIFFER:
            provenance = {**(provenance or {}), MAY_DIFFER: "yes"}
        if self.differs:
            provenance = {**(provenance or {}), DIFFERS: "yes"}
        return provenance
