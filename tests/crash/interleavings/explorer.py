"""Every verb interrupted by every act, right before each verb of the store, in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interleavings.acts import VERBS, Pair, act_of, pairs
from interleavings.judge import Outcome, Seen, go_on, judge, look, release
from interleavings.scenes import Site, lay_out

from crewlite.state.providers import BaseProvider
from crewlite.testing import Interleaved
from crewlite.testing.laws import Make
from tests.beside import bounded

LONGEST = 20.0
"""Seconds after which a verb never ends."""
PATIENT = 2.0
"""Seconds that an act is waited for which may need what the one it interrupts holds."""


@dataclass
class Explored:
    """The trials that were made, and the broken promises found."""

    trials: int = 0
    verbs: set[str] = field(default_factory=set)
    acts: set[str] = field(default_factory=set)
    violations: dict[str, list[str]] = field(default_factory=dict)
    """The broken promises, each with the trials in which it was broken."""

    def add(self, where: tuple[str, str, int], broken: Iterable[str]) -> None:
        """Count a trial. `where` is the verb, the act, and the number of the store's call before which the act ran."""
        self.trials += 1
        self.verbs.add(where[0])
        self.acts.add(where[1])
        for text in broken:
            self.violations.setdefault(text, []).append("{}, {} before {}".format(*where))

    def __str__(self) -> str:
        counts = f"{len(self.verbs)} verbs, {len(self.acts)} acts, {self.trials} positions"
        lines = [f"{len(where):5} x {text}\n        {', '.join(where[:6])}" for text, where in self.violations.items()]
        return "\n".join([f"{counts}: {len(self.violations)} violations", *lines])


def explore(make: Make, *, trials: int | None = None, seed: int = 1, chosen: Iterable[Pair] | None = None) -> Explored:
    """Try every position of the chosen (scene, verb, act), or so many of any of them, and say what is broken."""
    found, explorer = Explored(), Explorer(make)
    for (scene, verb, act), at in spots(list(pairs() if chosen is None else chosen), explorer.of_pair, trials, seed):
        found.add((f"{scene}: {verb}", act, at), explorer.trial(scene, verb, act, at))
    return found


def spots(
    chosen: list[Pair], positions: Callable[[Pair], range], trials: int | None, seed: int
) -> list[tuple[Pair, int]]:
    """Every position of the pairs, in any order, so that a part of them is a fair sample; or so many trials."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    if trials is not None:
        drawn = [pair for pair in chance.choices(chosen, k=2 * trials) if positions(pair)][:trials]
        return [(pair, chance.choice(positions(pair))) for pair in drawn]
    every = [(pair, at) for pair in chosen for at in positions(pair)]
    return chance.sample(every, len(every))


class Explorer:
    """Makes trials with one kind of provider, in this process."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._calls: dict[tuple[str, str], list[str]] = {}
        self._before: dict[str, Seen] = {}
        self._sound: set[str] = set()
        """Shapes of sites on which every run went on as it ought to."""
        self.last = ("", "", "")
        """How the last trial went: what the verb raised, what the act raised, and what was there afterwards."""

    def of_pair(self, pair: Pair) -> range:
        return self.positions(*pair[:2])

    def positions(self, scene: str, verb: str) -> range:
        """Where a verb can be interrupted."""
        return range(1, len(self.calls(scene, verb)) + 1)

    def calls(self, scene: str, verb: str) -> list[str]:
        """The verbs of the store that a verb calls if nothing comes between."""
        if (scene, verb) not in self._calls:
            with self._site(scene) as (site, provider):
                counted = Interleaved(provider)
                clean = _bounded(lambda: VERBS[verb][1](_through(site, counted)))
                assert clean.said is not None, f"{verb} in {scene}, undisturbed: {clean}"
                self._calls[scene, verb] = list(counted.log)
        return self._calls[scene, verb]

    def trial(self, scene: str, verb: str, act: str, at: int) -> list[str]:
        """Do a verb, and the act right before its `at`-th verb of the store: what is broken."""
        with self._site(scene) as (site, provider):
            beside = Interleaved(provider, at=at, act=lambda: act_of(verb, act)(site), patience=PATIENT)
            of_verb = _bounded(lambda: VERBS[verb][1](_through(site, beside)))
            if beside.count < at:
                self.last = ("it was over before", "", "")
                return []
            of_act = Outcome.of(beside.outcome) if beside.ended(LONGEST) else Outcome(stuck=True)
            return self._broken(site, scene, verb, act, of_verb, of_act)

    def heard(self, scene: str, verb: str, act: str, do: Callable[[Site], object]) -> list[str]:
        """Do a verb while something is in place that does an act at some moment: what is broken."""
        with self._site(scene) as (site, _):
            return self._broken(site, scene, verb, act, _bounded(lambda: do(site)), Outcome())

    def _broken(self, site: Site, scene: str, verb: str, act: str, of_verb: Outcome, of_act: Outcome) -> list[str]:
        held = (of_act.said or {}).get("held")
        refused = release(site, held) if held and verb != "cancel" else ""
        found = look(site)
        self.last = (of_verb.error, of_act.error, found.shape)
        broken = [f"who is at work elsewhere was disturbed: {refused}"] if refused else []
        broken += judge(verb, act, self._before[scene], found, (of_verb, of_act), site.trace.lines())
        if not broken and found.shape not in self._sound:
            broken = go_on(site, found) or look(site).wrong
            if not broken:
                self._sound.add(found.shape)
        return [text.replace(site.location, "") for text in broken]

    @contextlib.contextmanager
    def _site(self, scene: str) -> Iterator[tuple[Site, BaseProvider]]:
        provider, location = self._make()
        with tempfile.TemporaryDirectory() as documents:
            site = Site(location, provider, Path(documents))
            lay_out(scene, site)
            if scene not in self._before:
                self._before[scene] = look(site)
            yield site, provider


def _through(site: Site, provider: BaseProvider) -> Site:
    return dataclasses.replace(site, provider=provider)


def _bounded(act: Callable[[], Any]) -> Outcome:
    """How an act goes, on a thread of its own: one that never ends is told so."""
    return Outcome.of(bounded(act, LONGEST))
