"""What must be true of a location, whatever was done there by whoever at the same time.

Nothing acknowledged is lost, everything can be read and gone on with, nothing is paid twice, listings show what
journals hold, the doctor is content; and who did something was told how it went.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from interleavings.acts import SAME, Said, kick, kick_flow
from interleavings.scenes import BY_HAND, BYSTANDER, PAYMENT, QUESTION, RUN, Site, asks, buys, pays

from crewlite import errors
from crewlite.errors import CrewliteError
from crewlite.state.history import History
from crewlite.state.providers import Commit, provider_for
from crewlite.state.run_history import RunHistory
from tests.beside import FALSE_ALARMS, NeverEnds

TAKES_AWAY = ("delete", "begin anew", "swap", "prune old", "prune.old")
UNMAKING = ("prune", "fork", "fork a place", "label", "explore", "list", "repair")
"""Acts after which a run is what it was before them."""
FORKS = {f"fork.{name}": f"f{name[0]}" for name in ("head", "place", "once", "edits", "rerun", "inputs")}
FORKS |= {"crew.fork": "fc", "fork.tail": "ft"}
CHANGES_INPUTS = ("fi", "fr", "fe")
EDITED = ("fe", "explore/s/edited")
REWINDS = ("rewind", "rewind.undo", "undo")


@dataclass
class Outcome:
    """How an act went: what it says of itself, or what it raised."""

    said: Said | None = None
    error: str = ""
    text: str = ""
    typed: bool = True
    stuck: bool = False

    @classmethod
    def of(cls, found: object) -> Outcome:
        """From what an act returned or raised."""
        if isinstance(found, NeverEnds):
            return cls(stuck=True)
        if isinstance(found, BaseException):
            return cls(None, type(found).__name__, str(found)[:300], isinstance(found, CrewliteError))
        assert isinstance(found, dict | None)
        return cls(found or {})


@dataclass
class Seen:
    """What a location shows, and what is wrong with it as it stands."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def shape(self) -> str:
        """The same for two sites that differ in ids and times alone."""
        told = {name: {k: v for k, v in run.items() if k != "digest"} for name, run in self.runs.items()}
        ids: dict[str, str] = {}
        text = repr((sorted(told.items()), self.listed, self.wrong))
        text = re.sub(r"[0-9a-f]{32}", lambda found: ids.setdefault(found[0], f"#{len(ids)}"), text)
        return re.sub(r"fork/[0-9a-f]{8}", "fork/#", text)


def look(site: Site) -> Seen:
    """Read everything."""
    seen = Seen()
    own: dict[str, set[str]] = {}
    with site.history(make=True) as history:
        for run in history.runs():
            name = f"{run.run_id}/{run.branch}"
            try:
                seen.runs[name] = _view(run)
                own[name] = {place.id for place in run.checkpoints(abandoned=True) if place.branch == run.branch}
            except Exception as error:  # whatever a journal that cannot be read raises is what is looked for
                seen.wrong.append(f"unreadable: {name}: {_told(error)}")
        seen.wrong += _bases(seen)
        seen.wrong += _listing(history, seen, own)
        try:
            seen.wrong += [f"doctor: {found.what}: {found.problem}" for found in history.doctor()]
        except Exception as error:  # the doctor never raises at a location that can be read
            seen.wrong.append(f"the doctor raised {_told(error)}")
    return seen


def _view(run: RunHistory) -> dict[str, Any]:
    places = run.checkpoints(abandoned=True)
    return {
        "status": run.status,
        "kind": run.definition["kind"],
        "name": run.definition["name"],
        "tasks": len(run.definition.get("tasks", ())),
        "finished": _finished(run),
        "tails": [_finished(tail) for tail in run.abandoned],
        "rewinds": [back.seq for back in run.rewinds],
        "values": run.values,
        "places": [place.id for place in places],
        "labels": [[place.label, place.id, place.seq] for place in places if place.label],
        "base": run.base and (run.base.branch, run.base.seq),
        "waiting": [asked.address for asked in run.waiting],
        "receipt": next((step.value for step in run.steps if step.address == PAYMENT), None),
        "at_work": run.at_work,
        "digest": run.digest,
    }


def _finished(run: RunHistory) -> list[str]:
    return [step.address for step in run.steps if step.status == "finished"]


