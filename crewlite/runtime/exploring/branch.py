"""One branch of a study: run it to its end, have its result judged, and make a row for the comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from crewlite.concurrency import background
from crewlite.encoding.codec import decode
from crewlite.errors import BudgetExceeded, JournalCorrupt, QuestionsChanged, RunCancelled, Suspended, text_of
from crewlite.runtime.exploring.exploration import Row, VariantStatus
from crewlite.runtime.exploring.judge import Judge, JudgedTask
from crewlite.runtime.exploring.variants import Variant
from crewlite.runtime.kickoffs.engine import kickoff
from crewlite.runtime.kickoffs.request import Request
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.record import Record
from crewlite.state.format.times import Times
from crewlite.state.journal.lineage import recorded
from crewlite.state.providers import Store
from crewlite.state.reading.located import Located
from crewlite.state.verbs.score import RecordedScore, record_score, recorded_score
from crewlite.texts.secrets import Secrets
from crewlite.tools.base import as_text

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End:
    """How a kickoff on a branch ended: its status, and its result or error."""

    status: VariantStatus
    error: str = ""
    result: Any = None
    asks_otherwise: bool = False
    """Whether the branch is finished, but its variant now asks a finished step another question."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that belongs to a variant. `config`: where the study is stored."""

    variant: Variant
    found: Located
    config: CheckpointConfig

    @property
    def ref(self) -> str:
        """The branch, as `run/branch`."""
        return f"{self.found.run_id}/{self.found.branch}"

    async def row(self, judge: Judge | None, *, is_new: bool = False) -> Row | None:
        """Run the branch to its end and return its row. A failure of the variant or of the judge is part of the row.

        Returns None if the branch exists already and answered other questions than its variant asks now.
        """
        end, score, error = await self._end(), None, ""
        if end.asks_otherwise and not is_new and await self._has_answered():
            return None
        if judge and end.status == "finished":
            score, error = await self._score(judge, end.result)
        try:
            record = await self._stored(recorded)
        except JournalCorrupt as damage:  # only this branch: the other variants are compared all the same
            return self.failed(str(damage))
        waiting = {asked["address"]: asked["question"] for asked in record.waiting}
        row = Row(
            self.variant.name,
            self.ref,
            end.status,
            output=_text(end.result) if end.status == "finished" else "",
            usage=record.paid.own,
            seconds=Times(record, after=record.base).of(),
            error=self._masked(end.error or error),
            waiting=waiting if end.status == "waiting" else {},
            result=end.result,
            definition=self.variant.definition,
        )
        return replace(row, score=score.value, reason=score.reason, judge_usage=score.usage) if score else row

    def failed(self, why: str) -> Row:
        """Return the row of a variant that could not be run."""
        return Row(self.variant.name, self.ref, "failed", error=self._masked(why), definition=self.variant.definition)

    async def _end(self) -> _End:
        """Kick off the branch. While another process runs it, wait for that process and take its result."""
        try:
            return _End("finished", result=await self._kickoff())
        except Suspended as waits:
            return _End("waiting", text_of(waits))
        except BudgetExceeded as used_up:
            return _End("stopped", text_of(used_up))
        except RunCancelled as cancelled:
            return _End("cancelled", text_of(cancelled))
        except Exception as failure:  # the border: a variant that fails is a row of the study
            changed = isinstance(failure, QuestionsChanged)
            return _End("failed", f"{type(failure).__name__}: {text_of(failure)}", asks_otherwise=changed)
        except asyncio.CancelledError:
            if background.is_cancelled():
                raise
            return _End("cancelled", "a signal has ended the run")

    async def _has_answered(self) -> bool:
        """Return whether any step ran on this branch itself. On a fork of a finished run, none may have to run."""
        record = await self._stored(recorded)
        return any(one.seq > record.base and not one.edited for one in record.outcomes.values())

    async def _kickoff(self) -> Any:
        update: dict[str, Any] = {"restore_from": self.ref}
        if self.variant.asks_anew:
            update["on_drift"] = "rerun"
        there = self.config.model_copy(update=update)
        request = Request(self.variant.messages, from_checkpoint=there, wait=True, of_study=True)
        return await kickoff(self.variant.definition, request)

    async def _score(self, judge: Judge, result: Any) -> tuple[RecordedScore | None, str]:
        """Return (the score of the branch, recorded or new; "") or (None, why it could not be scored)."""
        try:
            score = await self._stored(recorded_score, judge.known_by) if judge.known_by else None
            if score is None:
                score = await judge.score(result, _text(result), _last_task(await self._stored(recorded)))
                if judge.known_by:
                    score = await self._stored(record_score, judge.known_by, score, self._secrets)
        except Exception as failure:  # the border: the row says that it was not judged, and why
            return None, f"not judged: {type(failure).__name__}: {text_of(failure)}"
        return score, ""

    async def _stored(self, act: Callable[Concatenate[Store, str, str, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Open the store, call `act(store, run_id, branch, ...)` in a thread, and return what it returns."""

        def opened() -> T:
            with self.found.opened() as store:
                return act(store, self.found.run_id, self.found.branch, *args, **kwargs)

        return await background.in_thread(opened)

    @property
    def _secrets(self) -> Secrets:
        return Secrets.of(*self.variant.definition.secret_sources(), extra=self.config.redact or ())

    def _masked(self, text: str) -> str:
        return self._secrets.mask(text)


def _text(result: Any) -> str:
    """Return the text of what a kickoff returned: for a crew or agent its answer, for a flow its value as text."""
    raw = getattr(result, "raw", None)
    return raw if isinstance(raw, str) else as_text(result)


def _last_task(record: Record) -> JudgedTask:
    """Return the last task of the run, as the record before the fork describes it, and the run's inputs."""
    then = next((facts for until, facts in record.earlier_definitions if until > record.base), None)
    tasks = (then or record.run["definition"]).get("tasks") or [None]
    return JudgedTask(tasks[-1], decode(record.run["inputs"]))
