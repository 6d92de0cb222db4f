"""The tests leave nothing behind, wait for nothing for ever, and run in the background as at a terminal."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests import children, in_memory
from tests.children import posix
from tests.growth import counted

TESTS = Path(__file__).parents[1]

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
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("heeded", end=" ")
print(children.run([sys.executable, "-c", look], capture_output=True, text=True).stdout)
"""


@posix
def test_signals_are_heeded_though_whoever_started_the_tests_ignores_them():
    done = children.run(
        [*children.IN_THE_BACKGROUND, sys.executable, "-c", HEEDS], cwd=TESTS.parent, capture_output=True, text=True
    )
    assert done.stdout.strip() == "heeded [True, True, True]", done.stderr


def test_a_child_that_does_not_end_is_killed_and_fails_the_test_with_what_it_said():
    with pytest.raises(AssertionError, match="has not ended in 5 s. So far: b'here"):
        children.run([sys.executable, "-c", WAITS], capture_output=True, timeout=5)


@posix
def test_what_a_child_started_ends_with_the_test_also_if_the_child_is_gone():
    with children.ended():
        child = children.Child([sys.executable, "-c", STARTS], stdout=children.PIPE, text=True)
        grandchild = int(child.stdout.readline())
        child.kill()
        child.wait()
        assert children.alive(grandchild)
    children.until(lambda: not children.alive(grandchild))


PROGRAMS = {
    "arguments": "import os, sys; print(sys.argv, sys.path, sys.orig_argv[1:3], os.getcwd(), __name__)",
    "environment": "import os; print(sorted(item for item in os.environ.items() if item[0] != 'LC_CTYPE'))",
    "interpreter": "import codecs, sys; print(sys.dont_write_bytecode, codecs.lookup(sys.stdout.encoding).name, sys.stdin.errors)",
    "streams": "import sys; print(input()); print('ü', file=sys.stderr); print(sys.stdout.line_buffering, sys.stderr.write_through)",
    "descriptors": "import os; print(sorted(os.listdir('/dev/fd')))",
    "group": "import os; print(os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), os.getppid())",
    "error": "def f():\n    raise ValueError('no') from KeyError('why')\nf()",
    "status": "raise SystemExit(7)",
    "message": "raise SystemExit('no')",
    "interrupt": "import atexit; atexit.register(print, 'end'); raise KeyboardInterrupt",
    "killed": "import os; print('here', flush=True); os.kill(os.getpid(), 9)",
    "end": (
        "import atexit, threading\n"
        "atexit.register(print, 'end')\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
        "print('main')"
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="programs are forked from a warm process on Linux alone")
@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("begins", ["code", "file", "module"])
def test_a_program_that_is_forked_is_like_one_that_is_started(code, begins, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(code)
    words = {"code": ["-c", code], "file": ["program.py"], "module": ["-m", "program"]}
    command = [sys.executable, *words[begins], "one", "two"]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    plain, own = dict(os.environ), {**os.environ, "PYTHONIOENCODING": "latin1", "OWN": "1"}
    for more in ({"env": plain}, {"env": plain, "start_new_session": True}, {"env": own}):
        forked, started = (
            children.run(command, capture_output=True, input=b"said\n", cold=cold, **more) for cold in (False, True)
        )
        assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
        assert frames(forked.stderr) == frames(started.stderr)


def frames(traceback):
    """A traceback without the lines of code: Python 3.13 knows those of `-c` too."""
    return [line for line in traceback.splitlines() if not line.startswith(b"    ")]


def test_work_is_counted_without_the_garbage_of_earlier_code():
    async def left():
        for _ in range(200):
            task = asyncio.create_task(asyncio.sleep(0, result := []))  # which asyncio lists until it is collected
            result.append(task)
            await task

    def work():
        return sum(counted(lambda: asyncio.run(asyncio.sleep(0))).values())  # which looks for all tasks at its end

    work()  # what is made at the first use alone is there
    before = work()
    gc.disable()
    try:
        asyncio.run(left())
        assert work() == before
    finally:
        gc.enable()


@pytest.mark.skipif(os.name == "nt", reason="make test keeps nothing in memory there")
def test_tests_write_to_memory_where_there_is_room_and_no_other_place_is_chosen(tmp_path, monkeypatch):
    memory, usual = str(tmp_path), tempfile.gettempdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    assert in_memory.directory(memory, room=0) == memory
    assert in_memory.directory(memory, room=1 << 60) == usual
    assert in_memory.directory(str(tmp_path / "none"), room=0) == usual
    monkeypatch.setenv("TMPDIR", usual)
    assert in_memory.directory(memory, room=0) == usual
