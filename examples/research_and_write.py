"""Research with a tool, then write with files: a cited brief on what some founding documents say of a topic.

    python examples/research_and_write.py liberty

Kill it anywhere and run the same line again: it goes on where it stopped. Without a key the model only quotes; set
CREWLITE_MODEL to have the brief written. A topic such as `../../x` writes no file outside of this directory.
"""

import os
import sys
from pathlib import Path

from crewlite import Agent, Crew, Task, tool

SHELF = Path(__file__).parent / "founding_documents"


@tool(effect="none")
def search_documents(query: str) -> str:
    """Find a word in all documents. Gives the lines that hold it, as `document:line: text`."""
    found = []
    for path in sorted(SHELF.glob("*.md")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [f"{path.name}:{n}: {line}" for n, line in enumerate(lines, 1) if query.casefold() in line.casefold()]
    return "\n".join(found)


def cites(output):
    """A guardrail: notes without a source do not count, and the agent is told why."""
    return (True, output) if ".md:" in output.raw else (False, "Cite every line as [document:line].")


researcher = Agent(role="Researcher", goal="Find what the documents say", tools=[search_documents])
writer = Agent(role="Writer", goal="Say it briefly, and cite every claim")
research = Task(
    name="research",
    description='Search the documents for what they say about this: "{topic}"',
    expected_output="The lines that matter, each as: - text [document:line]",
    agent=researcher,
    guardrail=cites,
    output_file="notes/{topic}.md",
)
write = Task(
    name="write",
    description='Write a brief on what they say about this: "{topic}". The Gettysburg Address is given in full.',
    expected_output="A page; every claim cited as [document:line]",
    agent=writer,
    input_files={"gettysburg_address.md": SHELF / "gettysburg_address.md"},
    markdown=True,
    output_file="briefs/{topic}.md",
)
crew = Crew(tasks=[research, write], llm=os.environ.get("CREWLITE_MODEL", "offline"), checkpoint=True)

topic = sys.argv[1] if len(sys.argv) > 1 else "liberty"
result = crew.kickoff({"topic": topic}, resume=True)
print(f"briefs/{topic}.md, {result.token_usage.total_tokens:,} tokens in run {result.run_id}")
