"""The crew: who works in it, and what they do."""

import os

from crewlite import Agent, Crew, Task

from my_crew.tools import list_notes, read_note

researcher = Agent(
    role="Researcher",
    goal="Find what the notes say about a question",
    backstory="You read before you answer, and you name the note that each fact is from.",
    tools=[list_notes, read_note],
)
writer = Agent(
    role="Writer",
    goal="Answer a question so that everybody understands it",
    backstory="You write short sentences, and you add nothing to the facts that you are given.",
)

research = Task(
    name="research",
    description='Read the notes, and collect what helps to answer this: "{question}"',
    expected_output="The facts, each as: - fact [note]",
    agent=researcher,
)
answer = Task(
    name="answer",
    description='Answer this from the facts: "{question}"',
    expected_output="A short answer that names the notes it is from",
    agent=writer,
    context=[research],
)

crew = Crew(
    name="my_crew",
    tasks=[research, answer],
    llm=os.environ.get("CREWLITE_MODEL", "offline"),
    checkpoint=True,
)
