"""A location with runs of a small crew, and the view of it, driven as at a keyboard."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.testing import ScriptedLLM
from crewlite.tui.tree import RunTree
from crewlite.tui.verbs import View

HOSTILE = "[red]bold[/red] [@click=app.quit]x[/] \x1b[2J\x1b]0;title\x07 \u202eabc"


@pytest.fixture(params=["json", "sqlite"])
def location(request, tmp_path):
    return str(tmp_path / ("kept" if request.param == "json" else "kept.db"))


def crew(location, *answers, name="report"):
    agent = Agent(role="Clerk", goal="answer", llm=ScriptedLLM(list(answers)))
    tasks = [
        Task(name=n, description=f"Do {n} on {{topic}}", expected_output="text", agent=agent)
        for n in ("research", "write", "review")
    ]
    return Crew(name=name, tasks=tasks, checkpoint=CheckpointConfig(location=location))


class Driver:
    """The view, and what it shows."""

    def __init__(self, app, pilot):
        self.app, self.pilot = app, pilot
        self.tree = app.query_one(RunTree)

    async def until(self, condition):
        """Wait until a condition holds."""
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, self.screen()
            await self.pilot.pause(0.1)

    async def press(self, *keys):
        """Press keys, but not before the tree has its cursor, if it has lines."""
        await self.until(lambda: self.tree.cursor_node or not self.tree.root.children)
        await self.pilot.press(*keys)

    async def sees(self, *texts):
        """Wait until the screen shows all these texts."""

        def shown():
            screen = self.screen()
            return all(text in screen for text in texts)

        await self.until(shown)

    def screen(self):
        """The text of the screen."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in lines)


@asynccontextmanager
async def opened(location, size=(120, 40), *, toasts=False):
    app = View(location)
    async with app.run_test(size=size, notifications=toasts) as pilot:
        yield Driver(app, pilot)


def drive(location, play, size=(120, 40), *, toasts=False):
    """Open the view of a location, and let `play` use it."""

    async def main():
        async with opened(location, size, toasts=toasts) as driver:
            await play(driver)

    asyncio.run(main())
