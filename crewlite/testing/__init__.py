"""The public test kit: scripted and recorded models, recorded events, crashes, and checks for storage providers."""

from crewlite.llm.base import ToolCall
from crewlite.testing.crash import CrashInjector
from crewlite.testing.interleaved import Interleaved
from crewlite.testing.interleavings import check_interleavings
from crewlite.testing.providers import check_provider
from crewlite.testing.recorded import RecordedLLM
from crewlite.testing.recorder import EventRecorder
from crewlite.testing.scripted import ScriptedLLM

__all__ = [
    "CrashInjector",
    "EventRecorder",
    "Interleaved",
    "RecordedLLM",
    "ScriptedLLM",
    "ToolCall",
    "check_interleavings",
    "check_provider",
]
