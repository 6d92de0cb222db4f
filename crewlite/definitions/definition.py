"""The base classes of definitions: frozen while a run is at work, with one readable error for all invalid fields."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, ValidationInfo, field_validator
from pydantic.errors import PydanticInvalidForJsonSchema

from crewlite.coming_from import Hinting
from crewlite.coming_from.settings import why_not, without_accepted
from crewlite.concurrency.pacing import Pace
from crewlite.definitions.field_list import Change, FieldList, ListField, apart, list_fields
from crewlite.definitions.problems import classes_of, each_once, found_and_wanted, given_names, meant_field, refused
from crewlite.errors import ConfigError
from crewlite.recovery.port import check_policy
from crewlite.system.forked import lock
from crewlite.texts.wording import an, what_is

D = TypeVar("D", bound="Definition")
_setting = lock()
"""Held while a field is set, and while a kickoff notes that it is at work with its definitions."""
_SEEN = {"name": "a name", "role": "a name", "description": "a text"}
_SEEN |= dict.fromkeys(("llm", "manager_llm", "planning_llm"), "a model, or its name,")
"""Texts that must not be blank."""


class Described(Hinting, BaseModel):
    """A frozen model whose construction fails with a ConfigError that lists every problem at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True, strict=True)
    if not TYPE_CHECKING:  # strict for pydantic's plugin for mypy, which checks the arguments of no other models
        model_config["strict"] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        for name in list_fields(cls.model_fields):
            setattr(cls, name, ListField(name))

    def __copy__(self) -> Self:
        made = super().__copy__()
        vars(made).update(apart(vars(made)))
        return made

    @field_validator("failure_policy", mode="plain", check_fields=False)
    @classmethod
    def _can_decide(cls, value: object) -> object:
        return check_policy(value)

    if not TYPE_CHECKING:  # type checkers keep the signature made from the fields

        def __init__(self, *args: Any, **data: Any) -> None:
            if args:
                known = type(self).model_fields
                first = sorted(known, key=lambda name: not known[name].is_required())[:3]
                fields = ", ".join(f"{name}=..." for name in first)
                raise ConfigError(f"{type(self).__name__} takes named fields: {type(self).__name__}({fields})")
            try:
                super().__init__(**_wanted_of(type(self), data))
            except ValidationError as error:
                raise refused(type(self), error) from None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> Any:
        try:
            return handler(core_schema)
        except PydanticInvalidForJsonSchema:
            found = f"{cls.__name__} has no JSON schema, because it holds functions and objects that no JSON can give"
            wanted = f"write a model of your own with the fields that vary, and make the {cls.__name__} of them"
            raise PydanticInvalidForJsonSchema(f"{found}: {wanted}") from None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the fields that were set, and none of the many defaults."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name in self.model_fields_set and value is not fields[name].default:
                yield name, value

    def __str__(self) -> str:
        return repr(self)

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except ValueError:  # pydantic raises it for a frozen or unknown field
            raise ConfigError(_cannot_be_set(type(self), name)) from None

    def __delattr__(self, name: str) -> None:
        try:
            super().__delattr__(name)
        except ValueError:
            raise ConfigError(_cannot_be_set(type(self), name)) from None


class _Kickoffs(set[tuple[int, object]]):
    """Kickoffs, each with its process. No kickoff is at work with a deep copy or an unpickled definition."""

    def __reduce__(self) -> tuple[type[_Kickoffs], tuple[()]]:
        return _Kickoffs, ()


