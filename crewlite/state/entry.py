"""One commit, as it is stored: canonical JSON, sealed by a checksum chained to the commit before.

A line of a journal is `{"sum":"<32 hex>",` followed by the body without its opening brace, so a line is JSON that
anybody can read, and the exact bytes that were summed can be cut out of it again.

What a commit may say (every key but the first three may be missing):

    schema, seq, at      the format, the place in the order, the time
    run                  begins a branch: run_id, branch, uid, identity, definition, and inputs or, for a fork, base
    claim, released      who writes from here on, or that nobody does any more
    definition, inputs   as they stand from here on, where they changed
    steps                outcomes and failed attempts
    intents              calls about to be made
    events               what was heard, light
    place                names a checkpoint
    drops                checkpoints taken away, each with its parent
    folded, usage        this commit stands for several; what the work paid that is left out of it
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from crewlite.codec import dumps
from crewlite.errors import SchemaTooNew

SCHEMA = 1
_HEAD = b'{"sum":"'
_BODY = len(_HEAD) + 32 + 2  # after the sum, its quote and a comma

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit: `facts` is what it says, `body` its exact bytes, `seal` the checksum over it and all before."""

    seq: int
    seal: str
    body: bytes
    facts: Facts

    @property
    def sum(self) -> str:
        """What the next commit is chained to: the seal; where commits were folded into one, that of their last."""
        folded = self.facts.get("folded")
        return folded["sum"] if folded else self.seal

    @property
    def line(self) -> bytes:
        """The commit as a line of a journal file, without its newline."""
        return b'%b%b",%b' % (_HEAD, self.seal.encode(), self.body[1:])


class Unsound(Exception):
    """Bytes that are not the entry that ought to follow. Not for users: readers turn it into JournalCorrupt."""


def seal(facts: Facts, *, after: str) -> Entry:
    """Make the entry that follows the one whose sum is `after` ("" for the first)."""
    body = dumps(facts)
    return Entry(facts["seq"], _sum(after, body), body, facts)


def unseal(body: bytes, total: str, *, after: str | None, where: str) -> Entry:
    """Read an entry back. Raises Unsound if it is not what was sealed, SchemaTooNew if a later crewlite wrote it.

    The first entry of a fork is chained to its base: `after=None` takes that from the entry itself.
    """
    if _sum(_base(body) if after is None else after, body) != total:
        raise Unsound("the checksum does not fit")
    facts = json.loads(body)
    if facts["schema"] > SCHEMA:
        raise SchemaTooNew(where, facts["schema"], SCHEMA)
    return Entry(facts["seq"], total, body, facts)


def unseal_line(line: bytes, *, after: str | None, where: str) -> Entry:
    """Read a line of a journal file back, without its newline."""
    if not line.startswith(_HEAD) or len(line) < _BODY + 2 or line[_BODY - 2 : _BODY] != b'",':
        raise Unsound("this is not a line of a journal")
    total = line[len(_HEAD) : len(_HEAD) + 32]
    return unseal(b"{" + line[_BODY:], total.decode("ascii", "replace"), after=after, where=where)


def _base(body: bytes) -> str:
    """What the first entry of a branch says it is chained to."""
    try:
        base = json.loads(body)["run"].get("base")
        return base["sum"] if base else ""
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return ""  # then no checksum fits


def _sum(after: str, body: bytes) -> str:
    return hashlib.blake2b(body, key=after.encode(), digest_size=16).hexdigest()
