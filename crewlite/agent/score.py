"""The form in which a model scores an answer."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Score(BaseModel):
    """How good an answer is."""

    model_config = ConfigDict(defer_build=True)

    quality: float = Field(ge=0, le=10, description="From 0 (useless) to 10 (nothing could be better)")
    reason: str = Field(description="Why, in one or two sentences")
