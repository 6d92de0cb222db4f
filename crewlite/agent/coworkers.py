"""What makes coworkers reachable: roles that a model can tell apart, and tools whose names nobody else has.

Light to import: a crew is checked when it is defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crewlite.tools.base import BaseTool
from crewlite.tools.naming import safe_name

DELEGATE = "Delegate work to coworker"
ASK = "Ask question to coworker"


def plain_role(role: str) -> str:
    """A role as it is compared, however a model quotes it or writes it big."""
    return " ".join(role.strip("\"'`[]() \n\t").casefold().split())


def problems_of(where: str, roles: Iterable[str], tools: Iterable[BaseTool] = ()) -> Iterator[str]:
    """What keeps somebody in `where` from working with coworkers of these roles beside these tools of their own."""
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
