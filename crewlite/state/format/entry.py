"""One commit as it is stored: canonical JSON, sealed by a checksum that is chained to the commit before.

A line of a journal is `{"sum":"<32 hex>",` followed by the body without its opening brace. So a line is plain JSON, and
the exact bytes of the body can be recovered from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import NamedTuple, Never

from pydantic_core import from_json

from crewlite.encoding.codec import Json, JsonObject, dumps
from crewlite.errors import SchemaTooNew
from crewlite.ids import now_text
from crewlite.state.format.commit import CommitData, CommitParts, check_checkpoint, read_commit

Head = tuple[int, str]
"""The head of a branch: the seq and the checksum of its last entry."""
SCHEMA = 1
STATE = "state"
"""The kind of a run that consists of values alone and is never kicked off: RuntimeState.open creates it."""
_HEAD = b'{"sum":"'
_BODY = len(_HEAD) + 32 + 2  # after the sum, its quote and a comma
_SUM = re.compile("[0-9a-f]{32}")
_START = re.compile(
    rb'{"schema":%d,"seq":1,"at":"#","run":{"run_id":"#","branch":"#","uid":"#","identity":"#","definition":'
    rb'{"kind":"#","name":"#"[,}]'.replace(b"#", rb'([^"\\]*)')
    % SCHEMA
)
"""The beginning of a run's first entry, if its names need no escapes. A listing needs only this part."""
_DEEPEST = 350  # levels of JSON: the codec writes at most 300, and recursive functions must stay within Python's stack
_SMALL_E, _LARGE_E = (re.compile(e + rb"[+\d]\d+[\s,}\]]").search for e in (b"e", b"E"))  # [eE] takes twice as long
_DIGITS = re.compile(rb"\d{7}").search
_QUOTED = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SQUARE, _NO_BRACKETS = bytes.maketrans(b"{}", b"[]"), bytes(set(range(256)) - set(b"[]{}"))


class Entry(NamedTuple):
    """A sealed commit: its number, the checksum over it and all entries before, its exact bytes, and its data."""

    seq: int
    seal: str
    sum: str
    """The checksum that the next entry is chained to: the seal.

    For a commit that replaces several in a compaction, it is the checksum of the last of those.
    """
    body: bytes
    commit: CommitData

    @classmethod
    def of(cls, commit: CommitData, seal: str, body: bytes) -> Entry:
        """Build the entry of a commit with this seal."""
        compacted = commit.get("folded")
        return cls(commit["seq"], seal, compacted["sum"] if compacted else seal, body, commit)

    @property
    def head(self) -> Head:
        """The head of a branch whose last entry this is."""
        return self.seq, self.sum

    @property
    def first(self) -> int:
        """The seq; for a commit that replaces several in a compaction, the seq of the first of them."""
        compacted = self.commit.get("folded")
        return compacted["first"] if compacted else self.seq

    @property
    def line(self) -> bytes:
        """The entry as a line of a journal file, without the newline."""
        return b'%b%b",%b' % (_HEAD, self.seal.encode(), self.body[1:])


class InvalidEntry(Exception):
    """Bytes or a commit are not a valid next entry of a journal. Internal: readers raise JournalCorrupt from it."""


def next_entry(parts: CommitParts, *, after: Head) -> Entry:
    """Seal an entry with these parts. `after`: the head of the branch before it.

    A checkpoint without a time gets that of the entry. Raises InvalidEntry for a checkpoint of another commit without
    that commit's checksum, as `read_commit` would.
    """
    commit: CommitData = {"schema": SCHEMA, "seq": after[0] + 1, "at": now_text(), **parts}
    if checkpoint := commit.get("place"):
        commit["place"] = {"at": commit["at"], **checkpoint}
    return seal(commit, after=after[1])


def seal(commit: CommitData, *, after: str) -> Entry:
    """Seal a commit. `after`: the checksum of the entry before, "" for the first. Raises what `next_entry` raises."""
    if checkpoint := commit.get("place"):
        try:
            check_checkpoint(checkpoint, commit["seq"])
        except ValueError as misfit:
            raise InvalidEntry(f"this commit cannot be sealed: {misfit}") from None
    body = dumps(commit)
    return Entry.of(commit, _sum(after, body), body)


def unsealed(commit: CommitData) -> Entry:
    """Return the entry of a run without a store. If the run gets a store later, its entries are sealed then."""
    return Entry.of(commit, "", b"")


