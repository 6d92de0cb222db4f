"""A signal that on_events names is an event like any other; those that end the process leave a run that can go on."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from crewlite import History
from tests import children

pytestmark = children.posix

PROGRAM = """
import asyncio, os, signal, sys, threading, time

from crewlite import Agent, CheckpointConfig, Crew, History, Task, event_bus
from crewlite.events import BaseEvent, SigContEvent, SigTermEvent
from crewlite.testing import ScriptedLLM

class Model(ScriptedLLM):
    async def acall(self, messages, **context):
        said = messages[1]["content"]
        print("asked", said.split(".")[0], flush=True)
        if "Do 1" in said:
            await wait()
        return "done"

async def wait():
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)

def crew(*on_events, store="store", inner=None):
    who = Agent(role="W", goal="g", llm=Model([]), checkpoint=CheckpointConfig(on_events=inner) if inner else None)
    tasks = [Task(name=f"t{n}", description=f"Do {n}{{more}}.", expected_output="x", agent=who, context=[]) for n in range(3)]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=store, on_events=on_events) if on_events else True)

inputs = {"more": ""}
"""
KICKOFF = "print(crew({}).kickoff(inputs, run_id='r').raw)"


class Child:
    """A program in a process of its own, which can be told to stand still."""

    def __init__(self, body, program=PROGRAM, started=()):
        self.process = children.Child(
            [*started, sys.executable, "-c", program + body],
            stdout=children.PIPE,
            stderr=children.PIPE,
            text=True,
        )

    def says(self, line):
        """Wait until it has printed a line."""
        for said in self.process.stdout:
            if said.strip() == line:
                return self
        raise AssertionError(f"it ended without {line!r}: {self.process.stderr.read()}")

    def send(self, number):
        self.process.send_signal(number)
        return self

    def ended(self):
        """What it said after all, on both streams, and its status."""
        out, err = self.process.communicate()
        return self.process.returncode, out.split("\n")[:-1], err

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def cut_by(number, body, *, at="asked Do 1"):
    with Child(body) as child:
        return child.says(at).send(number).ended()


def triggers(run_id="r", store="store"):
    with History(store) as history:
        return [checkpoint.trigger for checkpoint in history.run(run_id).checkpoints()]


@pytest.mark.parametrize("store", ["store", "store.db"])
def test_a_named_sigterm_is_a_checkpoint_and_a_run_that_goes_on(tmp_path, store):
    body = KICKOFF.format(f"'SIGTERM', 'task_completed', store={store!r}")
    status, _, said = cut_by(signal.SIGTERM, body)
    assert status == 143, said
    assert "Interrupted. To go on: run the same script again, or crew.kickoff(run_id='r')" in said
    with History(store) as history:
        run = history.run("r")
        assert run.status == "unfinished"
        checkpoint = run.checkpoints()[-1]
    assert (checkpoint.trigger, checkpoint.address, checkpoint.tasks) == ("SIGTERM", "", ("task:t0",))
    (tmp_path / "go").touch()
    with Child(body) as child:
        assert child.ended() == (0, ["asked Do 1", "asked Do 2", "done"], "")


def test_its_checkpoint_can_be_resumed_from(tmp_path):
    cut_by(signal.SIGTERM, KICKOFF.format("'SIGTERM'"))
    [checkpoint] = History("store").run("r").checkpoints()
    (tmp_path / "go").touch()
    with Child(f"print(crew('SIGTERM').kickoff(from_checkpoint={checkpoint.ref!r}).raw)") as child:
        assert child.ended() == (0, ["asked Do 1", "asked Do 2", "done"], "")


def test_a_sigterm_that_is_not_named_does_what_it_always_did(tmp_path):
    body = KICKOFF.format("'*'")
    status, _, said = cut_by(signal.SIGTERM, body)
    assert (status, said) == (-signal.SIGTERM, "")
    assert "SIGTERM" not in triggers()
    (tmp_path / "go").touch()
    with Child(body) as child:
        assert child.ended() == (0, ["asked Do 1", "asked Do 2", "done"], "")


def test_a_hang_up_ends_with_its_own_status():
    status, _, said = cut_by(signal.SIGHUP, KICKOFF.format("'SIGHUP', 'SIGTERM'"))
    assert status == 129
    assert "To go on" in said
    assert triggers() == ["SIGHUP"]


def test_a_named_ctrl_c_is_a_checkpoint_and_stays_a_keyboard_interrupt():
    body = "try:\n    crew('SIGINT').kickoff(inputs, run_id='r')\nexcept KeyboardInterrupt:\n    print('interrupted')"
    status, out, said = cut_by(signal.SIGINT, body)
    assert (status, out) == (0, ["interrupted"])
    assert "To go on" in said
    assert triggers() == ["SIGINT"]


def test_a_ctrl_c_that_is_not_named_leaves_no_checkpoint_beside_one_that_is():
    status, _, said = cut_by(signal.SIGINT, KICKOFF.format("'SIGTERM'"))
    assert status in (130, -signal.SIGINT)
    assert "To go on" in said
    assert triggers() == []


@pytest.mark.parametrize("how", ["kickoff(inputs, run_id='r')", "akickoff(inputs, run_id='r')"])
def test_ctrl_z_is_committed_then_the_process_stands_still_until_it_is_continued(tmp_path, how):
    body = f"""
