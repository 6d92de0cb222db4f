"""The state of a flow: a mapping, or an object of a pydantic class of the user's, with an `id`.

In a run, the fields are named values of the state of its steps. A method that asks for a state of a pydantic class gets
an object with the values that its step sees. What the method changes in it is written back before the step's changes
are collected, so it is recorded, merged and dropped like any change of the state.
"""

from __future__ import annotations

import copy
import inspect
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError, meant
from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.ids import new_id
from crewlite.state.format.turns import ID
from crewlite.state.journal.values import Values
from crewlite.state.journal.view import View
from crewlite.state.values.bag import StepState
from crewlite.system.forked import cached_property
from crewlite.texts.logs import logger
from crewlite.texts.secrets import declared_in
from crewlite.usage import Usage

T = TypeVar("T")
log = logger("crewlite.flow")
_warned_of: weakref.WeakSet[type] = weakref.WeakSet()


class FlowState(BaseModel):
    """A state with an `id`, as in CrewAI: `class Draft(FlowState)`. States of any other class get an `id` too."""

    id: str = ""


class StateKind:
    """The type of a flow's state: a mapping, or the pydantic class `model`."""

    PLAIN: ClassVar[StateKind]

    def __init__(self, model: type[BaseModel] | None = None) -> None:
        self.model = model
        codec.declare(model)

    @classmethod
    def of(cls, flow: str, given: Any) -> StateKind:
        """Return the type of state for `Flow[given]` or `initial_state = given`. Raises ConfigError."""
        kind = get_origin(given) or given
        if isinstance(kind, BaseModel):
            kind = type(kind)
        if given is None or given is Any or isinstance(given, TypeVar | Mapping):
            return cls.PLAIN
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if secret := declared_in(kind):
                raise _of_secret(flow, secret)
            return cls(kind)
        if isinstance(kind, type) and issubclass(kind, Mapping):
            return cls.PLAIN
        raise ConfigError(f"flow {flow!r} has a state of {given!r}; wanted a pydantic class, or dict")

    @cached_property
    def fields(self) -> list[str]:
        """The names of the fields; [] for a mapping, whose fields are not known."""
        return [*self.model.model_fields] if self.model else []

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the fields, without those that a factory makes for each run."""
        known = self.model.model_fields if self.model else {}
        values = values_of(self.initial("", None))
        return {name: value for name, value in values.items() if name in known and not known[name].default_factory}

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The types of the fields in words, by which a later kickoff sees that one has changed; {} for a mapping."""
        known = self.model.model_fields if self.model else {}
        return {name: _in_words(field) for name, field in known.items()}

    def retyped(self, then: Mapping[str, str] | None) -> Collection[str]:
        """Return the fields with other types than `then`; none if a run has recorded no types."""
        return {name for name, words in self.types.items() if then.get(name) != words} if isinstance(then, dict) else ()

    @cached_property
    def _blank(self) -> BaseModel | None:
        """An empty object of the class, to be copied; None if each new object of the class runs code of its own."""
        if self.model is None or self.model.__pydantic_post_init__:
            return None
        made = self.model.model_construct()
        vars(made).clear()
        return made

    @property
    def is_open(self) -> bool:
        """Whether the state takes fields of any name."""
        return self.model is None or self.model.model_config.get("extra") == "allow"

    def has(self, name: str) -> bool:
        """Return whether a state may have a field of this name."""
        return self.is_open or name in self.fields

    def begun_with(self, flow: str, given: Any) -> StateKind:
        """Return the kind of state that `initial_state` gives: a class, or values of fields. Raises ConfigError."""
        if self.model is None or not isinstance(given, Mapping):
            return StateKind.of(flow, given)
        self.check(flow, given)
        self.initial(flow, given)
        return self

    def initial(self, flow: str, given: Any) -> Any:
        """Return a new object of the state before any kickoff. `given`: the `initial_state` of the flow."""
        if isinstance(given, BaseModel):
            return _copied(flow, given)
        if isinstance(given, Mapping):
            fields = _copied(flow, dict(given))
            return self.made(self.merged(flow, self.initial(flow, None), fields)) if self.model else fields
        if self.model is None:
            return {}
        try:
            return self.model()
        except ValidationError:  # for a field without a default, which inputs must set
            return self.model.model_construct()

    def with_id(self, flow: str, given: Any) -> tuple[Any, str | None]:
        """Return what `initial` returns, with an id; and that id, if it was made here: it is for the next run."""
        state, made = self.initial(flow, given), new_id()
        if values_of(state).get(ID):
            return state, None
        if self.model:
            _fill(state, {ID: made})
        else:
            state[ID] = made
        return state, made

    def check(self, flow: str, names: Mapping[str, Any]) -> None:
        """Raise ConfigError if one of these names is no field of the state."""
        for name in names:
            if not self.has(name) and name != ID:
                hint = meant(name, self.fields) or f"it has {', '.join(self.fields)}"
                raise ConfigError(f"flow {flow!r}: its state has no field {name!r}; {hint}")

    def warn_of_lost(self, flow: str, recorded: Iterable[str]) -> None:
        """Warn of fields that a run has recorded, and that the state does not have any more."""
        if lost := sorted(name for name in recorded if not self.has(name) and name != ID):
            log.warning(
                "flow %s: its state has no %s any more: what was recorded of it is left out. A field that was renamed "
                "has its default",
                flow,
                ", ".join(lost),
            )

    def begun(self, flow: str, initial: Any, inputs: Mapping[str, Any], new_id: str) -> dict[str, Any]:
        """Return the values that a run begins with. Raises ConfigError for a field that is missing or invalid."""
        values = self.merged(flow, initial, inputs)
        wanted = self.model.model_fields.items() if self.model else ()
        if missing := [name for name, field in wanted if field.is_required() and name not in values]:
            raise ConfigError(f"flow {flow!r} is missing the input {', '.join(missing)}, a field of its state")
        if secret := [name for name, value in values.items() if codec.holds_secret(comparable(value))]:
            raise _of_secret(flow, secret)
        return {**values, ID: values.get(ID) or new_id}

    def merged(self, flow: str, initial: Any, inputs: Mapping[str, Any], what: str = "the input") -> dict[str, Any]:
        """Return the fields of `initial`, some replaced by `inputs`.

        Raises ConfigError for an invalid field; `what` is its name in the message.
        """
        values = values_of(initial)
        if self.model is None:
            return {**values, **inputs}
        made = self.model.model_construct(**values)
        for name, value in inputs.items():
            known = name in self.model.model_fields
            values[name] = self._fitting(flow, made, name, value, what) if known else value
        return values

    def made(self, values: Mapping[str, Any]) -> Any:
        """Return a state object for programs with these values."""
        if self.model is None:
            return dict(values)
        made = self.model.model_construct()
        vars(made).clear()
        _fill(made, values)
        return made

    def seen(self, view: View, flow: str, retyped: Collection[str]) -> Any:
        """Return the state as a step sees it: the same object each time. Changes of it are changes by the step.

        Values of the fields in `retyped` are converted to the types that these have now. Raises ConfigError for one
        that does not fit, and for a required field that the run was begun without.
        """
        if self.model is None:
            return StepState(view)
        mirror, values = view.mirror, view.values
        if not isinstance(mirror, _Mirror):
            mirror = view.mirror = _Mirror(self._with_defaults(values), partial(self._convert, flow, retyped))
        mirror.read(values)
        return mirror.shown

    def _with_defaults(self, values: Mapping[str, Any]) -> BaseModel:
        """Return an object with defaults for fields without a value, such as one that was added to the class later."""
        assert self.model
        if self._blank and all(name in values for name in self.fields):
            return BaseModel.__copy__(self._blank)  # no field needs a default
        if missing := [
            name for name, field in self.model.model_fields.items() if field.is_required() and name not in values
        ]:
            raise ConfigError(
                f"the state of the flow wants {', '.join(missing)}, which this run was begun without; give the field a "
                f"default, or begin a new run"
            )
        made = self.model.model_construct()
        defaults = {name: value for name, value in vars(made).items() if name not in values}
        vars(made).clear()
        _fill(made, defaults)
        return made

    def _convert(self, flow: str, retyped: Collection[str], values: Values, fresh: dict[str, Any]) -> None:
        """Convert the fields in `retyped` among those in `fresh`, here and in `values`. Raises ConfigError."""
        for name in fresh.keys() & retyped:
            fitting = self._converted(flow, name, values)
            if codec.digest(comparable(fitting)) != codec.digest(comparable(fresh[name])):
                values[name] = fresh[name] = fitting

    def _converted(self, flow: str, name: str, values: Values) -> Any:
        """Return a recorded value as its field has it now. Raises ConfigError if it does not fit and is no default."""
        assert self.model
        field, value = self.model.model_fields[name], values[name]
        try:
            return self._fitting(flow, self.model.model_construct(**values), name, value, "the recorded")
        except ConfigError as error:
            if not (field.is_required() or _is_changed(field, value)):  # no default is validated
                return value
            raise ConfigError(
                f"{error}. The type of the field has changed since this run began. Undo that; or fork the run with "
                f"another value: inputs={{{name!r}: ...}}, or edits={{'method:NAME.state.{name}': ...}} of the method "
                f"that set it"
            ) from None

    def _fitting(self, flow: str, made: BaseModel, name: str, value: Any, what: str) -> Any:
        try:
            made.__pydantic_validator__.validate_assignment(made, name, value)
        except ValidationError as error:
            problem = next(
                (item["msg"] for item in error.errors(include_url=False) if item["loc"][:1] == (name,)), None
            )
            if problem:
                raise ConfigError(f"flow {flow!r}: {what} {name} does not fit its state: {problem}") from None
        return vars(made).get(name, value)