def _bases(seen: Seen) -> Iterable[str]:
    for name, run in seen.runs.items():
        run_id, _, branch = name.partition("/")
        if branch != "main" and run["base"] is None:
            yield f"{name} stands on nothing"
        elif run["base"] and f"{run_id}/{run['base'][0]}" not in seen.runs:
            yield f"{name} stands on a branch that is gone"


def _listing(history: History, seen: Seen, own: dict[str, set[str]]) -> Iterable[str]:
    try:
        listed = history.checkpoints()
    except Exception as error:  # a listing never raises
        yield f"places() raised {_told(error)}"
        return
    seen.listed = [place.id for place in listed]
    known = set().union(*own.values()) if own else set()
    for place in listed:
        if place.id not in known:
            yield f"a phantom: a checkpoint of {place.run_id}/{place.branch} is listed, and no journal has it"
    if missing := known - set(seen.listed):
        yield f"{len(missing)} checkpoints of journals are not listed"


def go_on(site: Site, seen: Seen) -> list[str]:
    """Go on with every branch to its end: what is wrong with what comes of it."""
    wrong = []
    for name, run in sorted(seen.runs.items()):
        if run["at_work"] or name.startswith(f"{BYSTANDER}/"):
            continue
        before = len(site.trace.lines())
        try:
            wrong += [f"{name} went on to {text}" for text in _resumed(site, name, run)]
        except BaseException as error:  # it must not raise
            wrong.append(f"{name} cannot be gone on with: {_told(error)}")
        paid = {line[3] for line in site.trace.lines()[before:] if line[0] == "paid"}
        if (twice := paid & set(run["finished"])) and name.partition("/")[2] not in CHANGES_INPUTS:
            wrong.append(f"{name}: recorded, and paid again: {sorted(twice)}")
    return wrong


def _resumed(site: Site, name: str, run: dict[str, Any]) -> Iterable[str]:
    run_id, _, branch = name.partition("/")
    if run["kind"] == "crew":
        tasks = run["tasks"]
        found = kick(site, run_id=run_id, tasks=tasks) if branch == "main" else kick(site, ref=name, tasks=tasks)
        wanted = [f"answer {n}" for n in range(tasks)]
        if branch in EDITED:
            wanted[0] = "edited 0"
        if found != {"raw": wanted, "durability": "sync"}:
            yield str(found)
    elif run["name"] == "pays":
        yield from _paid_as_said(site, name, run)
    elif run["kind"] == "flow" and branch == "main":
        func, right = (asks, (14, 16)) if run_id == RUN else (buys, (101,))
        found = kick_flow(site, func, run_id)
        if "waits" in found:
            found = kick_flow(site, func, run_id, answers={QUESTION: 5})
        if found.get("raw") not in right:
            yield str(found)


def _paid_as_said(site: Site, name: str, run: dict[str, Any]) -> Iterable[str]:
    """Go on with a branch that pays: a payment in doubt is asked about, and what was said of it holds."""
    found = kick_flow(site, pays, None, from_checkpoint=name)
    if PAYMENT not in run["finished"] and "in doubt" not in found:
        yield f"{found}, though the payment is in doubt"
    found = kick_flow(site, pays, None, from_checkpoint=name, answers={PAYMENT: run["receipt"] or BY_HAND})
    if found["raw"] != 2 * (run["receipt"] or BY_HAND):
        yield str(found)


def judge(
    verb: str, act: str, before: Seen, found: Seen, outcomes: tuple[Outcome, Outcome], trace: list[list[str]]
) -> list[str]:
    """The promises that a trial breaks: `outcomes` are those of the verb and of the act."""
    broken = list(found.wrong)
    for name, outcome in zip((verb, act), outcomes, strict=True):
        broken += [f"{name} {text}" for text in _manners(outcome)]
    broken += _acknowledged(found, trace)
    broken += _remaining(verb, act, before, found, trace)
    broken += _paid_once(verb, act, before, found, outcomes, trace)
    broken += _done(verb, act, before, found, outcomes[0])
    return list(dict.fromkeys(broken))


