"""What people coming from triage's page on rollback expect, as far as it is here.

A phase is a `@step`; what was recorded before a failure stays, and the phase that failed is tried again.
"""

from __future__ import annotations

from crewlite import CheckpointConfig, History
from crewlite.events import RecoveryStartedEvent
from crewlite.flow import flow, step
from crewlite.testing import EventRecorder


def test_a_phase_that_fails_is_tried_again_from_the_end_of_the_phase_before(tmp_path):
    database, ran = str(tmp_path / "triage.db"), []

    @step
    def fetch():
        ran.append("fetch")
        return 42

    @step(retries=3)
    def process(records):
        ran.append("process")
        if ran.count("process") == 1:
            raise ValueError("the state was made up")
        return records

    @step
    def report(records):
        ran.append("report")
        return f"Done. Processed {records} records"

    @flow(checkpoint=CheckpointConfig(location=database, on_events=["step_completed"]))
    def pipeline():
        return report(process(fetch()))

    with EventRecorder() as heard:
        assert pipeline.kickoff(run_id="one") == "Done. Processed 42 records"
    assert ran == ["fetch", "process", "process", "report"]
    [recovery] = heard.of(RecoveryStartedEvent)
    assert (recovery.address, recovery.attempt) == ("step:process", 1)
    with History(database) as history:
        assert history.checkpoint("latest").version == 3
        assert [a.error_type for a in history.run("one").attempts] == ["ValueError"]