raise_signal = signal.raise_signal
signal.raise_signal = lambda number: (raise_signal(number), time.sleep(0.2))  # others hear first that it goes on
event_bus.on(SigContEvent, lambda source, event: print("goes on", flush=True))
made = crew("SIGTSTP", "SIGCONT").{how}
print((asyncio.run(made) if asyncio.iscoroutine(made) else made).raw)
"""
    with Child(body) as child:
        child.says("asked Do 1").send(signal.SIGTSTP)
        _, status = os.waitpid(child.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == signal.SIGTSTP
        assert triggers() == ["SIGTSTP"]
        child.send(signal.SIGCONT).says("goes on")
        child.send(signal.SIGTSTP)  # a second time too
        _, status = os.waitpid(child.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        child.send(signal.SIGCONT).says("goes on")
        (tmp_path / "go").touch()
        assert child.ended() == (0, ["asked Do 2", "done"], "")
    assert triggers() == ["SIGTSTP", "SIGCONT", "SIGTSTP", "SIGCONT"]


@pytest.mark.parametrize(
    ("number", "caught"), [(signal.SIGTERM, "SystemExit(143)"), (signal.SIGINT, "KeyboardInterrupt()")]
)
def test_on_a_loop_of_ones_own_it_reaches_the_caller_when_the_journal_is_in_order(number, caught):
    name = signal.Signals(number).name
    body = f"""
async def main():
    try:
        await crew({name!r}).akickoff(inputs, run_id="r")
    except BaseException as error:
        print(repr(error), [place.trigger for place in History("store").run("r").checkpoints()])
        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        raise

asyncio.run(main())
"""
    status, out, said = cut_by(number, body)
    assert out == [f"{caught} ['{name}']", "True"]
    assert status in ((143,) if number == signal.SIGTERM else (130, -signal.SIGINT))
    assert "Interrupted. To go on: crew.kickoff(run_id='r')" in said


BOTH = """
waiting = 0
async def wait():
    global waiting
    waiting += 1
    if waiting == 2:
        print("both", flush=True)
    await asyncio.sleep(30)
"""


@pytest.mark.parametrize(
    "kickoff",
    [
        "crew('SIGTERM').kickoff_for_each([{'more': ' a'}, {'more': ' b'}], run_id='r')",
        """
async def main():
    await asyncio.gather(*[crew('SIGTERM').akickoff({'more': more}, run_id=f'r.{n}') for n, more in enumerate('ab')])
asyncio.run(main())
""",
    ],
    ids=["for each", "gather"],
)
def test_every_run_that_is_at_work_hears(kickoff):
    status, _, said = cut_by(signal.SIGTERM, BOTH + kickoff, at="both")
    assert status == 143
    assert "To go on" in said or "Call kickoff_for_each again" in said
    assert triggers("r.0") == triggers("r.1") == ["SIGTERM"]


STUBBORN = """
async def wait():
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        os.write(1, b"stubborn\\n")  # Python aborts if it ends while another thread is inside print
        {stays}
"""


def test_a_step_that_does_not_end_keeps_neither_checkpoint_nor_process():
    patient = "from crewlite.runtime.main_thread import handlers\nhandlers.GRACE = 60\n"
    body = patient + STUBBORN.format(stays="await asyncio.sleep(30)") + KICKOFF.format("'SIGTERM'")
    status, _, said = cut_by(signal.SIGTERM, body)
    assert status == 143
    assert "To go on" in said
    assert triggers() == ["SIGTERM"]


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(first):
    body = STUBBORN.format(stays="os.kill(os.getpid(), signal.SIGTERM), time.sleep(30)") + KICKOFF.format("'SIGTERM'")
    patient = "from crewlite.runtime.main_thread import handlers, signals\nhandlers.GRACE = signals._TO_STOP = 60\n"
    with Child(patient + body) as child:
        status, _, said = child.says("asked Do 1").send(first).says("stubborn").ended()
    assert status in (143, -signal.SIGTERM), "the second may come when the handlers of the first have been taken away"
    assert "To go on" not in said
    with History("store") as history:
        assert history.run("r").status == "unfinished"


def test_a_second_signal_that_comes_before_all_have_heard_of_the_first_does_not_wait_either():
    hurried = """
