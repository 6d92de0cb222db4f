"""A TimeoutError of the program's own code reaches whoever waits for the run as it was raised.

asyncio makes another one of it where it passes between loops, before Python 3.13.
"""

from __future__ import annotations

import asyncio
import traceback

import pytest

from crewlite.flow import flow, step
from tests.cuts import RUN

pytestmark = pytest.mark.timeout(60)


@step
def slow():
    try:
        raise ConnectionError("no line")
    except ConnectionError as error:
        late = TimeoutError("no answer")
        late.seconds = 3
        raise late from error


@flow(checkpoint=True)
def program():
    return slow()


@flow(checkpoint=True)
async def program_of_a_loop():
    return await slow.submit()


@flow(checkpoint=True)
def program_of_programs():
    return program.kickoff()


@flow(checkpoint=True)
def program_with_a_loop_of_its_own():
    return asyncio.run(program.akickoff())


async def awaited(handle):
    return await handle


def streamed(program, **options):
    for _ in (stream := program.stream(**options)):
        pass
    return stream.result


WAITS = {
    "kickoff": lambda program, **options: program.kickoff(**options),
    "akickoff": lambda program, **options: asyncio.run(program.akickoff(**options)),
    "submit": lambda program, **options: program.submit(**options).result(),
    "a handle": lambda program, **options: asyncio.run(awaited(program.submit(**options))),
    "stream": streamed,
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    "program",
    [program, program_of_a_loop, program_of_programs, program_with_a_loop_of_its_own],
    ids=lambda flow: flow.name,
)
def test_it_has_its_traceback_its_notes_and_its_cause(program, wait, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="no answer") as caught:
            WAITS[wait](program, run_id=RUN)
        assert caught.value.seconds == 3
        assert isinstance(caught.value.__cause__, ConnectionError)
        assert "slow" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert "To try again" in "".join(caught.value.__notes__)


def test_the_limit_of_a_wait_is_another_error():
    @step
    async def long():
        await asyncio.sleep(0.3)

    @flow
    async def program():
        await long()

    handle = program.submit()
    with pytest.raises(TimeoutError, match="continues to run"):
        handle.result(timeout=0.01)
    handle.result()
