"""Rebuild a definition from the record of its run, without the script that made it.

Plain fields were recorded as data. Live parts (models, tools, functions, classes) were recorded only by name and come
from the caller. Nothing that a stored file names is imported, looked up or run: a recorded value becomes the value of
a plain field, or the definition refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from crewlite import kinds
from crewlite.definitions.definition import Definition, Described
from crewlite.encoding.codec import JsonObject
from crewlite.errors import (
    BindMissing,
    ConfigError,
    CrewliteError,
    JournalCorrupt,
    KnowledgeMissing,
    RunMismatch,
    meant,
)
from crewlite.lazy import lazy
from crewlite.llm.model import LLM
from crewlite.runtime.kickoffs.facts import OF_THE_STORE, PLAIN, is_plain
from crewlite.runtime.kickoffs.request import Bind, FromCheckpoint
from crewlite.state.config import CheckpointConfig, at_ref
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import recorded
from crewlite.state.reading.locate import locate
from crewlite.state.reading.located import Located
from crewlite.state.verbs.transfer import is_elsewhere
from crewlite.texts.masking import MASK
from crewlite.texts.wording import an
from crewlite.tools.base import BaseTool
from crewlite.tools.toolbox import as_tools

files = lazy("crewlite.knowledge.files")  # only definitions with knowledge need it

D = TypeVar("D", bound=Described)
_UNSET = object()
_WANTED = {
    "llm": "the model {!r}",
    "manager_llm": "the model {!r}",
    "planning_llm": "the model {!r}",
    "tools": "the tool {!r}",
    "callback": "the function {!r}",
    "condition": "the function {!r}",
    "step_callback": "the function {!r}",
    "task_callback": "the function {!r}",
    "before_kickoff_callbacks": "the function {!r}",
    "after_kickoff_callbacks": "the function {!r}",
    "guardrail": "the guardrail {!r}",
    "guardrails": "the guardrail {!r}",
    "knowledge_sources": "the source of knowledge {!r}",
    "output_pydantic": "the class {!r}",
    "output_json": "the class {!r}",
    "response_model": "the class {!r}",
    "response_format": "the class {!r}",
    "class": "the class {!r}",
    "failure_policy": "the failure policy {!r}",
    "redact": "the {} that must not be stored",
}


@dataclass(frozen=True, slots=True)
class Found:
    """The run that a ref names, and the definition it recorded."""

    where: str
    """The run and its location, for error messages."""
    definition: JsonObject
    config: CheckpointConfig
    """A configuration that resumes exactly this run, branch and checkpoint, even if another run becomes the newest."""

    def damaged(self, problem: str) -> JournalCorrupt:
        """Build the error for a recorded definition that no release of crewlite can have written."""
        return JournalCorrupt(self.where, f"the recorded definition is damaged: {problem}", None, self.config.location)


def find(source: FromCheckpoint, kind: str) -> Found:
    """Resolve a ref and read the definition that its run recorded.

    Raises ConfigError if `source` names no run; RefError, JournalCorrupt, StoreError; RunMismatch if the definition is
    not of this kind.
    """
    config = at_ref(source)
    if config.restore_from is None:
        raise ConfigError("from_checkpoint names no run; wanted a ref, or CheckpointConfig(restore_from=ref)")
    try:
        located = locate(config.restore_from, config.location, config.provider, None)
    except CrewliteError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _unreadable(config.restore_from, error, config.location) from error
    definition = definition_of(located, kind)
    where = f"run {located.run_id!r} in {located.location}"
    checkpoint = f"@{located.checkpoint}" if located.checkpoint else ""
    pinned = {"restore_from": f"{located.run_id}/{located.branch}{checkpoint}"}
    store = {"location": located.location, "provider": located.provider}
    there = {} if is_elsewhere(located, source) else pinned | store  # if it is elsewhere, the kickoff copies it there
    return Found(where, definition, config.model_copy(update=there))


def definition_of(located: Located, kind: str) -> JsonObject:
    """Return the definition that a run recorded. Raises RunMismatch if it is not of this kind, JournalCorrupt."""
    try:
        definition = _read(located).run["definition"]
        recorded, name = definition["kind"], definition["name"]
    except CrewliteError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _unreadable(f"{located.run_id}/{located.branch}", error, located.location) from error
    if recorded != kind:
        rebuilt = kinds.of(recorded).rebuilt
        verb = f"use {recorded.capitalize()}.from_checkpoint(...)" if rebuilt else f"kick off that {recorded} itself"
        where = f"run {located.run_id!r} in {located.location}"
        raise RunMismatch(f"The {where} is of {recorded} {name!r}, not of {an(kind)}. Name another run, or {verb}.")
    return definition


def _unreadable(ref: object, error: Exception, location: str) -> JournalCorrupt:
    return JournalCorrupt(str(ref), f"it cannot be read ({type(error).__name__}: {error})", None, location)


def _read(located: Located) -> Record:
    """Read the record of a branch. This is the only place where rebuilding reads a store."""
    with located.opened() as store:
        return recorded(store, located.run_id, located.branch)


@dataclass(slots=True, eq=False)
class Part:
    """One field of a definition, or one item of a field: either recorded data, or a live object that `bind` passes."""

    path: tuple[str, ...]
    value: Any = _UNSET
    wanted: str = ""
    """Describes the object that the caller has to pass; "" for recorded data."""
    key: str | None = None
    """The key of `bind` whose value fills this part; None if none does."""

    @property
    def name(self) -> str:
        """The path as errors and `bind` write it, such as `agents.Researcher.llm`."""
        return ".".join(self.path)


def recorded_model(models: object, field: str) -> LLM | None:
    """Return the model of a field, by its recorded settings; None without them, or if the environment lacks its key."""
    settings = models.get(field) if isinstance(models, dict) else None
    return LLM.of_settings(settings) if isinstance(settings, dict) and MASK not in str(settings) else None


class Rebuild:
    """Rebuilds definitions in three steps: draft them all, bind what the caller passed, construct them."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._parts: list[Part] = []

    def live(self, path: tuple[str, ...], called: object, field: str = "") -> Part:
        """Add a part that only the caller can pass. `called`: its name in the record."""
        wanted = _WANTED.get(field or path[-1], "a {}").format(called)
        return self._add(Part(path, wanted=wanted))

    def draft(
        self, facts: object, base: type[D], path: tuple[str, ...], apart: Collection[str] = (), **known: object
    ) -> Draft[D]:
        """Draft one definition from its recorded fields.

        Fields in `apart` are left out. `known`: fields whose values are known already. Raises JournalCorrupt.
        """
        what = ".".join(path) or self.found.definition["kind"]
        live = facts.get("live", {}) if isinstance(facts, dict) else None
        if not isinstance(facts, dict) or not isinstance(live, dict):
            raise self.found.damaged(f"{what} holds no fields")
        names = {*base.model_fields, *facts, *live} - {"live", "models", "class", *apart, *known}
        fields = {name: self._field(name, facts, live, (*path, name)) for name in sorted(names)}
        given = "class" not in live or (_is_of_the_caller(base) and live["class"] == base.__name__)
        own = None if given else self.live((*path, "class"), live["class"])
        return Draft(self.found, base, path, fields, known, own)

    def _field(self, name: str, facts: JsonObject, live: JsonObject, path: tuple[str, ...]) -> Field:
        if name in live:
            called = live[name]
            if isinstance(called, list):
                return [self._item(item, name, (*path, str(number))) for number, item in enumerate(called)]
            return self._model(self.live(path, called), facts.get("models"))
        value = facts.get(name, _UNSET)
        if name == "checkpoint" and isinstance(value, dict):
            return self._checkpoint(value, path)
        return self._recorded(value, path)

    def _recorded(self, value: object, path: tuple[str, ...]) -> Part:
        if value is not _UNSET and not is_plain(value):
            raise self.found.damaged(f"{'.'.join(path)} is {type(value).__name__}")
        if MASK in str(value):
            return self._add(Part(path, wanted="its text, which held a secret"))
        return self._add(Part(path, value))

    def _item(self, item: object, name: str, path: tuple[str, ...]) -> Part:
        """Return the part for an item of a list. A text is named by its number, a live object by its recorded name."""
        if isinstance(item, dict):
            part = self._recorded(item.get(PLAIN), path)
            if not part.wanted and isinstance(part.value, list) and (gone := _gone(part.value)):
                part.value, part.wanted = _UNSET, f"the paths of {part.value}, of which {gone!r} is not there any more"
            return part
        return self.live((*path[:-1], str(item)), item, name)

    def _model(self, part: Part, models: object) -> Part:
        """Return a live part. A model is filled in if the record has its settings and the environment has its key."""
        part.value = recorded_model(models, part.path[-1]) or _UNSET
        return part

    def _checkpoint(self, facts: JsonObject, path: tuple[str, ...]) -> Draft[CheckpointConfig]:
        config, known = self.found.config, dict[str, object]()
        if len(path) == 1:  # the root's setting is not needed: the run resumes in the store where it was found
            known = {"location": config.location, "provider": config.provider}
            known |= {} if config.redact is None else {"redact": config.redact}
        return self.draft(facts, CheckpointConfig, path, OF_THE_STORE - known.keys(), **known)

    def _add(self, part: Part) -> Part:
        self._parts.append(part)
        return part

    def settle(self, bind: Bind) -> None:
        """Fill in the objects that the caller passed. A key of `bind` is the path of a part, or the path's last word.

        Raises BindMissing listing every live part that was not passed, ConfigError for a key that fills nothing.
        """
        if isinstance(bind, list | tuple):
            bind = _by_name(bind)
        if not isinstance(bind, Mapping | None):
            raise ConfigError(
                f"bind is {bind!r}; wanted a dict of names to live objects, such as {{'llm': ...}}, or a list of tools"
            )
        chosen = {key: self._parts_named(key) for key in bind or {}}
        for exact in (False, True):  # a complete path takes precedence over a last word
            for key, parts in chosen.items():
                for part in parts:
                    if part.name == key or not exact:
                        part.key, part.value = key, (bind or {})[key]
        used = {part.key for part in self._parts}
        unused = [self._hint(str(key)) for key in chosen if key not in used]
        open_ = [part for part in self._parts if part.wanted and part.key is None and part.value is _UNSET]
        if missing := {part.name: part.wanted for part in open_}:
            raise BindMissing(self.found.where, missing, unused)
        if unused:
            raise ConfigError(f"bind: {'; '.join(unused)}")

    def _parts_named(self, key: object) -> list[Part]:
        live = [part for part in self._parts if part.wanted and key in (part.name, part.path[-1])]
        return live or [part for part in self._parts if part.name == key]

    def _hint(self, key: str) -> str:
        live = [name for part in self._parts if part.wanted for name in (part.name, part.path[-1])]
        names = list(dict.fromkeys([*live, *(part.name for part in self._parts)]))
        known = meant(key, names) or f"its live parts are {', '.join(live[::2]) or 'none'}"
        return f"{key!r} names no part of this definition; {known}"


