"""Refuse keywords that a function does not take, and say which ones may have been meant.

Python's own error says neither, and names only the first of several.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, cast

from crewlite.coming_from.settings import why_not, without_accepted
from crewlite.errors import UnknownOption, meant_setting

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def known_keywords(
    what: str, *more: str, instead: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function raise UnknownOption for keywords that it does not take.

    Settings of CrewAI without an effect are left out. `what`: what errors call the function, such as "@tool" or
    "kickoff of a crew". `more`: the keywords that it takes by `**`. `instead`: hints about those that only
    similar functions take.
    """

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @functools.cache
        def parameters() -> tuple[Sequence[str], Sequence[str] | None]:
            return (*_named(fn), *more), _by_place(fn)

        def checked(args: Sequence[object], given: dict[str, Any]) -> dict[str, Any]:
            takes, by_place = parameters()
            if by_place is not None and len(args) > len(by_place):
                raise TypeError(_too_many(what, args, by_place))
            unknown = {name: value for name, value in given.items() if name not in takes}
            if not unknown:
                return given
            refuse_unknown(what, takes, without_accepted([_function_name(what)], unknown), instead=instead)
            return {name: value for name, value in given.items() if name not in unknown}

        @functools.wraps(fn)
        def call(*args: Any, **given: Any) -> Any:
            return fn(*args, **checked(args, given))

        @functools.wraps(fn)
        async def call_on_loop(*args: Any, **given: Any) -> Any:
            return await cast(Any, fn(*args, **checked(args, given)))

        return cast(Callable[P, R], call_on_loop if inspect.iscoroutinefunction(fn) else call)

    return decorate


def options_of(fn: Callable[..., Any], only: Collection[str] | None = None) -> list[inspect.Parameter]:
    """Return the parameters of a function that are given by name alone. `only`: the names of those that are wanted."""
    found = [one for one in inspect.signature(fn).parameters.values() if one.kind is one.KEYWORD_ONLY]
    return [one for one in found if only is None or one.name in only]


def shows_options(*options: inspect.Parameter) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have the signature of a function list the options that it takes by `**`: `help()` shows them, with defaults."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(fn)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        cast(Any, fn).__signature__ = signature.replace(parameters=[*own, *options])
        return fn

    return decorate


def methods_with_known_keywords(what: str, *, constructed: bool = True) -> Callable[[C], C]:
    """Do this for the constructor and all public methods of a class. `what`: what errors call an object of it.

    `constructed`: whether programs call the constructor.
    """

    def decorate(cls: C) -> C:
        for name, method in [*vars(cls).items()]:
            if name == "__init__" and constructed:
                setattr(cls, name, known_keywords(cls.__name__)(method))
            elif not name.startswith("_"):
                checked = known_keywords(f"{name} of {what}")
                if isinstance(method, classmethod | staticmethod):
                    setattr(cls, name, type(method)(checked(method.__func__)))
                elif inspect.isfunction(method):
                    setattr(cls, name, checked(method))
        return cls

    return decorate


def refuse_unknown(
    what: str,
    takes: Collection[str],
    given: Iterable[str],
    *,
    instead: Mapping[str, str] = MappingProxyType({}),
    otherwise: str = "",
) -> None:
    """Raise UnknownOption, which names all of the given keywords that are not among `takes`.

    `instead`: hints about keywords that have one. `otherwise`: the hint about a keyword that resembles none.
    """
    unknown = [name for name in given if name not in takes]
    if unknown:
        known = {name: instead.get(name) or why_not([_function_name(what)], name) for name in unknown}
        hints = {name: hint or meant_setting(name, takes) or otherwise for name, hint in known.items()}
        raise UnknownOption(what, hints, takes)


def _named(fn: Callable[..., Any]) -> Iterable[str]:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(fn).parameters.values()
    return [one.name for one in parameters if one.kind in by_name and one.name not in ("self", "cls")]


def _by_place(fn: Callable[..., Any]) -> Sequence[str] | None:
    """Return the parameters of a function that need no name; None if it takes any number of such arguments."""
    parameters = inspect.signature(fn).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return None
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters if one.kind in by_place]


def _too_many(what: str, args: Sequence[object], takes: Sequence[str]) -> str:
    """Return the message about more arguments without a name than a function takes."""
    own = [name for name in takes if name not in ("self", "cls")]
    given = len(args) - (len(takes) - len(own))
    alone = f"only {' and '.join(own)}" if own else "nothing"
    return f"{what} takes {alone} without a name, and was given {given} such arguments; name the others"


def _function_name(what: str) -> str:
    """Return the name of the function that `what` describes, under which the tables of settings list it."""
    return what.partition(" ")[0]
