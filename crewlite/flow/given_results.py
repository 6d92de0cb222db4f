"""The result that a person gives for a step in doubt: it gets the type that the step's function returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

from pydantic import ValidationError

from crewlite.errors import ConfigError
from crewlite.runtime.people.human import Question
from crewlite.state.verbs.answer import Typed, converted


def given_result(func: Callable[..., Any], value: Any) -> Any:
    """Return the result that a person gives for a call of `func`, converted as an answer to a question of its type is.

    A value of that type stays as it is; so does any value where the function has no type hint that can be checked.
    Raises AnswerRefused for a value that does not fit.
    """
    plain = str(value) if isinstance(value, Typed) else value
    hints = dict[str, Any]()
    with contextlib.suppress(NameError, TypeError):  # it names what cannot be found, or the function has no hints
        hints = get_type_hints(func, include_extras=True)
    try:
        wanted = Question("result", hints.get("return", Any))
    except ConfigError:
        return plain
    try:
        made = wanted.adapter.validate_python(plain, strict=True)
    except ValidationError:
        made = wanted.read(converted(value, wanted.json_schema), "")
    return plain if isinstance(made, Iterator) else made  # of an Iterable, the items would be checked as they are read