def _gone(paths: list[Any]) -> str:
    """Return the first of the recorded files of a source of knowledge that no longer exists; "" if all exist."""
    try:
        for path in paths:
            files.located(str(path))
    except KnowledgeMissing as error:
        return error.path
    return ""


def _by_name(tools: list[Any] | tuple[Any, ...]) -> dict[str, BaseTool]:
    made: Any = as_tools(tools)
    return {tool.name: tool for tool in made}


class Draft(Generic[D]):
    """A definition that is yet to be constructed: its class and its parts."""

    def __init__(
        self,
        found: Found,
        base: type[D],
        path: tuple[str, ...],
        fields: dict[str, Field],
        known: dict[str, object],
        own: Part | None,
    ) -> None:
        self._found, self._base, self._path = found, base, path
        self._fields, self._known, self._own = fields, known, own

    def make(self, **further: object) -> D:
        """Construct the definition, once `Rebuild.settle` has filled in its parts.

        Raises ConfigError if the class refuses a value, JournalCorrupt for recorded fields that it does not have.
        """
        cls, what = self._class(), ".".join(self._path)
        values = {name: _filled(field) for name, field in self._fields.items()}
        given = {name: value for name, value in values.items() if value is not _UNSET} | self._known | further
        if strange := sorted(given.keys() - cls.model_fields.keys()):
            raise self._found.damaged(
                f"{what or 'it'} has recorded fields that {cls.__name__} does not have: {', '.join(strange)}"
            )
        try:
            made = cls(**given)
        except ConfigError as error:
            raise ConfigError(f"{what or self._found.where} cannot be rebuilt: {error}") from None
        for name, field in self._fields.items():
            if isinstance(field, list):
                _check_tool_names([part for part in field if part.value is not None], getattr(made, name))
        return made

    def _class(self) -> type[D]:
        if self._own is None or self._own.value is None:
            return self._base
        cls = self._own.value
        if not isinstance(cls, type) or not issubclass(cls, self._base):
            raise ConfigError(f"bind: {self._own.name} is {cls!r}; wanted a subclass of {self._base.__name__}")
        return cls


Field = Part | list[Part] | Draft[Any]


def _is_of_the_caller(cls: type[Described]) -> bool:
    """Return whether a class was defined by the user, not by crewlite."""
    return not {Described, Definition}.intersection(cls.__bases__)


def _filled(field: Field) -> Any:
    if isinstance(field, Part):
        return _UNSET if field.wanted and field.value is None else field.value
    if isinstance(field, Draft):
        return field.make()
    return [part.value for part in field if part.value is not None]


def _check_tool_names(parts: list[Part], tools: tuple[object, ...]) -> None:
    """Raise ConfigError for a tool that has not the recorded name, by which the model and the record identify it."""
    for part, item in zip(parts, tools, strict=True):
        if isinstance(item, BaseTool) and item.name != part.path[-1] and MASK not in part.name:
            raise ConfigError(
                f"bind: the tool given for {part.key!r} is named {item.name!r}, but the run recorded {part.name}: give "
                f"it the recorded name, with @tool({part.path[-1]!r})"
            )
