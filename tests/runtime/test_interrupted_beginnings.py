"""Ctrl-C while the first kickoff of a process begins its threads is Ctrl-C, and the next kickoff has them."""

from __future__ import annotations

import os
import sys

import pytest

from tests import children

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a signal there does not interrupt a wait")

SCRIPT = """
import signal, sys, threading
from crewlite.flow import flow

@flow
def survey():
    return 1

def interrupts_once(frame, event, arg):
    if event == "call" and frame.f_code is threading.Event.wait.__code__ and frame.f_back.f_code is begin:
        sys.setprofile(None)
        frame.f_locals["self"].wait()  # until it has begun
        signal.raise_signal(signal.SIGINT)

begin = threading.Thread.start.__code__
sys.setprofile(interrupts_once)
try:
    survey.kickoff()
except KeyboardInterrupt:
    print("interrupted")
print(survey.kickoff())
"""


def test_ctrl_c_while_the_thread_of_the_event_loop_begins_is_raised_and_the_next_kickoff_has_one():
    script = [sys.executable, "-W", "error", "-c", SCRIPT]
    done = children.run(script, capture_output=True, text=True, cold=True)
    assert (done.stderr, done.stdout.split()) == ("", ["interrupted", "1"])
