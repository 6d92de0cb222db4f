"""Where frameworks play in turns: the rounds of a scene, and the rows that are made of them."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Row
from benchmarks.peers.player import NotMeasured, Peer, Player, players

_ROUNDS = 5
_IMPORTS = 3
_TIMED = "import time\nstart = time.process_time()\n{}\nprint(time.process_time() - start)"

Found = dict[str, Any]
"""What came out of one round: `seconds`, and for what is stored `bytes` and `found`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Ours, the environments of the others, and a directory for everything that is written."""

    ours: Peer
    environments: Path
    directory: Path

    def play(self, scene: str, peers: list[Peer], **how: Any) -> Played:
        """Play a scene in turns, in new processes. Where it stores something (`kind`), each has a directory for it."""
        with players([self.ours, *peers], self.environments, self.directory) as (playing, missing):
            works = {name: self._turn(name, player, scene, how) for name, player in playing.items()}
            played = Played.in_turns(_ROUNDS, works, self.ours.name, missing)
            played.versions.update((name, player.version) for name, player in playing.items())
        return played

    def _turn(self, name: str, player: Player, scene: str, how: Mapping[str, Any]) -> Callable[[], Found]:
        if "kind" not in how:
            return lambda: player.play(scene, **how)
        where = self.directory / f"{scene}-{how['kind']}-{name}"
        where.mkdir()
        return lambda: player.play(scene, directory=str(where), **how)

    def imports(self, peers: list[Peer]) -> Played:
        """Import each in turns, in a new process every time: CPU time, so that waiting for the disk does not count."""

        def turn(peer: Peer) -> Callable[[], Found]:
            return lambda: self._import(peer)

        return Played.in_turns(_IMPORTS, {peer.name: turn(peer) for peer in (self.ours, *peers)}, self.ours.name, {})

    def _import(self, peer: Peer) -> Found:
        command = [peer.python(self.environments), "-c", _TIMED.format(peer.imports)]
        surroundings = peer.surroundings(self.directory)
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=False)
        except OSError as why:
            raise NotMeasured(f"its python does not start: {why.strerror}") from None
        if done.returncode:
            raise NotMeasured(done.stderr.strip().rpartition("\n")[2])
        return {"seconds": float(done.stdout.split()[-1])}


@dataclass(slots=True)
class Played:
    """The rounds of everybody who played to the end, and why the others did not."""

    ours: str
    rounds: dict[str, list[Found]]
    missing: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def in_turns(
        cls, rounds: int, works: Mapping[str, Callable[[], Found]], ours: str, missing: dict[str, str]
    ) -> Played:
        """Each of `works`, in each of `rounds` rounds, after one that does not count. Who breaks is left out."""
        played = cls(ours, {name: [] for name in works}, dict(missing))
        for _ in range(rounds + 1):
            for name in list(played.rounds):
                try:
                    played.rounds[name].append(works[name]())
                except NotMeasured as why:
                    played.missing[name] = str(why)
                    del played.rounds[name]
        if ours in played.missing:
            raise RuntimeError(f"{ours} itself could not be measured: {played.missing[ours]}")
        for each in played.rounds.values():
            del each[0]
        return played

    def row(self, peer: Peer, title: str, key: str, said: Callable[[float], str], promise: str = "") -> Row:
        """How many times ours a peer takes: the median of the ratios of each round."""
        if peer.name not in self.rounds:
            return Row(title, None, detail=f"not measured: {self.missing[peer.name]}")
        theirs, ours = ([found[key] for found in self.rounds[name]] for name in (peer.name, self.ours))
        times = statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
        about = [f"{said(statistics.median(theirs))} against {said(statistics.median(ours))}"]
        about += [f"version {self.versions[peer.name]}"] if peer.name in self.versions else []
        return Row(title, times, "x", None, "; ".join([*about, *([promise] if promise else [])]))

    def lost(self, peer: Peer, title: str, expected: int, target: float | None = None) -> Row:
        """How many of the expected checkpoints are not there after a run has ended well."""
        found = [each["found"] for each in self.rounds[peer.name]]
        return Row(title, expected - statistics.median(found), "", target, f"there are {', '.join(map(str, found))}")
