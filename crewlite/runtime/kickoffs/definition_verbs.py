"""How verbs of definitions are declared: which parameters they have, and that some are callable on the class too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from crewlite.errors import WrongArguments
from crewlite.kinds import Kind
from crewlite.runtime.kickoffs.request import Finished, KickoffOptions, Progress, Request

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
D = TypeVar("D")


class KickoffTypes(Protocol[P, R_co]):
    """The parameters and the result of a definition's kickoff: the verbs take their types from these methods."""

    run_kind: ClassVar[Kind]

    def as_request(self, *args: P.args, **kwargs: P.kwargs) -> Request:
        """Build the request of a kickoff with these arguments."""

    def as_result(self, finished: Finished[Any]) -> R_co:
        """Build the value that a kickoff returns."""

    def _note_kickoff(self, progress: Progress) -> None:
        """Keep the progress of a kickoff. Called in the caller's context before each kickoff."""


class on_class_too(Generic[P, R]):  # noqa: N801 - a decorator
    """Makes a verb callable on a definition and on its class. The verb receives the object it is called on."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self._verb = verb

    def __get__(self, instance: object, owner: type) -> Callable[P, R]:
        return MethodType(self._verb, owner if instance is None else instance)


class made_on_class_too(on_class_too[P, Any]):  # noqa: N801 - a decorator
    """As `on_class_too`, for a verb that returns a definition of the class."""

    def __get__(self, instance: D | None, owner: type[D]) -> Callable[P, D]:
        return super().__get__(instance, owner)


class of_object(Generic[P, R]):  # noqa: N801 - a decorator
    """Makes a verb that is called on a class say that it wants an object."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self.verb = verb

    def __get__(self, instance: object, owner: type) -> Callable[..., R]:
        if instance is not None:
            return MethodType(self.verb, instance)

        @functools.wraps(self.verb)
        def verb(*args: Any, **given: Any) -> R:
            if not (args and isinstance(args[0], owner)):
                name, wanted = self.verb.__name__, f"{owner.__name__}(...).{self.verb.__name__}(...)"
                raise WrongArguments(
                    name, f"was called on the class {owner.__name__}", f"call it on an object: {wanted}"
                )
            return self.verb(*args, **given)

        return verb


def sign(cls: type, verbs: Iterable[str], asked: Callable[..., Any]) -> None:
    """Give these verbs of a class the signature of `asked`, so that `help()` and editors list each option."""
    for name in verbs:
        verb: Any = inspect.getattr_static(cls, name)
        setattr(cls, name, of_object(_signed(verb.verb if isinstance(verb, of_object) else verb, asked)))


def _signed(verb: Any, asked: Callable[..., Any]) -> Any:
    """Return a copy of a function with the signature of `asked`."""
    made = FunctionType(verb.__code__, verb.__globals__, verb.__name__, verb.__defaults__, verb.__closure__)
    made.__doc__, made.__module__, made.__qualname__ = verb.__doc__, verb.__module__, verb.__qualname__
    made.__annotations__ = dict(verb.__annotations__)
    returned = verb.__annotations__["return"]
    vars(made)["__signature__"] = inspect.Signature(_parameters(asked), return_annotation=returned)
    return made


@functools.cache  # a class has seven verbs with one signature
def _parameters(asked: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    parameters = list(inspect.signature(asked).parameters.values())
    if parameters[-1].annotation == "Unpack[KickoffOptions]":
        parameters[-1:] = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(_DEFAULTS, name),
                annotation=hint.__forward_arg__,
            )
            for name, hint in KickoffOptions.__annotations__.items()
        ]
    return parameters


_DEFAULTS = Request()
