"""What tests of events share."""

from __future__ import annotations

import pytest

from crewlite.events.event_bus import EventBus


@pytest.fixture
def bus():
    return EventBus()