StateKind.PLAIN = StateKind()


def _copied(flow: str, initial: T) -> T:
    """Return a copy of an initial state, for one kickoff. Raises ConfigError if it holds what cannot be copied."""
    try:
        return copy.deepcopy(initial)
    except (TypeError, copy.Error) as error:
        raise ConfigError(
            f"flow {flow!r}: its initial_state cannot be copied for a kickoff ({error}); wanted data, or the class of "
            f"the state, of which each kickoff gets a new object"
        ) from error


def _of_secret(flow: str, names: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"flow {flow!r}: its state has the field {', '.join(names)} for a secret, but a state is recorded, and no "
        f"secret is. Read it where it is used, such as from the environment"
    )


def values_of(state: Any) -> dict[str, Any]:
    """Return the fields of a state."""
    if isinstance(state, BaseModel):
        return {**vars(state), **(state.__pydantic_extra__ or {})}
    return dict(state)


def fields_set(initial: Any) -> Collection[str]:
    """Return the fields that an `initial_state` sets: all of a mapping; of an object, those unlike their defaults."""
    if not isinstance(initial, BaseModel):
        return [*initial] if isinstance(initial, Mapping) else ()
    changed = (
        name for name, field in type(initial).model_fields.items() if _is_changed(field, vars(initial).get(name))
    )
    return initial.model_fields_set.union(changed)


