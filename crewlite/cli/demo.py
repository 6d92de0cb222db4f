"""`crewlite demo`: a crew is killed half way and goes on in another process; nothing recorded runs again.

Nothing is staged: both processes run the same command, the first gets a real SIGKILL, and what the table says comes
from what the processes told and from the record on disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crewlite.cli.exits import Failed
from crewlite.cli.shell import shell_line
from crewlite.console.text import printable, say
from crewlite.ids import new_id, short
from crewlite.lazy import lazy
from crewlite.state.history import History
from crewlite.texts.wording import number_of

if TYPE_CHECKING:
    from rich.console import Console

rich = lazy("rich.console")
rich_box = lazy("rich.box")
rich_table = lazy("rich.table")
rich_text = lazy("rich.text")

_PACE = 0.1  # seconds that each call takes longer, so that a kill can meet it
_MEANING = {
    **dict.fromkeys(("llm_call_started", "tool_usage_started"), "cut"),  # as long as nothing follows
    **dict.fromkeys(("llm_call_completed", "tool_usage_finished", "tool_usage_error"), "ran"),
    **dict.fromkeys(("task_completed", "crew_kickoff_completed"), "ran"),
    "step_replayed": "reused",
}
"""What a process has done with a step, by the event that it told of it."""
_SAID = {"ran": ("finished", "recorded"), "reused": ("reused", "answered from the record")}
_COLOURS = {"ran": "green", "reused": "yellow", "cut": "red"}


@dataclass(slots=True)
class _Life:
    """What one process told before it ended."""

    done: dict[str, str] = field(default_factory=dict)
    """What it has done with each step, "cut", "ran" or "reused", by the address; "" is the crew itself."""
    killed: bool = False

    def hear(self, line: str) -> tuple[str, str]:
        """Take in a line. Returns what was done ("" if nothing that counts), and the address of the step."""
        event = json.loads(line)
        what, address = _MEANING.get(event["type"], ""), event["address"] or ""
        if what:
            self.done[address] = what
        return what, address

    def those(self, what: str) -> list[str]:
        """Return the addresses of the steps with which it has done this."""
        return [address for address, done in self.done.items() if done == what]

    def did(self, address: str) -> str:
        """Return what it has done with a step; "" if it never came to it."""
        if self.done.get(address) == "ran":
            return "ran"
        if any(address == done or address.startswith(f"{done}/") for done in self.those("reused")):
            return "reused"  # what is inside a finished step is not even looked at
        return self.done.get(address, "")


@click.command()
@click.option("--directory", type=click.Path(file_okay=False), help="Where to work. [default: a temporary directory]")
@click.option("--kill-after", type=click.IntRange(1), default=9, show_default=True, help="Steps before the kill.")
@click.option("--model", default="offline", show_default=True, help="The model that the crew asks; a real one is paid.")
def demo(directory: str | None, kill_after: int, model: str) -> None:
    """Run a crew, kill it half way, let it go on: nothing recorded runs again."""
    where = Path(directory or tempfile.mkdtemp(prefix="crewlite-demo-")).absolute()
    where.mkdir(parents=True, exist_ok=True)
    run_id = f"demo-{short(new_id())}"
    console = rich.Console(highlight=False)
    module = ["-m", "crewlite.cli.demo_crew", "--directory", str(where), "--run-id", run_id, "--model", model]

    _head(console, f"1. A crew starts; after {kill_after} recorded steps it is killed in a call.")
    first = _live(console, module, kill_after)
    if not first.killed:
        ran = len(first.those("ran"))
        few = f"The crew had its result after {ran} recorded steps, before it was to be killed: nothing was."
        say(console, "said", f"{few} To see a kill: --kill-after {max(1, ran // 2)}")
    _head(console, "2. What is on disk.")
    recorded = _on_disk(console, where, run_id)
    _head(console, "3. The same command again.")
    second = _live(console, module, None)
    _head(console, "4. Who did what.")
    sound = _compare(console, where, run_id, first, second, recorded)
    _head(console, "5. The brief.")
    brief = where / "brief.md"
    console.print(f"  {printable(str(brief), console)}\n", markup=False, soft_wrap=True)
    for line in brief.read_text(encoding="utf-8").splitlines():
        console.print(rich_text.Text(printable(line, console)))
    _head(console, "To do it by hand: press Ctrl-C anywhere, and run the same line again.")
    command = [*module[:4], "--run-id", "by-hand", *(() if model == "offline" else ("--model", model))]
    console.print(printable(f"  {_command(command)}", console), markup=False, soft_wrap=True)
    sys.exit(0 if sound else 1)


def _live(console: Console, module: Sequence[str], kill_after: int | None) -> _Life:
    """Run the crew in a process of its own, and kill that when it has come so far, if asked to.

    Raises Failed if it fails.
    """
    life = _Life()
    command = [sys.executable, *module, "--events", "--pace", str(_PACE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child:  # noqa: S603 - ours
        assert child.stdout
        for line in child.stdout:
            what, address = life.hear(line)
            if what in _SAID and not life.killed:
                mark, words = _SAID[what]
                say(console, mark, f"{address or 'the crew'} {words}", depth=1)
            if what == "cut" and kill_after is not None and len(life.those("ran")) >= kill_after and not life.killed:
                child.kill()  # SIGKILL: nothing in that process can notice, tidy up or save
                life.killed = True
    if child.returncode == 0:
        life.killed = False  # it had ended by then
    elif not life.killed:
        raise Failed(
            f"the crew stopped by itself, with exit code {child.returncode}; what it said is above. "
            f"What it recorded is kept; to go on with it: {_command(module)}"
        )
    if life.killed:
        cut = ", ".join(sorted(life.those("cut"))) or "nothing"
        say(console, "failed", f"killed (exit code {child.returncode}) in the middle of {cut}", depth=1)
    return life


def _command(module: Sequence[str]) -> str:
    """The line that runs the crew, to be copied."""
    return shell_line([sys.executable, *module])


def _on_disk(console: Console, where: Path, run_id: str) -> set[str]:
    """Show what the first process left. Returns the addresses of the steps that are recorded."""
    with History(where / ".checkpoints") as history:
        run = history.run(run_id)
        finished = {step.address for step in run.steps if step.status == "finished"}
        doubtful = sum(step.status == "in_doubt" for step in run.steps)
        names = [Path(checkpoint.ref).name for checkpoint in run.checkpoints()]
        tokens, status = run.usage.total_tokens, run.status
    lines = [f"run {run_id}: {status}, {number_of(len(finished), 'step')} recorded, {number_of(tokens, 'token')} paid"]
    lines += [f"checkpoint {name}" for name in names]
    lines += [f"in doubt, as announced without a result: {number_of(doubtful, 'tool call')}"] if doubtful else []
    for line in lines:
        say(console, "checkpoint", line, depth=1)
    return finished


def _compare(console: Console, where: Path, run_id: str, first: _Life, second: _Life, recorded: set[str]) -> bool:
    """Show who did each step. Returns whether nothing that was recorded ran again."""
    with History(where / ".checkpoints") as history:
        steps = history.run(run_id).steps
    table = rich_table.Table("step", "1st process", "2nd process", header_style="bold", box=rich_box.SIMPLE)
    table.add_column("tokens", justify="right")
    for step in steps:
        words = "ran" if step.address in recorded else first.did(step.address), second.did(step.address)
        cells = [rich_text.Text(word, style=_COLOURS.get(word, "")) for word in words]
        tokens = f"{step.usage.total_tokens:,}" if step.usage.requests else ""
        table.add_row(printable(step.address or "the crew", console), *cells, tokens)
    console.print(table)
    saved = sum(step.usage.total_tokens for step in steps if step.address in recorded)
    if twice := sorted(recorded.intersection(second.those("ran"))):
        say(console, "failed", f"recorded, and yet run again: {', '.join(twice)}")
        return False
    when = "before the kill" if first.killed else "by the first process"
    say(console, "finished", f"Recorded {when}: {number_of(len(recorded), 'step')}. None of them ran again.")
    say(console, "finished", f"Paid once, not twice: {number_of(saved, 'token')}.")
    return True


def _head(console: Console, text: str) -> None:
    console.print(rich_text.Text(f"\n{text}", style="bold"))
