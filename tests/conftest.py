"""What many tests share."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.events.event_bus import event_bus
from crewlite.state import InMemoryProvider, JsonProvider
from crewlite.testing import ScriptedLLM
from tests import children, warm
from tests.parts import PROVIDERS
from tests.soak import in_time

_SOAK = max(7200, in_time(7200))  # seconds that a long trial may take
_directories = itertools.count()

settings.register_profile("any machine", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("any machine")  # how fast a machine is says nothing about the code


def pytest_xdist_auto_num_workers():
    """Two for each core: the tests wait as long for disks, processes and timers as they compute."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without looking for garbage meanwhile, as all that is made stays. It is not looked at later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(_SOAK), append=False)
    items.sort(key=lambda item: not _loads_litellm(item))  # first, as no other worker is given the first tests


def _loads_litellm(item):
    """Tests that load litellm run one after another: it takes seconds, and so one worker loads it instead of each."""
    return item.nodeid.startswith("tests/llm/") or item.get_closest_marker("litellm") is not None


@pytest.fixture(autouse=True, scope="session")
def _as_at_a_terminal():
    """Run the tests in the background as in the foreground."""
    children.heed_signals()
    yield
    warm.end()


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """A new directory. The fixture of pytest would look through the directories of all tests before this one."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{name}{next(_directories)}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Run in an empty directory, without a model from the environment, and leave no handler and no process behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CREWLITE_MODEL", raising=False)
    with event_bus.scoped(), children.ended():
        yield


@pytest.fixture
def forbidden():
    """`with forbidden() as directory`: a directory of a user whom permissions bind; root is that user meanwhile."""

    @contextlib.contextmanager
    def as_nobody():
        directory = Path(tempfile.mkdtemp())
        root = os.name == "posix" and os.geteuid() == 0
        try:
            if root:
                os.chown(directory, 65534, 65534)
                os.setresuid(65534, 65534, 0)  # of the process, but only for a while
            yield directory
        finally:
            if root:
                os.setresuid(0, 0, 0)
            for path in (directory, *directory.rglob("*")):
                if path.is_dir():
                    path.chmod(0o700)
            shutil.rmtree(directory)

    return as_nobody


@pytest.fixture(params=PROVIDERS)
def config(request, tmp_path):
    """A maker of configurations that all mean one store: `config(on_events=[...])`."""
    provider = PROVIDERS[request.param]()
    location = str(tmp_path / "store.db") if request.param == "sqlite" else str(tmp_path / "store")
    return lambda **fields: CheckpointConfig(location=location, provider=provider, **fields)


@pytest.fixture
def stored(tmp_path):
    """Like `config`, where any provider does that reads back what it has written: `check_provider` says they are alike."""
    provider, location = JsonProvider(), str(tmp_path / "store")
    return lambda **fields: CheckpointConfig(location=location, provider=provider, **fields)


@pytest.fixture
def memory():
    """Like `config`, where it does not matter what keeps the runs."""
    provider = InMemoryProvider()
    return lambda **fields: CheckpointConfig(location="memory", provider=provider, **fields)


@pytest.fixture(params=["json", "sqlite"])
def on_disk(request, tmp_path):
    """Like `config`, for the providers that outlive a process."""
    location = str(tmp_path / ("store.db" if request.param == "sqlite" else "store"))
    return lambda **fields: CheckpointConfig(location=location, **fields)


@pytest.fixture
def make_crew():
    """A crew of tasks t0, t1, ..., each building on the one before, answered by `replies`."""

    def make(replies, count=3, *, tools=(), **fields):
        llm = replies if not isinstance(replies, list) and not callable(replies) else ScriptedLLM(replies)
        agent = Agent(role="Worker", goal="work", backstory="works", llm=llm, tools=tools)
        tasks: list[Task] = []
        for n in range(count):
            tasks.append(
                Task(name=f"t{n}", description=f"Do {n}", expected_output="text", agent=agent, context=tasks[-1:])
            )
        return Crew(tasks=tasks, **fields)

    return make
