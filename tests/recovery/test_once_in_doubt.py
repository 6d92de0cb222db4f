"""A call with effect="once" that was cut or has failed inside something that is tried again: a person is asked first.

The world knows which letters were delivered, and answers for the person. Each program is killed after every commit, both
right before and right after what it did to the world there, and goes on until it has its result.
"""

import asyncio

import pytest

from crewlite import Agent, CheckpointConfig, Crew, FailurePolicy, Task, tool
from crewlite.durable import scope
from crewlite.errors import InDoubt
from crewlite.flow import Flow, flow, recoverable, start, step
from crewlite.llm import ToolCall
from crewlite.recovery import Rule, replan
from crewlite.testing import ScriptedLLM
from crewlite.texts.resuming import nth_attempt
from tests import soak
from tests.cuts import RUN, Kept, cut, entries_of

AGAIN = FailurePolicy((Rule({"bug", "refused", "unavailable"}, retries=1, base=0),))
TROUBLES = {
    "none": {},
    "raises before": {"b": ["before"]},
    "raises after": {"b": ["after"]},
    "raises twice": {"a": ["after"], "b": ["before"]},
    "is cut": {"b": ["cut"]},
    "is cut before": {"b": ["cut before"]},
}


class Post:
    """Sends letters. A trouble comes with the first attempts to deliver a letter."""

    def __init__(self, letters, troubles, setting, *, beside=False):
        self.letters, self.setting, self.beside = letters, setting, beside
        self.troubles = {letter: list(ones) for letter, ones in troubles.items()}
        self.delivered = []
        """(number of commits so far, address, letter)"""
        self.send = step(name="send", effect="once")(self._send)

    async def _send(self, letter):
        trouble = self.troubles[letter].pop(0) if self.troubles.get(letter) else ""
        if trouble not in ("before", "cut before"):
            self.delivered.append((self.commits, scope().address, letter))
        if trouble.startswith("cut"):
            self.hangs.set()
            await asyncio.Event().wait()
        if trouble:
            raise ConnectionError("no route")
        return f"sent {letter}"

    @property
    def commits(self):
        return len(entries_of(self.setting))

    async def work(self):
        self.hangs = asyncio.Event()
        if self.beside or any("cut" in trouble for ones in self.troubles.values() for trouble in ones):
            return await self._beside()
        return [await self.send(letter) for letter in self.letters]

    async def _beside(self):
        async with asyncio.TaskGroup() as group:
            sending = [group.create_task(self.send(letter)) for letter in self.letters]
            if any("cut" in trouble for ones in self.troubles.values() for trouble in ones):
                await self.hangs.wait()
                raise ValueError("oops")
        return [one.result() for one in sending]


def in_step(post):
    @step(retries=1)
    async def around():
        return await post.work()

    @flow(checkpoint=post.setting)
    async def one():
        return await around()

    return one


def in_policy(post):
    @step
    async def inner():
        return await post.work()

    @step
    async def around():
        return await inner()

    @flow(checkpoint=post.setting, failure_policy=AGAIN)
    async def one():
        return await around()

    return one


def in_method(post):
    class Posting(Flow):
        checkpoint = post.setting

        @start(retries=1)
        async def first(self):
            return await post.work()

    return Posting()


def in_phases(post):
    @recoverable(policy=FailurePolicy(default=replan()), checkpoint=post.setting)
    async def one(hint: str):
        return await post.work()

    return one