def unseal(body: bytes, seal: str, *, after: str | None, where: str) -> Entry:
    """Read an entry with this seal that follows the entry with the checksum `after`.

    For the first entry of a branch pass `after=None`: its data tell which base it is chained to. Raises InvalidEntry if
    the entry is not what was sealed, SchemaTooNew, naming `where`, if a later crewlite wrote it.
    """
    if not isinstance(body, bytes) or not isinstance(seal, str):
        raise InvalidEntry("its bytes are missing")  # a column of a database may hold a value of any type
    data = None
    if after is None:
        data = parse(body)
        after = _base(data)
    if _sum(after, body) != seal:
        raise InvalidEntry("the checksum does not fit")
    data = parse(body) if data is None else data
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise SchemaTooNew(where, schema, SCHEMA)
    try:
        commit = read_commit(data)
    except ValueError as misfit:
        raise InvalidEntry(f"no crewlite wrote this: {misfit}") from None
    return Entry.of(commit, seal, body)


def start_of(body: object, seal: object) -> tuple[str, ...] | None:
    """Read the facts for a listing from the first entry of a run, verified, without parsing the definition and inputs.

    Returns (time, run_id, branch, uid, identity, kind, name); None for a fork, and for an entry of unusual form, which
    `unseal` can read.
    """
    found = _START.match(body) if isinstance(body, bytes) and isinstance(seal, str) else None
    if not found or b'"base":' in found.string or b'"folded":' in found.string or _sum("", found.string) != seal:
        return None
    try:
        return tuple(part.decode() for part in found.groups())
    except UnicodeDecodeError:
        return None


def unseal_line(line: bytes, *, after: str | None, where: str) -> Entry:
    """Read an entry from a line of a journal file, given without the newline. Raises like `unseal`."""
    return unseal(*parts_of_line(line), after=after, where=where)


def parts_of_line(line: bytes) -> tuple[bytes, str]:
    """Return (body, seal) of a line of a journal. Raises InvalidEntry if it is not one."""
    if not line.startswith(_HEAD) or len(line) < _BODY + 2 or line[_BODY - 2 : _BODY] != b'",':
        raise InvalidEntry("this is not a line of a journal")
    return unchecked_parts(line)


def unchecked_parts(line: bytes) -> tuple[bytes, str]:
    """Return (body, seal) of a line of a journal, unchecked."""
    return b"{" + line[_BODY:], line[len(_HEAD) : len(_HEAD) + 32].decode("ascii", "replace")


def parse(text: bytes) -> JsonObject:
    """Parse bytes as a JSON object. Raises InvalidEntry for anything else, for NaN, infinity and deep nesting."""
    try:
        if _may_overflow(text):
            raise ValueError
        data = from_json(text, allow_inf_nan=False, cache_strings="keys")  # three times as fast as json
    except ValueError:  # it is not JSON, or has lone surrogates or many levels, which this parser does not read
        data = _parse(text)
    if not isinstance(data, dict):
        raise InvalidEntry("this is not a JSON object")
    return data


def chained(data: JsonObject, seal: str) -> str:
    """Return `Entry.sum` for an entry with this unchecked data and this seal; "" if the data are malformed."""
    compacted = data.get("folded")
    found = compacted.get("sum") if isinstance(compacted, dict) else seal
    return found if isinstance(found, str) and _SUM.fullmatch(found) else ""


def _base(data: JsonObject) -> str:
    """Return the checksum of a fork's base, from the fork's first entry; "" if there is none, or it is malformed."""
    run = data.get("run")
    base = run.get("base") if isinstance(run, dict) else None
    found = base.get("sum") if isinstance(base, dict) else None
    return found if isinstance(found, str) and _SUM.fullmatch(found) else ""


def _may_overflow(text: bytes) -> bool:
    """Return whether JSON may hold a number beyond all floats: with an exponent, or with three hundred digits."""
    return bool(_SMALL_E(text) or (b"E" in text and _LARGE_E(text)) or _DIGITS(text[::40]))


def _parse(text: bytes) -> Json:
    try:
        data = _JSON.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"this is not JSON ({error})") from None
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _is_deep(text):
        raise InvalidEntry("this is nested too deeply")
    return data


def _is_deep(text: bytes) -> bool:
    brackets, levels = _QUOTED.sub(b"", text).translate(_SQUARE, _NO_BRACKETS), 0
    while brackets and levels < _DEEPEST:  # each round takes away the innermost level
        brackets, levels = brackets.replace(b"[]", b""), levels + 1
    return bool(brackets)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


def _no_constant(text: str) -> Never:
    raise ValueError(f"{text} is not a finite number")


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def _sum(after: str, body: bytes) -> str:
    return hashlib.blake2b(body, key=after.encode(), digest_size=16).hexdigest()