from crewlite.runtime.main_thread import handlers, signals
handlers.GRACE = signals._TO_STOP = 60
end = signals.Listener.end
signals.Listener.end = lambda self, name: (end(self, name), os.kill(os.getpid(), signal.SIGTERM))
"""
    body = hurried + STUBBORN.format(stays="await asyncio.sleep(30)") + KICKOFF.format("'SIGTERM'")
    with Child(body) as child:
        status, _, said = child.says("asked Do 1").send(signal.SIGTERM).ended()
    assert status == 143
    assert "To go on" not in said
    with History("store") as history:
        assert history.run("r").status == "unfinished"


def test_handlers_hear_it_as_any_other_event():
    body = """
@event_bus.on(SigTermEvent)
def heard(source, event, state):
    print(type(source).__name__, event.signal_number, event.reason, event.source_name, event.seq == state.seq)

@event_bus.on(SigTermEvent)
async def later(source, event):
    await asyncio.sleep(0.01)
    print("later")
""" + KICKOFF.format("'SIGTERM'")
    assert cut_by(signal.SIGTERM, body)[1] == ["Crew 15 asked to end crew True", "later"]


def test_an_agent_or_task_inside_may_name_it():
    status, _, _ = cut_by(signal.SIGTERM, KICKOFF.format("'task_completed', inner=['SIGTERM']"))
    assert status == 143
    assert triggers() == ["SIGTERM"]


def test_a_lone_agent_hears_it_too():
    body = """
config = CheckpointConfig(location="store", on_events=["SIGTERM"])
Agent(role="W", goal="g", llm=Model([]), checkpoint=config, verbose=True).kickoff("Do 1", run_id="r")
"""
    status, out, said = cut_by(signal.SIGTERM, body)
    assert status == 143
    assert any(line.endswith(" SIGTERM: asked to end") for line in out)
    assert "agent.kickoff(run_id='r')" in said
    assert triggers() == ["SIGTERM"]


@pytest.mark.parametrize("how", ["made.kickoff(inputs)", "asyncio.run(made.akickoff(inputs))"])
def test_the_programs_own_handler_hears_it_when_the_run_is_in_order(how):
    body = f"""
def own(number, frame):
    print("own", [place.trigger for place in History("store").runs()[0].checkpoints()], flush=True)
    sys.exit(7)

signal.signal(signal.SIGTERM, own)
made = crew("SIGTERM")
{how}
"""
    assert cut_by(signal.SIGTERM, body)[:2] == (7, ["own ['SIGTERM']"])


def test_a_program_whose_own_handler_exits_leaves_a_run_in_order():
    body = "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))\n" + KICKOFF.format("'task_completed'")
    status, _, said = cut_by(signal.SIGTERM, body)
    assert status == 7
    assert "To go on" in said


def test_what_the_process_ignores_stays_ignored(tmp_path):
    body = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + KICKOFF.format("'SIGHUP', 'SIGTERM'")
    with Child(body) as child:
        child.says("asked Do 1").send(signal.SIGHUP)
        (tmp_path / "go").touch()
        status, out, said = child.ended()
    assert (status, out) == (0, ["asked Do 2", "done"])
    assert "SIGHUP will not be heard" in said


@pytest.mark.parametrize("asked", ["'*'", "'SIGHUP', 'SIGINT', 'SIGTERM'"], ids=["not named", "named"])
def test_a_run_in_the_background_goes_on_when_its_terminal_is_gone(tmp_path, asked):
    with Child(KICKOFF.format(asked), started=children.IN_THE_BACKGROUND) as child:
        child.says("asked Do 1").send(signal.SIGHUP).send(signal.SIGINT).send(signal.SIGQUIT)
        (tmp_path / "go").touch()
        status, out, said = child.ended()
    assert (status, out) == (0, ["asked Do 2", "done"])
    assert not {"SIGHUP", "SIGINT"} & set(triggers())
    assert ("SIGHUP, SIGINT will not be heard: this process ignores it" in said) is ("SIGHUP" in asked)


def test_a_run_in_the_background_is_ended_by_what_is_not_ignored():
    with Child(KICKOFF.format("'SIGHUP', 'SIGTERM'"), started=children.IN_THE_BACKGROUND) as child:
        status, _, said = child.says("asked Do 1").send(signal.SIGTERM).ended()
    assert status == 143
    assert "To go on" in said
    assert triggers() == ["SIGTERM"]


def test_a_forked_child_can_be_ended():
    body = """
async def wait():
    import warnings
    warnings.simplefilter("ignore")
    pid = os.fork()
    if not pid:
        os._exit(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    print("default", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
""" + KICKOFF.format("'SIGTERM'")
    with Child(body) as child:
        assert child.says("default 1").ended()[0] == 0