def _manners(outcome: Outcome) -> Iterable[str]:
    """What nobody may be told."""
    if outcome.stuck:
        yield "never ends"
    elif outcome.error and not outcome.typed:
        yield f"raised {outcome.error}, which has no type of ours: {outcome.text}"
    elif outcome.error in FALSE_ALARMS:
        yield f"raised a false alarm: {outcome.error}: {outcome.text}"
    said = outcome.said or {}
    yield from (f"found: {text}" for text in said.get("findings", ()))
    for text in said.get("refused", ()):
        if text.startswith(FALSE_ALARMS):
            yield f"told a false alarm: {text}"
        if not hasattr(errors, text.partition(":")[0]):
            yield f"told of {text}, which has no type of ours"
    if said.get("durability", "sync") != "sync":
        yield f"came to durability={said['durability']!r}"
    wrong = isinstance(said.get("raw"), list) and said["raw"] != [f"answer {n}" for n in range(len(said["raw"]))]
    if wrong:
        yield f"came to {said['raw']}"


def _acknowledged(found: Seen, trace: list[list[str]]) -> Iterable[str]:
    """What was acknowledged is there and was not paid again, unless somebody has taken the run away since.

    What a rewind has abandoned is there as a tail, and may be paid again.
    """
    known, paid = set[tuple[str, str, str]](), dict[tuple[str, str, str], str]()
    deleted, rewound = _deleted(trace), _rewound(trace)
    for number, (what, run_id, *rest) in enumerate(trace):
        if what not in ("ack", "paid") or number < deleted.get(run_id, -1):
            continue
        branch, address, event = rest
        step, name = (run_id, branch, address), f"{run_id}/{branch}"
        again = any(address not in kept for kept in rewound.get(name, ()))
        if what == "paid" and step in known and branch not in CHANGES_INPUTS and not again:
            yield f"recorded, and paid again: {address} of {name}"
        if what == "paid" and branch.startswith("explore/") and paid.setdefault(step, event) != event:
            yield f"paid by two at once: {address} of {name}"
        if what == "ack":
            known.add(step)
            if not {address, ""} & _held(found.runs.get(name), rewound=name in rewound):
                yield f"lost: {address} of {name}, which was acknowledged"


def _paid_once(
    verb: str, act: str, before: Seen, found: Seen, outcomes: tuple[Outcome, Outcome], trace: list[list[str]]
) -> Iterable[str]:
    """A call with effect="once" is made when a person has said so, and no second time; its receipt is kept."""
    if {verb, act} & {*TAKES_AWAY}:  # a kickoff after it begins the run anew
        return
    made = {line[4] for line in trace if line[0] == "paid" and line[3] == PAYMENT}
    if len(made) > ("again" in verb + act):
        yield f"the payment was made {len(made)} times"
    was, main = before.runs.get(f"{RUN}/main", {}), found.runs.get(f"{RUN}/main")
    if main and was.get("receipt") and main["receipt"] != was["receipt"]:
        yield f"lost: the receipt {was['receipt']}"
    for outcome in outcomes:
        raw = (outcome.said or {}).get("raw")
        if main and main["name"] == "pays" and raw is not None and raw != 2 * (main["receipt"] or 0):
            yield f"told {raw}, and the receipt is {main['receipt']}"


def _held(run: dict[str, Any] | None, *, rewound: bool) -> set[str]:
    """What a branch holds finished; if it was rewound, its tails too."""
    if run is None:
        return set()
    return set(run["finished"]).union(*(run["tails"] if rewound else ()))


def _rewound(trace: list[list[str]]) -> dict[str, list[list[str]]]:
    """The rewinds that somebody was told of, by branch: the tasks that each has kept."""
    found: dict[str, list[list[str]]] = {}
    for what, run_id, *rest in trace:
        if what == "rewound":
            found.setdefault(f"{run_id}/{rest[0]}", []).append(rest[1:])
    return found


def _deleted(trace: list[list[str]]) -> dict[str, int]:
    """When somebody said last that a run was taken away."""
    return {line[1]: number for number, line in enumerate(trace) if line[0] == "deleted"}


