"""Show what a kickoff would do, without doing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crewlite.concurrency import background
from crewlite.encoding.codec import digest
from crewlite.errors import ConfigError, CrewliteError, RefError, RepeatedCall, text_of
from crewlite.runtime.kickoffs.dry_scope import DryScope, PreviewRun, PreviewStep, Unknown, recorded_inside, reused
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.resume_checks import check_resume
from crewlite.runtime.kickoffs.resumption import branch_for, secrets_of
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.storage import continued, storage_of
from crewlite.runtime.steps.run import Origin
from crewlite.state.format.addresses import outers
from crewlite.state.format.commit import MadeCall
from crewlite.state.format.entry import Entry
from crewlite.state.format.record import Record
from crewlite.state.journal.effects import arguments_of, calls_made_again, calls_of_base
from crewlite.state.journal.journal import Journal
from crewlite.state.journal.lineage import journals_of_branch, with_inherited
from crewlite.state.reading.located import Located
from crewlite.state.subscriber import CheckpointSubscriber


@dataclass(frozen=True, slots=True)
class Preview:
    """What a kickoff would do, as far as that is known.

    The steps are in the order in which they are requested. For a run that returns its stored result they are in the
    order of the record.
    """

    steps: tuple[PreviewStep, ...]
    ends: str = ""
    """Why the preview ends before the run would; "" if it does not."""
    effects: tuple[RepeatedCall, ...] = ()
    """The calls with effect="once" that were made and that the kickoff may make again."""

    def __iter__(self) -> Iterator[PreviewStep]:
        return iter(self.steps)

    def __str__(self) -> str:
        width = max((len(step.address) for step in self.steps), default=0)
        lines = [f"{step.verdict:<7}  {step.address:<{width}}  {step.why}" for step in self.steps]
        lines += [f"again    {call}" for call in self.effects]
        return "\n".join([*lines, *([self.ends] if self.ends else [])])


async def preview(root: Root[Any], request: Request) -> Preview:
    """Return what this kickoff would do. Reads the store; runs no step and writes nothing.

    Raises ConfigError if nothing is recorded of the run yet, and what the kickoff would raise before it pays.
    """
    if request.answers or request.rerun or request.resume:
        raise ConfigError(
            "preview takes no answers, rerun or resume: leave them out. It shows what a kickoff without them would do"
        )
    request = await continued(root, root.with_own_inputs(request))
    config = storage_of(root, request).config
    if config is None or (config.restore_from is None and request.run_id is None):
        raise ConfigError(
            f"preview has no recorded run to start from: call {root.kind}.fork(ref).preview(), "
            f"preview(from_checkpoint=ref) or preview(run_id=...)"
        )
    found, entries, beside = await background.in_thread(lambda: _read(branch_for(root, request, config)))
    if not entries:
        raise RefError(
            found.run_id,
            f"names no run in {found.location}, so there is nothing to preview: a kickoff would run every step",
        )
    record = Record.of(entries)
    journal = Journal(found.run_id, found.branch, record, secrets_of(root, config))
    inputs, parts, drifted = await check_resume(root, request, journal, found, config)
    if drifted is not None:
        return Preview(tuple(reused(record.outcomes[at]) for at in recorded_inside(record.outcomes, "")))
    superseded = record.finished
    journal.commit(parts, lambda error: None)  # in memory, as there is no store
    run = PreviewRun(
        journal,
        CheckpointSubscriber(frozenset()),
        config.on_drift or "keep",
        resumed=True,
        strict_replay=root.strict_replay,
        superseded=superseded,
        inputs=inputs,
        before=Record.of([entry for entry in entries if entry.seq <= record.base]),
        arguments=arguments_of(entries),
    )
    ends = await _driven(root, run)
    running = {step.address for step in run.steps if step.verdict in ("runs", "may run")}
    return Preview(tuple(run.steps), ends, calls_made_again(entries, beside, record, run.before, running))


def _read(found: Located) -> tuple[Located, list[Entry], list[MadeCall]]:
    """Return (the branch, its entries, the calls with effect="once" that its base branch made after the fork)."""
    with found.opened() as store:
        journals = journals_of_branch(store, found.run_id, found.branch)
    if not journals:
        return found, [], []
    entries = with_inherited(journals, found.branch)
    return found, entries, calls_of_base(journals, found.branch)


async def _driven(root: Root[Any], run: PreviewRun) -> str:
    """Execute the definition in `run`, which runs no step. Return why that ended before a real run would; else ""."""
    step = dataclasses.replace(root.step(run.inputs, run), address="")
    try:
        await DryScope(run, Origin("", root.name)).enter(step, "", digest([step.kind.name, step.question]))
    except Unknown:
        behind = ", ".join(run.unknown)
        ends = f"The steps after {behind} are not known, because no outcome of it was ever recorded."
        left = ", ".join(sorted(at for at in run.unrequested_changes if run.anew.isdisjoint(outers(at))))
        if not left:
            return ends
        return f"{ends} Unless they include {left}, which this fork has changed, kickoff will raise ChangeUnused."
    except CrewliteError:
        raise
    except Exception as error:  # the border: code of the user between the steps
        said = run.journal.secrets.mask(text_of(error))
        return f"After these steps {root.kind} {root.name!r} raises {type(error).__name__}: {said}"
    return ""
