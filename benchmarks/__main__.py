"""The table: measure, value, target, ok or over."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import traceback
from collections.abc import Iterator

from benchmarks import (
    bus,
    crew,
    durable,
    fanout,
    flows,
    fork,
    history,
    imports,
    listing,
    masking,
    memory,
    path,
    peers,
    prune,
    resume,
    stall,
    storage,
)
from benchmarks.measure import Row

SUBJECTS = {
    module.__name__.partition(".")[2]: module
    for module in (
        imports,
        bus,
        crew,
        flows,
        durable,
        resume,
        fork,
        listing,
        history,
        fanout,
        memory,
        path,
        storage,
        prune,
        masking,
        stall,
        peers,
    )
}


def main() -> int:
    """Measure what was asked for. 0, however slow it was; 1 if a benchmark could not be done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="How fast, how small, how flat.")
    parser.add_argument("subjects", nargs="*", metavar="NAME", help=f"some of: {', '.join(SUBJECTS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    asked = parser.parse_args()
    if unknown := set(asked.subjects) - set(SUBJECTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    crashed: list[str] = []
    rows = _rows(asked.subjects or list(SUBJECTS), crashed)
    if asked.json:
        print(json.dumps([{"subject": name, **dataclasses.asdict(row), "verdict": row.verdict} for name, row in rows]))
    else:
        _print(rows)
    return 1 if crashed else 0


def _rows(names: list[str], crashed: list[str]) -> Iterator[tuple[str, Row]]:
    for name in names:
        try:
            for row in SUBJECTS[name].measure():
                yield name, row
        except Exception:
            traceback.print_exc()
            crashed.append(name)


def _print(rows: Iterator[tuple[str, Row]]) -> None:
    """Each line as soon as it is known."""
    line = "{:<9}{:<58}{:>10} {:>10}  {:<5}{}"
    print(line.format("subject", "measure", "value", "target", "", "from").rstrip())
    for name, row in rows:
        target = "" if row.target is None else _number(row.target, row.unit)
        text = line.format(name, row.measure, _number(row.value, row.unit), target, row.verdict, row.detail)
        print(text.rstrip(), flush=True)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if unit in ("B", "") or (unit == "ms" and value >= 20) else 2
    return f"{value:,.{digits}f} {unit}".strip()


if __name__ == "__main__":
    sys.exit(main())
