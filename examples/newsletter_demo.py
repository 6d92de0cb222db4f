"""`make demo-flow`: the newsletter is killed in the middle, goes on, waits for a person, is approved and drawn.

Each life is a process of its own, and the kills are real. What has finished does not run again. A method that was cut
does, and the crew inside it answers from the record.
"""

import builtins
import functools
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NEWSLETTER = Path(__file__).with_name("newsletter.py")
KILLED = "--killed-at"


def life(*answer: str, killed_at: str | None = None) -> None:
    """Run the newsletter in a process; it is killed as soon as it prints a line that begins with `killed_at`."""
    print(f"\n$ python examples/newsletter.py {' '.join(answer)}", flush=True)
    program = [__file__, KILLED, killed_at] if killed_at else [str(NEWSLETTER), *answer]
    with subprocess.Popen(
        [sys.executable, *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=place
    ) as child:
        for line in child.stdout or ():
            print(f"  {line}", end="", flush=True)
    if child.returncode and killed_at:
        print("  killed", flush=True)


def be_killed(line: str) -> None:
    """Be the newsletter, in a process that ends at once when it prints a line: nothing in it hears of a SIGKILL."""
    printed = print

    @functools.wraps(printed)
    def last_words(*words: object, **how: Any) -> None:
        printed(*words, **how)
        if " ".join(map(str, words)).startswith(line):
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    builtins.print, sys.argv = last_words, [str(NEWSLETTER)]
    runpy.run_path(str(NEWSLETTER), run_name="__main__")


if sys.argv[1:2] == [KILLED]:
    be_killed(sys.argv[2])
else:
    place = sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp(prefix="crewlite-newsletter-")
    life(killed_at="checked style")
    life(killed_at="wrote")
    life()
    life("yes")
