"""A program whose runs are named from outside: `CREWLITE_RUN_ID=night-7 python main.py`.

Every kickoff that names no run of its own is then kept under a name made of this one, of what is kicked off and with
which inputs, and of how often the program has asked that before. Started again, the program goes on: what is finished
answers from the record, and what was cut goes on where it was.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

from crewlite.codec import digest, encode
from crewlite.errors import ConfigError
from crewlite.forked import lock
from crewlite.refs import as_run_id
from crewlite.runtime.request import Request
from crewlite.runtime.root import Root
from crewlite.state.config import CheckpointConfig

NAME = "CREWLITE_RUN_ID"
_asked: Counter[str] = Counter()
_lock = lock()


def named(root: Root[Any], request: Request) -> Request:
    """The request with the name that its run has in this program; as it is, if the program or the run has another.

    Raises ConfigError if the program's name is none.
    """
    program = os.environ.get(NAME)
    names_one = request.run_id is not None or request.resume or request.from_checkpoint is not None
    if not program or names_one or root.setting is False:
        return request
    try:
        as_run_id(program)
    except ConfigError as error:
        raise ConfigError(f"{NAME}: {error}") from None
    question = digest([root.identity, encode(dict(request.inputs or {}), "inputs")])[:8]
    with _lock:
        _asked[f"{program}.{question}"] += 1
        number = _asked[f"{program}.{question}"]
    again = f".{number}" if number > 1 else ""
    return replace(request, run_id=f"{program}.{question}{again}", from_checkpoint=CheckpointConfig())
