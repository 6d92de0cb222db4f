"""The variables of the environment that a tool names: tools written for CrewAI have a list of them."""

from __future__ import annotations

from pydantic import BaseModel


class EnvVar(BaseModel):
    """A variable of the environment that a tool reads. Nothing looks it up: the tool does so itself."""

    name: str
    description: str
    required: bool = True
    default: str | None = None
