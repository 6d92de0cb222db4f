"""A run as a page of HTML, with all its branches: one file without scripts that loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from crewlite import kinds
from crewlite.errors import CrewliteError
from crewlite.pages.rendering import rendered
from crewlite.state.comparing.page import FOLDER, for_parts
from crewlite.state.comparing.run_diff import RunDiff, compare
from crewlite.state.format.addresses import in_order
from crewlite.state.format.outcome import Attempt
from crewlite.state.format.record import Record
from crewlite.state.format.times import CountedUsage, Times
from crewlite.state.journal.lineage import UNREADABLE, readable_branches
from crewlite.state.providers import Store
from crewlite.state.reading.checkpoint import Checkpoint
from crewlite.state.reading.checkpoints import NamedPlace, by_place
from crewlite.state.reading.prompts import Prompt, Prompts
from crewlite.state.reading.shown import as_text, plain, said
from crewlite.state.reading.steps import StepView, model_of, standing, steps_of
from crewlite.state.run_history import RunHistory
from crewlite.usage import Usage

_LONG = 6_000  # characters of a text that are shown


@dataclass(frozen=True, slots=True)
class BranchPart:
    """A branch on the page."""

    run: RunHistory
    id: str
    """The anchor that links lead to."""
    depth: int
    status: str
    """The status of the branch, as `RunHistory.status_text`; "abandoned" for what a rewind abandoned."""
    inputs: tuple[tuple[str, str], ...]
    rows: Sequence[Row]
    span: float
    """Seconds from the beginning of the branch to the end of its last own step."""
    seconds: float
    """How long the branch has worked, including the branches it is forked from, up to the fork."""
    places: Sequence[NamedPlace[Checkpoint]]
    """The places with checkpoints that were made on the branch itself."""
    diff: RunDiff | None
    """The differences to the branch it is forked from; of an abandoned end, to the branch as it is now."""
    costs: Sequence[tuple[str, Usage]]
    models: Sequence[tuple[str, int]]
    """How many calls of each model were made on the branch itself."""


def page_of(store: Store, run_id: str, shown: str) -> str:
    """Return the page of a run, open at the branch `shown`. Raises JournalCorrupt, SchemaTooNew if none is readable."""
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
    first = next((part for part in parts if part.run.branch == shown), parts[0])
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


def _part(run: RunHistory, depth: int, branches: dict[str, RunHistory], number: int) -> BranchPart:
    _, record = run.read()
    rows, base = rows_of(record), run.base
    beside = branches.get(base.branch) if base else None
    if run.abandoned_by is not None:
        beside = branches[run.branch]
    return BranchPart(
        run,
        f"branch-{number}",
        depth,
        run.status_text if run.abandoned_by is None else "abandoned",
        tuple((name, cut(as_text(value))) for name, value in plain(record.run["inputs"]).items()),
        rows,
        max((row.began + row.seconds for row in rows if not row.inherited), default=0.0),
        Times(record).of(),
        by_place(checkpoint for checkpoint in run.checkpoints() if checkpoint.branch == run.branch),
        compare((*beside.read(), beside.place), (*run.read(), run.place)) if beside else None,
        sorted(run.own_usage.by_agent.items()),
        Counter(row.model for row in rows if row.model and not row.inherited).most_common(),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A step of a branch."""

    address: str
    kind: str
    state: str
    """`finished`, `edited`, `reused`, `failed`, or `in doubt`."""
    inherited: bool
    """Whether the branch inherited the step from the branch it is forked from."""
    began: float
    """Seconds since the branch began, at least 0."""
    seconds: float
    tokens: int
    """The tokens of the step and all steps inside it."""
    cost: float | None
    model: str
    asked: tuple[tuple[str, str], ...]
    """The texts of the step's question, by their names."""
    prompt: Prompt | None
    """For a model call, what the model was told since the call before it; None for any other step."""
    output: str
    failures: tuple[Attempt, ...]


def rows_of(record: Record) -> list[Row]:
    """Return the steps of a branch, each before the steps inside it."""
    prompts, spent, steps = Prompts(record), CountedUsage(record), {step.address: step for step in steps_of(record)}
    begun = datetime.fromisoformat(record.started_at)
    by_time = sorted(steps, key=lambda at: (began := steps[at].begun_at) is None or began.timestamp())  # unknown: last
    return [_row(record, prompts, spent, steps[address], begun) for address in in_order(by_time) if address in steps]


def cut(text: str) -> str:
    """Return a text; of one that is too long for a page, its beginning and its length."""
    return text if len(text) <= _LONG else f"{text[:_LONG]}\n... ({len(text):,} characters)"


def _row(record: Record, prompts: Prompts, spent: CountedUsage, step: StepView, begun: datetime) -> Row:
    outcome, kind = standing(record, step.address), kinds.of(step.kind)
    asks = kind.asks_model and outcome is not None
    last = step.attempts[-1] if step.attempts else None
    if outcome:
        output = "" if kind is kinds.CREW else said(kind, record.value(step.address))
    else:
        output = f"{last.error_type}: {last.message}" if last else ""
    used = step.usage if asks else spent.of(step.address)
    state = "edited" if step.edited else "reused" if step.reused_from else step.status.replace("_", " ")
    state = "failed" if last and not outcome else state
    began = max((step.begun_at or begun) - begun, timedelta())
    return Row(
        step.address,
        step.kind,
        state,
        bool(outcome and outcome.seq <= record.base),
        began.total_seconds(),
        step.milliseconds / 1000,
        used.total_tokens,
        used.cost,
        model_of(outcome) or "",
        tuple((name, cut(text)) for name, text in outcome.question.items() if text) if outcome else (),
        prompts.added(step.address) if asks else None,
        cut(output),
        step.attempts,
    )
