"""The public test kit: scripted models, recorded events, crashes, and the law that providers keep."""

from crewlite.testing.scripted import ScriptedLLM

__all__ = ["ScriptedLLM"]
