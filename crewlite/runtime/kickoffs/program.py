"""Names for the runs of a program, given from outside: `CREWLITE_RUN_ID=night-7 python main.py`.

Every kickoff that names no run then gets a run_id made of this name, the definition, its inputs, and the number of
equal kickoffs before it in this program; for a turn of a state that `@persist` keeps, this text is its operation_id. If
the program is started again, finished runs return their stored results and interrupted runs are resumed.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

from crewlite.encoding.codec import digest, encode
from crewlite.errors import ConfigError
from crewlite.refs import as_run_id
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.secret_inputs import refuse_to_find_by
from crewlite.state.config import CheckpointConfig
from crewlite.system.forked import lock

NAME = "CREWLITE_RUN_ID"
_asked: Counter[str] = Counter()
_lock = lock()


def named_by_program(root: Root[Any], request: Request) -> Request:
    """Return the request with a run_id made for this program, or with an operation_id if its inputs name the run.

    The request is returned unchanged if the environment names no program, if the request names a run itself, or if the
    definition has checkpoint=False. Raises ConfigError if the name in the environment cannot be used in a run_id.
    """
    program = os.environ.get(NAME)
    given = (request.run_id, request.operation_id, request.from_checkpoint)
    if not program or request.resume or given != (None, None, None) or root.setting is False:
        return request
    try:
        as_run_id(program)
    except ConfigError as error:
        raise ConfigError(f"{NAME}: {error}") from None
    refuse_to_find_by(request.inputs or {}, NAME)
    question = digest([root.identity, encode(dict(request.inputs or {}), "inputs")])[:8]
    with _lock:
        _asked[f"{program}.{question}"] += 1
        number = _asked[f"{program}.{question}"]
    name = f"{program}.{question}.{number}" if number > 1 else f"{program}.{question}"
    if root.continuing(request):
        return replace(request, operation_id=name)
    return replace(request, run_id=name, from_checkpoint=CheckpointConfig())
