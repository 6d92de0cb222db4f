"""A crew of three that writes a cited brief from a shelf of founding documents. What `crewlite demo` runs.

    python -m crewlite.cli.demo_crew --run-id my-brief

Kill it anywhere and run the same line again: it goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from crewlite import Agent, CheckpointConfig, Crew, Task, tool
from crewlite.cli.create import shipped
from crewlite.cli.output import Output
from crewlite.errors import CrewliteError
from crewlite.events import BaseEvent, LLMCallStartedEvent, ToolUsageStartedEvent
from crewlite.events.event_bus import event_bus

QUESTION = "What do these documents say about liberty, and about the power of government?"

_SHELF = shipped("founding_documents")


@tool(effect="none")
def list_documents() -> str:
    """List the documents on the shelf: one line each, name and title."""
    return "\n".join(f"{path.name} {_lines(path)[0].strip('# ')}" for path in _documents())


@tool(effect="none")
def search_documents(query: str) -> str:
    """Find a word or phrase in all documents. Gives the lines that hold it, as `document:line: text`.

    Args:
        query: The word or phrase; case does not matter.
    """
    found = [
        f"{path.name}:{number}: {line}"
        for path in _documents()
        for number, line in enumerate(_lines(path), 1)
        if query.casefold() in line.casefold()
    ]
    return "\n".join(found) or f"no line holds {query!r}"


@tool(effect="none")
def read_document(name: str) -> str:
    """Read one whole document, as `document:line: text`.

    Args:
        name: Its name, as list_documents gives it.
    """
    for path in _documents():
        if path.name == name:
            return "\n".join(f"{name}:{number}: {line}" for number, line in enumerate(_lines(path), 1) if line)
    raise LookupError(f"no document {name!r}; list_documents names them all")


def brief_crew(directory: str | Path = ".", *, llm: str | None = None, verbose: bool = False) -> Crew:
    """The crew. It writes `brief.md` into `directory` and keeps its record in `.checkpoints` there."""
    scout = Agent(role="Scout", goal="Know where on the shelf to look", tools=[list_documents, search_documents])
    analyst = Agent(role="Analyst", goal="Find the passages that settle a question", tools=[read_document])
    writer = Agent(role="Writer", goal="Say it briefly, and cite every claim as [document:line]")

    scouting = Task(
        name="scout",
        description='List the documents and search them for what bears on this: "{question}"',
        expected_output="The lines that matter, each as: - text [document:line]",
        agent=scout,
    )
    analysis = Task(
        name="analyse",
        description='Read the documents the scout points to, and choose the passages that best answer: "{question}"',
        expected_output="The passages, each as: - text [document:line]",
        agent=analyst,
    )
    writing = Task(
        name="write",
        description='Write a brief for a busy reader that answers: "{question}"',
        expected_output="A page of markdown; every claim cited as [document:line]",
        agent=writer,
        context=[analysis],
        output_file=str(Path(directory) / "brief.md").replace("{", "{{").replace("}", "}}"),
        output_file_anywhere=True,
    )
    return Crew(
        name="brief",
        tasks=[scouting, analysis, writing],
        llm=llm,
        checkpoint=CheckpointConfig(location=Path(directory) / ".checkpoints"),
        verbose=verbose,
    )


def _documents() -> list[Path]:
    return sorted(_SHELF.glob("*.md"))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@contextlib.contextmanager
def _paced(seconds: float) -> Iterator[None]:
    """Have each call wait, once it is told, so that there is something to watch."""

    def wait(source: object, event: BaseEvent) -> None:
        time.sleep(seconds)

    with event_bus.on(LLMCallStartedEvent, wait), event_bus.on(ToolUsageStartedEvent, wait):
        yield


@click.command()
@click.option("--directory", type=click.Path(file_okay=False), default=".", help="Where the brief and its record go.")
@click.option("--run-id", default="brief", show_default=True, help="Name of the run; the same name goes on with it.")
@click.option("--question", default=QUESTION, help="What the brief is to answer.")
@click.option("--model", default="offline", show_default=True, help="The model that everybody asks.")
@click.option("--events", is_flag=True, help="Print a JSON line for each event, and nothing else.")
@click.option("--pace", default=0.0, help="Seconds to wait before each call; with --events.")
def main(directory: str, run_id: str, question: str, model: str, events: bool, pace: float) -> None:
    """Write a cited brief, or go on with one."""
    crew = brief_crew(directory, llm=model, verbose=not events)
    try:
        with Output(sys.stdout, True).events() if events else contextlib.nullcontext(), _paced(pace):
            result = crew.kickoff(inputs={"question": question}, run_id=run_id)
    except CrewliteError as error:
        raise click.ClickException(str(error)) from error
    if not events:
        click.echo(result)


if __name__ == "__main__":
    main()
