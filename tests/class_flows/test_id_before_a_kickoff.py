"""The id of a state may be read before a kickoff, as programs for CrewAI do: the next run has it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from crewlite.errors import ConfigError
from crewlite.flow import Flow, FlowState, persist, start


class Plain(BaseModel):
    words: int = 0


class Kept(FlowState):
    words: int = 0


def made(of, **attributes):
    class Plan(Flow[of]):
        @start()
        def act(self):
            return self.state["id"] if of is dict else self.state.id

    for name, value in attributes.items():
        setattr(Plan, name, value)
    return Plan


def id_of(flow):
    return flow.state["id"] if isinstance(flow.state, dict) else flow.state.id


@pytest.mark.parametrize("of", [dict, Plain, Kept])
def test_the_next_run_has_the_id_that_was_read_and_each_later_one_has_its_own(of):
    flow = made(of)()
    read = id_of(flow)
    assert read == id_of(flow) != id_of(made(of)())
    assert flow.kickoff() == read == id_of(flow)
    assert flow.kickoff() not in (read, "")


def test_an_id_that_is_given_goes_before_it():
    flow = made(Plain)()
    assert flow.state.id
    assert flow.kickoff({"id": "mine"}) == "mine"
    flow = made(Kept)(id="own")
    assert flow.state.id == flow.kickoff() == "own"


def test_a_run_that_goes_on_keeps_its_id(on_disk):
    Plan = made(Plain, checkpoint=on_disk())
    first, second = Plan(), Plan()
    assert first.state.id != second.state.id
    assert first.kickoff(run_id="r") == second.kickoff(run_id="r") == second.state.id


def test_with_persist_it_names_the_run_that_a_later_kickoff_goes_on_with(on_disk, monkeypatch):
    Plan = persist(on_disk())(made(Kept))
    flow = Plan()
    flow.state.words, read = 3, flow.state.id
    assert flow.kickoff() == read
    again = Plan()
    assert again.kickoff({"id": read}) == read
    assert again.state.words == 3
    monkeypatch.setenv("CREWLITE_RUN_ID", "night-7")
    lives = [Plan(), Plan()]
    assert all(life.state.id for life in lives)
    assert lives[0].kickoff().startswith("night-7.")


def test_a_preview_does_not_use_it_up(on_disk):
    flow = persist(on_disk())(made(Kept))()
    read = flow.state.id
    with pytest.raises(ConfigError, match="no recorded run to start from"):
        flow.preview()
    assert flow.kickoff() == read
