"""The output schema of an answer (its shape), and the reading of data from a model's text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from crewlite.errors import AnswerMisfit, ConfigError
from crewlite.system.forked import cached_property
from crewlite.texts import templates
from crewlite.texts.wording import an, what_is

PROMPTS = "crewlite.agent"
_FENCE = re.compile(r"```(?:json)?\s*", re.IGNORECASE)
_CLOSED = re.compile(r"\s*```")
_BEGIN = re.compile(r"""\{(?=\s*["}])|\[(?=\s*(?:["{\[\]\d-]|true|false|null))""")
"""A bracket that may begin JSON: other brackets belong to the text around it."""
_DECODER = json.JSONDecoder()


class Misshapen(ValueError):
    """A model's text does not hold data that fits the schema. The model is told so, and can answer again."""


@dataclass(frozen=True)
class Shape:
    """A pydantic class that answers must fit."""

    model: type[BaseModel]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the class."""
        return self.model.model_json_schema()

    def read(self, text: str) -> BaseModel:
        """Return the object in a model's answer, which is JSON or has JSON in it (see `json_in`). Raises Misshapen."""
        try:
            return self.model.model_validate_json(self.json_in(text))
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, item['loc'])) or 'the answer'}: {item['msg']}" for item in error.errors()]
            raise Misshapen("; ".join(problems[:5])) from None

    def json_in(self, text: str) -> str:
        """Return the JSON in an answer that fits, as the model wrote it: the answer itself, a fenced block, or a part.

        The JSON tells where a fenced block ends, as a text in it may have fenced blocks of its own. Of several parts,
        only one may fit.
        """
        text = text.strip("\ufeff \t\r\n")
        if _end_of_json(text, 0) == len(text):
            return text
        fences = list(_FENCE.finditer(text))
        for fence in fences:
            if (end := _end_of_json(text, fence.end())) and _CLOSED.match(text, end):
                return text[fence.end() : end]
        parts = _parts(text)
        fitting = parts if len(parts) == 1 else [part for part in parts if self._fits(part)]
        if len(fitting) == 1:
            return fitting[0]
        return text[fences[0].end() :].partition("```")[0] if fences else text

    def _fits(self, part: str) -> bool:
        try:
            self.model.model_validate_json(part)
        except ValidationError:
            return False
        return True

    def recorded(self, text: str, what: str) -> BaseModel:
        """Return the object in a recorded answer. Raises AnswerMisfit if it was recorded for another class."""
        try:
            return self.read(text)
        except Misshapen as problem:
            raise AnswerMisfit(what, self.model.__name__, str(problem)) from None

    def check_edit(self, address: str, text: str, what: str) -> None:
        """Raise ConfigError if a fork edits the answer at an address to be a text that does not fit."""
        try:
            self.read(text)
        except Misshapen as problem:
            name, fields = self.model.__name__, ", ".join(self.schema.get("properties", ()))
            raise ConfigError(
                f"The edit of {address} does not fit {name}, the class of {what} ({problem}); wanted {an(name)}"
                f"{fields and f', or data with its fields: {fields}'}"
            ) from None


def _parts(text: str) -> list[str]:
    """Return each JSON value in a text; none if one of them is broken, as values inside that are no answer."""
    parts, begin = list[str](), _BEGIN.search(text)
    while begin:
        end = _end_of_json(text, begin.start())
        if end is None:
            return []
        parts.append(text[begin.start() : end])
        begin = _BEGIN.search(text, end)
    return parts


def _end_of_json(text: str, start: int) -> int | None:
    """Return where the JSON that begins at `start` ends; None if none does."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def check_format(value: object, where: str = "response_format") -> type[BaseModel] | None:
    """Return `value`, a pydantic class or None, unchanged. Raises ConfigError, naming `where`, for anything else."""
    if value is None or (isinstance(value, type) and issubclass(value, BaseModel)):
        return value
    found = f"the class {value.__name__}" if isinstance(value, type) else f"{what_is(value)}: {value!r:.80}"
    raise ConfigError(f"{where} is {found}; wanted a pydantic class, not an instance of it: {where}=Report")


def schema_text(shape: Shape) -> str:
    """Return the schema as text for a prompt."""
    return json.dumps(shape.schema, ensure_ascii=False)


def wanted(shape: Shape | None) -> str:
    """Return the text that tells a model of the schema; "" without one."""
    return templates.render(PROMPTS, "shape.j2", schema=schema_text(shape)) if shape else ""
