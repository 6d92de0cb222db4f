"""Knowledge: texts of the user, of which agents are shown the passages that fit their work.

Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crewlite.lazy import first_use

if TYPE_CHECKING:
    from crewlite.knowledge.knowledge import Knowledge as Knowledge, KnowledgeConfig as KnowledgeConfig
    from crewlite.knowledge.sources import (
        FileKnowledgeSource as FileKnowledgeSource,
        KnowledgeSource as KnowledgeSource,
        StringKnowledgeSource as StringKnowledgeSource,
    )

_NAMES = {
    "knowledge.knowledge": "Knowledge KnowledgeConfig",
    "knowledge.sources": "FileKnowledgeSource KnowledgeSource StringKnowledgeSource",
}

__all__, __getattr__ = first_use("crewlite.knowledge", _NAMES)
