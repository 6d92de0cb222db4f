"""What the agents can do: look into the notes."""

from pathlib import Path

from crewlite import tool

NOTES = Path(__file__).parent / "notes"


@tool(effect="none")
def list_notes() -> str:
    """List the notes: one name a line."""
    return "\n".join(sorted(path.name for path in NOTES.glob("*.md")))


@tool(effect="none")
def read_note(name: str) -> str:
    """Read one note.

    Args:
        name: Its name, as list_notes gives it.
    """
    for path in NOTES.glob("*.md"):
        if path.name == name:
            return path.read_text(encoding="utf-8")
    raise LookupError(f"there is no note {name!r}; list_notes names them all")
