"""Damage, made by chance but repeatable: what disks, people and attackers do to a store.

`damage` knows nothing of checksums; `forged` seals again what it has changed, as somebody would who can read the source.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

VALUES = (
    *(
        b"null",
        b"true",
        b"false",
        b"0",
        b"-1",
        b"1",
        b"2",
        b"1.5",
        b"1e3",
        b"NaN",
        b"Infinity",
        b"1e999",
        b'""',
        b'"x"',
    ),
    *(b"[]", b"{}", b"[[]]", b'{"x":1}', b"9" * 300, b"9" * 5000, b'"\\ud800"', b'"../../../etc/passwd"', b'"a/../b"'),
    *(b"[" * 40 + b"]" * 40, b"[" * 900 + b"]" * 900, b'{"a":' * 400 + b"1" + b"}" * 400, b"[" * 20000 + b"]" * 20000),
    *(b'"2026-13-45T00:00:00+00:00"', b'"2026-01-01"', b'"0001-01-01T00:00:00+23:59"', b'"' + b"f" * 32 + b'"'),
    *(b'{"$":"of","v":"nowhere"}', b'{"$":"of"}', b'{"$":"of","v":[]}', b'{"$":"of","v":"task:t0"}'),
    *(b'{"$":"datetime","v":5}', b'{"$":"datetime","v":"soon"}', b'{"$":"tuple","v":3}', b'{"$":"dict","v":[[1]]}'),
    *(b'{"$":"decimal","v":"ten"}', b'{"$":"bytes","v":"?"}', b'{"$":"set","v":{}}', b'{"$":"nothing","v":1}'),
    *(
        b'{"$":[],"v":1}',
        b'{"$":null}',
        b'{"$":"float","v":[]}',
        b'{"$":"int","v":"zz"}',
        b'{"$":"timedelta","v":[1e300]}',
    ),
    *(b'{"$":"zoned datetime","v":["2026-01-01T00:00:00","os/path",0]}', b'{"$":"path","v":7}', b'{"$":"str","v":[1]}'),
    *(b'{"$":"model","c":"os:system","v":{"command":"true"}}', b'{"$":"enum","c":"subprocess:Popen","v":["true"]}'),
    *(
        b'{"$":"dataclass","c":"this:Thing","v":{"__class__":1}}',
        b'{"$":"model","c":[],"v":1}',
        b'{"lc":1,"type":"secret"}',
    ),
)
MARKERS = tuple(value for value in VALUES if value.startswith(b'{"$":'))
SCHEMAS = (b"0", b"2", b"99", b"-1", b'"1"', b"true", b"null", b"1.0", b"9" * 40)
_VALUE = re.compile(rb'(?<=[:\[,])(?:-?\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"(?!:)|null|true|false)(?=[,}\]])')
_RECORDED = re.compile(rb'("(?:text|raw|topic|agent)":)"(?:[^"\\]|\\.)*"')
_KEY = re.compile(rb'"(\w+)":')
_MEMBER = re.compile(
    rb'(?:(?<=\{)"\w+":(?:\d+|"[^"\\]*"|null|true|false),|,"\w+":(?:\d+|"[^"\\]*"|null|true|false)(?=[,}]))'
)
Rows = list[tuple[str, bytes]]


def bent(chance: Random, data: bytes) -> bytes:
    """Bytes cut, flipped, overwritten, doubled or mixed up."""
    at, to = sorted((chance.randrange(len(data) + 1), min(len(data), chance.randrange(len(data) + 1))))
    one = min(at, len(data) - 1)
    return chance.choice(
        [
            lambda: data[:at],
            lambda: data[at:],
            lambda: data[:at] + data[to:],
            lambda: data[:at] + data[at : at + 40] + data[at:],
            lambda: data[:one] + bytes([data[one] ^ (1 << chance.randrange(8))]) + data[one + 1 :],
            lambda: data[:one] + bytes([chance.randrange(256)]) + data[one + 1 :],
            lambda: data[:one] + b"\0" + data[one + 1 :],
            lambda: data[:at] + chance.randbytes(chance.randrange(1, 60)) + data[at + 30 :],
            lambda: data[:at] + b"\0" * min(600, len(data) - at) + data[at + 600 :],
        ]
    )()


def retyped(chance: Random, body: bytes) -> bytes:
    """A commit that is still JSON, mostly, but says something else."""

    def instead(pattern: re.Pattern[bytes], make: Callable[[re.Match[bytes]], bytes]) -> bytes:
        found = list(pattern.finditer(body))
        if not found:
            return body
        match = chance.choice(found)
        return body[: match.start()] + make(match) + body[match.end() :]

    other = list(_VALUE.finditer(body))
    return chance.choice(
        [
            *[lambda: instead(_VALUE, lambda _: chance.choice(VALUES))] * 6,
            lambda: instead(_VALUE, lambda _: chance.choice(other)[0]),
            *[lambda: instead(_RECORDED, lambda key: key[1] + chance.choice(MARKERS))] * 2,
            lambda: instead(_KEY, lambda key: b'"x%b":' % key[1]),
            lambda: instead(_KEY, lambda key: b'"unknown":%b,%b' % (chance.choice(VALUES), key[0])),
            lambda: instead(_MEMBER, lambda _: b""),
            lambda: re.sub(rb'(?<="schema":)\d+', chance.choice(SCHEMAS), body),
            lambda: re.sub(rb'(?<="seq":)\d+', b"%d" % chance.randrange(20), body),
        ]
    )()


def forged(chance: Random, journals: dict[str, Rows]) -> tuple[dict[str, Rows], str]:
    """Journals of a run with one commit changed, dropped, doubled or moved, and every seal as it must be."""
    branch = chance.choice(list(journals))
    bodies = [body for _, body in journals[branch]]
    at = chance.randrange(len(bodies))
    how = chance.randrange(10)
    if how < 7:
        bodies[at] = retyped(chance, bodies[at])
    elif how == 7:
        del bodies[at]
    elif how == 8:
        bodies.insert(at, bodies[at])
    else:
        other = chance.randrange(len(bodies))
        bodies[at], bodies[other] = bodies[other], bodies[at]
    made = {name: [body for _, body in rows] for name, rows in journals.items()} | {branch: bodies}
    return _sealed(made, journals), f"forged {branch}, commit {at + 1}"


def _sealed(made: dict[str, list[bytes]], before: dict[str, Rows]) -> dict[str, Rows]:
    sums: dict[bytes, bytes] = {}
    found: dict[str, Rows] = {}
    for branch, bodies in made.items():
        found[branch], after = [], ""
        for number, body in enumerate(bodies):
            for old, new in sums.items():
                body = body.replace(old, new)
            said = _loosely(body)
            if number == 0:
                after = _at(said, "run", "base", "sum") or ""
            seal = hashlib.blake2b(body, key=after.encode("utf-8", "replace")[:64], digest_size=16).hexdigest()
            found[branch].append((seal, body))
            after = summed(seal, body)
            if number < len(before[branch]) and before[branch][number][0] != seal:
                sums[before[branch][number][0].encode()] = seal.encode()
    return found


def summed(seal: str, body: bytes) -> str:
    """What follows a commit is chained to."""
    return _at(_loosely(body), "folded", "sum") or seal


def _loosely(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _at(said: object, *path: str) -> str | None:
    for key in path:
        said = said.get(key) if isinstance(said, dict) else None
    return said if isinstance(said, str) else None


def damage_files(chance: Random, root: Path, strange: list[bytes]) -> str:
    """Something happens to the files of a JSON location."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size and path.name[0] != ".")
    journals = [path for path in files if path.suffix == ".jsonl"]
    path = chance.choice(journals if chance.random() < 0.7 else files)
    lines, how = path.read_bytes().splitlines(keepends=True), chance.randrange(20)
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    if how < 10:
        path.write_bytes(bent(chance, path.read_bytes()))
        return f"bent {path.name}"
    if how < 15:
        changed = chance.choice(
            [
                [*lines[:one], *lines[one + 1 :]],
                [*lines[:one], lines[one], *lines[one:]],
                [*lines[:one], chance.choice(strange), *lines[one:]],
                [*lines[:one], chance.choice(strange), *lines[one + 1 :]],
                [lines[two] if n == one else lines[one] if n == two else line for n, line in enumerate(lines)],
                [*lines[:one], retyped(chance, lines[one]), *lines[one + 1 :]],
            ]
        )
        path.write_bytes(b"".join(changed))
        return f"lines of {path.name}"
    other = chance.choice(files)
    acts: list[tuple[str, Callable[[], object]]] = [
        ("removed", path.unlink),
        ("renamed", lambda: path.rename(path.with_name(f"x{path.name}"))),
        ("empty", lambda: path.write_bytes(b"")),
        ("swapped", lambda: _swap(path, other)),
        ("copied over", lambda: shutil.copyfile(path, other) if path != other else None),
        ("a directory", lambda: (path.unlink(), path.mkdir())),
        ("a link to what is not", lambda: (path.unlink(), path.symlink_to("/nowhere/at/all"))),
        ("a link to another", lambda: (path.unlink(), path.symlink_to(other)) if path != other else None),
        ("a link to itself", lambda: (path.unlink(), path.symlink_to(path))),
        ("a file for its directory", lambda: (shutil.rmtree(path.parent), path.parent.write_bytes(b"x"))),
        ("copied beside", lambda: shutil.copyfile(path, path.with_name(f"y{path.name}"))),
    ]
    name, act = chance.choice(acts)
    act()
    return f"{name}: {path.name}"


