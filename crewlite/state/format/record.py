"""The record of a branch: what its entries add up to, indexed by the address of each step.

A record changes only when an entry is applied to it. So one that was read from a store equals that of the writer.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from crewlite import kinds
from crewlite.encoding.codec import Json, JsonObject
from crewlite.errors import JournalCorrupt
from crewlite.kinds import Kind
from crewlite.state.format.addresses import is_in_work_of_a_model, last_about_each, outers
from crewlite.state.format.checkpoints import SNAPSHOT, BranchCheckpoints
from crewlite.state.format.commit import (
    AskedQuestion,
    Claim,
    CommitData,
    GivenAnswer,
    RunStart,
    StepRecord,
    TimeAtWork,
    is_numbered,
)
from crewlite.state.format.edits import Edit, bound_to, inherited, void_edited, withdraw
from crewlite.state.format.entry import Entry, Head
from crewlite.state.format.forms import checked_result
from crewlite.state.format.kept import Kept, Order, late_changes
from crewlite.state.format.operations import Operation
from crewlite.state.format.outcome import Attempt, Events, Outcome, attempt_of, causes_of, outcome_of, resolved
from crewlite.state.format.paid import Paid
from crewlite.state.format.rewinds import valid_at

_USUAL = {"schema", "seq", "at", "steps", "events", "place"}
"""The parts of most commits: of a commit with these alone, no others are looked for."""
_LIFE = {"run", "definition", "inputs", "auto_approve", "values", "claim", "released", "cancelled", "stopped", "worked"}
_CALLS_AND_QUESTIONS = {"intents", "made", "asked", "answers"}
_BEFORE_A_KICKOFF = {"schema", "seq", "at", "answers", "folded", "released", "cancelled", "rewind", "place", "drops"}


@dataclass
class Record:
    """An index over the entries of one branch."""

    seq: int = 0
    sum: str = ""
    run: RunStart = field(default_factory=lambda: cast(RunStart, {}))
    started_at: str = ""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)
    failures: dict[str, Attempt] = field(default_factory=dict)
    """The final failures that the code of the enclosing step handled. Such a step raises the failure again."""
    intents: dict[str, str] = field(default_factory=dict)
    """The effects of the calls that were about to be made, by address."""
    intended: dict[str, str] = field(default_factory=dict)
    """Of the calls in `intents` with effect="once": the digests of their questions, by address."""
    intended_in: dict[str, int] = field(default_factory=dict)
    """The numbers of the commits that recorded the intents, by address."""
    begun_once: dict[str, int] = field(default_factory=dict)
    """How often each call with effect="once" was begun since it last finished, by address."""
    void: dict[str, int] = field(default_factory=dict)
    """The steps that had ended and run again, until they end: the number of the commit that made each void, by address.
    """
    asked: dict[str, AskedQuestion] = field(default_factory=dict)
    """The questions to people, by address, each with the number of the commit in which it was asked as its `seq`."""
    answers: dict[str, GivenAnswer] = field(default_factory=dict)
    """The answers recorded from outside the run, by the address of the question."""
    checkpoints: BranchCheckpoints = field(default_factory=BranchCheckpoints)
    kept: Kept = field(default_factory=Kept)
    """The named values of the run."""
    late: dict[str, list[tuple[Order, Sequence[Operation]]]] = field(default_factory=dict)
    """The changes that handlers made to the state of steps after their end, by address."""
    restored: str | None = None
    """The id of the checkpoint whose values were restored, until the next snapshot."""
    events: Events = field(default_factory=Events)
    paid: Paid = field(default_factory=Paid)
    worked: dict[str, TimeAtWork] = field(default_factory=dict)
    """How long steps had worked when a budget last stopped the run, by address."""
    claim: Claim | None = None
    """The process that writes the branch; None if the run has ended or the branch was released."""
    died: bool = False
    """Whether the last process that wrote the branch died at work, as another one has noted."""
    cancelled: bool = False
    """Whether the run was cancelled, and not resumed since."""
    stopped: str | None = None
    """A sentence about the budget that stopped the run; None if none did, or the run was resumed since."""
    failed: bool = False
    """Whether the run has failed, and was not resumed since."""
    auto_approve: bool = False
    """Whether calls of tools that require approval are approved."""
    edited: dict[str, Edit] = field(default_factory=dict)
    """The steps that this fork, or a base of it, has edited or set to run again."""
    fresh: bool = False
    """Whether this is a fork that has not been kicked off. Answers may have been recorded on it."""
    earlier_definitions: tuple[tuple[int, JsonObject], ...] = ()
    """Earlier definitions, each with the number of the commit that replaced it."""
    earlier_inputs: tuple[tuple[int, Json], ...] = ()
    """Earlier inputs, each with the number of the commit that replaced them."""
    epoch: int = 0
    """The number of rewinds so far."""
    tasks: dict[str, None] = field(default_factory=dict)
    """The addresses of finished tasks, in the order of their first finish, without those in the work of a model."""

    @classmethod
    def of(cls, entries: Iterable[Entry], lacks: Mapping[str, str | None] = {}) -> Record:
        """Build the record of a journal, without the checkpoints `lacks` (see `Lineage`). Raises JournalCorrupt."""
        record, sums = cls(), dict[int, str]()
        for entry, record in replay(entries):
            sums[entry.seq] = record.sum
        record.check_checkpoints(sums)
        record.checkpoints.forget(lacks)
        return record

    @property
    def head(self) -> Head:
        """The head of the branch: the seq and the checksum of the last entry."""
        return self.seq, self.sum

    @property
    def kind(self) -> str:
        """The kind of the definition of the run."""
        return str(self.run["definition"]["kind"])

    def kind_at(self, address: str) -> Kind:
        """Return the kind of a step; for "" that of the run."""
        return kinds.at(address) if address else kinds.of(self.kind)

    @property
    def values(self) -> Mapping[str, Json]:
        """The named values after the last commit, encoded. A commit replaces the mapping and never changes it."""
        return self.kept.values

    @property
    def finished(self) -> bool:
        """Whether the run has its result."""
        return "" in self.outcomes

    @property
    def once(self) -> list[str]:
        """The calls with effect="once" that were made or about to be made, in the order of their last intents."""
        return [at for at, effect in self.intents.items() if effect == "once"]

    def is_once(self, address: str) -> bool:
        """Return whether a call with effect="once" was made, or was about to be made, at an address."""
        return self.intents.get(address) == "once"

    @property
    def waiting(self) -> list[AskedQuestion]:
        """The questions to people that have no answer yet. About one failed attempt, only the last is listed."""
        return [asked for asked in self.current if not self.answer_to(asked)]

    @property
    def current(self) -> list[AskedQuestion]:
        """The questions to people, answered or not, of unsettled steps; of several about one failure, only the last."""
        last = last_about_each(sorted(self.asked, key=lambda at: self.asked[at]["seq"]))
        return [self.asked[at] for at in last if not self.settled(at)]

    def answer_to(self, asked: Mapping[str, Any]) -> GivenAnswer | None:
        """Return the answer to a question to a person, also one given ahead; None if none was, or it was refused."""
        answer = self.answers.get(asked["address"])
        if answer is None or "refused" in answer:
            return None
        return answer if answer.get("ahead") or answer.get("digest") == asked.get("digest") else None

    @property
    def ends(self) -> Mapping[str, Outcome | Attempt]:
        """The outcomes of steps, and for steps without one the failures that code has handled, by address."""
        return ChainMap[str, Any](self.outcomes, self.failures)

    def end(self, address: str) -> Outcome | Attempt | None:
        """Return what `ends` holds for a step, in a third of the time; None for nothing."""
        return self.outcomes.get(address) or self.failures.get(address)

    def settled(self, address: str) -> bool:
        """Return whether a step has an outcome, or is inside a step that has one."""
        return address in self.outcomes or self.is_inside(address)

    def is_inside(self, address: str) -> bool:
        """Return whether a step is inside a step that has an outcome."""
        return not self.outcomes.keys().isdisjoint(outers(address))

    @property
    def base(self) -> int:
        """The number of the last commit that this branch has inherited; 0 if it is no fork."""
        return base["seq"] if (base := self.run.get("base")) else 0

    def is_valid(self, seq: int) -> bool:
        """Return whether a commit is valid: no later commit has gone back to before it."""
        return self.checkpoints.is_valid(seq)

    def before(self, entry: Entry, read: Sequence[Entry]) -> Record:
        """Return the record to apply the next entry to: this one, or for an entry that rewinds, one at its target.

        `read`: the entries so far. The record at the target takes over the usage, the checkpoints and the claim of this
        one, which must not be used any more. Raises JournalCorrupt if the target is missing.
        """
        if (back := entry.commit.get("rewind")) is None:
            return self
        then, (valid, abandoned) = Record(), valid_at(read, back["seq"])
        for each in valid:
            then.apply(each)
        if then.head != (back["seq"], back["sum"]) or back["seq"] <= self.base:
            raise self._damaged(f"commit {entry.seq} goes back to commit {back['seq']}, which is missing")
        then.seq, then.sum, then.claim, then.paid = self.seq, self.sum, self.claim, self.paid.rewound_to(then.paid)
        then.cancelled, then.worked, then.stopped, then.epoch = self.cancelled, self.worked, None, self.epoch + 1
        then.checkpoints = self.checkpoints
        then.checkpoints.rewind((*abandoned, (back["seq"], self.seq + 1)))
        return then

    def apply(self, entry: Entry) -> None:
        """Apply the next entry. For an entry with a rewind, call it on the record that `before` returns."""
        commit, self.seq, self.sum = entry.commit, entry.seq, entry.sum
        unusual = not commit.keys() <= _USUAL
        self.fresh = self.fresh and commit.keys() <= _BEFORE_A_KICKOFF
        self.paid.count(commit)
        if unusual and not commit.keys().isdisjoint(_LIFE):
            self._run_parts(commit, entry.first)
        changed = self._steps(commit.get("steps", ()), commit["at"])
        if unusual and not commit.keys().isdisjoint(_CALLS_AND_QUESTIONS):
            self._calls_and_questions(commit)
        if changed or "values" in commit or "late" in commit:
            self.kept = self.kept.after(commit)
            for address, change in late_changes(commit, self.seq):
                self.late.setdefault(address, []).append(change)
        self.events.add(commit.get("events", ()), self.seq, commit.get("folded", {}).get("events"))
        if drops := commit.get("drops"):
            self.checkpoints.forget(dict(drops))
        if checkpoint := commit.get("place"):
            self.checkpoints.add(checkpoint)
            self.restored = None if checkpoint["trigger"] == SNAPSHOT else self.restored
        self.failed = self.failed and "claim" not in commit
        if self.claim and "claim" not in commit and (self.failed or "" in self.outcomes):
            self.claim = None
        self.events.claim(self.claim, self.seq, commit.get("folded", {}).get("claims"))

    def check_checkpoints(self, sums: Mapping[int, str]) -> None:
        """Raise JournalCorrupt if a checkpoint is at a missing commit. `sums`: the checksums of all entries, by seq."""
        if lost := self.checkpoints.first_misplaced(sums):
            raise self._damaged(f"checkpoint {lost['id']} is at commit {lost['seq']}, which is missing or has changed")

    def last_attempt(self, address: str) -> Attempt | None:
        """Return the last failed attempt at a step; None if none has failed."""
        return attempts[-1] if (attempts := self.attempts.get(address)) else None

    def value(self, address: str) -> Json:
        """Return the value of an outcome with references resolved. Raises JournalCorrupt if one cannot be."""
        try:
            value = resolved(self.outcomes[address].value, lambda at: self.outcomes[at].value["text"])
            return value if address else checked_result(self.run["definition"], value)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            problem = f"the outcome of {address!r} is not recorded completely ({type(error).__name__}: {error})"
            raise self._damaged(problem) from error

    def _damaged(self, problem: str) -> JournalCorrupt:
        return JournalCorrupt(f"run {self.run.get('run_id')}, branch {self.run.get('branch')}", problem, None)

    def _run_parts(self, commit: CommitData, first: int) -> None:
        self.worked |= {worked["address"]: worked for worked in commit.get("worked", ())}
        if run := commit.get("run"):
            self._begin(run, commit["at"])
        if definition := commit.get("definition"):
            self.earlier_definitions = (*self.earlier_definitions, (first, self.run["definition"]))
            self.run = {**self.run, "definition": definition}
        if "inputs" in commit:
            self.earlier_inputs = (*self.earlier_inputs, (first, self.run["inputs"]))
            self.run = {**self.run, "inputs": commit["inputs"]}
            withdraw(self.asked, self.answers, self.waiting)
        self.auto_approve = commit.get("auto_approve", self.auto_approve)
        if "claim" in commit or "released" in commit:
            self.claim, self.died = commit.get("claim"), commit.get("died", False)
            self.cancelled = commit.get("cancelled", False) and not (self.finished or self.failed)
        self.stopped = commit.get("stopped", None if "claim" in commit else self.stopped)
        self.restored = commit.get("values", {}).get("restored", self.restored)

    def _begin(self, run: RunStart, at: str) -> None:
        """Apply the start of a new run, or of a fork, whose record continues that of its base."""
        self.started_at = at
        if not (base := run.get("base")):
            self.run = run
            return
        self.run, self.answers = {**self.run, "branch": run["branch"], "base": base}, inherited(self.answers)
        self.paid.fork()
        self.claim, self.cancelled, self.stopped, self.failed, self.fresh = None, False, None, False, True
        if checkpoint := base["place"]:
            self.checkpoints.add(self.checkpoints.get(checkpoint["id"], checkpoint))
        self.checkpoints.inherited = frozenset(self.checkpoints)

    def _calls_and_questions(self, commit: CommitData) -> None:
        """Apply the calls that are about to be made, the questions to people and their answers."""
        made, intents = commit.get("made", ()), commit.get("intents", ())
        self.intents |= {call["address"]: "once" for call in made if call["address"] in self.outcomes}
        self.intended_in |= {address: self.seq for address, *_ in intents}
        if made and is_numbered(commit.get("folded")):  # else the outcomes merged with these calls have this number too
            self.intended_in |= {call["address"]: call["seq"] for call in made}
        for address, effect, *question in intents:
            self.intents.pop(address, None)  # its last intent gives a call its place: an earlier one may be left out
            self.intents[address] = effect
            self.intended.update((address, digest) for digest in question)
            if effect == "once":
                self.begun_once[address] = self.begun_once.get(address, 0) + 1
            self._replace(address)
        for asked in commit.get("asked", ()):
            address = asked["address"]
            self.asked[address] = {**asked, "seq": asked.get("seq", self.seq)}
            if (earlier := self.answers.get(address)) and not earlier.get("ahead"):
                del self.answers[address]  # a question that is asked again is open again
            self._replace(address)
            self._bind(address)
        self.answers |= {answer["address"]: answer for answer in commit.get("answers", ())}

    def _steps(self, steps: Sequence[StepRecord], at: str) -> bool:
        """Apply steps. Returns whether any of them has changed values."""
        if edited := {step["address"] for step in steps if step.get("edited")}:
            before = {at: self.outcomes.get(at) or self.last_attempt(at) for at in edited}
            self.edited |= {at: Edit(self.seq, ended.seq if ended else 0) for at, ended in before.items()}
            others = (self.failures, self.asked, self.answers, self.intended, self.begun_once)
            void_edited(edited, outcomes=self.outcomes, intents=self.intents, late=self.late, others=others)
            self.intended |= {at: self.outcomes[at].fingerprint for at in edited if at in self.outcomes}
            withdraw(self.asked, self.answers, self.waiting)
        for place, step in enumerate(steps):
            self._step(step, step.get("at", at), place)
        return any("state" in step for step in steps)

    def _step(self, step: StepRecord, at: str, place: int) -> None:
        address = step["address"]
        if step.get("again"):
            self.intents.pop("" if address in self.failures else address, None)  # what was undone is no call in doubt
            self._replace(address)
            self.void[address] = step.get("recorded", (self.seq,))[0]
            if failure := self.failures.pop(address, None):
                tries = self.attempts[address]
                tries[tries.index(failure)] = replace(failure, void=True)
            self.late.pop(address, None)
            return
        if "error" in step:
            attempt = attempt_of(step, self.seq, at, place)
            self.attempts.setdefault(address, []).append(attempt)
            self.failed |= attempt.final and not address
            for cause in causes_of(step):  # a retry of this step retries its causes too
                self.failures.pop(cause or "", None)
            if attempt.final and attempt.fingerprint and not (kinds.of(attempt.kind).is_uncaught or attempt.stops_run):
                self.failures[address] = attempt
            return
        if (kind := kinds.of(step["kind"])).is_task and not is_in_work_of_a_model(address):
            self.tasks[address] = None
        self._replace(address)
        for known in (self.failures, self.begun_once, self.void):
            known.pop(address, None)
        self.outcomes[address] = outcome_of(step, self.seq, at, place)
        if kind.asks_person:
            self._bind(address)

    def _bind(self, address: str) -> None:
        """Bind an answer given ahead to the first question at its address, so that it answers no later question."""
        if (answer := self.answers.get(address)) and answer.get("ahead"):
            self.answers[address] = bound_to(answer, self.asked.get(address))

    def _replace(self, address: str) -> None:
        """Remove the outcome of a step that runs again, if no prune has, and those of the enclosing steps."""
        if [at for at in (address, *outers(address)) if self.outcomes.pop(at, None)]:
            self.outcomes.pop("", None)


def replay(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Record]]:
    """Yield each entry with the record after it, which is another object after each rewind. Raises JournalCorrupt."""
    record, read = Record(), list[Entry]()
    for entry in entries:
        if "rewind" in entry.commit:
            record = record.before(entry, read)
        record.apply(entry)
        read.append(entry)
        yield entry, record
