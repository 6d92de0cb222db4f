"""The shape an answer must have, and reading it out of a model's text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from crewlite import templates
from crewlite.errors import RunMismatch

PROMPTS = "crewlite.agent"
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class Misshapen(ValueError):
    """A text that does not hold a value of the shape. Told to the model, so that it can answer again."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pydantic class that answers must fit."""

    model: type[BaseModel]

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        return self.model.model_json_schema()

    def read(self, text: str) -> BaseModel:
        """The value in a model's answer: bare JSON, or JSON in a fenced block. Raises Misshapen."""
        fenced = _FENCED.search(text)
        try:
            return self.model.model_validate_json((fenced[1] if fenced else text).strip())
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, item['loc'])) or 'the answer'}: {item['msg']}" for item in error.errors()]
            raise Misshapen("; ".join(problems[:5])) from None

    def recorded(self, text: str, what: str) -> BaseModel:
        """The value in a recorded answer. Raises RunMismatch if it was recorded for another shape."""
        try:
            return self.read(text)
        except Misshapen as problem:
            raise RunMismatch(
                f"{what} is finished, but its recorded answer does not fit {self.model.__name__} ({problem}). "
                f"Take the shape back, or set on_drift='rerun'."
            ) from None


def schema_text(shape: Shape) -> str:
    """The schema as a prompt shows it."""
    return json.dumps(shape.schema, ensure_ascii=False)


def wanted(shape: Shape | None) -> str:
    """How a model is told of the shape; "" without one."""
    return templates.render(PROMPTS, "shape.j2", schema=schema_text(shape)) if shape else ""
