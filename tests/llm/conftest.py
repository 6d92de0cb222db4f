"""What the tests of models share: servers on loopback, and processes that are killed while they wait for one."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import pytest
from server import Server

from crewlite.concurrency import background
from crewlite.llm.library import litellm
from tests import children

_PATIENCE = 60.0  # seconds


@pytest.fixture(scope="session", autouse=True)
def _connections_are_closed():
    yield
    if library := sys.modules.get("litellm"):
        background.submit(library.close_litellm_async_clients()).result(10)


@pytest.fixture(scope="module")
def clients():
    """litellm's clients, one for each address: here are more of them than it keeps, and they are closed in the end."""
    library = background.submit(litellm()).result()
    kept = library.in_memory_llm_clients_cache
    kept.max_size_in_memory = 10_000
    yield kept
    background.submit(library.close_litellm_async_clients()).result(10)
    kept.flush_cache()


@pytest.fixture
def serve(clients):
    """`serve(*answers)` starts a server that plays them."""
    with contextlib.ExitStack() as stack:
        yield lambda *script: stack.enter_context(Server(*script))


@pytest.fixture
def replies(tmp_path):
    """A file to record replies in, which is not there yet, nor is its directory."""
    return tmp_path / "replies" / "crew.jsonl"


@pytest.fixture
def kill_at():
    """`kill_at(server, n, code, *args)` runs code in a process, and kills it when the server got its n-th request."""

    def kill(server, requests, code, *args):
        path = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", code, *args]
        options = {"env": os.environ | {"PYTHONPATH": path}, "also": "litellm"}
        process = children.Child(command, stderr=children.PIPE, text=True, **options)
        until = time.monotonic() + _PATIENCE
        while len(server.requests) < requests and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
        assert len(server.requests) == requests, said

    return kill
