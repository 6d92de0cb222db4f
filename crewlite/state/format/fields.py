"""The types of the fields of commits, each with a check that runs when a commit is read."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator, Field, InstanceOf, Strict

from crewlite.refs import check_name
from crewlite.state.format.operations import check_operations

_HEX = re.compile("[0-9a-f]{32}")


def _hex(text: str) -> str:
    if not _HEX.fullmatch(text):
        raise ValueError("wanted 32 hexadecimal digits")
    return text


def _time(text: str) -> str:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or not 1000 <= time.year < 9000:  # hundreds of years can be added or subtracted
        raise ValueError("wanted a time with a zone")
    return text


def _check_coded(data: dict[str, Any]) -> dict[str, Any]:
    """Return an encoded dict unchanged. Raises ValueError if the codec cannot have written it.

    The codec writes a dict as it is, or as {"$": "dict", "v": pairs} if it has unusual keys.
    """
    if "$" in data and not (data["$"] == "dict" and are_pairs(data.get("v"))):
        raise ValueError("wanted names and values")
    return data


def _text_keyed(data: dict[str, Any]) -> dict[str, Any]:
    """Check an encoded dict whose keys must be texts."""
    pairs = _check_coded(data)["v"] if "$" in data else []
    if not all(isinstance(key, str) or (isinstance(key, dict) and key.get("$") == "str") for key, _ in pairs):
        raise ValueError("wanted names and values")
    return data


def are_pairs(items: object) -> TypeGuard[list[list[Any]]]:
    """Return whether this is a list of pairs, as the codec writes a dict with unusual keys."""
    return isinstance(items, list) and all(
        isinstance(item, list) and len(item) == 2 and isinstance(item[0], str | int | float | dict | None)
        for item in items
    )


Text = InstanceOf[str]
"""A text. Pydantic's own check of `str` would refuse lone surrogates, which a recorded text may contain."""
Number = Annotated[int, Field(ge=1, lt=2**63)]
Hex = Annotated[Text, AfterValidator(_hex)]
Time = Annotated[Text, AfterValidator(_time)]
RunName = Annotated[Text, AfterValidator(partial(check_name, "run_id"))]
BranchName = Annotated[Text, AfterValidator(partial(check_name, "branch", slashes=True))]
Intent = Annotated[tuple[Text, Text], Strict(strict=False)] | Annotated[tuple[Text, Text, Text], Strict(strict=False)]
Event = Annotated[tuple[Text, Text, Text, Text], Strict(strict=False)]
"""An emitted event: (type, id, time, address)."""
Recorded = Annotated[tuple[Number, Annotated[int, Field(ge=0)]], Strict(strict=False)]
"""The commit that recorded a step, and the index of the step there."""
Drop = Annotated[tuple[Text, Text | None], Strict(strict=False)]
Operations = Annotated[list[list[Any]], AfterValidator(check_operations)]
Coded = Annotated[dict[Text, Any], AfterValidator(_check_coded)]
Inputs = Annotated[dict[Text, Any], AfterValidator(_text_keyed)]
