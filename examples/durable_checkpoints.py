"""A function of three phases, one of which makes something up: it goes back to the last good place, and is told.

python examples/durable_checkpoints.py            # the second phase is done twice, the first one once
python examples/durable_checkpoints.py --kill     # the same, and the process dies in the middle of the recovery
python examples/durable_checkpoints.py            # goes on behind the rollback: phase 1 is not done again
"""

import os
import signal
import sys

from crewlite import CheckpointConfig, FailurePolicy
from crewlite.flow import record_step, recoverable, step
from crewlite.recovery import escalate, rollback_to_checkpoint

POLICY = FailurePolicy(
    HALLUCINATED_STATE=rollback_to_checkpoint(),
    UNKNOWN=rollback_to_checkpoint(),  # what rules cannot tell; HybridClassifier(llm=...) asks a model
    default=escalate(),
)
HERE = CheckpointConfig(location="durable.db", on_events=["step_completed"])


@step
def fetch(task: str) -> int:
    print(f"phase 1: fetch the data for {task!r}", flush=True)
    return 42


@step
def process(records: int, hint: str) -> str:
    """Stands for a model, which claims too much until it is told."""
    print(f"phase 2: process {records} records{', told what was wrong' if hint else ''}", flush=True)
    if hint and "--kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"processed {records} records" if hint else "I have processed all 100 records successfully."


@step
def report(processed: str) -> str:
    print("phase 3: report", flush=True)
    return "Report generated."


@recoverable(policy=POLICY, checkpoint=HERE, max_recovery_attempts=3, verbose=True)
def multi_phase_agent(task: str, hint: str) -> str:
    """Each attempt calls all phases; finished ones answer from the record, unless they are asked something else."""
    records = fetch(task)
    record_step("fetch_data", tool="fetch", output={"records": records})
    if str(records) not in (processed := process(records, hint)):
        problem = f"agent claimed 100 records but tool returned {records}"
        record_step("process_data", tool="process", error=problem, said=processed)
        raise AssertionError(problem)
    report(processed)
    return f"Done. {processed.capitalize()} for task: {task}"


if __name__ == "__main__":
    print(multi_phase_agent.kickoff("Analyse Q1 sales data", run_id="q1"))
