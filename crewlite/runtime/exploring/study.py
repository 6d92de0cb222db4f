"""Explore variants of a recorded run: fork them all from one place, run them side by side, compare the results.

The branches are the record of a study: each has a name that follows from its variant, and holds its own score. So a
study that was interrupted continues when it is explored again, and finished variants answer from their branches.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, takewhile
from typing import Any

from crewlite import durable
from crewlite.concurrency import background
from crewlite.definitions.keywords import known_keywords
from crewlite.encoding import codec
from crewlite.errors import ConfigError, EffectsRepeat, JournalCorrupt, VariantsRefused
from crewlite.ids import short
from crewlite.recovery import checks
from crewlite.refs import STUDIES, check_name
from crewlite.runtime.exploring.branch import Branch
from crewlite.runtime.exploring.exploration import Exploration, Row
from crewlite.runtime.exploring.judge import Judge, judge_of
from crewlite.runtime.exploring.variants import Given, Variant, check_at, find_unready, root_of, variants_of
from crewlite.runtime.kickoffs.fork import config_of, located_for
from crewlite.runtime.kickoffs.many import side_by_side
from crewlite.runtime.kickoffs.rebuild import definition_of
from crewlite.runtime.kickoffs.request import FromCheckpoint
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.main_thread.sync_bridge import run_sync
from crewlite.state.config import CheckpointConfig, at_ref
from crewlite.state.format.commit import ForkBase
from crewlite.state.format.record import Record
from crewlite.state.journal.lineage import readable_branches, recorded
from crewlite.state.providers import BranchInfo, Store
from crewlite.state.reading.located import Located
from crewlite.state.run_history import Base
from crewlite.state.verbs.fork import ForkOrigin, changed_parts, fork
from crewlite.state.verbs.transfer import copy_if_elsewhere
from crewlite.texts.secrets import Secrets


def explore_here(
    definition: Runnable[Any], config: FromCheckpoint, variants: Given, judge: Any, **how: Any
) -> Exploration:
    """Run `explore` and block until all variants have ended."""
    again = "Call explore again with the same arguments: it continues, and nothing that is recorded is paid again."
    work = partial(explore, definition, config, variants, judge, **how)
    return run_sync(definition.run_kind, "explore", work, lambda: again)


@known_keywords("explore")
async def explore(
    definition: Runnable[Any],
    config: FromCheckpoint,
    variants: Given,
    judge: Any = None,
    *,
    max_concurrency: int = 4,
    study: str | None = None,
    allow_effects: bool = False,
) -> Exploration:
    """Explore variants of a recorded run, as Runnable.explore describes."""
    if durable.scope().loop is not None:
        raise ConfigError("explore was called inside a run; call it outside, because it runs branches of its own")
    checks.whole("explore", 1, max_concurrency=max_concurrency)
    judging = judge_of(judge)
    begun = await background.in_thread(_checked, definition, config, variants, study)
    await begun.refuse_mistakes()
    if judging:
        await judging.ready()
    if not allow_effects:
        await background.in_thread(begun.refuse_effects, begun.new)
    branches, base = await background.in_thread(begun.fork)
    rows = dict[str, Row]()

    async def end(variant: Variant) -> None:
        row = await _first_row(branches[variant.name], judging)
        if row is None:
            branch = begun.branch(variant, beside=branches[variant.name])
            row = await _row_anew(begun, branch, base, judging, allow_effects=allow_effects)
        rows[variant.name] = row

    works = (asyncio.ensure_future(end(variant)) for variant in begun.variants)  # a judge may be code of the user
    await side_by_side(works, min(max_concurrency, len(begun.variants)))
    place = Base(base["branch"], base["seq"], base["place"]["id"] if base["place"] else None)
    ended = tuple(rows[variant.name] for variant in begun.variants)
    return Exploration(begun.name, begun.found.run_id, begun.found.location, place, ended)


async def _first_row(branches: Sequence[Branch], judge: Judge | None) -> Row | None:
    """Return the row of the first branch that answered what its variant asks now; None if none did."""
    for branch in branches:
        if row := await branch.row(judge):
            return row
    return None


async def _row_anew(study: _Study, branch: Branch, base: ForkBase, judge: Judge | None, *, allow_effects: bool) -> Row:
    """Fork a variant again, because its definition has changed since, and return the row of the new branch."""
    try:
        if not allow_effects:
            await background.in_thread(study.refuse_effects, [branch.variant], anew=True)
        await background.in_thread(study.fork_at, branch, base)
    except EffectsRepeat as repeats:
        return branch.failed(str(repeats))
    row = await branch.row(judge, is_new=True)
    assert row is not None
    return row


@dataclass(frozen=True, slots=True)
class _Study:
    """A study whose variants were checked."""

    name: str
    found: Located
    config: CheckpointConfig
    """The location of the study, and the settings of its runs."""
    variants: Sequence[Variant]
    taken: Mapping[str, BranchInfo]
    """The existing branches of the study, by their names within it."""
    redact: frozenset[str]

    @property
    def base(self) -> ForkBase | None:
        return next((info.base for info in self.taken.values()), None)

    @property
    def new(self) -> list[Variant]:
        """The variants that have no branch yet."""
        return [variant for variant in self.variants if not self.same(variant)]

    def same(self, variant: Variant) -> list[str]:
        """Return the names of the branches that were forked with exactly the changes of a variant, oldest first."""
        if variant.mistakes:
            return []
        operation = variant.changed.operation_digest(variant.operation(self.name))
        versions = takewhile(self.taken.__contains__, _names(variant))
        return [name for name in versions if (base := self.taken[name].base) and base.get("operation") == operation]

    async def refuse_mistakes(self) -> None:
        """Raise VariantsRefused if a variant has mistakes, or uses a model that cannot be called."""
        for variant in self.new:
            await find_unready(variant)
        if mistakes := [(one.name, mistake) for one in self.variants for mistake in one.mistakes]:
            raise VariantsRefused(f"{self.found.run_id}/{self.found.branch}", mistakes)

    def refuse_effects(self, variants: Sequence[Variant], *, anew: bool = False) -> None:
        """Raise EffectsRepeat for calls with effect="once" that new branches of these variants may make again."""
        if not variants:
            return
        with self.found.opened() as store:
            origin = ForkOrigin(store, self.found, self.base)
            for one in variants:
                first = changed_parts(origin.record, one.changed)
                origin.check_effects(first, anew=anew or one.may_ask_otherwise)

    def fork(self) -> tuple[dict[str, list[Branch]], ForkBase]:
        """Fork the variants that have no branch yet, all at one commit.

        Returns ({name of a variant: its branches, oldest first}, the base of all branches).
        """
        base, branches = self.base, dict[str, list[Branch]]()
        for variant in self.variants:
            same = self.same(variant)
            branches[variant.name] = [self._branch(variant, name) for name in same] or [self.branch(variant)]
            if not same:
                with contextlib.suppress(JournalCorrupt):  # a damaged branch with this name: its row says so
                    self.fork_at(branches[variant.name][0], base)
                    base = base or self._begun(branches[variant.name][0])
        if base is None:
            with self.found.opened() as store:
                base = ForkOrigin(store, self.found).base
        return branches, base

    def branch(self, variant: Variant, beside: Sequence[Branch] = ()) -> Branch:
        """Return the next branch to create for a variant. No branch of the study or in `beside` has its name."""
        known = {one.found.branch for one in beside}
        free = (self._branch(variant, name) for name in _names(variant) if name not in self.taken)
        return next(one for one in free if one.found.branch not in known)

    def fork_at(self, branch: Branch, base: ForkBase | None) -> None:
        """Create the branch of a variant. `base`: where the study's other branches begin; None for the first branch."""
        variant = branch.variant
        fork(
            self.found,
            variant.definition,
            branch=branch.found.branch,
            operation_id=variant.operation(self.name),
            changed=variant.changed,
            secrets=Secrets.of(*variant.definition.secret_sources(), extra=self.redact),
            base=base,
        )

    def _branch(self, variant: Variant, name: str) -> Branch:
        there = replace(self.found, branch=_branch(self.name, name), checkpoint=None, abandoned=None)
        return Branch(variant, there, self.config)

    def _begun(self, branch: Branch) -> ForkBase | None:
        """Return the base of a branch that this process or another one has just forked for this study."""
        with self.found.opened() as store:
            infos = readable_branches(store, self.found.run_id)
            return next((info.base for info in infos if info.branch == branch.found.branch), None)


