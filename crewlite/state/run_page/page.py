"""A run as a page of HTML, with all its branches: one file without scripts that loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from crewlite import kinds
from crewlite.errors import CrewliteError
from crewlite.pages.rendering import beginning, rendered
from crewlite.state.comparing.page import FOLDER, for_parts
from crewlite.state.comparing.run_diff import compare
from crewlite.state.format.addresses import as_tree
from crewlite.state.format.record import Record
from crewlite.state.format.times import CountedUsage, Times
from crewlite.state.journal.lineage import UNREADABLE, readable_branches
from crewlite.state.providers import Store
from crewlite.state.reading.checkpoints import by_place
from crewlite.state.reading.prompts import Prompts
from crewlite.state.reading.shown import as_text, outcome_as_text, plain
from crewlite.state.reading.steps import StepView, model_of, steps_of, valid_outcome
from crewlite.state.run_history import RunHistory

cut = partial(beginning, most=6_000)  # what is shown of a text
Shown = dict[str, Any]
"""What the template shows of a branch, or of one of its steps, by name."""


def page_of(store: Store, run_id: str, shown: str) -> str:
    """Return the page of a run, open at the branch `shown`. Raises JournalCorrupt, StoreError if none is readable."""
    branches, damage = list[RunHistory](), list[CrewliteError]()
    try:
        infos = store.branches(run_id)
    except UNREADABLE as unlisted:
        infos, damage = readable_branches(store, run_id), [unlisted]
    for info in infos:
        run = RunHistory(store, run_id, info.branch)
        try:
            run.read()
        except UNREADABLE as error:
            damage.append(error)
        else:
            branches.append(run)
    if damage and not branches:
        raise damage[0]
    return _page(branches, shown, [str(error) for error in damage])


def _page(branches: Sequence[RunHistory], shown: str, damage: Sequence[str]) -> str:
    ordered = _as_tree(branches)
    by_name = {run.branch: run for run in branches}
    parts = [_part(run, depth, by_name, number) for number, (run, depth) in enumerate(ordered, 1)]
    first = next((part for part in parts if part["run"].branch == shown), parts[0])
    return rendered(
        "page.html.j2",
        "crewlite/state/run_page",
        FOLDER,
        first=first,
        parts=parts,
        damage=damage,
        cut=cut,
        **for_parts(),
    )


def _as_tree(branches: Sequence[RunHistory]) -> list[tuple[RunHistory, int]]:
    """Return (branch, depth): each branch, then its abandoned ends, then its forks."""
    names, below = {run.branch for run in branches}, dict[str, list[RunHistory]]()
    for run in branches:
        base = run.base.branch if run.base else ""
        below.setdefault(base if base in names and base != run.branch else "", []).append(run)
    found: list[tuple[RunHistory, int]] = []
    waiting = [(run, 0) for run in reversed(below.get("", []))]
    while waiting:
        run, depth = waiting.pop()
        found.append((run, depth))
        found += [(tail, depth + 1) for tail in run.abandoned]
        waiting += [(fork, depth + 1) for fork in reversed(below.get(run.branch, []))]
    return found


def _part(run: RunHistory, depth: int, branches: dict[str, RunHistory], number: int) -> Shown:
    _, record = run.read()
    rows, base = _rows(record), run.base
    own = [row for row in rows if not row["inherited"]]
    beside = branches.get(base.branch) if base else None
    if run.abandoned_by is not None:
        beside = branches[run.branch]
    return {
        "run": run,
        "id": f"branch-{number}",  # the anchor that links lead to
        "depth": depth,
        "status": run.status_text if run.abandoned_by is None else "abandoned",
        "inputs": [(name, cut(as_text(value))) for name, value in plain(record.run["inputs"]).items()],
        "rows": rows,
        "span": max((row["began"] + row["worked"] for row in own), default=0.0),  # to the end of the last own step
        "seconds": Times(record).of(),
        "places": by_place(checkpoint for checkpoint in run.checkpoints() if checkpoint.branch == run.branch),
        "diff": compare((*beside.read(), beside.place), (*run.read(), run.place)) if beside else None,
        "costs": sorted(run.own_usage.by_agent.items()),
        "models": Counter(row["model"] for row in own if row["model"]).most_common(),
    }


def _rows(record: Record) -> list[Shown]:
    """Return the steps of a branch, each before the steps inside it."""
    prompts, spent, steps = Prompts(record), CountedUsage(record), {step.address: step for step in steps_of(record)}
    begun = datetime.fromisoformat(record.started_at)
    by_time = sorted(steps, key=lambda at: (began := steps[at].begun_at) is None or began.timestamp())  # unknown: last
    return [_row(record, prompts, spent, steps[address], begun) for address in as_tree(by_time) if address in steps]


def _row(record: Record, prompts: Prompts, spent: CountedUsage, step: StepView, begun: datetime) -> Shown:
    outcome, kind = valid_outcome(record, step.address), kinds.of(step.kind)
    asks = kind.asks_model and outcome is not None
    last = step.attempts[-1] if step.attempts else None
    if outcome:
        output = "" if kind is kinds.CREW else outcome_as_text(kind, record.value(step.address))
    else:
        output = f"{last.error_type}: {last.message}" if last else ""
    used = step.usage if asks else spent.of(step.address)
    return {
        "address": step.address,
        "kind": step.kind,
        "state": "failed" if last and not outcome else step.status_text.replace("_", " "),
        "inherited": bool(outcome and outcome.seq <= record.base),
        "began": max((step.begun_at or begun) - begun, timedelta()).total_seconds(),
        "worked": step.milliseconds / 1000,
        "took": step.seconds,
        "tokens": used.total_tokens,
        "cost": used.cost,
        "model": model_of(outcome) or "",
        "asked": [(name, cut(text)) for name, text in outcome.question.items() if text] if outcome else [],
        "prompt": prompts.added(step.address) if asks else None,
        "output": cut(output),
        "failures": step.attempts,
    }
