"""A nightly report: figures of all shops side by side, each tried again if need be, sent when somebody approves.

    python examples/nightly_report.py

At a terminal it asks. Elsewhere it ends with exit code 3 and waits; the same line, and `yes`, goes on.
"""

import random
import sys
from datetime import date
from pathlib import Path

from crewlite.errors import Suspended
from crewlite.flow import ask, flow, step

SHOPS = ["Brest", "Cádiz", "Hull", "Izmir", "Porto"]


@step(retries=12, timeout=10, type="fetch", max_concurrency=3)
def sales(shop: str, night: date) -> int:
    """Ask a shop for its figures. The line to it is bad."""
    if random.random() < 0.3:
        raise ConnectionError(f"no line to {shop}")
    return random.Random(f"{shop} {night}").randint(100, 999)


@step
def write(figures: dict[str, int], night: date) -> str:
    """The report."""
    lines = [f"- {shop}: {sold}" for shop, sold in figures.items()]
    return "\n".join([f"# Sales of {night}", "", *lines, "", f"All: {sum(figures.values())}", ""])


@step(effect="idempotent")
def send(report: str, night: date) -> str:
    """Hand it out: here, into a file."""
    path = Path(f"sales-{night}.md")
    path.write_text(report, encoding="utf-8")
    return str(path)


@flow(checkpoint=True)
def nightly(night: date):
    """Fetch, write, ask, send."""
    sold = sales.map(SHOPS, [night] * len(SHOPS)).result()
    report = write(dict(zip(SHOPS, sold, strict=True)), night)
    if not ask(f"{report}\nSend it?", bool, name="send"):
        return "not sent"
    return send(report, night)


if __name__ == "__main__":
    answers = {"human:send": sys.argv[1] == "yes"} if sys.argv[1:] else None
    night = date(2026, 11, 20)
    try:
        print(nightly.kickoff(night, run_id=f"sales-{night}", answers=answers))
    except Suspended as waits:
        print(waits, file=sys.stderr)
        sys.exit(3)
