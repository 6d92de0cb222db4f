"""Every event there is, under the name that checkpoints know it by."""

from __future__ import annotations

import typing
from typing import get_args

import pytest
from pydantic import ValidationError

from crewlite import CheckpointConfig, events
from crewlite.errors import ConfigError
from crewlite.events import BaseEvent, CheckpointEventType, EventType, TaskCompletedEvent
from crewlite.events.registry import checkpoint_event_types, load

CLASSES = {name: cls for name, cls in load().items() if cls is not BaseEvent}
ABOUT_CHECKPOINTS = {
    name for name in (cls.model_fields["type"].default for cls in CLASSES.values()) if name.startswith("checkpoint_")
}


def kind(cls):
    return cls.model_fields["type"].default


def literals(hint):
    found = set()
    for arg in get_args(hint):
        found |= {arg} if isinstance(arg, str) else literals(arg)
    return found


def test_the_names_written_out_are_those_of_the_classes():
    assert literals(EventType) == {kind(cls) for cls in CLASSES.values()}


def test_every_recorded_event_of_a_run_may_name_a_checkpoint_but_those_about_checkpoints():
    others = ABOUT_CHECKPOINTS | {"flow_created", "flow_plot", "progress_reported"}  # of no run, or not recorded
    assert set(checkpoint_event_types()) == {kind(cls) for cls in CLASSES.values()} - others
    assert literals(CheckpointEventType) == set(checkpoint_event_types())
    assert len(checkpoint_event_types()) == len(set(checkpoint_event_types()))


def test_no_two_events_share_a_name():
    assert len({kind(cls) for cls in CLASSES.values()}) == len(CLASSES)


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_an_event_is_a_frozen_fact_with_one_literal_type_and_a_word_about_itself(cls):
    hint = typing.get_type_hints(cls)["type"]
    assert get_args(hint) == (kind(cls),)
    assert cls.model_config["frozen"]
    assert cls.model_config["extra"] == "forbid"
    assert cls.__doc__
    assert cls.__name__.endswith("Event")
    words = "".join(part.capitalize() for part in kind(cls).split("_"))
    assert cls.__name__.lower() == f"{words}event".lower()


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_event_can_be_imported_from_the_room(cls):
    assert getattr(events, cls.__name__) is cls
    assert cls.__name__ in dir(events)


def test_a_star_imports_every_event():
    found = {}
    exec("from crewlite.events import *", found)
    assert found.keys() >= {*CLASSES, "BaseEvent", "BaseEventListener", "CheckpointEventType", "EventType"}


@pytest.mark.parametrize("name", ["NoSuchEvent", "TaskCompleted", "x", "_TaskEvent"])
def test_what_is_no_event_is_no_attribute(name):
    with pytest.raises(AttributeError, match=f"crewlite.events has no '{name}'"):
        getattr(events, name)


def test_a_misspelt_event_is_answered_with_the_event_that_was_meant():
    with pytest.raises(AttributeError) as caught:
        _ = events.TaskCompletdEvent
    assert str(caught.value) == "crewlite.events has no 'TaskCompletdEvent'"
    assert (caught.value.name, caught.value.obj) == ("TaskCompletdEvent", events), "so Python names what was meant"


def test_an_event_cannot_be_changed_or_given_fields_it_does_not_have():
    event = TaskCompletedEvent(output="x")
    with pytest.raises(ValidationError, match="frozen"):
        event.output = "y"
    with pytest.raises(ValidationError, match="[Ee]xtra"):
        TaskCompletedEvent(output="x", extra=1)
    with pytest.raises(ValidationError, match="type"):
        TaskCompletedEvent(output="x", type="task_failed")


def test_every_event_has_an_id_and_a_time_of_its_own():
    one, two = TaskCompletedEvent(output="x"), TaskCompletedEvent(output="x")
    assert one.event_id < two.event_id
    assert one.timestamp.utcoffset().total_seconds() == 0
    assert one.timestamp <= two.timestamp


# on_events


@pytest.mark.parametrize("name", checkpoint_event_types())
def test_on_events_takes_every_name(name):
    assert CheckpointConfig(on_events=[name]).on_events == (name,)


def test_on_events_takes_classes_a_star_and_true():
    assert CheckpointConfig(on_events=[TaskCompletedEvent, "llm_call_completed"]).on_events == (
        "task_completed",
        "llm_call_completed",
    )
    assert CheckpointConfig(on_events=["*"]).on_events == ("*",)
    assert CheckpointConfig(on_events=True).on_events is True
    assert CheckpointConfig().on_events is True
    assert CheckpointConfig(on_events=(name for name in ["task_started"])).on_events == ("task_started",)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("task_complete", "task_completed"),
        ("TaskCompletedEvent", "task_completed"),
        ("taskcompleted", "task_completed"),
        ("llm_call_complete", "llm_call_completed"),
        ("crew_kickof_started", "crew_kickoff_started"),
    ],
)
def test_a_typo_in_on_events_is_told_with_what_was_meant(typo, meant):
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        CheckpointConfig(on_events=[typo])


@pytest.mark.parametrize("name", sorted(ABOUT_CHECKPOINTS))
def test_events_about_checkpoints_cannot_name_one(name):
    with pytest.raises(ConfigError, match="about checkpoints never create one"):
        CheckpointConfig(on_events=[name])
    cls = next(cls for cls in CLASSES.values() if kind(cls) == name)
    with pytest.raises(ConfigError, match="about checkpoints never create one"):
        CheckpointConfig(on_events=[cls])


@pytest.mark.parametrize("wrong", [["xyzzy"], [7], [None], [BaseEvent], [int], "task_completed", 7, False, None])
def test_what_can_never_be_an_event_is_refused_with_what_can(wrong):
    with pytest.raises(ConfigError, match="on_events"):
        CheckpointConfig(on_events=wrong)