def _checked(definition: Runnable[Any], config: FromCheckpoint, given: Given, name: str | None) -> _Study:
    """Resolve the place to explore, and find mistakes in the variants. Writes nothing, except a copy of the run."""
    variants = variants_of(definition, given)
    where = at_ref(config)
    own = config_of(definition)
    found = located_for(definition, own, where)
    definition_of(found, definition.run_kind.name)  # raises for a run of another kind
    found = copy_if_elsewhere(found, where)
    name = check_name("study", _usual_name(found) if name is None else name)
    there = where.model_copy(update={"location": found.location, "provider": found.provider})
    redact = frozenset({*(own.redact or ()), *(where.redact or ())})
    with found.opened() as store:
        study = _Study(name, found, there, variants, _existing_branches(store, found, name), redact)
        if (base := study.base) and not _is_at(store, base, found):
            raise ConfigError(
                f"Study {name!r} of run {found.run_id!r} explores another place ({base['branch']}, commit "
                f"{base['seq']}): give this one a name of its own, with study=..."
            )
        record = ForkOrigin(store, found, base).record
    for variant in study.new:
        check_at(record, variant)
    _check_asked_there(definition, found, record)
    return study


def _usual_name(found: Located) -> str:
    """Return the default name of a study: the short id of its checkpoint, or the name of its branch."""
    if found.checkpoint:
        return short(found.checkpoint)
    name = found.branch.removeprefix(STUDIES).replace("/", "-")
    return name if found.abandoned is None else f"{name}-abandoned-{found.abandoned}"


