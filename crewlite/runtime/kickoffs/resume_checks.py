"""Check a kickoff of a recorded run and find what it continues with. Kickoffs and previews share this.

Whatever can prevent the kickoff is raised here, before anything is written or paid.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from crewlite.runtime.kickoffs.answers import answers_given, approvals_given
from crewlite.runtime.kickoffs.joining import check_joined
from crewlite.runtime.kickoffs.request import Request
from crewlite.runtime.kickoffs.resumption import (
    check_newest,
    check_rerun,
    check_variant,
    definition_now,
    inputs_of,
    kept_result,
)
from crewlite.runtime.kickoffs.root import Root
from crewlite.runtime.kickoffs.secret_inputs import refuse_masked
from crewlite.runtime.steps.questions import Drifted
from crewlite.state.config import CheckpointConfig
from crewlite.state.format.commit import CommitParts
from crewlite.state.journal.journal import Journal
from crewlite.state.reading.located import Located


class Resumed(NamedTuple):
    """What a kickoff continues with."""

    inputs: dict[str, Any]
    parts: CommitParts
    """What the first commit records: inputs, answers, approvals and a definition that are new."""
    drifted: tuple[Drifted, ...] | None = None
    """If the stored result is returned: the steps whose answers it keeps though their questions have changed, mostly
    none. None if the run goes on."""


async def check_resume(
    root: Root[Any], request: Request, journal: Journal, found: Located, config: CheckpointConfig
) -> Resumed:
    """Check a kickoff of the run in `journal`, and return what it continues with. `found`: the place that it names.

    Raises what `inputs_of`, `kept_result`, `answers_given` and the checks called here raise.
    """
    record = journal.record
    inputs, others = inputs_of(root, request, journal)
    if record.fresh:
        root.check_beginning(inputs, record)
    if request.progress.waited:
        check_joined(root, journal)
    drifted = None if others else await kept_result(root, journal, inputs, config, found)
    answers = answers_given(root, journal, request, changed=bool(others), on_drift=config.on_drift)
    check_rerun(journal, request.attempts, root.kind)
    if drifted is not None:
        return Resumed(inputs, {}, drifted)
    refuse_masked(journal, request.inputs)
    check_newest(root, record, found)
    check_variant(root, request, journal)
    return Resumed(inputs, others | answers | definition_now(root, journal) | approvals_given(journal, request))
