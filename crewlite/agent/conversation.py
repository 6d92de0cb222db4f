"""A conversation with an agent that has no crew, in one run: its turns, each the user's messages and the answer.

The messages of the first turn are the inputs of the run. A further turn opens the finished run again: one commit
records the messages (`message#2`) and withdraws the result. So a run that was killed has the new turn or not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from crewlite import kinds
from crewlite.agent.input_files import InputFile, files_changed
from crewlite.agent.retell import retold
from crewlite.agent.shape import Shape
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.codec import Json
from crewlite.errors import ConfigError, RunMismatch
from crewlite.events.family import FamilyEvents
from crewlite.llm.base import Message
from crewlite.state.format.commit import CommitParts, StepRecord
from crewlite.state.format.earlier import has_other_inputs
from crewlite.state.format.operations import difference
from crewlite.state.format.record import Record
from crewlite.system.forked import lock
from crewlite.texts.logs import logger
from crewlite.texts.wording import number_of

log = logger("crewlite")
_KNOWN = 10_000  # conversations whose last turn a process remembers
_turns: OrderedDict[tuple[str, ...], int] = OrderedDict()
_lock = lock()

WHO = "agent"
"""The key in the provenance of an answer under which a digest of the agent and the response format is recorded. For the
first turn, and for every turn of an agent with knowledge, the messages are part of the digest."""


def message_at(number: int) -> str:
    """Return the address of the step that records the messages of a turn, from 2."""
    return f"{kinds.MESSAGE.name}#{number}"


def turn_at(number: int) -> str:
    """Return the address of a turn's step. In a run with only one turn, the root step answers instead."""
    return f"{kinds.TURN.name}#{number}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of a run so far."""

    record: Record
    questions: tuple[Json, ...]
    """The messages of each turn, encoded."""

    @classmethod
    def of(cls, record: Record) -> Conversation:
        """Build the conversation that a record holds. Turns before the current inputs are part of these inputs."""
        found = [record.run["inputs"].get("messages")]
        while (at := message_at(len(found) + 1)) in record.outcomes and not has_other_inputs(record, at):
            found.append(record.value(at))
        return cls(record, tuple(found))

    def number_of(self, messages: Json, turn: int | None, files: Sequence[InputFile] = ()) -> int:
        """Return the number of the turn that a kickoff asks for; for a new turn, one more than there are.

        Messages equal to those of a recorded turn ask for that turn, unless this process has had a later one: a second
        "yes" is a new turn. The messages of the first turn, of a fork its own first turn, ask for that turn at any
        time, so that a program that is started again gets the recorded answers.

        Args:
            messages: The encoded messages; None for a kickoff without any.
            turn: The number that the caller gave, or None.
            files: The files that the messages show. One that cannot be read any more counts as unchanged.

        Raises:
            ConfigError, RunMismatch: there can be no such `turn`, or it has other messages.
            RunMismatch: the same messages show files that have changed.
        """
        questions, run_id = self.questions, self.record.run["run_id"]
        last = len(questions)
        if turn is not None and turn > last + (messages is not None):
            raise ConfigError(
                f"turn is {turn}, and conversation {run_id!r} has {number_of(last, 'turn')}; wanted at most "
                f"{last + 1}, and a message for turn {last + 1}"
            )
        if messages is None:
            return turn or last
        if turn is not None and turn > last:
            return turn
        shown = {number: _changed(asked, messages, files) for number, asked in enumerate(questions, 1)}
        if turn is not None and shown[turn] is None:
            raise RunMismatch(
                f"Turn {turn} of conversation {run_id!r} has other messages than this kickoff. To ask these as a new "
                f"turn, pass turn={last + 1}, or leave turn out"
            )
        reached = 1 if turn else _reached(self.record)
        first = next((number for number in shown if not self._is_inherited(number)), 1)
        known = [turn] if turn else [*(n for n in shown if n >= reached), *([first] if reached > first else [])]
        known.sort(key=self._is_inherited)
        same = [number for number in known if shown[number] == []]
        other = [number for number in known if shown[number]]
        if other and not same:
            self._refuse_files(other[0], shown[other[0]] or [])
        if turn is not None:
            return turn
        if same and same[0] != reached + 1 and self.answered(same[0]):
            log.warning(
                "%s: turn %s of %s has the same messages, so its recorded answer is returned. To ask them again as a "
                "new turn, pass turn=%s",
                *(run_id, same[0], last, last + 1),
            )
        return same[0] if same else last + 1

    def _is_inherited(self, number: int) -> bool:
        """Return whether a turn was asked before this branch was forked."""
        asked, base = self.record.outcomes.get(message_at(number)), self.record.base
        if asked is None:  # the first, which is in the inputs
            return base > 0 and all(until <= base for until, _ in self.record.earlier_inputs)
        return asked.seq <= base

    def _refuse_files(self, number: int, names: Sequence[str]) -> NoReturn:
        run_id, last, listed = self.record.run["run_id"], len(self.questions), ", ".join(map(repr, names))
        then = f"pass turn={last + 1}" if self.answered(last) else "use another run_id"
        raise RunMismatch(
            f"Turn {number} of run {run_id!r} has the same words, but its input files have changed since: {listed}. "
            f"For the recorded turn, bring the old files back, or pass run_id={run_id!r} and turn={number} without a "
            f"message. To ask about the files as they are now, {then}."
        )

    def reach(self, number: int) -> None:
        """Note that this process has asked for this turn."""
        with _lock:
            _turns[_key(self.record)] = number
            _turns.move_to_end(_key(self.record))
            while len(_turns) > _KNOWN:
                _turns.popitem(last=False)

    def answered(self, number: int) -> bool:
        """Return whether the answer of a turn is recorded."""
        if number == len(self.questions):
            return self.record.finished
        return turn_at(number) in self.record.outcomes

    def stands(self, number: int) -> bool:
        """Whether a recorded turn cannot have changed, and has changed nothing in the state of the run."""
        record, steps = self.record, (turn_at(number), *([message_at(number)] if number > 1 else []))
        return not record.edited and all(
            at in record.outcomes and not record.outcomes[at].changes and at not in record.late for at in steps
        )

    def asked_further(self, messages: Json) -> CommitParts:
        """Build the parts of the commit that begins the next turn, with these messages."""
        number, steps = len(self.questions) + 1, list[StepRecord]()
        if number == 2:
            asked = codec.digest([kinds.TURN.name, self.question(1)])
            answered = self.record.outcomes[""]
            first = _finished(turn_at(1), kinds.TURN, asked, self.record.value(""), {WHO: answered.fingerprint})
            if answered.unused:
                first["unused"] = [*answered.unused]
            changes = difference({}, self.record.values)  # of its steps, which later turns do not request
            steps.append({**first, "state": changes} if changes else first)
        asked = codec.digest([kinds.MESSAGE.name, number])
        return {"steps": [*steps, _finished(message_at(number), kinds.MESSAGE, asked, messages, {})]}

    def question(self, number: int) -> list[Any]:
        """Return what a turn's step is asked (Step.question): the messages, and a digest of all turns before."""
        before = self.record.outcomes.get(turn_at(number - 1))
        return [self.questions[number - 1], *([before.fingerprint, before.digest] if before else [])]

    def before(self, number: int, shape: Shape | None, limit: int | None) -> list[Message]:
        """Return the conversation before a turn. `limit`: characters of a tool's result that the model is shown."""
        said: list[Message] = []
        for earlier, messages in enumerate(self.questions[: number - 1], 1):
            at = turn_at(earlier)
            answer, inside = self.record.value(at)["raw"], retold(self.record, shape, limit, at)
            if earlier == 1 and not inside:  # it was answered when it was the only one
                inside = retold(self.record, shape, limit)
            whole = inside and inside[-1].get("content") == answer  # a prune may have removed steps of it
            said += [*codec.decode(messages), *(inside if whole else [{"role": "assistant", "content": answer}])]
        return said

    def so_far(self, shape: Shape | None, limit: int | None) -> list[Message]:
        """Return the conversation so far, without a reply whose tool calls have not all ended."""
        last = len(self.questions)
        inside = retold(self.record, shape, limit, turn_at(last) if last > 1 else "")
        return [*self.before(last, shape, limit), *codec.decode(self.questions[-1]), *inside]


