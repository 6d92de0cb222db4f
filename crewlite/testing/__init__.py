"""The public test kit: scripted and recorded models, recorded events, crashes, and checks for storage providers.

Names are imported at their first use: a test with a scripted model does not load the checks for providers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.llm.base import ToolCall as ToolCall
    from crewlite.testing.failing import (
        CrashInjector as CrashInjector,
        assert_classifies_as as assert_classifies_as,
        faults as faults,
    )
    from crewlite.testing.interleaved import Interleaved as Interleaved
    from crewlite.testing.laws import check_provider as check_provider
    from crewlite.testing.recorded import RecordedLLM as RecordedLLM
    from crewlite.testing.recorder import EventRecorder as EventRecorder
    from crewlite.testing.scripted import ScriptedLLM as ScriptedLLM

_NAMES = {
    "llm.base": "ToolCall",
    "testing.failing": "CrashInjector assert_classifies_as faults",
    "testing.interleaved": "Interleaved",
    "testing.laws": "check_provider",
    "testing.recorded": "RecordedLLM",
    "testing.recorder": "EventRecorder",
    "testing.scripted": "ScriptedLLM",
}

__all__, __getattr__ = first_use("crewlite.testing", _NAMES)
