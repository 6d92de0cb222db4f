"""The port of failure policies. A definition loads this alone: most set no policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from crewlite.recovery.checks import having

if TYPE_CHECKING:
    from crewlite.recovery.failure import Failure
    from crewlite.recovery.remedy import Remedy
else:
    Failure = Remedy = Any  # for whoever asks for the type hints


class Policy(Protocol):
    """Chooses the remedy for a failed attempt. It should be pure: equal arguments give equal remedies."""

    def decide(self, failure: Failure, past: Sequence[Remedy]) -> Remedy:
        """Return the remedy for a failure.

        `past` are the remedies that the step has applied so far, before a resume too.
        """


def check_policy(policy: object, where: str = "", option: str = "failure_policy") -> Any:
    """Return the policy, or None, unchanged. Raises ConfigError, beginning with `where`, if it has no `decide`."""
    found = f"{where}: {option}" if where else option
    wanted = "a FailurePolicy, or an object with decide(failure, past)"
    return None if policy is None else having("decide", found, policy, wanted)
