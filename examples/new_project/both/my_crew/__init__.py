"""A crew that answers questions from a folder of notes."""
