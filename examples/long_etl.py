"""A long load that may be killed at any time: run it again, and it goes on behind the last part that was loaded.

python examples/long_etl.py
"""

import json
import time
from pathlib import Path

from crewlite import CheckpointConfig
from crewlite.flow import flow, step

PARTS = 40


@step(retries=2, type="extract")
def extract(part: int) -> list[int]:
    """Rows of one part of the source."""
    time.sleep(0.02)  # a slow source
    return [part * 100 + row for row in range(5)]


@step(type="transform")
def transform(rows: list[int]) -> list[str]:
    """Rows as the warehouse wants them."""
    return [json.dumps({"row": row, "even": row % 2 == 0}) for row in rows]


@step(type="load", effect="idempotent")
def load(part: int, rows: list[str]) -> int:
    """Put a part into the warehouse. Loading it once more gives the same file."""
    Path("warehouse").mkdir(exist_ok=True)
    Path(f"warehouse/{part:03}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(rows)


@flow(checkpoint=CheckpointConfig(location="etl.db", max_checkpoints=3))
def etl(parts: int) -> int:
    """Part by part, so that a kill costs at most the part at hand."""
    loaded = 0
    for part in range(parts):
        loaded += load(part, transform(extract(part)))
        print(f"part {part + 1} of {parts}: {loaded} rows", flush=True)
    return loaded


if __name__ == "__main__":
    print(etl.kickoff(PARTS, run_id="etl-2026-11-20"))
