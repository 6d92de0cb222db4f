"""Refs, the texts that name a run, a branch or a checkpoint; the rule for names of runs and branches; what to rerun.

./.checkpoints/20261121T101500123456_018f...c0ffee42.json      a checkpoint file
./.checkpoints        ./.checkpoints.db                       a location: the newest run of the definition
./.checkpoints.db#c0ffee42                                    a checkpoint in a database
[run/]branch[@task:write | @label:x | @id][~n]   latest   id  within a known location
[run/]branch@abandoned:1                                      the end of what the first rewind has abandoned
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from crewlite.errors import ConfigError, RefError

STUDIES = "explore/"
"""The prefix of the names of branches that hold the variants of studies."""
_MANY = 1024  # runs that commit side by side
_PART = r"(?!(?:\.|latest)(?:/|\Z))(?:(?!\.\.)[A-Za-z0-9._-]){1,100}"
_NAME, _NAMES = re.compile(rf"(?!-){_PART}"), re.compile(rf"(?!-){_PART}(?:/{_PART})*")
_REF = re.compile(r"(?P<path>[^@~]*)(?:@(?P<at>[^~]+))?(?:~(?P<back>\d{1,9}))?")


def as_run_id(run_id: object, kind: str = "run_id") -> str:
    """Return the run_id of a kickoff as text, with a UUID converted. Raises ConfigError if no run may be so named.

    `kind`: what the error calls it.
    """
    return check_name(kind, _text_of(run_id), taken="main")


def as_operation_id(operation_id: object) -> str:
    """Return the operation_id of a call as text, with a UUID converted. Raises ConfigError for '' and what is no text.

    Any other text will do: it is recorded as a digest only.
    """
    if isinstance(text := _text_of(operation_id), str) and text:
        return text
    raise ConfigError(
        f"operation_id is {operation_id!r}; wanted a text or UUID that is the same whenever this call is repeated"
    )


def _text_of(given: object) -> object:
    """Return a UUID as text, as clients send it, and anything else unchanged."""
    return str(given) if isinstance(given, UUID) else given


def check_name(kind: str, name: object, *, slashes: bool = False, taken: str = "") -> str:
    """Return `name` if it may name a run or, with `slashes`, a branch. Raises ConfigError, naming `kind`, otherwise.

    `taken`: a name that is refused as well, as a ref means something else by it.
    """
    if not isinstance(name, str):
        hint = f", such as {kind}='{name}'" if isinstance(name, int) else ""
        raise ConfigError(f"{kind} is {name!r}, which is {type(name).__name__}; wanted a text{hint}")
    if name == taken or not (_NAMES if slashes else _NAME).fullmatch(name):
        others = f"'.', 'latest' or {taken!r}" if taken else "'.' or 'latest'"
        raise ConfigError(
            f"{kind} {name!r} is not a usable name. Wanted: 1 to 100 of A-Z a-z 0-9 . _ -"
            f"{' (parts joined by /)' if slashes else ''}, not starting with '-', no '..', and not {others}, "
            f"which mean something else."
        )
    return name


@lru_cache(_MANY)  # each commit asks
def check_names(run_id: str, branch: str) -> None:
    """Raise ConfigError if a run or a branch may not be so named."""
    check_name("run_id", run_id)
    check_name("branch", branch, slashes=True)


class Ref(NamedTuple):
    """A parsed ref within a location.

    `path` is `run`, `run/branch`, a branch, a checkpoint id or a part of one, or `latest`. `at` is the part after @,
    and `back` the number after ~.
    """

    path: str
    at: str | None = None
    back: int = 0


def parse(text: str) -> Ref:
    """Parse a ref within a location. Raises RefError if it has another form."""
    match = _REF.fullmatch(text.strip())
    if not match or not (match["path"] or match["at"]):
        raise RefError(text, "is not a ref; wanted [run/]branch[@task:name | @label:x | @id][~n], an id, or latest")
    return Ref(match["path"] or "latest", match["at"], int(match["back"] or 0))


def to_rerun(rerun: object) -> dict[str, int]:
    """Return the addresses in `rerun` (None, one or several), each with the latest attempt that it names.

    That is 1, or the number after the address: `task:pay/tool:send!2`. Raises ConfigError for anything else.
    """
    if rerun is None:
        return {}
    found = (rerun,) if isinstance(rerun, str) else tuple(rerun) if isinstance(rerun, Iterable) else (rerun,)
    if not all(isinstance(at, str) and at.strip() for at in found):
        raise ConfigError(f"rerun is {rerun!r}; wanted a list of addresses, such as ['task:pay/tool:send']")
    attempts = dict[str, int]()
    for named in found:
        part = re.fullmatch(r"(.+)!([1-9]\d{0,8})", named, re.DOTALL) or (named, named, "1")
        attempts[part[1]] = max(int(part[2]), attempts.get(part[1], 1))
    return attempts
