"""`runtime="isolated"`: a step in a process of its own, whose crash is an attempt and not the end of the run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import time

import pytest
from pydantic import SecretStr

import tests.flow.isolated_steps as far
from crewlite import History
from crewlite.errors import ConfigError, NotCodable, StepCrashed, StepRaised, StepTimeout
from crewlite.flow import flow, step
from tests import children


def run(work, **options):
    return flow(**options)(work).kickoff()


def test_it_runs_in_a_process_of_its_own_each_time():
    pids = run(lambda: [far.process(), far.process(), far.waiting(3)[1]])
    assert len({*pids, os.getpid()}) == 4


def test_arguments_and_result_travel_as_plain_data_and_come_back_as_themselves():
    assert run(lambda: far.shaped(far.Shape(sides=3), add=1)) == far.Shape(sides=4)
    assert run(lambda: far.anything([1, (2.5, None), {"a": b"b"}])) == [1, (2.5, None), {"a": b"b"}]


def test_the_idempotency_key_is_that_of_the_step():
    first, second = run(lambda: [far.key(), far.key()])
    assert len(first) == 32
    assert first != second


def test_a_crash_of_the_process_is_an_attempt_and_not_the_end_of_the_run(on_disk, tmp_path):
    pipeline = flow(name="pipeline", checkpoint=on_disk())(lambda: far.crashes_once(str(tmp_path / "flag")))
    assert pipeline.kickoff(run_id="one") == "survived"
    with History(pipeline.checkpoint.location) as history:
        (attempt,) = history.run("one").attempts
    assert attempt.error_type == "StepCrashed"
    assert "exit code 7" in attempt.message


def test_a_crash_without_tries_left_ends_the_flow_with_its_cause():
    with pytest.raises(StepCrashed, match="signal 9") as caught:
        run(far.crashes)
    assert caught.value.exit_code == -9


def test_ctrl_c_which_reaches_the_process_too_is_no_crash_of_the_step():
    assert run(far.interrupted) == "went on"


def test_time_that_is_up_kills_the_process(tmp_path):
    with pytest.raises(StepTimeout):
        run(lambda: far.hangs(str(tmp_path / "pid")))
    children.until(lambda: not multiprocessing.active_children())
    if (tmp_path / "pid").exists():  # a slow machine may not have got so far
        assert not children.alive(int((tmp_path / "pid").read_text()))


def test_what_it_raises_keeps_its_name():
    with pytest.raises(KeyError, match="no") as caught:
        run(lambda: far.raises("key"))
    assert caught.value.args == ("no",)
    with pytest.raises(FileNotFoundError) as caught:
        run(lambda: far.raises("file"))
    assert (caught.value.errno, caught.value.filename) == (2, "/nowhere/to/be/found")
    with pytest.raises(far.Odd, match="no"):
        run(lambda: far.raises("odd"))
    with pytest.raises(StepRaised, match="no") as caught:
        run(lambda: far.raises("live"))
    assert caught.value.error_type == "Odd"
    assert "raise Odd" in caught.value.trace


def test_what_cannot_travel_is_told_with_its_place():
    with pytest.raises(NotCodable, match=r"'anything' with runtime='isolated': the argument 1\[0\] is a lock, which"):
        run(lambda: far.anything([threading.Lock()]))
    with pytest.raises(NotCodable, match="result of anything"):
        run(lambda: far.anything("object"))
    with pytest.raises(NotCodable, match=r"the argument 1 is a SecretStr, which .* \(it holds a secret"):
        run(lambda: far.anything(SecretStr("tok")))


def test_a_function_that_no_other_process_could_find_is_told_when_it_is_decorated():
    with pytest.raises(ConfigError, match="top level of a module"):
        step(runtime="isolated")(lambda: None)
    with pytest.raises(ConfigError, match="inline, isolated"):
        step(runtime="somewhere")(time.sleep)


PROGRAM = """
import asyncio
import multiprocessing
import os
from dataclasses import dataclass
from pydantic import BaseModel
from crewlite.flow import flow, step

class Model(BaseModel):
    n: int

@dataclass
class Data:
    n: int

@step(runtime="isolated")
def work(n):
    return n + 1

@step(runtime="isolated")
def shaped(model: Model) -> Data:
    assert isinstance(model, Model), model
    return Data(model.n + 1)

@flow(checkpoint=True)
def pipeline():
    return work(1)

@flow
def shapes():
    data = shaped(Model(n=1))
    return isinstance(data, Data), data

if {guard}:
    print({kickoff})
"""


@pytest.fixture
def script(tmp_path):
    def run_it(kickoff="pipeline.kickoff(run_id='one')", guard="__name__ == '__main__'"):
        (tmp_path / "script.py").write_text(PROGRAM.format(guard=guard, kickoff=kickoff))
        return children.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)

    return run_it


def test_steps_of_the_script_itself_are_found_if_it_kicks_off_where_it_should(script, tmp_path):
    done = script()
    assert done.stdout == "2\n", done.stderr
    (tmp_path / ".checkpoints").rename(tmp_path / "before")
    assert "if __name__ == '__main__':" in script(guard="True").stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signal masks")
def test_ctrl_c_which_reaches_the_process_while_it_starts_is_no_crash_of_the_step(script):
    done = script(guard="__name__ == '__main__' or __import__('signal').raise_signal(2)")
    assert done.stdout == "2\n", done.stderr


def test_an_isolated_step_that_was_typed_into_a_notebook_is_told_so(tmp_path):
    program = PROGRAM.format(guard="True", kickoff="pipeline.kickoff(run_id='one')")
    done = children.run([sys.executable, "-"], input=program, cwd=tmp_path, capture_output=True, text=True)
    assert "ConfigError: @step 'work' is work, which is in no file: it was typed into a notebook" in done.stderr
    assert "at the top level of a module" in done.stderr


def test_classes_of_the_script_itself_are_the_same_on_both_sides(script):
    done = script("shapes.kickoff()")
    assert (done.stdout, done.stderr) == ("(True, Data(n=2))\n", "")


def test_a_step_that_is_cut_in_its_first_moments_leaves_no_process_behind(tmp_path):
    flag = str(tmp_path / "pid")

    async def main(moment):
        run = asyncio.create_task(flow(lambda: far.hangs(flag)).akickoff())
        await asyncio.sleep(moment)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    for moment in (0.0, 0.002, 0.005, 0.01, 0.02, 0.05):
        asyncio.run(main(moment))
    children.until(lambda: not multiprocessing.active_children())
