"""Whatever a crew does: killed after any commit, or with others at work in its store, it ends as it would have."""

from __future__ import annotations

import pytest

from crewlite import CheckpointConfig, TaskOutput
from tests.beside import RUN, Beside
from tests.crews import CREWS, INPUTS
from tests.cuts import lives


def beside(name: str) -> Beside:
    def kickoff(setting: CheckpointConfig) -> str:
        return CREWS[name](checkpoint=setting).kickoff(INPUTS, run_id=RUN).raw

    return Beside(kickoff, "task_completed", "tool_usage_finished")


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
    assert beside(name).broken_by_a_sample(seed=name) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", CREWS)
def test_whatever_others_do_in_its_store_at_any_moment(name):
    assert beside(name).broken_anywhere() == []


def _said(output: TaskOutput) -> tuple[object, ...]:
    return output.name, output.raw, output.pydantic, output.json_dict, output.agent, output.description, output.skipped
