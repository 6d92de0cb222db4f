"""All runs of a location as a dictionary has them: which calls each task has had, which places each branch shows.

It knows no journals. Time is a count of ticks. A place lies at a tick of its branch, where a label lies at that of the
place it names. What a rewind leaves behind is a range of ticks that no longer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

TASKS = 3
CALLS = 2  # of the model, for each task: one asks for a tool, one answers
EVER = 10**9  # a tick that never comes


def asks_of_the_topic(task):
    return task % 2 == 0


def question(task, topic):
    return f"Do {task} about {topic if asks_of_the_topic(task) else 'anything'}"


@dataclass(frozen=True)
class Done:
    """How far a task is: what it was asked, and what it has answered."""

    calls: int = 0
    asked: tuple[str, str] | None = None
    answer: str | None = None
    edited: bool = False
    """Whether a fork has given it that answer, which then holds for any question."""


@dataclass(frozen=True)
class State:
    """What a branch holds at some moment."""

    topic: str
    done: tuple[Done, ...] = (Done(),) * TASKS
    ever: tuple[int, ...] = ()
    requests: int = 0
    finished: bool = False
    fresh: bool = False
    """Whether it is a fork that was never kicked off, so that its first kickoff may ask something else."""

    def asks(self, task):
        """What a task is asked: the last one with the answer of the one before it."""
        topic = self.topic if asks_of_the_topic(task) else ""
        return topic, (self.done[task - 1].answer or "") if task == TASKS - 1 else ""

    def with_task(self, task, done, **fields):
        return replace(self, done=(*self.done[:task], done, *self.done[task + 1 :]), **fields)

    @property
    def answers(self):
        """The answers of the finished tasks, by address."""
        return {f"task:t{n}": done.answer for n, done in enumerate(self.done) if done.answer is not None}


@dataclass(frozen=True)
class Place:
    """A checkpoint."""

    tick: int
    at: int
    branch: str
    address: str
    trigger: str
    state: State
    parent: int | None
    label: str | None = None

    @property
    def order(self):
        return self.at, self.tick


@dataclass(frozen=True)
class Base:
    """Where a fork stands: on which branch, up to which tick, and the place there."""

    branch: str
    at: int
    place: Place | None


@dataclass
class Line:
    """A branch."""

    state: State
    begin: int
    base: Base | None = None
    own: list[Place] = field(default_factory=list)
    first: State | None = None
    """What a fork begins with."""
    counting: list[tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    """Since when which ranges of ticks count, from a tick up to and with another."""
    tails: list[tuple[int, State]] = field(default_factory=list)
    """The last tick, and the state, that each rewind has left behind."""
    back_at: int | None = None
    """The tick to which the branch has gone back, if nothing happened to it since."""

    def counts(self, tick, until):
        """Whether what lies at a tick of this branch counts at another."""
        return any(after < tick <= last for after, last in self._ranges(until))

    def _ranges(self, until):
        ranges = next((ranges for since, ranges in reversed(self.counting) if since <= until), ((0, EVER),))
        return tuple((after, min(last, until)) for after, last in ranges if after < until)

    def rewind(self, at, state, now):
        self.tails.append((now - 1, self.state))
        self.counting.append((now, (*self._ranges(at), (now, EVER))))
        self.state, self.back_at = replace(state, requests=self.state.requests), at


class Model:
    """All runs, as they ought to be."""

    def __init__(self):
        self.runs: dict[str, dict[str, Line]] = {}
        self.tick = 0
        self._parents: dict[int, int | None] = {}

    def begin(self, run, topic):
        self.tick += 1
        self.runs[run] = {"main": Line(State(topic), self.tick)}

    def known(self, run, branch, until=EVER):
        """Every place of a branch, abandoned ones too, and those that it stands on."""
        line = self.runs[run][branch]
        before = []
        if line.base:
            before = self.known(run, line.base.branch, line.base.at)
            if line.base.place and line.base.place not in before:
                before.append(line.base.place)
        return sorted((*before, *(p for p in line.own if p.tick <= until)), key=lambda place: place.order)

    def counts(self, run, branch, place, until=EVER):
        """Whether a place counts on a branch."""
        line = self.runs[run][branch]
        if place.branch == branch:
            return line.counts(place.at, until)
        return self.counts(run, line.base.branch, place, line.base.at)

    def shown(self, run, branch, until=EVER):
        """The checkpoints of a branch that count, those it stands on included."""
        return [place for place in self.known(run, branch) if self.counts(run, branch, place, until)]

    def tail(self, run, branch, number):
        """The checkpoints of what a rewind, counted from 0, has left behind."""
        return self.shown(run, branch, self.runs[run][branch].tails[number][0])

    def parent(self, run, branch, place):
        """The nearest place before this one that is still there."""
        there, parent = {one.tick: one for one in self.known(run, branch)}, place.parent
        while parent is not None and parent not in there:
            parent = self._parents[parent]
        if parent == place.parent or not self.counts(run, branch, place):
            return parent
        since = there[parent].at if parent else 0  # a label may be left at a place between, without the first there
        labels = [one for one in self.shown(run, branch) if one.label and one.at > since and one.order < place.order]
        return labels[-1].tick if labels else parent

    def kickoff(self, run, branch, topic, crash, limit):
        """Go on until the call numbered `crash` fails. Returns how many calls that takes, and whether it finishes."""
        line = self.runs[run][branch]
        if line.state.finished and topic in (None, line.state.topic):
            line.state = replace(line.state, fresh=False)
            return 0, True
        line.state = replace(line.state, topic=topic or line.state.topic, finished=False, fresh=False)
        line.back_at, calls = None, 0
        for task in range(TASKS):
            done, asked = line.state.done[task], line.state.asks(task)
            if done.asked not in (None, asked) and not done.edited:
                done = Done()
            if done.answer is not None:
                continue
            for number in range(done.calls, CALLS):
                calls += 1
                if calls == crash:
                    return calls, False
                done = Done(number + 1, asked)
                line.state = line.state.with_task(task, done, requests=line.state.requests + 1)
                self._name(run, branch, f"task:t{task}/llm#{number + 1}", "llm_call_completed", limit)
            ever = line.state.ever if task in line.state.ever else (*line.state.ever, task)
            answer = f"answer to: {question(task, line.state.topic)}"
            line.state = line.state.with_task(task, replace(done, answer=answer), ever=ever)
            self._name(run, branch, f"task:t{task}", "task_completed", limit)
        line.state = replace(line.state, finished=True)
        return calls, True

    def fork(self, run, branch, name, place=None, *, tail=None, edits=(), rerun=()):
        """Fork at a place, at the end of a tail, or at the head; `edits` are tasks with other answers."""
        line = self.runs[run][branch]
        if place is not None:
            base, state = Base(place.branch, place.at, place), place.state
        else:
            self.tick += 1  # a run ends behind its last place
            at, state = (self.tick, line.state) if tail is None else line.tails[tail]
            newest = [one for one in self.shown(run, branch, at) if one.tick <= at][-1:]
            base = Base(branch, at, newest[0] if newest else None)
        self.tick += 1
        for task, answer in edits:
            state = state.with_task(task, replace(state.done[task], answer=answer, edited=True), finished=False)
        for task in rerun:
            state = state.with_task(task, Done(), finished=False)
        state = replace(state, fresh=True)
        self.runs[run][name] = Line(state, self.tick, base, first=state)

    def rewind(self, run, branch, place=None, *, tail=None):
        """Go back to a place, to the end of a tail, or to where the branch was forked."""
        line = self.runs[run][branch]
        if tail is not None:
            at, state = line.tails[tail]
        elif place.branch == branch:
            at, state = place.at, place.state
        else:
            at, state = line.begin, line.first
        self.tick += 2
        line.rewind(at, state, self.tick)

    def label(self, run, branch, place, name):
        """Label a place. Returns whether it has the label now; None if that depends on which branch is looked at first."""
        abandoned = not self.counts(run, place.branch, place)  # where the label is recorded: a fork may count it still
        holders = {
            (other.branch, other.at)
            for each in self.runs[run]
            for other in self.known(run, each)
            if other.label == name and (abandoned or self.counts(run, each, other))
        }
        if holders:
            return None if len(holders) > 1 else holders == {(place.branch, place.at)}
        self._add(run, place.branch, replace(place, label=name))
        return True

    def prune(self, keep):
        """Drop all but the newest of each branch."""
        for run, lines in self.runs.items():
            for branch, line in lines.items():
                self._drop(line, self._free(run, branch)[:-keep])

    def _free(self, run, branch):
        """The places of a branch that may be dropped, those to drop first first."""
        lines = self.runs[run]
        found = [line.base for line in lines.values() if line.base and line.base.place]
        bases = [base.place.tick for base in found if base.branch == branch]
        free = [place for place in lines[branch].own if not place.label and place.tick not in bases]
        return sorted(free, key=lambda place: lines[branch].counts(place.at, EVER))

    def _drop(self, line, gone):
        line.own = [place for place in line.own if place not in gone]
        line.back_at = None if gone else line.back_at

    def _name(self, run, branch, address, trigger, limit):
        line = self.runs[run][branch]
        free = self._free(run, branch) if limit else []
        self._add(run, branch, Place(0, 0, branch, address, trigger, line.state, None))
        self._drop(line, free[: max(0, len(free) + 1 - (limit or 0))])

    def _add(self, run, branch, place):
        self.tick += 1
        line, at = self.runs[run][branch], place.at or self.tick
        before = [one for one in self.shown(run, branch) if one.at <= at]
        parent = before[-1].tick if before else None
        line.own.append(replace(place, tick=self.tick, at=at, parent=parent))
        line.back_at = None
        self._parents[self.tick] = parent
