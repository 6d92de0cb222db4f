"""What the address of a step tells of it: `task:write!2/tool:search` is part of `task:write`, in its second try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crewlite import kinds

_TRY = re.compile(r"!(\d+)$")


def outer(address: str) -> str:
    """The step that a step is part of; "" for the run itself."""
    return _TRY.sub("", address.rpartition("/")[0])


def outers(address: str) -> Iterator[str]:
    """The steps that a step is part of, from the inside out, without the run itself."""
    while address := outer(address):
        yield address


def around(addresses: Iterable[str]) -> set[str]:
    """The steps that any of these are part of."""
    return {at for address in addresses for at in outers(address)}


def try_of(address: str) -> int:
    """The number of the try, of the step around it, that a step belongs to."""
    found = _TRY.search(address.rpartition("/")[0])
    return int(found[1]) if found else 1


def leaf(address: str) -> str:
    """An address without what is around it: `tool:search`."""
    return address.rpartition("/")[2]


def is_in_a_task_or_call(address: str) -> bool:
    """Whether a step is inside a task or a tool call, as the steps of a crew are that a tool kicks off."""
    return any(kind.is_task or kind.is_call for kind in map(kinds.at, outers(address)))


def can_be_name(text: str) -> bool:
    """Whether an address can hold this as the name of a step: / # ! mean something in it."""
    return bool(text) and not any(mark in text for mark in "/#!")


def is_right_below(address: str, prefix: str) -> bool:
    """Whether the addresses of a step's own steps begin with `prefix`, and this is one of them."""
    return bool(address) and address.startswith(prefix) and "/" not in address[len(prefix) :]


def is_question(address: str) -> bool:
    """Whether a step is a question to a person, which may be answered before it is asked."""
    return kinds.at(address).asks_person
