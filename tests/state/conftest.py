"""What tests of values share."""

from __future__ import annotations

import pytest

from crewlite.state import RuntimeState


@pytest.fixture(params=["kept", "kept.db"])
def location(request, tmp_path):
    return str(tmp_path / request.param)


@pytest.fixture(params=[None, "kept", "kept.db"])
def anywhere(request, tmp_path):
    return str(tmp_path / request.param) if request.param else None


@pytest.fixture
def state(anywhere):
    with RuntimeState.open("bag", anywhere) as opened:
        yield opened
