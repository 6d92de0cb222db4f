"""A process that cannot open one more file, as one with leaking connections: its runs fail as they would otherwise."""

from __future__ import annotations

import sys

import pytest

from tests import children

pytest.importorskip("resource", reason="bounds the open files of a process")

PROGRAM = """
import os, resource, sys
from crewlite import Agent, CheckpointConfig, Crew, Task
from crewlite.flow import flow, step
from crewlite.testing import ScriptedLLM

kept, config = [], CheckpointConfig(location=sys.argv[2], on_save_error=sys.argv[3])

def use_up(*_):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    try:
        while True:
            kept.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return "done"

def crew():
    who = Agent(role="Worker", goal="work", llm=ScriptedLLM(use_up))
    return Crew(tasks=[Task(description="Do it", expected_output="text", agent=who)], checkpoint=config).kickoff()

@flow(checkpoint=config)
def steps():
    return step(use_up)()

@flow(checkpoint=config)
def fails():
    use_up()
    raise KeyError("mine")

try:
    result = {"crew": crew, "steps": steps.kickoff, "fails": fails.kickoff}[sys.argv[1]]()
    sys.stdout.write(f"{getattr(result, 'durability', result)}\\n")
except Exception as error:
    sys.stdout.write(f"{type(error).__name__}\\n")
"""


@pytest.mark.parametrize(
    ("what", "on_save_error", "said"),
    [
        ("crew", "raise", "StoreError"),
        ("steps", "raise", "StoreError"),
        ("crew", "warn", "degraded"),
        ("steps", "warn", "done"),
        ("fails", "warn", "KeyError"),
    ],
)
def test_a_run_ends_as_it_would_though_no_module_can_be_imported_any_more(what, on_save_error, said, tmp_path):
    command = [sys.executable, "-c", PROGRAM, what, str(tmp_path / "store"), on_save_error]
    assert children.run(command, stdout=children.PIPE, text=True, cold=True).stdout == f"{said}\n"
