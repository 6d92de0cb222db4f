"""One commit, as it is stored: canonical JSON, sealed by a checksum chained to the commit before.

A line of a journal is `{"sum":"<32 hex>",` followed by the body without its opening brace, so a line is JSON that
anybody can read, and the exact bytes that were summed can be cut out of it again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any, Never

from crewlite.codec import JsonObject, dumps
from crewlite.errors import SchemaTooNew
from crewlite.ids import now
from crewlite.state.format.commit import Commit, CommitParts, check_checkpoint, read_commit

SCHEMA = 1
STATE = "state"
"""The kind of a run that is nothing but values, which nobody kicks off."""
_HEAD = b'{"sum":"'
_BODY = len(_HEAD) + 32 + 2  # after the sum, its quote and a comma
_SUM = re.compile("[0-9a-f]{32}")
_DEEPEST = 350  # levels of JSON: the codec writes at most 300, and all who walk them must stay within Python's stack


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit: `commit` is what it says, `body` its exact bytes, `seal` the checksum over it and all before."""

    seq: int
    seal: str
    body: bytes
    commit: Commit

    @property
    def facts(self) -> Commit:
        """The old name of `commit`, deprecated."""
        return self.commit

    @property
    def sum(self) -> str:
        """What the next commit is chained to: the seal; where commits were compacted into one, that of their last."""
        compacted = self.commit.get("folded")
        return compacted["sum"] if compacted else self.seal

    @property
    def first(self) -> int:
        """Its seq; where commits were compacted into one, that of their first."""
        compacted = self.commit.get("folded")
        return compacted["first"] if compacted else self.seq

    @property
    def line(self) -> bytes:
        """The commit as a line of a journal file, without its newline."""
        return b'%b%b",%b' % (_HEAD, self.seal.encode(), self.body[1:])


class Unsound(Exception):
    """Bytes or a commit that are no valid next entry. Not for users: readers turn it into JournalCorrupt."""


def next_entry(parts: CommitParts, *, after: tuple[int, str], at: str | None = None) -> Entry:
    """The entry that says this, after one of that seq and sum; of now, unless told when.

    Raises Unsound if it names a checkpoint of another commit: nobody could read it back.
    """
    seq, total = after
    return seal({"schema": SCHEMA, "seq": seq + 1, "at": at or now().isoformat(), **parts}, after=total)


def seal(commit: Commit, *, after: str) -> Entry:
    """Make the entry that follows the one whose sum is `after` ("" for the first). Raises Unsound as `next_entry`."""
    if checkpoint := commit.get("place"):
        try:
            check_checkpoint(checkpoint, commit["seq"])
        except ValueError as misfit:
            raise Unsound(f"this cannot be sealed: {misfit}") from None
    body = dumps(commit)
    return Entry(commit["seq"], _sum(after, body), body, commit)


def unseal(body: bytes, total: str, *, after: str | None, where: str) -> Entry:
    """Read an entry back. Raises Unsound if it is not what was sealed, SchemaTooNew if a later crewlite wrote it.

    The first entry of a fork is chained to its base: `after=None` takes that from the entry itself.
    """
    if not isinstance(body, bytes) or not isinstance(total, str):
        raise Unsound("its bytes are gone")  # a database holds what it was given
    data = None
    if after is None:
        data = parse(body)
        after = _base(data)
    if _sum(after, body) != total:
        raise Unsound("the checksum does not fit")
    data = parse(body) if data is None else data
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise SchemaTooNew(where, schema, SCHEMA)
    try:
        commit = read_commit(data)
    except ValueError as misfit:
        raise Unsound(f"no crewlite wrote this: {misfit}") from None
    return Entry(commit["seq"], total, body, commit)


def without_checkpoint(body: object, total: object, *, after: str | None) -> Entry | None:
    """An entry that is unsound only because of the checkpoint it names, mended: it drops that checkpoint instead.

    None for any other. It keeps its sum, so what is chained to it stays so.
    """
    if not isinstance(body, bytes) or not isinstance(total, str):
        return None
    data = parse(body)
    before = _base(data) if after is None else after
    checkpoint = data.pop("place", None)
    if _sum(before, body) != total or not isinstance(checkpoint, dict) or data.get("schema") != SCHEMA:
        return None
    try:
        read_commit(data)
        data["drops"] = [*data.get("drops", ()), [checkpoint.get("id"), checkpoint.get("parent")]]
        data["folded"] = {"first": data["seq"], "sum": total} | data.get("folded", {})
        return seal(read_commit(data), after=before)
    except ValueError:
        return None


def unseal_line(line: bytes, *, after: str | None, where: str) -> Entry:
    """Read a line of a journal file back, without its newline."""
    if not line.startswith(_HEAD) or len(line) < _BODY + 2 or line[_BODY - 2 : _BODY] != b'",':
        raise Unsound("this is not a line of a journal")
    return unseal(*parts(line), after=after, where=where)


def parts(line: bytes) -> tuple[bytes, str]:
    """The body and the seal in a line of a journal, unchecked."""
    return b"{" + line[_BODY:], line[len(_HEAD) : len(_HEAD) + 32].decode("ascii", "replace")


def parse(text: bytes) -> JsonObject:
    """The JSON object that bytes are. Raises Unsound for anything else, and for what JSON has no word for."""
    try:
        data = _JSON.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise Unsound(f"this is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise Unsound("this is no JSON object")
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _is_deep(data):
        raise Unsound("this is nested too deeply")
    return data


def chained(data: JsonObject, total: str) -> str:
    """What follows an entry with this data and this seal is chained to; "" if it says nothing sound of that."""
    compacted = data.get("folded")
    found = compacted.get("sum") if isinstance(compacted, dict) else total
    return found if isinstance(found, str) and _SUM.fullmatch(found) else ""


def _base(data: JsonObject) -> str:
    """What the first entry of a branch says it is chained to; "" if nothing, or nothing sound, as then no sum fits."""
    run = data.get("run")
    base = run.get("base") if isinstance(run, dict) else None
    found = base.get("sum") if isinstance(base, dict) else None
    return found if isinstance(found, str) and _SUM.fullmatch(found) else ""


def _is_deep(data: Any) -> bool:
    level = [data]
    for _ in range(_DEEPEST):
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each)
            if type(item) is dict or type(item) is list  # quicker than isinstance, for each value
        ]
        if not level:
            return False
    return True


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _no_constant(text: str) -> Never:
    raise ValueError(f"{text} is no number")


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def _sum(after: str, body: bytes) -> str:
    return hashlib.blake2b(body, key=after.encode(), digest_size=16).hexdigest()
