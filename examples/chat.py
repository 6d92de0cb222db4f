"""A chat that survives restarts: kill it at any moment and start it again, and it goes on where it was.

    python examples/chat.py monday

Each line is a question of the conversation "monday". A model that is named in CREWLITE_MODEL answers; without one, the
answers are quoted from the notes below.
"""

import os
import sys

from crewlite import Agent, History, tool

NOTES = [
    "High water at Brest is at 11:40, low water at 17:52.",
    "Spring tides come with the new moon and the full moon.",
    "The harbour bar is 4 m deep at low water, and 9 m at high water.",
]


@tool(effect="none")
def search(words: str) -> str:
    """Search the notes of the harbour."""
    found = [note for note in NOTES if any(word[:4].lower() in note.lower() for word in words.split())]
    return "\n".join(found) or "nothing"


pilot = Agent(
    role="Pilot",
    goal="answer questions about the harbour",
    llm=os.environ.get("CREWLITE_MODEL", "offline"),
    tools=[search],
    checkpoint=True,
)


def main(name: str) -> None:
    turn = 1
    with History(make=True) as history:
        begun = any(run.run_id == name for run in history.runs())
    if not begun:
        print("Nothing was asked yet.")
    else:  # a question that was cut gets its answer now; else this is the last answer, from the record
        last = pilot.kickoff(run_id=name)
        print(f"{last.turn}: {last.raw}", flush=True)
        turn = last.turn + 1
    for line in filter(None, map(str.strip, sys.stdin)):
        answer = pilot.kickoff(line, run_id=name, turn=turn)
        print(f"{answer.turn}: {answer.raw}", flush=True)
        turn += 1


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "chat")