def _swap(one: Path, two: Path) -> None:
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


_COLUMNS = {
    "branch": ("id", "run_id", "name", "uid", "seq", "head", "touched"),
    "entry": ("branch_id", "seq", "sum", "body"),
    "place": ("id", "branch_id", "seq", "parent_id", "trigger", "address", "label", "created_at", "sum"),
}
_CELLS = (None, "", "x", 0, -1, 7, 1.5, b"", b"\xff\xfe", 2**62, "\u00e9\0", "../..", "f" * 32)


def damage_database(chance: Random, path: Path) -> str:
    """Something happens to the rows of a database, or to the file."""
    how = chance.randrange(20)
    if how < 4:
        return damage_pages(chance, path)
    if how == 4:
        data = path.read_bytes()
        path.write_bytes(data[: chance.randrange(len(data))])
        return "cut"
    if how == 5:
        path.write_bytes(bent(chance, path.read_bytes()))
        return "bent"
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return _damage_rows(chance, db, how)
    except sqlite3.Error as refused:
        return f"refused: {refused}"
    finally:
        db.close()


def _damage_rows(chance: Random, db: sqlite3.Connection, how: int) -> str:
    table = chance.choice(list(_COLUMNS))
    column, value = chance.choice(_COLUMNS[table]), chance.choice(_CELLS)
    rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")] or [1]
    row, other = chance.choice(rows), chance.choice(rows)
    if how < 12:
        db.execute(f"UPDATE {table} SET {column}=? WHERE rowid=?", (value, row))
        return f"{table}.{column} = {value!r}"
    if how < 14:
        db.execute(
            f"UPDATE {table} SET {column}=(SELECT {column} FROM {table} WHERE rowid=?) WHERE rowid=?", (other, row)
        )
        return f"{table}.{column} of another row"
    if how == 14:
        db.execute(
            f"UPDATE {table} SET {column}=CAST({column} AS {chance.choice(('TEXT', 'BLOB', 'INT'))}) WHERE rowid=?",
            (row,),
        )
        return f"{table}.{column} of another type"
    if how == 15:
        db.execute(f"DELETE FROM {table} WHERE rowid=?", (row,))
        return f"a row of {table} is gone"
    if how == 16:
        version = chance.choice((0, -1, 2, 77, 2**31 - 1))
        db.execute(f"PRAGMA user_version={version}")
        return f"user_version {version}"
    if how == 17:
        db.execute(chance.choice((f"DROP TABLE {table}", f"ALTER TABLE {table} RENAME TO other")))
        return f"no table {table}"
    if how == 18:
        db.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
        return f"no column {table}.{column}"
    (body,) = db.execute("SELECT body FROM entry WHERE rowid=?", (row if table == "entry" else 1,)).fetchone() or (
        b"{}",
    )
    db.execute("UPDATE entry SET body=? WHERE rowid=?", (retyped(chance, body or b"{}"), row))
    return "a body was retyped"


def damage_pages(chance: Random, path: Path) -> str:
    """Bytes of one page are flipped or overwritten."""
    data = bytearray(path.read_bytes())
    page = chance.randrange(len(data) // 4096) * 4096
    where = []
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = page + (chance.randrange(110) if chance.random() < 0.3 else chance.randrange(4096))
        data[at] ^= 1 << chance.randrange(8)
        where.append(at)
    if chance.random() < 0.1:
        data[page : page + 4096] = chance.choice((b"\0" * 4096, b"\xa5" * 4096))
    path.write_bytes(data)
    return f"page {page // 4096}, bytes {where}"
