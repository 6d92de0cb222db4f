"""One crew for many inputs, and an agent that is asked alone."""

import asyncio

from model import Noting

from crewlite import Agent, Crew, Task

llm = Noting()
clerk = Agent(role="Clerk", goal="answer", backstory="b", llm=llm)
crew = Crew(agents=[clerk], tasks=[Task(description="Answer {question}", expected_output="x", agent=clerk)])


async def main():
    for question in ("one", "two", "one"):
        print(await crew.kickoff_async(inputs={"question": question}))
    print(await clerk.kickoff_async("And alone?"))


if __name__ == "__main__":
    asyncio.run(main())
    print([result.raw for result in crew.kickoff_for_each([{"question": "three"}, {"question": "four"}])])
