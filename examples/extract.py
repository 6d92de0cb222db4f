"""Data out of documents: one run for each, side by side, and each answer an instance of a class.

    python examples/extract.py

Kill it anywhere and run it again: what is extracted already is not paid twice. Without a key the model only quotes; set
CREWLITE_MODEL for a better one.
"""

import os
from pathlib import Path

from pydantic import BaseModel, Field

from crewlite import Agent, Crew, Task

SHELF = Path(__file__).parent / "founding_documents"


class Finding(BaseModel):
    """What a document says of a topic."""

    statement: str = Field(description="The sentence that says most about the topic, word for word, and [its heading]")
    others: list[str] = Field(description="Further sentences about it, in the same form")


def word_for_word(output):
    """A guardrail: what the document does not say goes back to the model, with the reason."""
    said = [output.pydantic.statement, *output.pydantic.others]
    made_up = [text for text in said if text.partition(" [")[0] not in output.description]
    return (False, f"Not in the document: {made_up[0]!r}. Copy sentences as they are.") if made_up else (True, output)


clerk = Agent(role="Clerk", goal="Copy what documents say, exactly")
extract = Task(
    name="extract",
    description='What does this document say about "{topic}"?\n\n## {name}\n{text}',
    expected_output="Sentences of the document",
    agent=clerk,
    output_pydantic=Finding,
    guardrail=word_for_word,
)
crew = Crew(tasks=[extract], llm=os.environ.get("CREWLITE_MODEL", "offline"), checkpoint=True)

inputs = [
    {"topic": "the people", "name": path.name, "text": path.read_text(encoding="utf-8")}
    for path in sorted(SHELF.glob("*.md"))
]
results = crew.kickoff_for_each(inputs, run_id="extract", max_concurrency=3)
for given, result in zip(inputs, results, strict=True):
    print(f"{given['name']}: {result.pydantic.statement[:70]}... and {len(result.pydantic.others)} more")
