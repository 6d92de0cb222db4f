"""`make demo-flow`: the newsletter is killed in the middle, goes on, waits for a person, is approved and drawn.

Each life is a process of its own, and the kills are real. What has finished does not run again. A method that was cut
does, and the crew inside it answers from the record.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

NEWSLETTER = Path(__file__).with_name("newsletter.py")


def life(*answer: str, kill_at: str | None = None) -> None:
    """Run the newsletter in a process; kill it once it prints a line that begins with `kill_at`."""
    print(f"\n$ python examples/newsletter.py {' '.join(answer)}", flush=True)
    command = [sys.executable, str(NEWSLETTER), *answer]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=place) as child:
        for line in child.stdout or ():
            print(f"  {line}", end="", flush=True)
            if kill_at and line.startswith(kill_at):
                child.kill()  # SIGKILL: nothing in the process hears of it
                print("  killed", flush=True)
                break


place = sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp(prefix="crewlite-newsletter-")
life(kill_at="checked style")
life(kill_at="wrote")
life()
life("yes")
