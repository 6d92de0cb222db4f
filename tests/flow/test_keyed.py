"""Steps side by side have readable addresses where their author gives keys; without keys they have the ones they had."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from crewlite import Agent, CheckpointConfig, Crew, History, Task, bound, step
from crewlite.errors import ConfigError
from crewlite.flow import flow, keyed
from crewlite.state import InMemoryProvider
from crewlite.testing import ScriptedLLM
from tests.cuts import RUN, cut, entries_of

CALLS = []


@step
async def fetch(page):
    await asyncio.sleep(random.random() / 50)
    CALLS.append(page)
    if page == "page 2" and "break" in CALLS:
        raise OSError("down")
    return f"{page}!"


@step
def read(page):
    CALLS.append(page)
    return f"{page}?"


def writers():
    agent = Agent(role="Writer", goal="write", llm=ScriptedLLM(lambda messages: "text"))
    return Crew(name="writers", tasks=[Task(name="t", description="Do", expected_output="x", agent=agent)])


def addresses(config, ref, part=""):
    with History(config().location) as history:
        return sorted(one.address for one in history.run(ref).steps if part in one.address and one.address)


@pytest.fixture(autouse=True)
def _calls():
    CALLS.clear()


def test_tasks_of_a_flow_and_the_crews_in_them_are_known_by_their_keys_also_after_a_failure(on_disk):
    async def chapter(number):
        with keyed(number):
            await asyncio.sleep(random.random() / 50)
            first = await fetch(f"page {number}")
            return [first, await fetch(first), (await writers().akickoff()).raw]

    @flow(checkpoint=on_disk())
    async def book():
        return await asyncio.gather(*(chapter(number) for number in (1, 2, 3)))

    CALLS.append("break")
    with pytest.raises(OSError, match="down"):
        book.kickoff(run_id="r")
    once = [call for call in CALLS if call not in ("break", "page 2")]
    CALLS.clear()
    assert book.kickoff(run_id="r") == [[f"page {n}!", f"page {n}!!", "text"] for n in (1, 2, 3)]
    assert not set(once) & set(CALLS)
    top = [at for at in addresses(on_disk, "r") if "/" not in at]
    wanted = ["crew:writers#[{}]", "step:fetch#[{}]", "step:fetch#[{}].2"]
    assert top == sorted(one.format(n) for one in wanted for n in (1, 2, 3))
    assert "crew:writers#[2]/task:t" in addresses(on_disk, "r")
    changed = book.fork("r", edits={"step:fetch#[2]": "other"})
    assert changed.kickoff()[1] == ["other", "other!", "text"]
    assert CALLS[-1] == "other"


def test_keyed_steps_that_are_cut_after_any_commit_keep_their_places(tmp_path):
    def book(setting):
        @flow(name="book", checkpoint=setting)
        async def book():
            return await asyncio.gather(*(chapter(number) for number in (3, 4)))

        return book

    async def chapter(number):
        with keyed(number):
            return await fetch(await fetch(f"page {number}"))

    whole = CheckpointConfig(location="x", provider=InMemoryProvider())
    result, entries = book(whole).kickoff(run_id=RUN), entries_of(whole)
    for at in range(1, len(entries)):
        recorded = [step["value"] for entry in entries[:at] for step in entry.commit.get("steps", ())]
        CALLS.clear()
        assert book(cut(entries, at)).kickoff(run_id=RUN) == result
        assert len(CALLS) == 4 - len(recorded)
        assert not {f"{call}!" for call in CALLS} & set(recorded)


def test_threads_and_plain_flows_take_keys_too(config):
    def chapter(number):
        with keyed(f"chapter {number}"):
            return read(read(number))

    @flow(checkpoint=config())
    def book():
        with ThreadPoolExecutor(3) as pool:
            beside = list(pool.map(bound(chapter), range(3)))
        with keyed("last"):
            return [*beside, read("end"), writers().kickoff().raw]

    wanted = ["0??", "1??", "2??", "end?", "text"]
    assert book.kickoff(run_id="r") == book.kickoff(run_id="r") == wanted
    with History(config().location, config().provider) as history:
        found = {one.address for one in history.run("r").steps}
    assert found >= {"step:read#[chapter 1]", "step:read#[chapter 1].2", "step:read#[last]", "crew:writers#[last]"}


def test_tasks_that_begin_inside_the_block_are_outside_of_it_and_a_preview_knows_keys(on_disk):
    @flow(checkpoint=on_disk())
    async def book():
        with keyed("a"):
            mine = await fetch("own")
            return [mine, *await asyncio.gather(one("x"), one("y"))]

    async def one(page):
        return await fetch(page)

    assert book.kickoff(run_id="r") == ["own!", "x!", "y!"]
    own, *others = sorted(addresses(on_disk, "r"), key=lambda at: "[" not in at)
    assert own == "step:fetch#[a]"
    assert all("[" not in at and "#" in at for at in others)
    assert {one.verdict for one in book.preview(run_id="r")} == {"reused"}


def test_a_key_is_used_once_and_can_be_part_of_an_address(memory):
    @flow(checkpoint=memory())
    async def twice():
        for _ in range(2):
            with keyed("a"):
                await fetch("x")

    with pytest.raises(ConfigError, match=r"keyed\('a'\) was used before in twice: give each block a key of its own"):
        twice.kickoff()
    for wrong in ("", "a/b", "a#1", "a[1]", "x" * 101, True, 1.5, None, "a\n"):
        with pytest.raises(ConfigError, match="wanted a number, or a text of 1 to 100 characters"):
            keyed(wrong)
    with keyed("outside"), keyed("outside"):
        assert read("x") == "x?"
