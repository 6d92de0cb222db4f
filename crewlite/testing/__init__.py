"""The public test kit: scripted models, recorded events, crashes, and the law that providers keep."""

from crewlite.testing.crash import CrashInjector
from crewlite.testing.scripted import ScriptedLLM

__all__ = ["CrashInjector", "ScriptedLLM"]
