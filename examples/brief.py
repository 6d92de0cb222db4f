"""A run that survives: start it, press Ctrl-C (or kill it) anywhere, run it again, and it goes on where it stopped.

    CREWLITE_MODEL=offline python examples/brief.py

The crew itself, a scout, an analyst and a writer with their tools, is in crewlite/cli/demo_crew.py. "offline" is a
model that only quotes; it needs no key and no network.
"""

from crewlite import History
from crewlite.cli.demo_crew import QUESTION, brief_crew

crew = brief_crew(".", verbose=True)
result = crew.kickoff(inputs={"question": QUESTION}, run_id="brief")  # the same run_id: the same run

print(f"\n{result}\n")
print(f"{result.token_usage.total_tokens:,} tokens in all lives of run {result.run_id!r}; the brief is in brief.md")

with History("./.checkpoints") as history:
    for step in history.run("brief").steps:
        print(f"  {step.address or 'the crew':45} {step.usage.total_tokens:7,} tokens")