def goes_on(program, delivered):
    """Kick off until there is a result; the world says what became of calls in doubt. Returns the questions."""
    decided, asked = {"answers": {}, "rerun": []}, []
    for _ in range(12):
        try:
            return program.kickoff(run_id=RUN, **decided), asked
        except InDoubt as doubt:
            for at, times in {doubt.address: doubt.times, **doubt.others}.items():
                asked.append(at)
                letters = [letter for _, address, letter in delivered if address == at]
                if letters:
                    decided["answers"][at] = f"sent {letters[-1]}"
                else:
                    decided["rerun"].append(nth_attempt(at, times))
        except (ValueError, ConnectionError, ExceptionGroup):
            pass
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("trouble", "beside"),
    [(trouble, beside) for trouble in TROUBLES for beside in (False, True) if beside or "cut" not in trouble],
)
@pytest.mark.parametrize("letters", ["abb", "ba"])
@pytest.mark.parametrize("place", [in_step, in_policy, in_method, in_phases])
@soak.every(3)
def test_no_letter_is_sent_twice_and_none_is_left_out(place, letters, trouble, beside, every):
    setting = CheckpointConfig(location="here", provider=Kept())
    post = Post(letters, TROUBLES[trouble], setting, beside=beside)
    result, asked = goes_on(place(post), post.delivered)
    assert result == [f"sent {letter}" for letter in letters]
    assert sorted(letter for *_, letter in post.delivered) == sorted(letters), asked
    assert bool(asked) == (trouble != "none")
    entries = entries_of(setting)
    for at in range(1 + len(entries) % every, len(entries) + 1, every):
        done = [one for one in post.delivered if one[0] <= at]
        undone = [one for one in done if one[0] < at]
        # killed after it did to the world what follows this commit, and before, if anything does
        for delivered in (done, undone) if done != undone else (done,):
            kept = cut(entries, at)
            other = Post(letters, {}, kept, beside=beside)
            other.delivered += delivered
            result, asked = goes_on(place(other), other.delivered)
            assert result == [f"sent {letter}" for letter in letters], f"commit {at}"
            assert sorted(letter for *_, letter in other.delivered) == sorted(letters), f"commit {at}, asked {asked}"


def with_crew(post, *, looks=False):
    """A flow of one step, in which the agent of a crew sends letters with a tool; it is tried again if a call hangs."""

    @tool(effect="once")
    async def send(letter: str) -> str:
        """Send a letter."""
        return await post._send(letter)

    @tool
    async def look() -> str:
        """Look."""
        if post.looks:
            post.looks -= 1
            post.hangs.set()
            await asyncio.Event().wait()
        return "seen"

    def answer(messages):
        made = sum(message["role"] == "tool" for message in messages) - looks
        first = [ToolCall("look")] if looks else []
        if made < len(post.letters):
            return [*(first if made < 0 else ()), ToolCall("send", {"letter": post.letters[max(0, made)]})]
        return "done"

    agent = Agent(role="Clerk", goal="send", llm=ScriptedLLM(answer), tools=[look, send])
    crew = Crew(tasks=[Task(name="t", description="send", expected_output="done", agent=agent)])

    async def watch():
        await post.hangs.wait()
        raise ValueError("oops")

    @step(retries=1)
    async def around():
        post.hangs = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            result = await crew.akickoff()
            watching.cancel()
        return result.raw

    @flow(checkpoint=post.setting)
    async def one():
        return await around()

    return one


@pytest.mark.parametrize("letters", ["ab", "abb"])
@pytest.mark.parametrize("trouble", ["cut", "cut before", "after"])
def test_a_crew_whose_tool_is_cut_sends_nothing_twice(letters, trouble):
    setting = CheckpointConfig(location="here", provider=Kept())
    post = Post(letters, {"b": [trouble]}, setting)
    post.looks = 0
    result, asked = goes_on(with_crew(post), post.delivered)
    cut_here = "step:around/crew:crew/task:t/tool:send#2"
    assert (result, asked) == ("done", [cut_here] if "cut" in trouble else [])
    assert sorted(letter for *_, letter in post.delivered) == sorted(letters)
    entries = entries_of(setting)
    for at in range(1, len(entries) + 1):
        other = Post(letters, {}, cut(entries, at))
        other.looks = 0
        other.delivered += [one for one in post.delivered if one[0] <= at]
        result, asked = goes_on(with_crew(other), other.delivered)
        assert result == "done"
        assert sorted(letter for *_, letter in other.delivered) == sorted(letters), f"commit {at}, asked {asked}"


def test_a_call_that_was_only_planned_is_made_without_a_question():
    """The step is cut in the first of two calls of a reply; the other one was never begun."""
    post = Post("a", {}, CheckpointConfig(location="here", provider=Kept()))
    post.looks = 1
    assert goes_on(with_crew(post, looks=True), post.delivered) == ("done", [])
    assert len(post.delivered) == 1
