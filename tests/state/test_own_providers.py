"""What a provider of the user's own, or a location, lacks is said where it is used."""

import pytest

from crewlite import CheckpointConfig, History
from crewlite.errors import ConfigError, StoreUnusable
from crewlite.flow import flow
from crewlite.state import InMemoryProvider, JsonProvider, SqliteProvider
from tests.cuts import RUN


class Own:
    """A provider that opens what it is given."""

    name = "own"

    def __init__(self, store):
        self.store = store

    def open(self, location):
        if isinstance(self.store, Exception):
            raise self.store
        return self.store


@flow
def answer():
    return 42


def kicked_off(**config):
    return answer.with_checkpoint(CheckpointConfig(**config)).kickoff(run_id=RUN)


@pytest.mark.parametrize(
    ("store", "error", "match"),
    [
        (RuntimeError("no server"), StoreUnusable, "there: provider 'own' could not open it: RuntimeError: no server"),
        (object(), ConfigError, "'own' opened an object, which lacks location, append, .*check_provider"),
        (None, ConfigError, "'own' opened None, which lacks location, append"),
    ],
)
def test_a_provider_that_opens_no_store_says_what_it_lacks(store, error, match):
    with pytest.raises(error, match=match):
        kicked_off(location="there", provider=Own(store))
    with pytest.raises(error, match=match):
        History("there", Own(store))


@pytest.mark.parametrize("location", ["s3://bucket/runs", "postgres://host/runs"])
def test_an_address_is_no_directory(location, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is an address, .* or pass the provider that opens the address"):
        kicked_off(location=location)
    assert not [*tmp_path.iterdir()]
    assert kicked_off(location=location, provider=InMemoryProvider()) == 42


def test_what_sqlite_calls_a_database_in_memory_is_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"':memory:' is not a path on the disk: .* provider=InMemoryProvider\(\)"):
        kicked_off(location=":memory:")
    assert not [*tmp_path.iterdir()]
    assert kicked_off(location=":memory:", provider=InMemoryProvider()) == 42


def test_a_history_takes_the_locations_that_a_kickoff_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    kicked_off(location="~/runs")
    with History("~/runs") as history:
        assert history.run(RUN).status == "finished"
    for location, provider, match in [(3, None, "location is 3"), ("runs", 3, "provider is 3"), ("", None, "''")]:
        with pytest.raises(ConfigError, match=match):
            History(location, provider)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ({"location": "./runs"}, {"location": "runs/"}),
        ({"location": "runs", "provider": JsonProvider()}, {"location": "runs", "provider": JsonProvider()}),
        ({"location": "runs.db"}, {"location": "./runs.db", "provider": SqliteProvider()}),
    ],
)
def test_a_store_is_one_however_it_is_written(outer, inner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    child = answer.with_checkpoint(CheckpointConfig(**inner))

    @flow(checkpoint=CheckpointConfig(**outer))
    def whole():
        return child.kickoff()

    assert whole.kickoff(run_id=RUN) == 42


def test_two_provider_objects_of_a_store_of_ones_own_are_two_stores():
    child = answer.with_checkpoint(CheckpointConfig(location="a", provider=InMemoryProvider()))

    @flow(checkpoint=CheckpointConfig(location="a", provider=InMemoryProvider()))
    def whole():
        return child.kickoff()

    match = r"sets another provider=InMemoryProvider\(\), but the run has provider=InMemoryProvider\(\)"
    with pytest.raises(ConfigError, match=match):
        whole.kickoff()
