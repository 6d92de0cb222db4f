"""What goes wrong in tests of flows."""

from __future__ import annotations


class Boom(Exception):
    """What goes wrong here."""


class Declined(Exception):
    def __init__(self, card: str, code: int) -> None:
        super().__init__(f"{card} was declined")
        self.card, self.code = card, code