class Definition(Described):
    """A description of work. It holds no state of runs, so several runs may use it at the same time.

    Two definitions are equal only if they are the same object, even if all their fields are equal. Fields may be set
    while no kickoff is at work with the definition; the next kickoff goes by them.
    """

    model_config = ConfigDict(frozen=False, populate_by_name=True)  # `__setattr__` says until when it is not frozen

    _kickoffs: _Kickoffs = PrivateAttr(default_factory=_Kickoffs)
    """The kickoffs that are at work with it. Copies that are bound to a run share it."""
    _pace: Pace = PrivateAttr(default_factory=Pace)
    """The model calls that its `max_rpm` paces. Copies share it."""
    _revision: tuple[int, object] = PrivateAttr(default_factory=lambda: (0, object()))
    """Another one after each time that a field was set, with the id of the thread that has set it."""
    _bound: Any = PrivateAttr(default=None)
    """The default of `from_checkpoint` at a kickoff: a CheckpointConfig with `restore_from`, or None."""

    @field_validator("verbose", mode="before", check_fields=False)
    @classmethod
    def _is_switch(cls, value: object) -> object:
        return bool(value) if type(value) is int else value  # early CrewAI takes a level: verbose=2

    @field_validator("agents", "tasks", "context", mode="before", check_fields=False)
    @classmethod
    def _is_list(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, Definition | str):
            found = repr(value) if isinstance(value, str) else f"one {type(value).__name__}"
            kind = "agents" if info.field_name == "agents" else "tasks"
            raise ConfigError(f"{info.field_name} is {found}; wanted a list of {kind}: {info.field_name}=[...]")
        return value

    @field_validator(
        *("role", "goal", "backstory", "description", "expected_output", "name"),
        *("llm", "manager_llm", "planning_llm"),
        mode="before",
        check_fields=False,
    )
    @classmethod
    def _is_text(cls, value: object, info: ValidationInfo) -> object:
        """Strip the white space around a text, such as the line break at the end of a folded text in YAML."""
        text = value.strip() if isinstance(value, str) else value
        if text == "" and (wanted := _SEEN.get(info.field_name or "")):
            raise ConfigError(f"{info.field_name} is {value!r}; wanted {wanted} that is not blank")
        return text

    @field_validator(
        *("max_tokens", "max_cost_usd", "max_execution_time", "max_iter", "max_rpm", "max_retries", "max_retry_limit"),
        *("guardrail_max_retries", "max_reasoning_attempts", "max_tool_output"),
        mode="before",
        check_fields=False,
    )
    @classmethod
    def _is_number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool):
            raise ConfigError(f"{info.field_name} is {value}; wanted a number")
        return value

    @field_validator("callback", "condition", "task_callback", "step_callback", mode="before", check_fields=False)
    @classmethod
    def _takes_its_argument(cls, value: object, info: ValidationInfo) -> object:
        if value is not None:
            name = info.field_name or ""
            check_takes(value, name, "a step of the agent" if name == "step_callback" else "the TaskOutput")
        return value

    @field_validator("checkpoint", mode="before", check_fields=False)
    @classmethod
    def _is_setting(cls, value: object) -> object:
        if isinstance(value, str | os.PathLike):
            raise ConfigError(f"checkpoint is {value!r}; wanted True, False or CheckpointConfig(location={value!r})")
        return value

    @field_validator("llm", mode="before", check_fields=False)
    @classmethod
    def _is_model(cls, value: object) -> object:
        if isinstance(value, type):
            raise ConfigError(f"llm is the class {value.__name__}; wanted an instance: llm={value.__name__}(...)")
        return value

    def copy(self, **changes: Any) -> Self:
        """Return a copy, as `with_` does; the name in CrewAI."""
        return self.with_(**changes)

    def with_(self, **changes: Any) -> Self:
        """Return a copy with these fields changed: `task.with_(context=[research])`. Raises ConfigError if invalid."""
        made = _made_of(self, changes)
        kept = {name: value for name, value in (self.__pydantic_private__ or {}).items() if name != "_kickoffs"}
        made.__pydantic_private__ = (made.__pydantic_private__ or {}) | kept
        return made

    @classmethod
    def problems_in(cls, fields: Mapping[str, Any], *, all_given: bool) -> list[tuple[str, str]]:
        """Return the problems with these fields, as (field, text). Missing fields count only if `all_given`."""
        made = cls.__new__(cls)
        try:
            cls.__pydantic_validator__.validate_python(dict(fields), self_instance=made)
        except ConfigError as error:
            return [("", str(error))]
        except ValidationError as error:
            problems = ((name, item) for name, item in each_once(error) if all_given or item["type"] != "missing")
            return [(name, found_and_wanted(item)) for name, item in problems]
        return []

    def __setattr__(self, name: str, value: object) -> None:
        name = _field_given_as(type(self), name)
        if name not in type(self).model_fields:
            if without_accepted(classes_of(type(self)), {name: value}):
                super().__setattr__(name, value)
        elif not (isinstance(value, FieldList) and value is vars(self).get(name)):  # else `+=` has set it already
            self._set(name, value)

    def _set(self, name: str, given: Any) -> None:
        """Set a field to what is given, or make a Change of the list that it keeps.

        The change is made again if another thread has set a field meanwhile.
        """
        change = given if isinstance(given, Change) else None
        while True:
            with _setting:
                at_work, before = self._is_at_work(), self._revision
            value = change.of(vars(self)[name]) if change else given
            if at_work:  # a callback may assign the same agent again for each task; that changes nothing
                if value != getattr(self, name):
                    raise ConfigError(_cannot_be_set(type(self), name))
                return
            is_half = change and change.is_half
            made = self.model_copy(update={name: FieldList(value)}) if is_half else _made_of(self, {name: value})
            with _setting:
                if self._is_at_work():
                    raise ConfigError(_cannot_be_set(type(self), name))
                if self._revision is before:
                    self._revision = threading.get_ident(), object()
                    self._take_fields(made, None if change else name)
                    object.__setattr__(self, "__pydantic_fields_set__", made.model_fields_set)
                    return
                if self._revision[0] == threading.get_ident():
                    raise ConfigError(
                        f"{name!r} of {an(type(self).__name__)} is not changed: a function that was called for the "
                        f"change has set another of its fields. Set that before, or after"
                    )

    def _take_fields(self, made: Self, replaced: str | None) -> None:
        """Take the fields of another definition; lists stay the same objects, but for one that is replaced."""
        for name, value in vars(made).items():
            held = vars(self).get(name)
            if isinstance(value, FieldList) and isinstance(held, FieldList) and name != replaced:
                held.hold(value)
            else:
                vars(self)[name] = value

    def _is_at_work(self) -> bool:
        """Return whether a kickoff of this process is at work with it: one of the parent's is not in a forked child."""
        with _setting:
            return any(process == os.getpid() for process, _ in [*self._kickoffs])

    def __delattr__(self, name: str) -> None:
        if name in type(self).model_fields:
            raise ConfigError(f"{name!r} of {an(type(self).__name__)} cannot be deleted; set it to another value")
        super().__delattr__(name)

    if not TYPE_CHECKING:  # type checkers know the fields

        def __getattr__(self, name: str) -> Any:
            private = object.__getattribute__(self, "__pydantic_private__")
            if private and name in private:
                return private[name]
            return super().__getattr__(name)

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@contextlib.contextmanager
def in_use(definitions: Callable[[], Iterable[Definition]]) -> Iterator[None]:
    """While the block runs, refuse to set fields of these definitions, because a kickoff relies on them.

    The kickoff reads their fields inside the block, so it sees what another thread sets in all of them, or refuses it.
    """
    kickoff = os.getpid(), object()
    with _setting:
        uses = [definition._kickoffs for definition in definitions()]
        for use in uses:
            use.add(kickoff)
    try:
        yield
    finally:
        with _setting:
            for use in uses:
                use.discard(kickoff)


