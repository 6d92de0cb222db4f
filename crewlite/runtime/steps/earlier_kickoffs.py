"""What earlier kickoffs of a run have left for this one to heed, read from the record once, before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from crewlite.state.format.addresses import around, outer, prefix_beside
from crewlite.state.format.earlier import is_before_change
from crewlite.state.format.record import Record
from crewlite.state.format.undecided import undecided
from crewlite.state.reading.steps import calls_without_outcome, inherited, unsettled


@dataclass(frozen=True, slots=True)
class EarlierKickoffs:
    """What earlier kickoffs of a run, or the changes of a fork, have left. Nothing of it changes during a kickoff."""

    begun: frozenset[str] = frozenset()
    """Addresses of the steps that they started."""
    doubts: frozenset[str] = frozenset()
    """Addresses of the calls with an intent and without an outcome."""
    left_in_doubt: frozenset[str] = frozenset()
    """Addresses of the calls with effect="once" that are in doubt, and of the steps around them.

    Two kinds of calls are left out: those that took no effect according to `rerun`, and those that the changes of a
    fork lead to, because the changed code may do something else.
    """
    undecided: frozenset[str] = frozenset()
    """Addresses of the steps whose last attempt failed, and whose remedy is not chosen yet."""
    heard_start: bool = False
    """Whether handlers of the run's start changed the state, as recorded."""
    ended_inside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Addresses of the steps that ended (`Record.ends`), and of those around calls with effect="once": by prefix, the
    part of the address up to its last slash."""
    from_base: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Addresses of the steps that this fork inherited from its base, by the address of the enclosing step."""

    @classmethod
    def of(cls, record: Record, rerun: Mapping[str, int], *, expects_all: bool) -> EarlierKickoffs:
        """Read what a record says. `rerun`: see `Run`.

        `expects_all`: whether it matters for every ended step if the code requests it again, and not only for those in
        doubt.
        """
        started = record.events.starts
        checkpoints = (one for one in record.checkpoints.values() if record.is_valid(one["seq"]))
        left = [at for at, times in unsettled(record).items() if rerun.get(at) != times]
        left = [at for at in left if not is_before_change(record, at)]
        in_doubt = frozenset(around(left).union(left))
        return cls(
            begun=frozenset({"", *started, *(one["address"] for one in checkpoints)}),
            doubts=calls_without_outcome(record),
            left_in_doubt=in_doubt,
            undecided=frozenset(undecided(record)),
            heard_start="" in started and bool(record.kept.own),
            ended_inside=_grouped(
                {*record.ends, *in_doubt, *around(record.once)} if expects_all else in_doubt, prefix_beside
            ),
            from_base=_grouped(inherited(record), outer) if record.base else {},
        )


def unrequested_changes(record: Record) -> set[str]:
    """Return the steps that this fork edits or runs again, and that no earlier kickoff of it has requested."""
    ended, base = record.outcomes, record.base
    edits = ((at, edit.seq) for at, edit in record.edited.items() if edit.seq > base)
    own = (at for at, seq in edits if at not in ended or ended[at].seq == seq)
    return {at for at in own if not record.is_inside(at)}  # else it is never requested


def _grouped(addresses: Iterable[str], key: Callable[[str], str]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for address in filter(None, addresses):
        found.setdefault(key(address), set()).add(address)
    return {of: frozenset(grouped) for of, grouped in found.items()}
