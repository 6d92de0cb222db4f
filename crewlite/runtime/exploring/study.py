"""Explore variants of a recorded run: fork them all from one place, run them side by side, compare the results.

The branches are the record of a study: each has a name that follows from its variant, and holds its own score. So a
study that was interrupted continues when it is explored again, and finished variants answer from their branches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crewlite import background, durable
from crewlite.errors import ConfigError, JournalCorrupt, VariantsRefused
from crewlite.ids import short
from crewlite.refs import check_name
from crewlite.runtime.exploring.branch import Branch
from crewlite.runtime.exploring.exploration import Exploration, Row
from crewlite.runtime.exploring.judge import judge_of
from crewlite.runtime.exploring.variants import Given, Variant, check_at, find_unready, variants_of
from crewlite.runtime.fork import config_of, located_for
from crewlite.runtime.many import side_by_side
from crewlite.runtime.rebuild import definition_of
from crewlite.runtime.request import FromCheckpoint
from crewlite.runtime.runnable import Runnable
from crewlite.runtime.sync_bridge import run_sync
from crewlite.secrets import Secrets
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import ForkBase
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import read_lineage, readable_branches, recorded
from crewlite.state.providers import BranchInfo, Store
from crewlite.state.reading.locate import Located
from crewlite.state.run_history import Base
from crewlite.state.verbs.copy_run import copy_if_elsewhere
from crewlite.state.verbs.fork import changed_parts, check_fork_effects, fork, place_of

_PREFIX = "explore/"


def explore_here(definition: Runnable[Any], config: FromCheckpoint, variants: Given, **how: Any) -> Exploration:
    """Do the same as `explore`, and block until all variants have ended."""
    again = "Call explore again with the same arguments: it continues, and nothing that is recorded is paid again."
    return run_sync("explore", lambda: explore(definition, config, variants, **how), lambda: again)


async def explore(
    definition: Runnable[Any],
    config: FromCheckpoint,
    variants: Given,
    *,
    judge: Any,
    max_concurrency: int,
    study: str | None,
    allow_effects: bool,
) -> Exploration:
    """Explore variants of a recorded run, as Runnable.explore describes."""
    if durable.scope().loop is not None:
        raise ConfigError("explore was called inside a run, and runs branches of its own: call it outside of the run")
    if type(max_concurrency) is not int or max_concurrency < 1:
        raise ConfigError(f"max_concurrency is {max_concurrency!r}; wanted a whole number, 1 or more")
    judging = judge_of(judge)
    begun = await background.in_thread(_checked, definition, config, variants, study)
    await begun.refuse_mistakes()
    if judging:
        await judging.ready()
    if not allow_effects:
        await background.in_thread(begun.refuse_effects)
    branches, base = await background.in_thread(begun.fork)
    rows = dict[str, Row]()

    async def end(branch: Branch) -> None:
        rows[branch.variant.name] = await branch.row(judging)

    await side_by_side((end(branch) for branch in branches), max_concurrency)
    place = Base(base["branch"], base["seq"], base["place"]["id"] if base["place"] else None)
    ended = tuple(rows[branch.variant.name] for branch in branches)
    return Exploration(begun.name, begun.found.run_id, begun.found.location, place, ended)


@dataclass(frozen=True, slots=True)
class _Study:
    """A study whose variants were looked at."""

    name: str
    found: Located
    config: CheckpointConfig
    """Where it is stored, and the settings of its runs."""
    variants: Sequence[Variant]
    taken: Mapping[str, BranchInfo]
    """The branches that it has already, by the names of their variants."""
    redact: frozenset[str]

    async def refuse_mistakes(self) -> None:
        """Raise VariantsRefused if a variant has mistakes, or a model that cannot be called."""
        for variant in self.variants:
            if variant.name not in self.taken:
                await find_unready(variant)
        if mistakes := [(one.name, mistake) for one in self.variants for mistake in one.mistakes]:
            raise VariantsRefused(f"{self.found.run_id}/{self.found.branch}", mistakes)

    def refuse_effects(self) -> None:
        """Raise EffectsRepeat for calls with effect="once" that variants without a branch would make again."""
        new = [variant for variant in self.variants if variant.name not in self.taken]
        store = self.found.provider.open(self.found.location)
        try:
            if new:
                base, record = place_of(store, self.found, _base_of(self.taken))
                entries = read_lineage(store, self.found.run_id, self.found.branch)
                for variant in new:
                    first = changed_parts(record, variant.changed)
                    check_fork_effects(store, self.found, base, first, entries, anew=variant.may_ask_otherwise)
        finally:
            store.close()

    def fork(self) -> tuple[list[Branch], ForkBase]:
        """Fork the variants that have no branch yet, all at one commit. Returns all branches, and their base."""
        base = _base_of(self.taken)
        for variant in self.variants:
            if variant.name not in self.taken:
                with contextlib.suppress(JournalCorrupt):  # a damaged branch has this name, and its row says so
                    self._fork(variant, base)
                    base = base or self._begun(variant)
        base = base or self._place()[0]
        found = [
            replace(self.found, branch=_branch(self.name, one.name), checkpoint=None, abandoned=None)
            for one in self.variants
        ]
        return [Branch(one, there, self.config) for one, there in zip(self.variants, found, strict=True)], base

    def _fork(self, variant: Variant, base: ForkBase | None) -> None:
        secrets = Secrets.of(*variant.definition.secret_sources(), extra=self.redact)
        fork(
            self.found,
            variant.definition,
            branch=_branch(self.name, variant.name),
            operation_id=variant.operation(self.name),
            changed=variant.changed,
            secrets=secrets,
            base=base,
        )

    def _place(self) -> tuple[ForkBase, Record]:
        """Return the base that the variants have, and the record there."""
        store = self.found.provider.open(self.found.location)
        try:
            return place_of(store, self.found, _base_of(self.taken))
        finally:
            store.close()

    def _begun(self, variant: Variant) -> ForkBase | None:
        """Return the base of a variant's branch: of this fork, or of the same one by another process."""
        store = self.found.provider.open(self.found.location)
        try:
            return _taken(store, self.found, self.name)[variant.name].base
        finally:
            store.close()