def check_takes(value: object, field: str, argument: str) -> None:
    """Raise ConfigError unless the value is a function that can be called with one argument."""
    wanted = f"wanted a function that takes {argument}"
    if not callable(value):
        raise ConfigError(f"{field} is {value!r}; {wanted}")
    try:
        signature = inspect.signature(value, follow_wrapped=False)  # a wrapper may take less
    except (TypeError, ValueError):  # a function in C may have none
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(value, "__name__", type(value).__name__)
        raise ConfigError(f"{field} is {name}{signature}; {wanted}") from None


def check_inputs(inputs: object) -> None:
    """Raise ConfigError unless inputs are None or a mapping with text keys. The names themselves are not checked."""
    if inputs is not None and not (isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs)):
        raise ConfigError(f"inputs is {inputs!r}; wanted names and values, such as {{'topic': 'tides'}}")


def _wanted_of(cls: type[Described], given: dict[str, Any]) -> dict[str, Any]:
    """Return the given fields, those in a `config` included, without accepted settings of CrewAI that do nothing."""
    given = _by_field(cls, given)
    others = {name: value for name, value in given.items() if name not in cls.model_fields}
    own = {
        name: value
        for name, value in given.items()
        if name not in others and not (value is None and _means_default(cls, name))
    }
    if not others:
        return own
    return own | without_accepted(classes_of(cls), others)


