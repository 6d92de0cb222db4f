"""What code in a run says about how far it has come."""

from __future__ import annotations

from typing import ClassVar, Literal

from crewlite.events.base import BaseEvent


class ProgressReportedEvent(BaseEvent):
    """Code of a flow, a step or a tool has called `report`. It is not recorded, and creates no checkpoint."""

    type: Literal["progress_reported"] = "progress_reported"
    fleeting: ClassVar[bool] = True

    message: str = ""
    done: int | float | None = None
    """How much is done, in units of the caller."""
    total: int | float | None = None
    """How much there is to do, in the same unit."""

    @property
    def text(self) -> str:
        """The message, else the numbers; with the percentage, if the total is known."""
        numbers = " of ".join(f"{number:,.10g}" for number in (self.done, self.total) if number is not None)
        share = f" ({self.done / self.total:.0%})" if self.done is not None and self.total else ""
        return f"{self.message or numbers}{share}"
