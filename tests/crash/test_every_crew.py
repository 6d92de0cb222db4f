"""Whatever a crew does: killed after any commit, or with others at work in its store, it ends as it would have."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from crewlite import CheckpointConfig, Crew, History, TaskOutput, event_bus
from crewlite.events import BaseEvent
from crewlite.state import InMemoryProvider
from crewlite.testing import Interleaved
from crewlite.testing.interleavings import bad_manners, bounded, inconsistencies
from tests.crews import CREWS, INPUTS
from tests.cuts import lives

Act = Callable[[History], object]
ACTS: dict[str, Act] = {
    "fork": lambda history: history.fork("r"),
    "fork of a checkpoint": lambda history: [history.fork(one.id) for one in history.run("r").checkpoints()[:1]],
    "prune": lambda history: history.prune(keep_last=1),
    "delete": lambda history: history.delete("r"),
    "cancel": lambda history: history.cancel("r"),
    "repair": lambda history: history.doctor(repair=True),
    "list": lambda history: [(run.digest, run.steps, run.usage) for run in history.runs()],
}
"""What another does in the store in which the crew is at work; to kick off the crew a second time is one more."""
AGAIN = "kickoff"


@pytest.fixture(autouse=True)
def beside_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of the crews writes a file


@pytest.mark.parametrize("make", CREWS.values(), ids=CREWS)
def test_killed_after_any_commit_it_ends_as_it_would_have(make):
    for whole, again in lives(make, inputs=INPUTS):
        assert again.raw == whole.raw
        assert [_said(output) for output in again.tasks_output] == [_said(output) for output in whole.tasks_output]
        assert again.token_usage == whole.token_usage


@pytest.mark.parametrize("name", CREWS)
def test_whatever_others_do_in_its_store_meanwhile_it_ends_as_it_would_have(name):
    chance = random.Random(name)
    count = _Trial(name).count
    for act in (*ACTS, AGAIN):
        at = chance.randint(2, count)
        assert _broken(name, act, at) == [], f"{act} before {at} of {count}"


@pytest.mark.soak
@pytest.mark.parametrize("name", CREWS)
def test_whatever_others_do_in_its_store_at_any_moment(name):
    for act, at in itertools.product((*ACTS, AGAIN), range(2, _Trial(name).count + 1)):
        assert _broken(name, act, at) == [], f"{act} before {at}"


def _said(output: TaskOutput) -> tuple[object, ...]:
    return output.name, output.raw, output.pydantic, output.json_dict, output.agent, output.description, output.skipped


class _Trial:
    """A kickoff of a crew, before whose `at`-th call of the store something else is done there."""

    def __init__(self, name: str, act: str | None = None, at: int | None = None) -> None:
        self._make, self._kept = CREWS[name], InMemoryProvider()
        beside = Interleaved(self._kept, at=at, act=lambda: self._do(act), patience=2.0)
        self.outcome = bounded(lambda: self._kickoff(beside))
        self.ended, self.count, self.beside = beside.ended(), beside.count, beside.outcome

    def _do(self, act: str | None) -> object:
        if act == AGAIN:
            return self._kickoff(self._kept)
        assert act
        with self.history() as history:
            return ACTS[act](history)

    def _kickoff(self, provider: Any) -> Crew:
        config = CheckpointConfig(
            location="here", provider=provider, on_events=["task_completed", "tool_usage_finished"]
        )
        return self._make(checkpoint=config).kickoff(INPUTS, run_id="r")

    def history(self) -> History:
        return History("here", self._kept)

    def resumed(self) -> tuple[Any, list[str]]:
        """The result of the run when it is kicked off once more, and the steps that were begun again for it."""
        with self.history() as history:
            runs = [run for run in history.runs() if run.run_id == "r" and run.branch == "main"]
            finished = {step.address for run in runs for step in run.steps if step.status == "finished"}
        begun: list[str] = []
        with event_bus.scoped():
            event_bus.on(BaseEvent, lambda source, event: begun.append(f"{event.type} {event.address}"))
            result = self._kickoff(self._kept)
        again = [line for line in begun if "_started" in line and line.partition(" ")[2] in finished]
        return result, [line for line in again if not line.startswith(("checkpoint_", "agent_"))]


def _broken(name: str, act: str, at: int) -> list[str]:
    """The promises that are broken if an act is done before the `at`-th call of the store in a kickoff."""
    whole, trial = _Trial(name).outcome, _Trial(name, act, at)
    broken = [f"the kickoff {text}" for text in bad_manners(trial.outcome)]
    broken += [f"the {act} {text}" for text in bad_manners(trial.beside)] if trial.ended else [f"the {act} never ends"]
    with trial.history() as history:
        broken += inconsistencies(history)
    result, again = trial.resumed()
    broken += [f"begun again: {line}" for line in again]
    if result.raw != whole.raw:
        broken.append(f"it came to {result.raw!r} instead of {whole.raw!r}")
    return broken
