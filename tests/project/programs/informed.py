"""A crew that knows texts and files, and asks two agents about them."""

from pathlib import Path

from model import Noting

from crewlite import Agent, Crew, Task
from crewlite.knowledge.knowledge_config import KnowledgeConfig
from crewlite.knowledge.source.csv_knowledge_source import CSVKnowledgeSource
from crewlite.knowledge.source.string_knowledge_source import StringKnowledgeSource
from crewlite.knowledge.source.text_file_knowledge_source import TextFileKnowledgeSource

Path("knowledge").mkdir(exist_ok=True)
Path("knowledge/handbook.txt").write_text(
    "\n\n".join(f"Rule {n}: boats of class {n} pay {n} euros." for n in range(99))
)
Path("knowledge/ports.csv").write_text("port,depth\nBrest,7\nLorient,5\n")


class Informed(Noting):
    def call(self, messages, tools=None, agent=""):
        said = super().call(messages, tools, agent)
        return f"{said}: {'class 42 pay 42' in messages[-1]['content']} {'Brest, depth: 7' in messages[-1]['content']}"


handbook = TextFileKnowledgeSource(file_paths=["handbook.txt"], chunk_size=100, chunk_overlap=10)
clerk = Agent(
    role="Clerk",
    goal="answer",
    backstory="b",
    llm=Informed(),
    knowledge_sources=[handbook],
    knowledge_config=KnowledgeConfig(results_limit=2),
)
pilot = Agent(role="Pilot", goal="pilot", backstory="b", llm=Informed())
tasks = [
    Task(description="What do boats of class 42 pay?", expected_output="A sum", agent=clerk),
    Task(description="How deep is the water at Brest?", expected_output="A depth", agent=pilot),
    Task(description="What do boats of class 7 pay?", expected_output="A sum", agent=clerk),
]

if __name__ == "__main__":
    facts = StringKnowledgeSource(content="The harbour of Brest closes at ten.")
    crew = Crew(
        agents=[clerk, pilot], tasks=tasks, knowledge_sources=[facts, CSVKnowledgeSource(file_paths="ports.csv")]
    )
    result = crew.kickoff()
    print([output.raw for output in result.tasks_output], pilot.kickoff("And Lorient?").raw)
