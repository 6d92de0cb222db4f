"""A crew of a class and two files, as projects begin."""

from model import Noting

from crewlite import Agent, Crew, Process, Task
from crewlite.project import CrewBase, agent, crew, task


@CrewBase
class Report:
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"
    model = Noting()

    @agent
    def researcher(self):
        return Agent(config=self.agents_config["researcher"], llm=self.model, verbose=False)

    @agent
    def writer(self):
        return Agent(config=self.agents_config["writer"], llm=self.model, memory=False)

    @task
    def research(self):
        return Task(config=self.tasks_config["research"])

    @task
    def report(self):
        return Task(config=self.tasks_config["report"])

    @crew
    def crew(self):
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)


if __name__ == "__main__":
    for topic in ("tides", "waves"):
        print(Report().crew().kickoff(inputs={"topic": topic}))
