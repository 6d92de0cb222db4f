"""Refuse attributes of flows that look like settings and would have no effect: misspelt, CrewAI's, budgets.

Other attributes are the user's own.
"""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABCMeta
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Self

from pydantic.fields import FieldInfo, ModelPrivateAttr
from pydantic_core import PydanticUndefined

from crewlite.budget import Budget
from crewlite.coming_from import instead_of
from crewlite.coming_from.settings import setting_of, why_not
from crewlite.errors import ConfigError, meant
from crewlite.state.config import AS_SETTINGS
from crewlite.texts.wording import sentence

SETTINGS = ("name", "checkpoint", "initial_state", "max_concurrency", "failure_policy", "max_method_calls", "verbose")
"""What a class attribute sets, or an argument of the constructor."""
SWITCH = "stream"
"""A setting that has the name of a verb, so its value is kept under another: `_streamed`."""
ARGUMENTS = (*SETTINGS, SWITCH)
_LIMITS = ("max_requests", *(name for name in Budget._fields if name.startswith("max_")))
_MISSPELT = [name for name in SETTINGS if name != "name"]  # a user's attribute `names` is no misspelling of it
_OWN = "If it is an attribute of your own, give it a name that resembles no setting"
_OF_METHODS = ("retries", "retry_delay")
_COMMON = ("location", "provider")  # settings of checkpoints whose names programs have for attributes of their own


class FlowType(ABCMeta):
    """The metaclass of flows. It says what to write instead of a class method of CrewAI."""

    def __getattr__(cls, name: str) -> Any:
        instead = instead_of(cls, name)
        raise AttributeError(f"{cls.__name__} has no attribute {name!r}{f'; {instead}' if instead else ''}")


class Declared:
    """Gives each object a value of its own for what `PrivateAttr(...)` or `Field(...)` of pydantic declares.

    They do so in programs for CrewAI, whose flows are models of pydantic.
    """

    _declared: ClassVar[Mapping[str, ModelPrivateAttr | FieldInfo]] = {}
    """What the class declares, or inherits."""
    _streamed = False
    """Whether `kickoff` returns a StreamingOutput: the setting `stream`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Create the object with the defaults; a subclass may use them before it calls this class's constructor."""
        made = super().__new__(cls)
        for name, one in cls._declared.items():
            make: Any = one.default_factory
            if make or one.default is not PydanticUndefined:
                vars(made)[name] = make() if make else copy.deepcopy(one.default)
        return made


def read_attributes(flow: type[Declared], base: type) -> None:
    """Note which attributes of a class pydantic declares, and check the others. Raises ConfigError."""
    own = {name: one for name, one in vars(flow).items() if isinstance(one, ModelPrivateAttr | FieldInfo)}
    flow._declared = {**flow._declared, **own}
    if SWITCH in vars(flow) and not _is_code(on := vars(flow)[SWITCH]):
        flow._streamed = bool(_switched(flow.__name__, on))
        delattr(flow, SWITCH)
    _check(flow.__name__, base, vars(flow))


def gives_setting(name: str, value: object) -> bool:
    """Return whether a class attribute gives each object a setting of its own. Its state is that of the class."""
    return name in SETTINGS and name != "initial_state" and isinstance(value, property | functools.cached_property)


def check_arguments(flow: str, names: Iterable[str], fields: Collection[str], *, is_open: bool) -> None:
    """Raise ConfigError for arguments of a flow's constructor that are no settings, and not meant for the state.

    `fields`: of the state. `is_open`: whether it takes others.
    """
    for name in names:
        instead = why_not(["Flow"], name) or _of_checkpoints(name)
        if instead or meant(name, SETTINGS) or not is_open:
            known = [*ARGUMENTS, *fields]
            hint = instead or meant(name, known) or f"it takes {', '.join(known)}"
            raise ConfigError(f"{flow} has no setting and no field of its state {name!r}; {hint}")


def name_to_set(flow: object, base: type, name: str, value: object) -> str:
    """Return the attribute of a flow to set for this name and value.

    Raises ConfigError for a misspelt setting, and if it would hide what every flow has of that name. A function may: it
    is called in the place of a method.
    """
    if name == SWITCH and not _is_code(value):
        _switched(type(flow).__name__, value)
        return "_streamed"
    if name in SETTINGS or name in vars(flow) or _is_code(value):
        return name
    kind = type(flow)
    if hides := _hides(base, name):
        hint = why_not(["Flow"], name) or _what_it_hides(base, name)
    else:
        own = hasattr(kind, name) or any(name in inspect.get_annotations(one) for one in kind.__mro__)
        hint = "" if own or name.startswith("_") else meant(name, _MISSPELT)
    if hint:
        raise ConfigError(f"flow {kind.__name__!r} has no setting {name!r}; {hint if hides else f'{hint} {_OWN}'}")
    return name


def _switched(flow: str, value: object) -> bool | None:
    """Return the value of the setting `stream`. Raises ConfigError if it is none."""
    if not isinstance(value, bool | None):
        raise ConfigError(f"flow {flow!r}: stream is {value!r}; wanted True or False")
    return value


def _check(flow: str, base: type, attributes: Mapping[str, object]) -> None:
    """Raise ConfigError for attributes of a class that look like settings, or hide what every flow has.

    `base`: the class of all flows.
    """
    for name, value in attributes.items():
        setting, hides = setting_of(["Flow"], name), _hides(base, name)
        if name in SETTINGS or name.startswith("_") or _is_code(value) or (isinstance(value, type) and not hides):
            continue
        if setting:
            if setting.accepts(value) and not hides:
                continue
            hint = why_not(["Flow"], name)
        elif hides:
            hint = _what_it_hides(base, name)
        elif name in _LIMITS:
            hint = "budgets are set for crews, tasks and agents, such as Crew(max_tokens=5000)"
        elif name in _OF_METHODS or meant(name, _OF_METHODS):
            hint = "further tries are set for methods, such as @start(retries=3, retry_delay=1)"
        elif not (hint := _of_checkpoints(name) or meant(name, _MISSPELT)):
            continue
        raise ConfigError(f"class {flow}(Flow): a flow has no setting {name!r}; {sentence(hint)} {_OWN}")


def _of_checkpoints(name: str) -> str:
    """Return what to write for a setting of checkpoints; "" for any other name."""
    return "" if name in _COMMON else AS_SETTINGS.get(name, "")


def _hides(base: type, name: str) -> bool:
    """Return whether every flow has something of this name that is no setting."""
    return hasattr(base, name) and name not in SETTINGS and not name.startswith("_")


def _is_code(value: object) -> bool:
    """Return whether an attribute of a class is a method, a property or the like, which the graph checks."""
    return not isinstance(value, type) and (callable(value) or hasattr(value, "__get__"))


def _what_it_hides(base: type, name: str) -> str:
    if name == "state":
        return "the state of a flow is declared as in class Plan(Flow[PlanState]), or by initial_state="
    return f"this would hide {name}{'()' if callable(getattr(base, name)) else ''} of every flow"
