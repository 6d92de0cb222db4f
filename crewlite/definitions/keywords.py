"""Refuse keywords that a function does not take, and say which ones may have been meant and which arguments it needs.

Python's own error says neither, reports only the first wrong keyword, and calls the function by an internal name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, cast

from crewlite.coming_from.settings import why_not, without_accepted
from crewlite.errors import UnknownOption, WrongArguments, meant_setting

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def known_keywords(
    what: str,
    *more: str,
    instead: Mapping[str, str] = MappingProxyType({}),
    needs: Mapping[str, str] = MappingProxyType({}),
    others: str = "",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function raise UnknownOption for keywords that it does not take, and WrongArguments if it lacks one.

    Settings of CrewAI without an effect are accepted and left out. `what`: what errors call the function, such as
    "@tool" or "kickoff of a crew". `more`: the keywords that it takes by `**`. `instead`: hints about keywords of
    similar functions; `others`: see UnknownOption. `needs`: what to pass for an argument, as the end of "wanted".
    """

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @functools.cache
        def parameters() -> tuple[Sequence[str], Sequence[str], bool, Sequence[str]]:
            return (*_named(fn), *more), *_by_place(fn), _required(fn)

        def checked(args: Sequence[object], given: dict[str, Any]) -> dict[str, Any]:
            takes, by_place, any_number, required = parameters()
            if len(args) > len(by_place) and not any_number:
                raise WrongArguments(what, *_too_many(args, by_place))
            unknown = {name: value for name, value in given.items() if name not in takes}
            if unknown:
                hints = {**_without_its_name(what, by_place, unknown), **instead}
                refused = without_accepted([_function_name(what)], unknown)
                refuse_unknown(what, takes, refused, instead=hints, others=others)
                given = {name: value for name, value in given.items() if name not in unknown}
            if missing := [name for name in required if name not in given and name not in by_place[: len(args)]]:
                raise WrongArguments(what, *_missing(what, missing, required, needs))
            return given

        @functools.wraps(fn)
        def call(*args: Any, **given: Any) -> Any:
            return fn(*args, **checked(args, given))

        @functools.wraps(fn)
        async def call_on_loop(*args: Any, **given: Any) -> Any:
            return await cast(Any, fn(*args, **checked(args, given)))

        return cast(Callable[P, R], call_on_loop if inspect.iscoroutinefunction(fn) else call)

    return decorate


def options_of(fn: Callable[..., Any], only: Collection[str] | None = None) -> list[inspect.Parameter]:
    """Return the keyword-only parameters of a function. `only`: the names of those that are wanted."""
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
    """Do as `known_keywords` for the public methods of a class. `what`: what errors call an object of it.

    `constructed`: whether programs call the constructor, too.
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


def constructor_with_known_keywords(cls: C) -> C:
    """Do as `known_keywords` for the constructor of a class."""
    setattr(cls, "__init__", known_keywords(cls.__name__)(vars(cls)["__init__"]))  # noqa: B010 - mypy wants it
    return cls


def refuse_unknown(
    what: str,
    takes: Collection[str],
    given: Iterable[str],
    *,
    instead: Mapping[str, str] = MappingProxyType({}),
    others: str = "",
) -> None:
    """Raise UnknownOption, which names all of the given keywords that are not among `takes`.

    `instead`: hints about keywords that have one; `others`: see UnknownOption.
    """
    unknown = [name for name in given if name not in takes]
    if unknown:
        known = {name: instead.get(name) or why_not([_function_name(what)], name) for name in unknown}
        hints = {name: hint or meant_setting(name, takes) for name, hint in known.items()}
        raise UnknownOption(what, hints, takes, others)


def _named(fn: Callable[..., Any]) -> Iterable[str]:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(fn).parameters.values()
    return [one.name for one in parameters if one.kind in by_name and one.name not in ("self", "cls")]


def _by_place(fn: Callable[..., Any]) -> tuple[Sequence[str], bool]:
    """Return the positional parameters of a function, and whether it takes `*args`."""
    parameters = inspect.signature(fn).parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    any_number = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    return [one.name for one in parameters if one.kind in by_place], any_number


def _required(fn: Callable[..., Any]) -> Sequence[str]:
    """Return the parameters of a function without which it cannot be called."""
    parameters = inspect.signature(fn).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in variable]


def _too_many(args: Sequence[object], takes: Sequence[str]) -> tuple[str, str]:
    """Return what was found and wanted, if a function was given more arguments without a name than it takes."""
    own = [name for name in takes if name not in ("self", "cls")]
    given = len(args) - (len(takes) - len(own))
    alone = f"only {' and '.join(own)}" if own else "nothing"
    return f"takes {alone} without a name, and was given {given} such arguments", "name the others"


def _missing(what: str, missing: Sequence[str], required: Sequence[str], needs: Mapping[str, str]) -> tuple[str, str]:
    """Return what was found and wanted, if a function was called without these arguments."""
    if missing[0] == "self":
        return "was called on the class", "make an object of it first, and call it on that"
    own = [name for name in required if name not in ("self", "cls") or name in missing]
    hints = "".join(f", where {name} is {hint}" for name, hint in needs.items() if name in missing)
    return f"was called without {' and '.join(missing)}", f"wanted {_function_name(what)}({', '.join(own)}){hints}"


def _without_its_name(what: str, by_place: Iterable[str], given: Mapping[str, object]) -> dict[str, str]:
    """Return hints about the arguments among `given` that a function takes by their place alone."""
    shown = {name: repr(value) if isinstance(value := given[name], str) else name for name in by_place if name in given}
    return {name: f"without its name: {_function_name(what)}({text})" for name, text in shown.items()}


def _function_name(what: str) -> str:
    """Return the name of the function that `what` describes, under which the tables of settings list it."""
    return what.partition(" ")[0]