def _branch(study: str, variant: str) -> str:
    return f"{STUDIES}{study}/{variant}"


def _existing_branches(store: Store, found: Located, study: str) -> Mapping[str, BranchInfo]:
    """Return the existing branches of a study, by their names within it, in the order of their creation."""
    prefix = _branch(study, "")
    return {
        info.branch.removeprefix(prefix): info
        for info in readable_branches(store, found.run_id)
        if info.branch.startswith(prefix) and info.base
    }


def _is_at(store: Store, base: ForkBase, found: Located) -> bool:
    """Return whether a fork with this base starts at the place `found`.

    The head of a branch may have moved on since.
    """
    if found.checkpoint:
        return base["place"] is not None and base["place"]["id"] == found.checkpoint
    if base["branch"] != found.branch or found.abandoned is not None:
        return base["branch"] == found.branch
    return recorded(store, found.run_id, found.branch).is_valid(base["seq"])  # False if a rewind has abandoned the base


def _names(variant: Variant) -> Iterator[str]:
    """Yield the names that the branches of a variant may have within the study: `short`, `short/2`, ..."""
    yield variant.name
    yield from (f"{variant.name}/{number}" for number in count(2))


def _check_asked_there(definition: Runnable[Any], found: Located, record: Record) -> None:
    """Raise ConfigError if `definition` asks a finished step of a branch another question than its variant did."""
    if not found.branch.startswith(STUDIES):
        return
    root = root_of(definition)
    if drifted := root.compare(record, codec.decode(record.run["inputs"])).drifted:
        one = drifted[0]
        raise ConfigError(
            f"{found.run_id}/{found.branch} belongs to a variant whose texts differ from those of this {root.kind}: "
            f"{one.address} {one}. Explore it with the {root.kind} that ran it, from the variant's row in the study: "
            f"row.definition.explore(row.ref, ...)"
        )
