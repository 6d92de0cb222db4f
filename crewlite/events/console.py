"""Live progress on the terminal: a subscriber like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def shown(verbose: bool) -> Iterator[None]:
    """Show the events of the runs started in the block, if `verbose`."""
    yield
