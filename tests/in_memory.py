"""Where `make test` has the tests write: to memory, if this machine has a directory that is kept there.

Most tests write a store and sync it at each commit. On a disk that takes about a tenth of the CPU time of all tests, and they
wait for it besides, for files that are gone a minute later. `make check`, `make soak` and `.ci/run` write to the disk.

Run as a program, this prints the directory. It is the usual one for temporary files where there is none in memory, or where
TMPDIR says which.
"""

from __future__ import annotations

import os
import shutil
import tempfile

SHARED = "/dev/shm"  # of Linux
ROOM = 4 << 30  # bytes: some times what the tests write; containers often have 64 MiB


def directory(shared: str = SHARED, room: int = ROOM) -> str:
    """`shared`, if nothing else is chosen, it has so much room, and programs in it can be run."""
    usual = tempfile.gettempdir()
    if "TMPDIR" in os.environ or not os.access(shared, os.W_OK | os.X_OK):
        return usual
    runs_programs = not os.statvfs(shared).f_flag & os.ST_NOEXEC
    return shared if runs_programs and shutil.disk_usage(shared).free > room else usual


if __name__ == "__main__":
    print(directory())