def _field_given_as(cls: type[BaseModel], name: str) -> str:
    """Return the field that is given by this name: `streamed` is given as `stream`, which is a verb of the crew."""
    fields = cls.model_fields
    return name if name in fields else next((own for own, field in fields.items() if field.alias == name), name)


def _means_default(cls: type[Described], name: str) -> bool:
    """Return whether None for this field asks for its default: `human_input=None`, as None is no value of the field."""
    field = cls.model_fields[name]
    return issubclass(cls, Definition) and not field.is_required() and NoneType not in get_args(field.annotation)


def _by_field(cls: type[Described], given: dict[str, Any]) -> dict[str, Any]:
    """Return the given values by field, with those in a `config` in its place: a field that is given itself wins."""
    fields: Mapping[str, Any] = {}
    if "config" in cls.model_fields and "config" in given:
        config, given = given["config"], {name: value for name, value in given.items() if name != "config"}
        if config is not None:
            if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
                found = what_is(config)
                raise ConfigError(f"{cls.__name__}: config is {found}; wanted a mapping of field names to values")
            resolved = getattr(config, "resolved", None)
            fields = resolved({name for name, value in given.items() if value is not None}) if resolved else config
    own = {name: value for name, value in given.items() if value is not None or name not in fields}
    return {_field_given_as(cls, name): value for name, value in {**fields, **own}.items()}


def _cannot_be_set(cls: type[BaseModel], name: str) -> str:
    kind = cls.__name__
    if name not in cls.model_fields:
        of_others, close = why_not(classes_of(cls), name), meant_field(cls, name)
        hint = of_others or close or f"it has {', '.join(given_names(cls))}"
        return f"{kind} has no field {name!r}; {hint}"
    if issubclass(cls, Definition):
        copied = f"{kind.lower()}.with_({name}=...)"
        found = f"{name!r} of {an(kind)} cannot be set while a run is at work with it"
        return f"{found}: set it before the kickoff or after its end, or make a copy: {copied}"
    return (
        f"{name!r} of {an(kind)} cannot be set: {an(kind)} is frozen once it is made, as many runs may use it at once. "
        f"Pass it to the constructor, {kind}({name}=...), or make a copy: "
        f"{kind.lower()}.model_copy(update={{{name!r}: ...}})"
    )


def _made_of(definition: D, changes: dict[str, Any]) -> D:
    """Build a copy of a definition with these fields changed. Raises ConfigError for bad values."""
    cls = type(definition)
    given = {name: getattr(definition, name) for name in definition.model_fields_set}
    given |= _by_field(cls, changes)
    made = cls.__new__(cls)
    try:  # not through the constructor, which a subclass of the user may have changed
        cls.__pydantic_validator__.validate_python(given, self_instance=made)
    except ValidationError as error:
        raise refused(cls, error) from None
    return made
