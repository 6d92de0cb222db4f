"""The values beside a run: a small bag of names, which a program changes and commits record.

A commit holds only what has changed since the one before, so values cost what their changes do. A value is decoded when
it is first asked for; from then on every commit looks at it, as whoever was given it may have changed its inside. What
nobody asks for is never looked at.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from crewlite.codec import IMMUTABLE, Json, declare, decode, digest, encode
from crewlite.errors import ConfigError, NotCodable
from crewlite.forked import rlock
from crewlite.secrets import MASK, Secrets
from crewlite.state.format.commit import Commit, ValueChanges
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.usage import Usage

log = logging.getLogger("crewlite.state")
_NOTHING = object()
_TRIES = 5


class Values(MutableMapping[str, Any]):
    """The values as they are now: those of the record, and what was done to them since. Any thread may use them."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._lent: dict[str, Any] = {}
        """What was set, or asked for."""
        self._read: dict[str, tuple[Json, str | None]] = {}
        """Those that came out of a record and may still be as they were: each as recorded, and the digest of what this
        program makes of that, once it was looked at."""
        self._gone: set[str] = set()
        self._known: dict[str, tuple[Json, str, object]] = {}
        """Recorded values that were looked at: each as recorded, its digest, and what it is now if that cannot change
        inside."""
        self._paid = Usage()
        self._lock = rlock()

    def __getitem__(self, key: str) -> Any:
        with self._lock:
            if key not in self._lent:
                if key in self._gone:
                    raise KeyError(key)
                self._lend(key, self._record.values[key])
            return self._lent[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if type(key) is not str or not isinstance(encode(key), str):
            raise ConfigError(f"{key!r} is no name for a value; wanted a text, such as state['progress']")
        declare(type(value))
        with self._lock:
            self._lent[key] = value
            self._read.pop(key, None)
            self._gone.discard(key)

    def __delitem__(self, key: str) -> None:
        with self._lock:
            if key not in self:
                raise KeyError(key)
            self._lent.pop(key, None)
            self._read.pop(key, None)
            self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._lent or (key in self._record.values and key not in self._gone)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            recorded = self._record.values
            return iter([*(k for k in recorded if k not in self._gone), *(k for k in self._lent if k not in recorded)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def pay(self, usage: Usage) -> None:
        """Let usage be recorded with the next commit."""
        with self._lock:
            self._paid = self._paid + usage

    @property
    def paid(self) -> Usage:
        """Usage that no commit has recorded yet."""
        return self._paid

    def add_to(self, commit: Commit, secrets: Secrets, *, strict: bool) -> NotCodable | None:
        """Add what has changed, and was paid, to what a commit says, unless that says itself what has changed.

        The first value that cannot be recorded, which stays as it was; if `strict`, that is raised.
        """
        refused: list[NotCodable] = []
        changed = commit.pop("values", None)
        if changed is None:
            changed = self.changes(secrets, None if strict else refused)
        with self._lock:
            paid, self._paid = self._paid.to_record(), Usage()
        commit |= {"values": changed} if changed else {}
        commit |= {"usage": paid} if paid else {}
        return refused[0] if refused else None

    def changes(self, secrets: Secrets, refused: list[NotCodable] | None = None) -> ValueChanges:
        """What a commit has to say of the values; {} if nothing has changed.

        Raises NotCodable for a value that cannot be recorded; or leaves it as it was, where there is a list to tell of
        it.
        """
        with self._lock:
            recorded, versions = self._record.values, self._record.versions
            new: dict[str, Json] = {}
            for key, value in self._lent.items():
                try:
                    coded = self._changed(key, value, secrets)
                except NotCodable as error:
                    if refused is None:
                        raise
                    refused.append(error)
                    continue
                if coded is not _NOTHING:
                    new[key] = coded
            gone = [key for key in recorded if key in self._gone]
            if not new and not gone:
                return {}
            facts: ValueChanges = {"versions": {key: versions.get(key, 0) + 1 for key in (*new, *gone)}}
            return facts | ({"set": new} if new else {}) | ({"gone": gone} if gone else {})

    def coded(self) -> dict[str, Json]:
        """All of them, as `put_back` takes them. Raises NotCodable."""
        with self._lock:
            kept = {key: coded for key, coded in self._record.values.items() if key not in self._gone}
            return kept | {key: self._coded(key, value) for key, value in self._lent.items()}

    def put_back(self, coded: Mapping[str, Json]) -> None:
        """Make these the values, and nothing else. Whatever was handed out before is no part of them any more."""
        with self._lock:
            recorded = self._record.values
            self._gone = {key for key in recorded if key not in coded}
            self._lent, self._read = {}, {}
            for key, value in coded.items():
                if key not in recorded or digest(value) != self._digest(key):
                    self._lend(key, value)

    def _lend(self, key: str, coded: Json) -> None:
        self._lent[key] = decode(coded)
        self._read[key] = coded, None

    def _coded(self, key: str, value: Any) -> Json:
        """The value coded. One that was read, and is as it was, keeps its form, though its class is not known here."""
        coded = _encoded(key, value)
        if key not in self._read:
            return coded
        source, as_read = self._read[key]
        if coded == source:
            return coded
        as_read = as_read or digest(_encoded(key, decode(source)))
        if digest(coded) == as_read:
            self._read[key] = source, as_read
            return source
        del self._read[key]
        return coded

    def _changed(self, key: str, value: Any, secrets: Secrets) -> Json:
        """The value as it is to be recorded; nothing if that is how it is recorded already."""
        recorded = self._record.values.get(key, _NOTHING)
        known = self._known.get(key)
        if known and known[0] is recorded and known[2] is value:
            return _NOTHING
        if secrets.mask(key) != key:
            raise NotCodable(_path(MASK), key, "a name that holds a configured secret")
        plain = self._coded(key, value)
        coded = secrets.mask_data(plain)
        total, fixed = digest(coded), value if type(value) in IMMUTABLE else _NOTHING
        if recorded is not _NOTHING and total == self._digest(key):
            self._known[key] = recorded, total, fixed
            return _NOTHING
        if coded != plain:
            log.warning("%s held a configured secret, which was masked", _path(key))
        self._known[key] = coded, total, fixed  # counts once this very object is what is recorded
        return coded

    def _digest(self, key: str) -> str:
        """Of the value as it is recorded."""
        recorded = self._record.values[key]
        known = self._known.get(key)
        if known is None or known[0] is not recorded:
            known = self._known[key] = recorded, digest(recorded), _NOTHING
        return known[1]


def merged_changes(part: Sequence[Entry], before: str | None, live: Record) -> ValueChanges:
    """What the one commit that stands for several says of values; `before` was restored then, `live` is their end."""
    said = [entry.commit["values"] for entry in part if "values" in entry.commit]
    names = {name: None for changed in said for name in changed.get("versions", ())}
    new = {name: live.values[name] for name in names if name in live.values}
    facts: ValueChanges = {"versions": {name: live.versions[name] for name in names}} if names else {}
    facts |= {"set": new} if new else {}
    facts |= {"gone": gone} if (gone := [name for name in names if name not in new]) else {}
    return facts | ({"restored": live.restored} if live.restored != before else {})


def _encoded(key: str, value: Any) -> Json:
    """The value coded. Raises NotCodable, also for one that another thread never leaves alone."""
    for _ in range(_TRIES):
        with contextlib.suppress(RuntimeError):  # "dictionary changed size during iteration"
            return encode(value, _path(key))
    raise NotCodable(_path(key), value, "another thread changes it all the time")


def _path(key: str) -> str:
    return f"state[{key!r}]"