def _changed(asked: Json, messages: Json, files: Sequence[InputFile]) -> list[str] | None:
    """Return the files that differ between two lists of messages with the same words; None if the words differ."""
    gone = [file.name for file in files if not file.digest]
    if asked == messages and not gone:
        return []
    return files_changed(codec.decode(asked), codec.decode(messages), gone) if files else None


def _reached(record: Record) -> int:
    """Return the turn that this process has asked for last; 0 for none."""
    with _lock:
        return _turns.get(_key(record), 0)


def _key(record: Record) -> tuple[str, ...]:
    return record.run["run_id"], record.run["branch"], record.started_at, str(record.epoch)


def message_step(source: object, number: int) -> Step[Any]:
    """Build the step that returns the recorded messages of a turn, so that a fork can edit them."""

    async def act() -> Any:
        raise RunMismatch(f"{message_at(number)} is not recorded any more: pass the messages of that turn again")

    return Step(
        kind=kinds.MESSAGE,
        name=None,
        work=act,
        question=number,
        events=FamilyEvents.plain(source, kinds.MESSAGE),
        decode=codec.decode,
        address=message_at(number),
        drift="keep",
    )


def _finished(address: str, kind: kinds.Kind, asked: str, value: Json, provenance: dict[str, str]) -> StepRecord:
    return {
        "address": address,
        "kind": kind.name,
        "fingerprint": asked,
        "value": value,
        "digest": codec.digest(value),
        "means": provenance,
        "ms": 0.0,
    }