def _remaining(verb: str, act: str, before: Seen, found: Seen, trace: list[list[str]]) -> Iterable[str]:
    """What was there before is there, unless somebody said that he took it away."""
    deleted, rewound = _deleted(trace), _rewound(trace)
    for name, run in before.runs.items():
        run_id = name.partition("/")[0]
        if name not in found.runs:
            if run_id not in deleted:
                yield f"gone: {name}, and nobody said that he took it away"
            continue
        if run_id in deleted:
            continue
        now = found.runs[name]
        if lost := {at for at in run["finished"] if "/" not in at} - _held(now, rewound=name in rewound):
            yield f"lost: {sorted(lost)} of {name}, which were there before"
        for tail, left in zip(run["tails"], [*now["tails"], *[()] * len(run["tails"])], strict=False):
            if lost := {at for at in tail if "/" not in at} - set(left):
                yield f"lost: {sorted(lost)} of a tail of {name}, which were there before"
        if lost := {tuple(label) for label in run["labels"]} - {tuple(label) for label in now["labels"]}:
            yield f"lost: the labels {sorted(lost)} of {name}"
        if run_id == BYSTANDER and "prune" not in verb + act and found.runs[name]["digest"] != run["digest"]:
            yield f"{name} has changed, though nothing was done to it"


def _done(verb: str, act: str, before: Seen, found: Seen, outcome: Outcome) -> Iterable[str]:
    """A verb did all that it says, or nothing if it raised."""
    said, main = outcome.said, found.runs.get(f"{RUN}/main")
    if verb == "delete":
        if said is None and main is None and act not in (*TAKES_AWAY, SAME):
            yield f"delete raised {outcome.error}, and the run is gone"
        if said is not None and act in UNMAKING and main:
            yield "delete said that the run is gone, which is there"
    if verb in TAKES_AWAY or act in TAKES_AWAY:
        return
    if verb in FORKS:
        there = f"{RUN}/{FORKS[verb]}" in found.runs
        if said is not None and not there:
            yield f"{verb} said that it made {FORKS[verb]}, which is not there"
        if said is None and there and act != SAME and verb != "crew.fork":
            yield f"{verb} raised {outcome.error}, and the branch is there"
    if said is not None:
        yield from _as_said(verb, act, said, main, found)
    elif main and act not in (*REWINDS, "label", SAME):
        was = before.runs.get(f"{RUN}/main", main)
        if verb in REWINDS and main["rewinds"] != was["rewinds"]:
            yield f"{verb} raised {outcome.error}, and the branch went back"
        if verb.startswith("label") and main["labels"] != was["labels"]:
            yield f"{verb} raised {outcome.error}, and the label was given"


def _as_said(verb: str, act: str, said: Said, main: dict[str, Any] | None, found: Seen) -> Iterable[str]:
    """What a verb says that it did to a run which nobody has taken away."""
    status = main and main["status"]
    if main and act in REWINDS and any("" in tail for tail in main["tails"]):
        status = "finished"
    if verb == "import" and main is None:
        yield "import said that the run is there, which is not"
    if verb == "prune" and act != "import" and (back := set(said["checkpoints"]) & set(found.listed)):
        yield f"prune said that it dropped {len(back)} checkpoints which are listed"
    if verb.startswith(("kickoff", "resume")) and verb != "resume.branch" and status != "finished":
        yield f"{verb} came to its end, and the run is {status}"
    if "rewound" in said and main and said["rewound"] not in main["rewinds"]:
        yield f"{verb} said that it went back to commit {said['rewound']}, which no rewind has done"
    if "labelled" in said and main and said["labelled"] not in main["labels"]:
        yield f"{verb} said that it gave {said['labelled']}, which is not there"
    for ref, came_to, raw in said.get("rows", ()):
        wanted = ["edited 0" if ref.endswith("edited") else "answer 0", "answer 1", "answer 2", "answer 3"]
        if came_to != "finished" or raw != wanted or found.runs[ref]["status"] != "finished":
            yield f"{verb} came to {ref}: {came_to}, {raw}"
    if verb == "answer" and main and main["waiting"]:
        yield "answer said that it is recorded, and the run waits"
    if verb == "cancel" and act in UNMAKING and status in ("unfinished", "waiting"):
        yield f"cancel said that it is done, and the run is {status}"


def release(site: Site, held: list[Any]) -> str:
    """Let who claimed a branch elsewhere commit once more, from where it was, and give it back: what is wrong."""
    seq, total = held
    store = provider_for(site.location, site.provider).open(site.location)
    try:
        store.append([Commit.of(RUN, "main", (seq, total), {"released": True})])
    except Exception as error:  # whatever a store refuses it with
        return _told(error)
    finally:
        store.close()
    return ""


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
