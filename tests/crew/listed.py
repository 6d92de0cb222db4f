"""What a location holds, as its history lists it: the checkpoints of a run, and the branches of all runs."""

from __future__ import annotations

from crewlite import History


def checkpoints(config, ref="latest"):
    with History(config.location, config.provider) as history:
        return history.run(ref).checkpoints()


def branches(stored):
    with History(stored().location, provider=stored().provider) as history:
        return [run.branch for run in history.runs()]
