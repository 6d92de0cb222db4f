"""What tests of values, and of the doctor, share."""

from __future__ import annotations

import pytest

from crewlite.state import JsonProvider, RuntimeState
from crewlite.testing.bench import Branch
from tests.state.doctoring import run_at


@pytest.fixture(params=["kept", "kept.db"])
def location(request, tmp_path):
    return str(tmp_path / request.param)


@pytest.fixture(params=[None, "kept", "kept.db"])
def anywhere(request, tmp_path):
    return str(tmp_path / request.param) if request.param else None


@pytest.fixture
def json_location(tmp_path):
    """A JSON location in which there is no run yet."""
    return str(tmp_path / "store")


@pytest.fixture
def json_store(json_location):
    """Its store."""
    return JsonProvider().open(json_location)


@pytest.fixture
def kept(json_store, tmp_path):
    """A JSON store with a run of five entries, places at 2 and 4: the store, the branch, its journal, the places."""
    branch, checkpoints = Branch(), []
    for _ in range(2):
        json_store.append([branch.add().commit()])
        checkpoints.append(branch.checkpoint())
        json_store.append([branch.commit()])
    json_store.append([branch.add().commit()])
    return json_store, branch, tmp_path / "store" / "journal" / "run-1" / "main.jsonl", checkpoints


@pytest.fixture
def state(anywhere):
    with RuntimeState.open("bag", anywhere) as opened:
        yield opened


@pytest.fixture
def store(tmp_path):
    """A JSON location with a run that stopped in its fourth task, after three checkpoints."""
    return run_at(tmp_path / "store")


@pytest.fixture
def database(tmp_path):
    """The same in a database."""
    return run_at(tmp_path / "runs.db")


@pytest.fixture
def journal(store):
    return store / "journal" / "r" / "main.jsonl"