def _is_changed(field: FieldInfo, value: Any) -> bool:
    """Return whether a value differs from the default of its field; False if a factory makes each default anew."""
    if field.is_required() or field.default_factory_takes_validated_data:
        return False
    one, other = (comparable(field.get_default(call_default_factory=True, validated_data={})) for _ in range(2))
    return bool(one == other != comparable(value))


class Outcome(NamedTuple):
    """The outcome of a kickoff: the result of its last method, final state (encoded), usage and feedback."""

    result: Any
    state: Mapping[str, Json]
    usage: Usage = Usage()
    feedback: tuple[HumanFeedbackResult, ...] = ()
    """What people have said to the results of methods."""

    def made(self, kind: StateKind) -> Any:
        """Return the final state as an object for programs."""
        return kind.made({name: codec.decode(value) for name, value in self.state.items()})


def _fill(state: BaseModel, values: Mapping[str, Any]) -> None:
    """Set fields without validation, so that recorded values are again what the program had set."""
    fields, own, extra = type(state).model_fields, vars(state), state.__pydantic_extra__
    for name, value in values.items():
        if name in fields:
            own[name] = value
            state.__pydantic_fields_set__.add(name)
        elif extra is None:
            own[name] = value
        else:
            extra[name] = value


class _Mirror:
    """An object of the user's state class, kept in step with the state that one running step sees."""

    def __init__(self, shown: BaseModel, convert: Callable[[Values, dict[str, Any]], None]) -> None:
        self.shown, self._convert = shown, convert
        self._private = dict(shown.__pydantic_private__ or {})
        self._known: dict[str, Any] = {}
        """The values as they were last read or written."""

    def read(self, values: Values) -> None:
        """Bring the object and the values of its step together.

        Fields that the method has set are written to `values` first. Then fields whose values other code has changed,
        such as a child step, are set in the object.
        """
        self.write(values)
        known = self._known
        fresh = {name: value for name, value in values.items() if value is not known.get(name, _NONE)}
        if fresh:
            self._convert(values, fresh)
            _fill(self.shown, fresh)
            self._known |= fresh

    def write(self, values: Values) -> None:
        """Write each field that code has set since the last read or write to `values`."""
        self._warn_of_private()
        for name, value in values_of(self.shown).items():
            if value is not self._known.get(name, _NONE):
                values[name] = self._known[name] = value

    def _warn_of_private(self) -> None:
        """Warn, once for a class, if code has set a private attribute, as other methods do not see it."""
        kind, now = type(self.shown), self.shown.__pydantic_private__ or {}
        changed = [name for name, value in now.items() if value is not self._private.get(name, _NONE)]
        if changed and kind not in _warned_of:
            _warned_of.add(kind)
            log.warning(
                "the private attribute %s of the state %s was set, which is not recorded: other methods do not see it. "
                "Make it a field",
                ", ".join(changed),
                kind.__name__,
            )


_NONE = object()
_PLACES = re.compile(r"(\w+\.)+(?=\w)| at 0x\w+")


def _in_words(field: FieldInfo) -> str:
    """Return the type of a field with its bounds: the same in each process, and wherever its module is imported."""
    bounds = f" {field.metadata}" if field.metadata else ""
    return _PLACES.sub("", f"{inspect.formatannotation(field.annotation)}{bounds}")


def warn_of_late_changes(flow: str, handed_out: tuple[Any, Any] | None) -> None:
    """Warn of fields of the state that a program has set after a kickoff, as no later kickoff begins with them."""
    if handed_out is None:
        return
    now, then = ({name: comparable(one) for name, one in values_of(left.state).items()} for left in handed_out)
    if changed := sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name)):
        log.warning(
            "flow %s: %s was set in its state after a kickoff, and no kickoff begins with that: pass inputs",
            flow,
            ", ".join(changed),
        )
