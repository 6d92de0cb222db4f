"""Why an address names no recorded step: it is misspelt, or a prune has removed the steps inside a finished step.

A prune keeps the events of a run, so they tell which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from crewlite.errors import RefError, did_you_mean, meant, nearest
from crewlite.state.format.addresses import bare_name, leaf, outer, outers, pruned_around
from crewlite.state.format.record import Record


def no_step(address: str, problem: str, record: Record, candidates: Sequence[str] | None = None) -> RefError:
    """Build the error for an address that names none of the steps that are wanted.

    `candidates`: what may be named instead; None for any finished step.
    """
    finished, begun = record.outcomes, {event.address for event in record.events}
    others = [at for at in finished if at] if candidates is None else candidates
    known = {*others, *(begun - finished.keys())} - {""}
    around = pruned_around(address, finished, begun)
    if address not in begun and (alike := spelt_alike(address, known)):
        meant_here = [at for at in alike if at in others] or [at for at in others if alike[0] in outers(at)]
        return RefError(address, f"{problem}; {did_you_mean([*meant_here, *alike][0])}", [*meant_here, *others])
    if around:
        why = ": it was edited" if finished[around].edited else "; a prune drops the rest"
        return RefError(address, f"is inside {around}, of which only the outcome is recorded{why}")
    return RefError(address, problem, others)


def spelt_alike(address: str, known: Iterable[str]) -> list[str]:
    """Return the known addresses that are spelt like this one, the most similar first.

    The names in them are compared one by one, without what all addresses share, such as `task:`.
    """
    is_alike = cache(lambda name, known: name == known or bool(meant(name, [known])))  # few names, many addresses
    alike = nearest(address, [at for at in known if _is_alike(address, at, is_alike)])
    return sorted(alike, key=lambda at: (bare_name(at) != bare_name(address), leaf(address) not in at))


def _is_alike(address: str, known: str, is_alike: Callable[[str, str], bool]) -> bool:
    """Return whether two addresses are spelt alike. `tool:search` is like every address that ends so."""
    if "/" not in address and bare_name(address) == bare_name(known):
        return True
    while address and known and is_alike(bare_name(address), bare_name(known)):
        address, known = outer(address), outer(known)
    return not address and not known
