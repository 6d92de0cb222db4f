"""A crew and a flow that are streamed, as pages that show the work are written."""

from model import Noting

from crewlite import Agent, Crew, Task
from crewlite.flow import Flow, start

llm = Noting()
writer = Agent(role="Writer", goal="write", backstory="b", llm=llm)
draft = Task(description="Draft a note on {topic}", expected_output="A note", agent=writer)
polish = Task(description="Polish the note", expected_output="A note", agent=writer)


class Notes(Flow):
    stream = True

    @start()
    def write(self):
        return Crew(agents=[writer], tasks=[draft, polish]).kickoff(inputs={"topic": "winds"})


if __name__ == "__main__":
    crew = Crew(agents=[writer], tasks=[draft, polish], stream=True)
    for begin in (lambda: crew.kickoff(inputs={"topic": "tides"}), Notes().kickoff):
        stream = begin()
        for chunk in stream:
            assert chunk.type
        print(stream.result.raw)
