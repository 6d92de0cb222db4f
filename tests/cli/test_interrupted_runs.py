"""A signal, or a terminal or reader that goes away, leaves a run that can go on, and the command says how."""

import os
import signal

import pytest

from crewlite import History
from tests import children
from tests.children import posix


@posix
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_leaves_a_run_that_can_go_on_and_says_how(shop, name, status):
    shop.hang("two")
    process = shop.begin("run", "crews:crew", "--input", "topic=tides", "--run-id", "r", "--location", "my runs")
    shop.until("two")
    process.send_signal(getattr(signal, name))
    out, said = process.communicate()
    assert process.returncode == status
    assert out == ""
    line = "crewlite checkpoint resume r --location 'my runs' --crew crews:crew\n"
    assert f"Interrupted. To go on, in {shop.path}: {line}" in said
    assert "Traceback" not in said
    shop.heal()
    assert shop.paid() == ["one", "two"]
    done = shop.do("checkpoint", "resume", "r", "--location", "my runs", "--crew", "crews:crew")
    assert done.stdout == "[Do three on tides]\n"
    assert shop.paid() == ["two", "three"]


@posix
def test_a_command_in_the_background_outlives_its_terminal(shop):
    shop.hang("two")
    process = shop.begin("run", "crews:crew", "--input", "topic=tides", started=children.IN_THE_BACKGROUND)
    shop.until("two")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    with pytest.raises(children.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143


@posix
def test_a_crew_that_listens_to_signals_hears_them_here_too(shop, tmp_path):
    shop.hang("two")
    process = shop.begin("run", "crews:hears", "--input", "topic=tides", "--run-id", "r")
    shop.until("two")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 143
    assert said.count("crewlite checkpoint resume r --crew crews:hears") == 1
    with History(tmp_path / ".checkpoints") as history:
        assert [place.trigger for place in history.run("r").checkpoints()] == ["SIGTERM"]


@posix
def test_on_a_terminal_it_is_shown_live_on_stderr_and_ctrl_c_leaves_it_tidy(shop):
    shop.hang("two")
    words = ["run", "crews:crew", "--input", "topic=tides", "--run-id", "r"]
    process, leader = shop.at_terminal(*words, COLUMNS="80", LINES="24")
    told = b""
    while b"model counting\x1b" not in told.partition(b"task two: Clerk\x1b")[2]:
        told += os.read(leader, 10_000)  # until the status lines show the call that hangs
    shop.until("two")
    assert "110 tokens, $0.0100, 1 checkpoint" in told.decode()
    os.write(leader, b"\x03")
    told += children.rest_of(leader)
    out, _ = process.communicate()
    assert (process.returncode, out) == (130, b"")
    last = told.decode().rpartition("\x1b[J")[2]
    assert "Interrupted. To go on: crewlite checkpoint resume r --crew crews:crew" in last
    assert "▸" not in last


@posix
def test_a_terminal_that_goes_away_ends_the_run_in_good_order(shop, tmp_path):
    shop.hang("two")
    process, leader = shop.at_terminal("run", "crews:crew", "--input", "topic=tides", "--run-id", "r", piped=False)
    shop.until("two")
    os.close(leader)
    assert process.wait() == 129
    with History(tmp_path / ".checkpoints") as history:
        assert history.run("r").tasks == ("task:one",)


@posix
def test_an_interrupted_stream_of_json_ends_with_the_way_on(shop):
    shop.hang("one")
    process = shop.begin("run", "crews:off", "--input", "topic=tides", "--json")
    shop.until("one")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert '"code": "interrupted"' in out.splitlines()[-1]
    assert "Nothing was saved: the crew has checkpoint=False." in out.splitlines()[-1]


@posix
def test_a_reader_that_has_seen_enough_does_not_end_the_run(shop, tmp_path):
    process = shop.begin("run", "crews:crew", "--input", "topic=tides", "--run-id", "r", "--json")
    process.stdout.readline()
    process.stdout.close()
    process.wait()
    process.stderr.close()
    assert History(tmp_path / ".checkpoints").run("r").status == "finished"
