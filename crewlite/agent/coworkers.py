"""Check that a model can reach coworkers: their roles must differ, and no tool may have the name of a delegation tool.

Light to import: a crew is checked when it is defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crewlite.tools.base import BaseTool
from crewlite.tools.naming import safe_name

DELEGATE = "Delegate work to coworker"
ASK = "Ask question to coworker"


def plain_role(role: str) -> str:
    """Return a role in the form in which roles are compared, without quotes and case that a model may change."""
    return " ".join(role.strip("\"'`[]() \n\t").casefold().split())


def problems_of(where: str, roles: Iterable[str], tools: Iterable[BaseTool] = ()) -> Iterator[str]:
    """Yield the problems that keep an agent with these tools from working with coworkers that have these roles.

    `where` names the agent's task or crew in the messages.
    """
    known = set[str]()
    for role in roles:
        before = len(known)
        known.add(plain_role(role))
        if len(known) == before:
            yield (
                f"{where} has two coworkers of the role {role!r}, and a model chooses one by the role; wanted roles "
                f"that differ"
            )
    for tool in tools:
        if tool.safe_name in (safe_name(DELEGATE), safe_name(ASK)):
            yield (
                f"{where} has a tool of its own named {tool.name!r}, which is the name of the tool that delegates; "
                f"name it otherwise, or allow no delegation"
            )
