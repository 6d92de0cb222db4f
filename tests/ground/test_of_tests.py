"""The tests leave nothing behind, wait for nothing for ever, and run in the background as at a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import children

TESTS = Path(__file__).parents[1]
posix = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals to another process")

WAITS = "import sys, time; print('here', flush=True); time.sleep(600)"
STARTS = f"""
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", {WAITS!r}], stdout=subprocess.DEVNULL).pid, flush=True)
time.sleep(600)
"""
HEEDS = """
import os, signal, sys
from tests import children
children.heed_signals()
look = "import signal; print([signal.getsignal(n) is not signal.SIG_IGN for n in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)])"
os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGINT)
print(children.run([sys.executable, "-c", look], capture_output=True, text=True).stdout)
"""


@posix
def test_a_child_heeds_signals_though_whoever_started_the_tests_ignores_them():
    done = children.run(
        [*children.IN_THE_BACKGROUND, sys.executable, "-c", HEEDS], cwd=TESTS.parent, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[True, True, True]", done.stderr


def test_a_child_that_does_not_end_is_killed_and_fails_the_test_with_what_it_said():
    with pytest.raises(AssertionError, match="has not ended in 2 s. So far: b'here"):
        children.run([sys.executable, "-c", WAITS], capture_output=True, timeout=2)


@posix
def test_what_a_child_started_ends_with_the_test_also_if_the_child_is_gone():
    with children.ended():
        child = children.Child([sys.executable, "-c", STARTS], stdout=children.PIPE, text=True)
        grandchild = int(child.stdout.readline())
        child.kill()
        child.wait()
        assert children.alive(grandchild)
    children.until(lambda: not children.alive(grandchild))