def _checked(definition: Runnable[Any], config: FromCheckpoint, given: Given, name: str | None) -> _Study:
    """Find what is to be explored, and look for mistakes in the variants. Writes nothing but a copy of the run."""
    variants = variants_of(definition, given)
    where = config if isinstance(config, CheckpointConfig) else CheckpointConfig(restore_from=config)
    own = config_of(definition)
    found = located_for(definition, own, where)
    definition_of(found, definition.run_kind.name)  # raises for a run of another kind
    found = copy_if_elsewhere(found, where)
    name = check_name("study", _usual_name(found) if name is None else name)
    there = where.model_copy(update={"location": found.location, "provider": found.provider})
    store = found.provider.open(found.location)
    try:
        taken = _taken(store, found, name)
        same = _base_of(taken)
        if same and not _is_at(store, same, found):
            raise ConfigError(
                f"Study {name!r} of run {found.run_id!r} explores another place ({same['branch']}, commit "
                f"{same['seq']}): give this one a name of its own, with study=..."
            )
        _, record = place_of(store, found, same)
    finally:
        store.close()
    _check(record, variants, taken, name)
    redact = frozenset({*(own.redact or ()), *(where.redact or ())})
    return _Study(name, found, there, variants, taken, redact)


def _usual_name(found: Located) -> str:
    """Return the name of the study at a place: that of its checkpoint, or of its branch."""
    if found.checkpoint:
        return short(found.checkpoint)
    name = found.branch.removeprefix(_PREFIX).replace("/", "-")
    return name if found.abandoned is None else f"{name}-abandoned-{found.abandoned}"


def _branch(study: str, variant: str) -> str:
    return f"{_PREFIX}{study}/{variant}"


def _taken(store: Store, found: Located, study: str) -> Mapping[str, BranchInfo]:
    """Return the branches that a study has already, by the names of their variants, in the order of their creation."""
    prefix = _branch(study, "")
    return {
        info.branch.removeprefix(prefix): info
        for info in readable_branches(store, found.run_id)
        if info.branch.startswith(prefix) and info.base
    }


def _base_of(taken: Mapping[str, BranchInfo]) -> ForkBase | None:
    return next((info.base for info in taken.values()), None)


def _is_at(store: Store, base: ForkBase, found: Located) -> bool:
    """Return whether forks with this base start at the place that was named. A head may have moved on since."""
    if found.checkpoint:
        return base["place"] is not None and base["place"]["id"] == found.checkpoint
    if base["branch"] != found.branch or found.abandoned is not None:
        return base["branch"] == found.branch
    return recorded(store, found.run_id, found.branch).counts(base["seq"])  # else a rewind has abandoned it


def _check(record: Record, variants: Sequence[Variant], taken: Mapping[str, BranchInfo], study: str) -> None:
    """Find the mistakes of variants that show only at the place that they are forked from."""
    for variant in variants:
        base = taken[variant.name].base if variant.name in taken else None
        if base is None:
            check_at(record, variant)
        elif base.get("operation") != variant.changed.operation_digest(variant.operation(study)):
            mistake = f"study {study!r} has this variant with other changes: choose another name for one of the two"
            variant.mistakes.append(mistake)
