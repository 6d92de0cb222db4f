"""Make the pictures in tui.md: a few runs are recorded, and the terminal view of them is photographed.

$ python docs/pictures/tui.py
$ python docs/pictures/tui.py FOLDER

With a folder, every panel is drawn into it, dark and light, in two sizes, to be looked at after a change.
"""

import asyncio
import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DESK = '''
"""A small desk that writes market briefs."""

import asyncio

from crewlite import Agent, BaseLLM, Crew, LLMReply, Task, Usage

SAID = {
    "research": (0.35, 812, 164, "Three makers share 80 % of the market: Northcell, Ampere and Volta.\\n"
                 "Prices fell by 14 % within a year. Volta [grew fastest](https://volta.example), by 41 %."),
    "outline": (0.12, 431, 61, "1. Who sells\\n2. What it costs\\n3. What comes next"),
    "write": (0.5, 1290, 402, "# Home batteries\\n\\nThree makers share most of the market. Prices keep falling, and "
              "the smallest of the three grows fastest.\\n\\nBuyers gain from waiting, but not for long."),
    "review": (0.2, 655, 38, "Clear and short. The claim about waiting needs a source."),
}


class Canned(BaseLLM):
    """Says the same every time, at the pace of a model."""

    model = "house/steady"

    async def acall(self, messages, **context):
        asked = messages[1]["content"]
        name = next(name for name in SAID if f"to {name}" in asked)
        seconds, read, written, text = SAID[name]
        await asyncio.sleep(seconds)
        usage = Usage(prompt_tokens=read, completion_tokens=written, requests=1, cost=read * 2e-6 + written * 8e-6)
        return LLMReply(text=text, usage=usage)


reader = Agent(role="Researcher", goal="find out what is known", llm=Canned())
author = Agent(role="Writer", goal="write briefs that are read to the end", llm=Canned())


def task(name, agent, **more):
    about = f"It is your turn to {name}: {{topic}}"
    return Task(name=name, description=about, expected_output="text", agent=agent, **more)


brief = [task("research", reader), task("outline", author), task("write", author), task("review", reader)]
crew = Crew(name="brief", tasks=brief)
asking = Crew(name="brief", tasks=[*brief[:2], task("write", author, human_input=True)])
'''
SHORT = "Three makers share the market. Prices fell by 14 %."


def record() -> None:
    """Record the runs in this directory: one finished and forked, one that waits for a person."""
    sys.path.insert(0, os.getcwd())
    import desk  # the module written above

    from crewlite import History
    from crewlite.errors import Suspended

    desk.crew.with_checkpoint(True).kickoff(inputs={"topic": "home batteries"}, run_id="batteries")
    fork = desk.crew.with_checkpoint(True).fork(
        "batteries@task:outline", branch="shorter", edits={"task:research": SHORT}
    )
    fork.kickoff()
    with contextlib.suppress(Suspended):
        desk.asking.with_checkpoint(True).kickoff(inputs={"topic": "heat pumps"}, run_id="heat-pumps")
    with History() as history:
        history.fork("batteries@task:write", branch="another-end")


async def draw(shots: dict[str, list[str]], size: tuple[int, int], *, light: bool, into: Path) -> None:
    """Draw the view after each list of keys."""
    from crewlite.tui.verbs import View

    for name, keys in shots.items():
        view = View("./.checkpoints")
        async with view.run_test(size=size) as pilot:
            if light:
                view.action_toggle_theme()
            await _until(pilot, lambda view=view: view.shown is not None)
            await pilot.pause(1.5)
            for key in keys:
                if key.startswith("wait:"):
                    await _until(pilot, lambda view=view, key=key: key[5:] in _text(view))
                else:
                    await pilot.press(key)
                    await pilot.pause(0.15)
            await pilot.pause(0.5)
            svg = view.export_screenshot(title="crewlite checkpoint", simplify=True)
        svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # no web fonts
        (into / f"{name}.svg").write_text(re.sub(r"terminal-\d+", name, svg), encoding="utf-8")


async def _until(pilot, condition) -> None:
    for _ in range(600):
        if condition():
            return
        await pilot.pause(0.02)
    raise TimeoutError(_text(pilot.app))


def _text(view) -> str:
    return "\n".join(strip.text for strip in view.screen._compositor.render_strips())


RUN = ["left", "down"]  # from the run that waits to the one that is finished
PLACE = [*RUN, "right", "wait:task:review", "down", "down", "down", "down"]
PANELS = {
    "overview": PLACE,
    "steps": [*PLACE, "2", "tab", "down", "down"],
    "inputs": [*PLACE, "3"],
    "outputs": [*PLACE, "4"],
    "events": [*PLACE, "5"],
    "diff": [
        *RUN,
        "right",
        "wait:task:review",
        "c",
        "down",
        "down",
        "right",
        "down",
        "wait:batteries/shorter",
        "c",
        "wait:research",
    ],
    "no-diff": [*PLACE, "6"],
    "waiting": [],
    "answer": ["a"],
    "fork": [*PLACE, "4", "enter", "enter", "ctrl+end", "!", "escape", "f", "wait:reused"],
    "forked": [
        *PLACE,
        "4",
        "enter",
        "enter",
        "ctrl+end",
        "!",
        "escape",
        "f",
        "wait:reused",
        "enter",
        "wait:has finished",
        "1",
    ],
    "resume": ["r"],
}
SHOWN = {"tui-overview": PANELS["overview"], "tui-steps": PANELS["steps"], "tui-fork": PANELS["fork"]}


def main() -> None:
    """Record runs in a directory of their own, and draw."""
    folder = Path(sys.argv[1]).absolute() if sys.argv[1:] else None
    with tempfile.TemporaryDirectory() as where:
        os.chdir(where)
        Path("desk.py").write_text(DESK, encoding="utf-8")
        Path("pyproject.toml").write_text('[tool.crewlite]\ncrew = "desk:crew"\n', encoding="utf-8")
        record()
        if folder is None:
            asyncio.run(draw(SHOWN, (110, 30), light=False, into=HERE))
            light = {"tui-outputs": PANELS["outputs"]}
            asyncio.run(draw(light, (110, 30), light=True, into=HERE))
        else:
            for size in ((80, 24), (120, 40)):
                for light in (False, True):
                    into = folder / f"{size[0]}-{'light' if light else 'dark'}"
                    into.mkdir(parents=True, exist_ok=True)
                    asyncio.run(draw(PANELS, size, light=light, into=into))
        os.chdir(HERE)


if __name__ == "__main__":
    main()
