"""Secrets among the choices of a question, and in answers: written nowhere, and still chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import AnswerRefused, ConfigError, Suspended
from crewlite.events import HumanFeedbackRequestedEvent
from crewlite.flow import ask, flow, step
from crewlite.testing import EventRecorder

pytestmark = pytest.mark.usefixtures("no_terminal")


def test_the_error_of_an_answer_given_ahead_does_not_show_a_secret_among_the_choices(memory, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "tok-9A8b7C6d5E4f")

    @flow(checkpoint=memory())
    def asker():
        return ask("Which?", ["one", "tok-9A8b7C6d5E4f"], name="q")

    with pytest.raises(AnswerRefused, match="'two'") as refused:
        asker.kickoff(run_id="one", answers={"human:q": "two"})
    assert "tok-" not in str(refused.value)


def test_secrets_among_the_choices_are_not_written(on_disk):
    config = CheckpointConfig(**on_disk().model_dump(exclude_unset=True), redact=["hunter2-long"])

    @flow(checkpoint=config)
    def pick():
        return ask("Which?", ["plain", "hunter2-long"], name="q")

    with EventRecorder() as heard, pytest.raises(Suspended):
        pick.kickoff(run_id="one")
    with History(config.location) as found:
        assert "hunter2" not in str(found.run("one").waiting[0].schema)
    assert "hunter2" not in str(heard.of(HumanFeedbackRequestedEvent)[0].options)


@pytest.mark.parametrize("way", ["ahead", "kickoff", "history", "masked"])
def test_a_choice_that_holds_a_secret_can_be_chosen_and_is_written_nowhere(on_disk, monkeypatch, way):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-long")
    runs, config = [], on_disk()

    @step
    def work():
        runs.append(1)
        if len(runs) < 2:
            raise OSError("cut")

    @flow(checkpoint=config)
    def pick():
        chosen = ask("Which?", ["plain", "key hunter2-long"], name="q")
        work()
        return chosen == "key hunter2-long"

    given = {"human:q": "key [secret]" if way == "masked" else "key hunter2-long"}
    if way != "ahead":
        with pytest.raises(Suspended):
            pick.kickoff(run_id="one")
    if way == "history":
        with History(config.location) as found:
            found.answer("one", *next(iter(given.items())))
        given = {}
    with pytest.raises(OSError):
        pick.kickoff(run_id="one", answers=given)
    assert pick.kickoff(run_id="one", answers=given) is True
    assert pick.fork("one", edits={"human:q": "plain"}, branch="plain").kickoff() is False
    assert pick.fork("one/plain", edits={"human:q": "key hunter2-long"}).kickoff() is True
    kept = [config.location] if Path(config.location).is_file() else Path(config.location).rglob("*")
    assert not any(b"hunter2" in Path(path).read_bytes() for path in kept if Path(path).is_file())


def test_choices_that_look_alike_once_their_secrets_are_masked_are_refused(memory, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-long")
    monkeypatch.setenv("BANK_API_KEY", "hunter3-long")

    @flow(checkpoint=memory())
    def pick():
        return ask("Which?", ["hunter2-long", "hunter3-long", "none"], name="q")

    with pytest.raises(ConfigError, match=r"look alike once these are masked: \[secret\], \[secret\], none"):
        pick.kickoff(run_id="one")


def test_a_refused_answer_that_holds_a_secret_is_told_without_it(on_disk, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-long")
    counted = flow(name="counted", checkpoint=on_disk())(lambda: ask("How many?", int, name="q"))
    with pytest.raises(Suspended):
        counted.kickoff(run_id="one")
    with (
        History(on_disk().location) as found,
        pytest.raises(AnswerRefused, match=r"'\[secret\]' is not of type 'integer'") as by_hand,
    ):
        found.answer("one", "human:q", "hunter2-long")
    with pytest.raises(AnswerRefused, match=r"'\[secret\]' is not of type 'integer'") as at_kickoff:
        counted.kickoff(run_id="one", answers={"human:q": "hunter2-long"})
    assert "hunter2" not in "".join(map(str, (by_hand.value, at_kickoff.value)))
