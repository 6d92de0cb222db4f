"""What can be done at a location: the verbs that are interrupted, and the acts that interrupt them.

Each is done by one process, or one thread, and says how it went: plain data, which the judge compares with what there
is afterwards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from interleavings.scenes import (
    BY_HAND,
    LONG,
    PAYMENT,
    QUESTION,
    RUN,
    Site,
    Stop,
    asks,
    buys,
    crew,
    flow,
    pays,
    traced,
)

from crewlite import Crew
from crewlite.errors import CrewliteError, InDoubt, RefError, Suspended
from crewlite.events import TaskCompletedEvent
from crewlite.events.event_bus import event_bus
from crewlite.state import RuntimeState
from crewlite.state.journal.claim import claim
from crewlite.state.providers import Commit, provider_for
from crewlite.testing.scripted import ScriptedLLM

Said = dict[str, Any]
Act = Callable[[Site], Said]
Pair = tuple[str, str, str]
"""A scene, a verb, and the act that comes in between."""
INPUTS = {"who": "x"}


def kick(
    site: Site, *, run_id: str | None = RUN, ref: str | None = None, made: Crew | None = None, **fields: Any
) -> Said:
    """Kick off a crew, or go on with its run."""
    made = made or crew(site, **fields)
    with traced(site):
        if ref is not None:
            result = made.kickoff(from_checkpoint=ref)
        else:
            result = made.kickoff(INPUTS, run_id=run_id) if run_id else made.kickoff()
    return {"raw": [output.raw for output in result.tasks_output], "durability": result.durability}


def kick_flow(site: Site, func: Callable[[int], int], run_id: str | None = RUN, **more: Any) -> Said:
    """Kick off a flow, or go on with its run."""
    with traced(site):
        try:
            return {"raw": flow(site, func).kickoff(1, run_id=run_id, **more)}
        except Suspended as waits:
            return {"waits": sorted(waits.waiting)}
        except InDoubt as asks:
            return {"in doubt": asks.address}


def _resume(**fields: Any) -> Act:
    return lambda site: kick(site, **fields)


def _from_checkpoint(site: Site) -> Said:
    return kick(site, ref=_place(site, -1))


def _place(site: Site, which: int) -> str:
    with site.history() as history:
        return history.run(RUN).checkpoints()[which].id


def _fork(ref: str = RUN, **more: Any) -> Act:
    def do(site: Site) -> Said:
        with site.history() as history:
            return {"branch": history.fork(ref, **more).branch}

    return do


def _fork_checkpoint(**more: Any) -> Act:
    return lambda site: _fork(_place(site, 0), **more)(site)


def _crew_fork(site: Site) -> Said:
    return {"branch": "fc", **kick(site, run_id=None, made=crew(site).fork(RUN, branch="fc"))}


def _rewind(ref: str) -> Act:
    def do(site: Site) -> Said:
        with site.history() as history:
            place, run = history.checkpoint(ref), history.run(ref)
            seq = run.read()[1].seq if run.abandoned_by else place.seq
            history.rewind(ref, reason="wrong")
        site.trace.note("rewound", RUN, "main", *place.tasks)
        return {"rewound": seq}

    return do


def _label(ref: str, name: str) -> Act:
    def do(site: Site) -> Said:
        with site.history() as history:
            made = history.label(ref, name)
        return {"labelled": [name, made.id, made.seq]}

    return do


def _explore(site: Site) -> Said:
    """Explore two variants, and have them judged."""
    judge = ScriptedLLM(lambda messages: '{"quality": 6.5, "reason": "brief"}')
    variants = [{"name": "plain"}, {"name": "edited", "edits": {"task:t0": "edited 0"}}]
    with traced(site):
        # one after the other, so that all providers record the same order
        found = crew(site).explore(RUN, variants, judge, study="s", max_concurrency=1)
    return {
        "rows": [
            [row.ref, row.status, row.result and [output.raw for output in row.result.tasks_output]] for row in found
        ],
        "refused": [row.error for row in found if row.error],
    }


def _prune(**more: Any) -> Act:
    def do(site: Site) -> Said:
        with site.history() as history:
            done = history.prune(**more)
        for run_id in done.runs:
            site.trace.note("deleted", run_id)
        return {"runs": list(done.runs), "checkpoints": list(done.checkpoints), "busy": list(done.busy)}

    return do


def _delete(site: Site) -> Said:
    with site.history() as history:
        done = history.delete(RUN)
    site.trace.note("deleted", RUN)
    return {"runs": list(done.runs)}


def _anew(site: Site) -> Said:
    _delete(site)
    with contextlib.suppress(Stop):
        kick(site, stop_at=1)
    return {}


def _swap(site: Site) -> Said:
    _delete(site)
    return _import(site)


def _import(site: Site) -> Said:
    with site.history(make=True) as history:
        made = history.import_run(site.documents / f"{RUN}.json")
        return {"branch": made.branch}


def _export(site: Site) -> Said:
    with site.history() as history:
        return {"digest": history.export(RUN, site.documents / "out.json")}


def _doctor(*, repair: bool) -> Act:
    def do(site: Site) -> Said:
        with site.history() as history:
            return {"findings": [f"{found.what}: {found.problem}" for found in history.doctor(repair=repair)]}

    return do


def _cancel(site: Site) -> Said:
    with site.history() as history:
        history.cancel(RUN)
    return {}


def _answer(value: int) -> Act:
    def do(site: Site) -> Said:
        with site.history() as history:
            history.answer(RUN, QUESTION, value)
        return {"answer": value}

    return do


def _pay(**word: Any) -> Act:
    """Go on with the run that pays. `word`: what a person says of the payment that was cut."""
    return lambda site: kick_flow(site, pays, **word)


def _look(site: Site) -> Said:
    """Every verb that lists or reads."""
    refused: list[str] = []

    def tried(look: Callable[[], object]) -> None:
        try:
            look()
        except CrewliteError as error:
            refused.append(f"{type(error).__name__}: {error}")

    with site.history() as history:
        for run in history.runs():
            for name in ("status", "at_work", "digest", "values", "usage", "waiting", "steps", "attempts"):
                tried(lambda run=run, name=name: getattr(run, name))  # type: ignore[misc]
            tried(run.checkpoints)
            tried(lambda run=run: [tail.steps for tail in run.abandoned])  # type: ignore[misc]
        listed = history.checkpoints()
        tried(lambda: history.checkpoint(RUN).id)
        for place in listed[:1]:
            tried(lambda place=place: history.run(place.id).steps)  # type: ignore[misc]
    return {"refused": refused}


def _rebuild(site: Site) -> Said:
    bind = {"llm": ScriptedLLM(lambda messages: "x")}
    made = Crew.from_checkpoint(site.config(restore_from=RUN), bind=bind)
    return {"tasks": len(made.tasks)}


def _preview(site: Site) -> Said:
    return {"steps": len(str(crew(site).preview(from_checkpoint=RUN)))}


def _use(site: Site) -> Said:
    with RuntimeState.open(RUN, site.location, site.provider) as state:
        state["count"] = state.get("count", 0) + 1
        state.snapshot()
        site.trace.note("snap", str(state["count"]))
        return {"count": state["count"]}


def _restore(site: Site) -> Said:
    with RuntimeState.open(RUN, site.location, site.provider) as state:
        state.restore(1)
        state["count"] = 100
        state.snapshot()
        site.trace.note("snap", "100")
        return {"count": 100}


def _checkpoint_by_hand(site: Site) -> Said:
    """A kickoff with a handler that names checkpoints and takes snapshots."""

    async def hear(source: object, event: TaskCompletedEvent, state: RuntimeState) -> None:
        if state.run_id == RUN:
            state["seen"] = event.address
            await state.acheckpoint(label="seen")
            await state.asnapshot()

    with event_bus.on(TaskCompletedEvent, hear):
        return kick(site)


def _stopped(at: int, **fields: Any) -> Act:
    """Go on with a run until the model gives up."""

    def do(site: Site) -> Said:
        with contextlib.suppress(Stop):
            kick(site, stop_at=at, **fields)
        return {}

    return do


def _claims(**parts: Any) -> Act:
    """Take the branch as a process elsewhere does which is alive; with `released`, give it back at once."""

    def do(site: Site) -> Said:
        elsewhere = claim() | {"pid": os.getppid(), "started": None}
        store = provider_for(site.location, site.provider).open(site.location)
        try:
            for said in ({"claim": elsewhere}, *([parts] if parts else [])):
                own = store.read(RUN, "main")
                if not own:
                    raise RefError(RUN, "was taken away")
                commit = Commit.of(RUN, "main", (own[-1].seq, own[-1].sum), said)
                store.append([commit])
            return {} if parts else {"held": list(commit.head)}
        finally:
            store.close()

    return do


VERBS: dict[str, tuple[tuple[str, ...], Act]] = {
    "kickoff": (("new",), _resume()),
    "resume": (("cut", "back"), _resume()),
    "resume.max1": (("cut",), _resume(max_checkpoints=1)),
    "resume.folds": (("long",), _resume(tasks=LONG, max_checkpoints=2)),
    "resume.by_hand": (("cut",), _checkpoint_by_hand),
    "resume.place": (("cut",), _from_checkpoint),
    "resume.branch": (("grove",), _resume(ref=f"{RUN}/side")),
    "crew.fork": (("cut",), _crew_fork),
    "fork.head": (("cut", "grove", "back", "state", "doubt", "paid"), _fork(branch="fh")),
    "fork.place": (("cut", "grove"), _fork_checkpoint(branch="fp")),
    "fork.tail": (("back",), _fork(f"{RUN}@abandoned:1", branch="ft")),
    "fork.once": (("cut",), _fork(operation_id="once", branch="fo")),
    "fork.edits": (("cut",), _fork(branch="fe", edits={"task:t0": "edited 0"})),
    "fork.rerun": (("cut",), _fork(branch="fr", rerun=["task:t0"])),
    "fork.inputs": (("cut",), _fork(branch="fi", inputs={"who": "y"})),
    "rewind": (("cut", "long", "grove", "back"), _rewind(f"{RUN}@task:t0")),
    "rewind.undo": (("back",), _rewind(f"{RUN}@abandoned:1")),
    "label": (("cut", "long", "grove", "back"), _label(f"{RUN}@task:t0", "good")),
    "label.tail": (("back",), _label(f"{RUN}@abandoned:1", "good")),
    "explore": (("cut",), _explore),
    "prune": (("cut", "grove", "back", "waiting", "state", "doubt", "paid"), _prune(keep_last=1)),
    "prune.old": (("cut", "grove", "bought"), _prune(older_than=timedelta(0))),
    "delete": (("cut", "grove", "back", "waiting", "state", "doubt"), _delete),
    "export": (("cut", "grove", "back"), _export),
    "import": (("new", "cut", "grove", "back"), _import),
    "doctor": (("cut", "grove", "back"), _doctor(repair=False)),
    "repair": (("cut", "grove", "back", "state"), _doctor(repair=True)),
    "cancel": (("cut", "waiting", "doubt"), _cancel),
    "answer": (("waiting",), _answer(5)),
    "flow": (("waiting",), lambda site: kick_flow(site, asks)),
    "flow.answers": (("waiting",), lambda site: kick_flow(site, asks, answers={QUESTION: 5})),
    "pay": (("doubt", "paid"), _pay()),
    "pay.again": (("doubt",), _pay(rerun=[PAYMENT])),
    "pay.by_hand": (("doubt",), _pay(answers={PAYMENT: BY_HAND})),
    "list": (("cut", "grove", "back", "doubt"), _look),
    "rebuild": (("cut",), _rebuild),
    "preview": (("cut",), _preview),
    "state": (("state",), _use),
    "state.restore": (("state",), _restore),
    "cache": (("bought",), lambda site: kick_flow(site, buys, "b2")),
}
"""The scenes in which each verb is interrupted, and what it does."""

ACTS: dict[str, tuple[tuple[str, ...], Act]] = {
    "step": (("cut",), _stopped(3)),
    "finish": (("new", "cut", "back"), _resume()),
    "finish and fold": (("long",), _resume(tasks=LONG, max_checkpoints=2)),
    "drop": (("cut",), _stopped(3, max_checkpoints=1)),
    "claim": (("cut",), _claims()),
    "claim and release": (("cut",), _claims(released=True)),
    "side finishes": (("grove",), _resume(ref=f"{RUN}/side")),
    "fork": (("cut", "long", "grove", "back", "waiting", "state", "doubt", "paid"), _fork()),
    "fork a place": (("cut", "long", "grove", "back"), _fork_checkpoint()),
    "rewind": (("cut", "long", "grove"), _rewind(f"{RUN}@task:t1")),
    "undo": (("back",), _rewind(f"{RUN}@abandoned:1")),
    "label": (("cut", "long", "grove", "back"), _label(f"{RUN}@task:t1", "good")),
    "explore": (("cut",), _explore),
    "prune": (
        ("new", "cut", "long", "grove", "back", "waiting", "state", "doubt", "paid"),
        _prune(keep_last=1),
    ),
    "prune old": (("cut", "grove", "bought"), _prune(older_than=timedelta(0))),
    "delete": (("cut", "long", "grove", "back", "waiting", "state", "doubt"), _delete),
    "begin anew": (("cut",), _anew),
    "swap": (("cut", "grove", "back"), _swap),
    "import": (("new", "cut", "grove", "back"), _import),
    "cancel": (("cut", "long", "waiting", "doubt", "paid"), _cancel),
    "answer": (("waiting",), _answer(6)),
    "flow": (("waiting",), VERBS["flow.answers"][1]),
    "pay": (("doubt", "paid"), VERBS["pay"][1]),
    "pay again": (("doubt",), VERBS["pay.again"][1]),
    "pay by hand": (("doubt",), VERBS["pay.by_hand"][1]),
    "repair": (("cut", "long", "grove", "back", "waiting", "state"), _doctor(repair=True)),
    "list": (("cut", "long", "grove", "back"), _look),
    "state": (("state",), _use),
    "buy": (("bought",), lambda site: kick_flow(site, buys, "b3")),
}
"""The scenes in which each act makes sense, and what it does. Besides these, each verb interrupts itself."""

SAME = "the same"


def pairs() -> list[Pair]:
    """Every scene, verb and act that go together."""
    found = []
    for verb, (scenes, _) in VERBS.items():
        for scene in scenes:
            acts = [name for name, (where, _) in ACTS.items() if scene in where]
            found += [(scene, verb, act) for act in (*acts, SAME)]
    return found


def act_of(verb: str, act: str) -> Act:
    """What interrupts."""
    return VERBS[verb][1] if act == SAME else ACTS[act][1]
