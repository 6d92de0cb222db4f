"""The variants of a study: what each of them changes, with every mistake found before anything runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crewlite.concurrency import resources
from crewlite.encoding import codec
from crewlite.errors import ConfigError, CrewliteError, meant
from crewlite.llm.base import BaseLLM
from crewlite.llm.models import as_model, named
from crewlite.refs import check_name
from crewlite.runtime.kickoffs.fork import changes_for
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.state.format.record import Record
from crewlite.state.verbs.fork import Changes, changed_parts
from crewlite.texts.wording import an

KEYS = ("name", "model", "prompt", "inputs", "edits", "rerun", "definition")
Given = Sequence[Mapping[str, Any]]
_KNOWN = f"a variant has {', '.join(KEYS)}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant: the definition that runs it, and the changes that its branch begins with."""

    name: str
    definition: Runnable[Any]
    changed: Changes
    keys: frozenset[str]
    """The keys of the caller's mapping."""
    messages: Mapping[str, Any] | None
    """For an agent, the question that its kickoff asks; None for a crew or a flow, whose inputs are changes."""
    known_by: str
    """A digest of model, prompt and messages, to distinguish variants with the same name."""
    model: BaseLLM | None
    """The model that the variant sets; None if it sets none."""
    mistakes: list[str]
    """Messages about what prevents the variant from running, as far as known."""

    @property
    def asks_anew(self) -> bool:
        """Whether a finished step runs again if the variant changes its question."""
        return "prompt" in self.keys

    @property
    def may_ask_otherwise(self) -> bool:
        """Whether the variant may change the question of a finished step, so that the step runs again."""
        return self.asks_anew or "definition" in self.keys

    def operation(self, study: str) -> str:
        """Return the operation id of the variant's fork, by which a repeated `explore` finds the branch again."""
        return f"explore {study}/{self.name}: {self.known_by}"


def variants_of(definition: Runnable[Any], given: Given) -> list[Variant]:
    """Read the variants and note the mistakes of each. Raises ConfigError if `given` is not a list of mappings."""
    if isinstance(given, Mapping | str) or not isinstance(given, Sequence) or not given:
        raise ConfigError(f"variants is {given!r}; wanted a list, such as [{{'name': 'short', 'model': '...'}}]")
    if others := [one for one in given if not isinstance(one, Mapping)]:
        raise ConfigError(f"variants has {others[0]!r}; wanted mappings, such as {{'name': 'short', 'model': '...'}}")
    variants = [_read(definition, one, number) for number, one in enumerate(given, 1)]
    for number, one in enumerate(variants):
        if one.name in {earlier.name for earlier in variants[:number]}:
            one.mistakes.append("an earlier variant has this name")
    return variants


def check_at(record: Record, variant: Variant) -> None:
    """Add to `variant.mistakes` what prevents the variant from being forked from this record or from running then."""
    found = variant.mistakes
    for change in _each(variant.changed):
        with _collected(found):
            changed_parts(record, change)
    if not found:
        with _collected(found):
            changed_parts(record, variant.changed)
    with _collected(found):
        root = root_of(variant.definition)
        root.check({**codec.decode(record.run["inputs"]), **variant.changed.inputs, **(variant.messages or {})})
    asks = variant.changed or variant.messages or variant.asks_anew
    if record.finished and not (found or asks) and variant.keys & {"model", "definition"}:
        found.append(
            "the run is finished at this place, so another model would have nothing to do: name an earlier checkpoint, "
            "or finished steps to run again: 'rerun': [...]"
        )


def root_of(definition: Runnable[Any]) -> Root[Any]:
    """Return the root of a definition, to compare it with a record. Nothing is kicked off with it."""
    return definition.as_root(Request(from_checkpoint="latest"))


def _each(changed: Changes) -> Iterator[Changes]:
    """Yield each change alone, so that each mistake is found."""
    for address, value in changed.edits.items():
        yield replace(changed, edits={address: value}, rerun=(), inputs={})
    for address in changed.rerun:
        yield replace(changed, edits={}, rerun=(address,), inputs={})
    for name, value in changed.inputs.items():
        yield replace(changed, edits={}, rerun=(), inputs={name: value})


async def find_unready(variant: Variant) -> None:
    """Add a mistake if the variant's model cannot be called: its provider is unknown, or has no key."""
    if variant.model is not None and not variant.mistakes:
        with _collected(variant.mistakes):
            await resources.ready(variant.model)


def _read(definition: Runnable[Any], one: Mapping[str, Any], number: int) -> Variant:
    """Read one variant, and note the mistakes that can be found without the record."""
    name = one.get("name", f"number {number}")
    found = [f"unknown key {key!r}; {meant(str(key), KEYS) or _KNOWN}" for key in one if key not in KEYS]
    found += [] if "name" in one else ["it has no name: 'name': ..."]
    with _collected(found):
        check_name("name", one.get("name", "none"))
    made, changed, inputs = definition, Changes(), one.get("inputs")
    model: BaseLLM | None = None
    messages: Mapping[str, Any] | None = None
    with _collected(found):
        model = _model_of(one)
    with _collected(found):
        made = _changed(definition, one, model)
    if made.run_kind.takes_messages and inputs:
        with _collected(found):
            messages, inputs = made.as_inputs(inputs), None
    with _collected(found):
        changed = changes_for(made, one.get("edits"), one.get("rerun") or (), inputs)
        changed.operation_digest("any")  # raises NotCodable
    llm = model and [model.model, model.plain_settings()]
    known_by = codec.digest([llm, repr(one.get("prompt")), messages and codec.encode(messages, "inputs")])
    return Variant(str(name), made.bound_to(None), changed, frozenset(one), messages, known_by, model, found)


def _changed(definition: Runnable[Any], one: Mapping[str, Any], model: BaseLLM | None) -> Runnable[Any]:
    """Return the definition that runs a variant. Raises ConfigError for an unusable definition or prompt."""
    made = one.get("definition", definition)
    if not isinstance(made, Runnable) or made.run_kind is not definition.run_kind:
        raise ConfigError(f"definition is {made!r}; wanted {an(str(definition.run_kind))}")
    if model is not None:
        made = made.with_model(model)
    if (prompt := one.get("prompt")) is not None:
        if not (isinstance(prompt, Mapping) and all(isinstance(part, str) for item in prompt.items() for part in item)):
            raise ConfigError(f"prompt is {prompt!r}; wanted texts by path: {{'tasks.research.description': '...'}}")
        made = made.with_prompts(prompt)
    return made


def _model_of(one: Mapping[str, Any]) -> BaseLLM | None:
    """Return the model that a variant sets; None if it sets none. Raises ConfigError if the value is not a model."""
    if (llm := one.get("model")) is None:
        return None
    model = named(llm) if isinstance(llm, str) else as_model(llm)
    if not isinstance(model, BaseLLM):
        raise ConfigError(f"model is {llm!r}; wanted a model, such as LLM(...), or its name")
    return model


@contextlib.contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Append the message of a CrewliteError raised in the block to `problems`, and swallow the error."""
    try:
        yield
    except CrewliteError as error:
        problems.append(str(error))
