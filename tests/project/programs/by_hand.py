"""A crew, and then agents that do single tasks in a loop, as review loops are written."""

from model import Noting

from crewlite import Agent, Crew, Task

llm = Noting()
writer = Agent(name="writer", role="Writer", goal="write", backstory="b", llm=llm, allow_delegation=False)
reviewer = Agent(role="Reviewer", goal="review", backstory="b", llm=llm, cache=True)

draft = Task(description="Draft a note", expected_output="A note", verbose=True)
polish = Task(description="Polish the note", expected_output="A note")
draft.agent = polish.agent = writer
polish.context = [draft]

if __name__ == "__main__":
    crew = Crew(agents=[writer, reviewer], tasks=[draft, polish], share_crew=False)
    crew.kickoff()
    text = polish.output.raw
    for number in range(2):
        review = Task(description=f"Review {number}: {text}", expected_output="A line", agent=reviewer)
        text = reviewer.execute_task(review)
    print(text, crew.usage_metrics.requests)
