"""What outputs of crews, tasks and agents share: they are as recorded, so no field of them can be set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.errors import ConfigError
from crewlite.texts.wording import an


class Answered:
    """A mixin of outputs, which are frozen: setting a field raises a ConfigError that says what changes an answer."""

    if not TYPE_CHECKING:  # type checkers know that the fields are frozen

        def __setattr__(self, name: str, value: object) -> None:
            try:
                super().__setattr__(name, value)
            except ValueError:  # pydantic raises it for a frozen or unknown field
                kind = type(self).__name__
                raise ConfigError(
                    f"{name!r} of {an(kind)} cannot be set, as the answer is recorded. A guardrail changes an answer: "
                    f"it returns (True, value). The result of a crew is changed by one of its after_kickoff_callbacks"
                ) from None
