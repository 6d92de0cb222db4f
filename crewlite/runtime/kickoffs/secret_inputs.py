"""Inputs that hold a SecretStr or SecretBytes: the record has a mask in the place of each secret.

The mask is the same for all secrets, so no run can be found by such inputs, and a resume cannot take them from the
record. They are not part of any question: a resume may be given another secret, such as a newer token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crewlite.encoding.codec import IMMUTABLE, decode, encode, holds_secret
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError
from crewlite.state.journal.journal import Journal
from crewlite.texts.resuming import branch_ref, to_resume
from crewlite.texts.secrets import Secrets


def holding_secrets(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the inputs that hold a SecretStr or SecretBytes."""
    found = {name: value for name, value in inputs.items() if type(value) not in IMMUTABLE}
    return {name: value for name, value in found.items() if holds_secret(comparable(value))}


def refuse_to_find_by(inputs: Mapping[str, Any], how: str) -> None:
    """Raise ConfigError if an input that identifies runs holds a secret. `how`: the option for which it does."""
    if names := holding_secrets(inputs):
        raise ConfigError(
            f"{how} finds a run by its inputs, but the input {', '.join(names)} holds a secret. Secrets are never "
            f"recorded, so a run with another secret could be taken for this one. Name the run: pass run_id=, or "
            f"operation_id= beside the id of a state"
        )


def names_of_masked(recorded: Mapping[str, Any]) -> list[str]:
    """Return the names of the inputs that held a secret when they were recorded. `recorded`: the encoded inputs."""
    return [name for name, value in recorded.items() if holds_secret(value)]


def refuse_masked(journal: Journal, given: Mapping[str, Any] | None) -> None:
    """Raise ConfigError if a run would have to take an input that held a secret from its record."""
    if names := [name for name in names_of_masked(journal.record.run["inputs"]) if name not in (given or ())]:
        run_id, branch = journal.run_id, journal.branch
        raise ConfigError(
            f"The input {', '.join(names)} of run {branch_ref(run_id, branch)!r} holds a secret, which is never "
            f"recorded: the record has a mask in its place. Pass all inputs again with "
            f"{to_resume(run_id, branch)}; a new secret may replace the old one"
        )


def learn(journal: Journal, inputs: Mapping[str, Any]) -> None:
    """Have the run mask the secrets in its inputs wherever else they occur."""
    if found := holding_secrets(inputs):
        journal.passed = Secrets().knowing(*found.values())
        journal.learn(*found.values())


def with_secrets(inputs: Mapping[str, Any], masked: Any) -> dict[str, Any]:
    """Return the inputs for the program: decoded from `masked`, with the secret values from `inputs`.

    Raises ConfigError for an input that holds both a secret value, such as a SecretStr, and the text of a configured
    secret: it can be neither recorded nor decoded.
    """
    found: dict[str, Any] = decode(masked)
    if not holds_secret(masked):
        return found
    live = {name: value for name, value in inputs.items() if holds_secret(encode(value))}
    if names := [name for name, value in live.items() if encode(value) != encode(found.get(name))]:
        raise ConfigError(
            f"The input {', '.join(names)} holds a secret value, such as a SecretStr, beside the text of a configured "
            f"secret, which is masked. Pass the secret value as an input by itself"
        )
    return found | live
