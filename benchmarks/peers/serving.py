"""The other end of `player.py`: plays a scene for each line that is asked, and answers with a line.

Runs in the environment of any framework, so it needs nothing but Python.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER = "the tide follows the moon and the moon follows nobody at all ".ljust(200, "~")
"""What the models answer, after a number."""


def serve(package: str, **scenes: Callable[..., dict[str, Any]]) -> None:
    """Say which version of `package` is here, then play until nobody asks any more. With arguments: see `alone`."""
    if len(sys.argv) > 1:
        print(json.dumps(scenes[sys.argv[1]](**json.loads(sys.argv[2]))))
        return
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what a framework prints must not stand between the answers
    print(json.dumps({"version": importlib.metadata.version(package)}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = scenes[asked.pop("scene")](**asked)
        except Exception as error:
            answer = {"broken": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


def alone(scene: str, **how: Any) -> dict[str, Any]:
    """Play a scene in a new process. Nothing came out if the process died of it."""
    command = [sys.executable, sys.argv[0], scene, json.dumps(how)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes. Garbage of what ran before is collected first."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def whole(found: int, expected: int) -> int:
    """`found`, if it is as many as it must be."""
    if found != expected:
        raise ValueError(f"there are {found}, not {expected}")
    return found


def size(directory: str) -> int:
    """Bytes of all files in a directory."""
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
