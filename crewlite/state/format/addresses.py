"""Addresses of steps: `task:write!2/tool:search` is inside the second attempt at `task:write`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from crewlite import kinds
from crewlite.kinds import Kind

BEGINNING = "step:initial_state"
"""The step that sets the state with which a flow of methods begins."""
_TRY = re.compile(r"!(\d+)$")
_TRIES = re.compile(r"^!\d+/|!\d+")
_NUMBERS = re.compile(r"#[0-9a-f]+(\.\d+)?(?=/|$)|(?<=\])\.\d+(?=/|$)")


def outer(address: str) -> str:
    """Return the address of the enclosing step, without the attempt; "" for the run itself."""
    around = address.rpartition("/")[0]
    return _TRY.sub("", around) if "!" in around else around


def without_tries(address: str) -> str:
    """Return an address without the numbers of attempts, including those of attempts at the run itself."""
    return _TRIES.sub("", address)


def without_numbers(address: str) -> str:
    """Return an address without the numbers of attempts and of requests: with kinds, names, causes and keys alone."""
    return _NUMBERS.sub("", without_tries(address))


def outers(address: str) -> list[str]:
    """Return the addresses of the enclosing steps, innermost first, without the run itself."""
    found: list[str] = []  # list[str]() takes as long as all else here
    while address := address.rpartition("/")[0]:
        address = _TRY.sub("", address) if "!" in address else address
        if address:  # else this was an attempt at the run itself
            found.append(address)
    return found


def around(addresses: Iterable[str]) -> set[str]:
    """Return the addresses of all steps that enclose any of these."""
    return {at for address in addresses for at in outers(address)}


def as_tree(addresses: Collection[str]) -> Iterator[str]:
    """Yield addresses, and those of all enclosing steps, as a tree: each before those inside it, siblings in order."""
    below: dict[str, list[str]] = {}
    seen = {""}
    for at in addresses:
        address = at
        while address not in seen:
            seen.add(address)
            below.setdefault(outer(address), []).append(address)
            address = outer(address)
    waiting = [""] if below or "" in addresses else []
    while waiting:
        yield (address := waiting.pop())
        waiting += reversed(below.get(address, []))


def pruned_around(address: str, known: Collection[str], begun: Iterable[str]) -> str:
    """Return the known step that encloses an address and has lost all child steps it had `begun`; "" for none."""
    around = next((at for at in outers(address) if at in known), "")
    inside = f"{around or address}/"
    known_inside = any(at.startswith(inside) for at in known)
    return around if not known_inside and any(at.startswith(inside) for at in begun) else ""


def subject(question: str) -> str:
    """Return what the question at this address is about: the address of a failed attempt to decide on, or its own."""
    decision = outer(question)
    return decision.rpartition("-")[0] if decision and kinds.at(decision) is kinds.DECISION else question


def last_about_each(questions: Iterable[str]) -> Collection[str]:
    """Return the last question about each subject. `questions` are in the order in which they were asked."""
    return {subject(at): at for at in questions}.values()


def try_of(address: str) -> int:
    """Return the number of the attempt, at the enclosing step, in which this step runs."""
    found = _TRY.search(address.rpartition("/")[0])
    return int(found[1]) if found else 1


def leaf(address: str) -> str:
    """Return the last part of an address: `tool:search`."""
    return address.rpartition("/")[2]


def is_in_work_of_a_model(address: str) -> bool:
    """Return whether a step is inside what a model does or leads to, like one of a crew that a tool kicks off.

    That is a task, an agent, a turn of its conversation, a plan, a judgement, or a tool call.
    """
    return "/" in address and any(_is_work_of_a_model(kinds.at(around)) for around in outers(address))


def _is_work_of_a_model(kind: Kind) -> bool:
    return kind.worker == "model" or kind.is_call or kind.is_aside or kind is kinds.TURN


NAME_RULE = "wanted a name that is not blank, without / # and !, which separate the parts of a step's address"
"""What `can_be_name` asks for, in words."""


def can_be_name(name: object) -> bool:
    """Return whether this can be the name of a step in an address: a text, not blank, and without / # !"""
    return isinstance(name, str) and bool(name.strip()) and not any(mark in name for mark in "/#!")


def bare_name(address: str) -> str:
    """Return the name in the last part of an address, without its kind, cause and number: `draft`."""
    kind, _, name = leaf(address).partition(":")
    return re.split("[@#]", name or kind, maxsplit=1)[0]


def prefix_beside(address: str) -> str:
    """Return the prefix of the attempt that a step is in: that of its address and those of its siblings."""
    return address[: address.rfind("/") + 1]


def prefix_inside(address: str, attempt: int) -> str:
    """Return the prefix of an attempt at a step: that of the addresses of the steps inside it."""
    return f"{address}!{attempt}/" if attempt > 1 else f"{address}/" if address else ""


def prefix_around(prefix: str) -> str:
    """Return the prefix of the attempt that encloses the one named by `prefix`; "" for that of the run itself."""
    return prefix[: prefix.rfind("/", 0, -1) + 1]


def child_around(address: str, prefix: str) -> str:
    """Return the direct child of the attempt that `prefix` names which has this address, or encloses it."""
    return prefix + address[len(prefix) :].partition("/")[0].partition("!")[0]


def is_right_below(address: str, prefix: str) -> bool:
    """Return whether `address` is `prefix` and one more part: a direct child of the attempt that `prefix` names."""
    return bool(address) and address.startswith(prefix) and "/" not in address[len(prefix) :]


def is_question(address: str) -> bool:
    """Return whether the step at this address asks a person. Such a step may be answered before it is requested."""
    return kinds.at(address).asks_person
