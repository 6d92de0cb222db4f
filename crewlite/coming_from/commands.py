"""Commands of CrewAI that crewlite lacks, and what to do instead."""

from __future__ import annotations

_NO_PLATFORM = "there is no platform: a run is your own process, and nothing is sent to anybody (docs/service.md)"
_PROJECT = "a project is installed as any other of Python: pip install, or uv sync"
_NO_MEMORY = "there is no memory, so there is nothing to look at or to reset (docs/moving-crewai.md)"
_TOOLS = "a tool is a function with @tool, or a BaseTool; agents have them in tools=[...] (docs/tools.md)"
_SETTINGS = "settings stand where they are used: Crew(...), Agent(...), CheckpointConfig(...)"

COMMANDS: dict[str, str] = {
    **dict.fromkeys(("deploy", "enterprise", "login", "org", "traces", "triggers"), _NO_PLATFORM),
    **dict.fromkeys(("install", "update", "uv"), _PROJECT),
    **dict.fromkeys(("memory", "reset-memories"), _NO_MEMORY),
    **dict.fromkeys(("skill", "tool"), _TOOLS),
    "chat": "agent.kickoff(text, run_id=...) continues a conversation (docs/agents.md)",
    **dict.fromkeys(("config", "env"), _SETTINGS),
    "log-tasks-outputs": "crewlite checkpoint show RUN lists the steps of a run, and what they gave",
    "template": "crewlite create NAME writes a small project",
    "version": "crewlite --version",
}
