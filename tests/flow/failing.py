"""What goes wrong in tests of flows."""

from __future__ import annotations


class Boom(Exception):
    """What goes wrong here."""
