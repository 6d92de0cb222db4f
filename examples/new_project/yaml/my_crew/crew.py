"""The crew. Its texts are in config/agents.yaml and config/tasks.yaml."""

import os

from crewlite import Agent, Crew, Task
from crewlite.project import CrewBase, agent, crew, task, tool

from my_crew import tools


@CrewBase
class MyCrew:
    """A researcher and a writer."""

    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    @tool
    def list_notes(self):
        return tools.list_notes

    @tool
    def read_note(self):
        return tools.read_note

    @agent
    def researcher(self) -> Agent:
        return Agent(config=self.agents_config["researcher"])

    @agent
    def writer(self) -> Agent:
        return Agent(config=self.agents_config["writer"])

    @task
    def research(self) -> Task:
        return Task(config=self.tasks_config["research"])

    @task
    def answer(self) -> Task:
        return Task(config=self.tasks_config["answer"])

    @crew
    def crew(self) -> Crew:
        return Crew(
            agents=self.agents,
            tasks=self.tasks,
            llm=os.environ.get("CREWLITE_MODEL", "offline"),
            checkpoint=True,
        )
