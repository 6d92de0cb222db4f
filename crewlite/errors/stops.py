"""Errors with which a run stops although nothing in it has failed."""

from __future__ import annotations

from crewlite.errors.answers import AnswerMisfit, AnswerRefused
from crewlite.errors.record import BranchConflictError, ChangeUnused, JournalCorrupt, StoreError
from crewlite.errors.root import CrewliteError
from crewlite.errors.run import InDoubt, NonDeterminism, RunCancelled, Suspended, TaskDrifted
from crewlite.texts.resuming import call_again, to_resume

_UNITS = {
    "max_tokens": "tokens",
    "max_cost_usd": "US dollars",
    "max_execution_time": "seconds at work",
    "max_iter": "replies of models",
}


class BudgetExceeded(CrewliteError, RuntimeError):
    """A budget of a crew, a task or an agent is used up, so its run has stopped before the next model call.

    `owner` has the budget, such as "task 'write'"; `setting` names it; `used` and `limit` are in its unit: tokens, US
    dollars, seconds or replies. Do not catch it inside a run: the run stops all the same.
    """

    code = "budget_exceeded"
    ends_run = True

    def __init__(
        self,
        owner: str,
        setting: str,
        *,
        limit: float,
        used: float,
        run_id: str,
        location: str | None = None,
        branch: str = "main",
        kind: str = "crew",
    ) -> None:
        self.owner, self.setting, self.limit, self.used = owner, setting, limit, used
        self.run_id, self.location, self.branch = run_id, location, branch
        if location is None:
            way_on = f"Nothing was saved: to be able to go on, give what you kick off checkpoint=True. Raise {setting}."
        else:
            way_on = (
                f"Its record is kept: raise {setting} of the {self.of} and {call_again(kind)} with "
                f"{to_resume(run_id, branch)} to go on."
            )
        super().__init__(f"{self.found}, so the run has stopped. {way_on}")

    @property
    def of(self) -> str:
        """What has the budget: crew, task or agent."""
        return self.owner.partition(" ")[0]

    @property
    def found(self) -> str:
        """What was used, and the limit, in words."""
        used, limit = _number(self.used), _number(self.limit)
        return f"{self.owner} has used {used} {_UNITS[self.setting]}, and its {self.setting} is {limit}"


class TimeBudgetExceeded(BudgetExceeded, TimeoutError):
    """The budget that is used up is `max_execution_time`."""

    code = "time_budget_exceeded"


class ProgramEnding(CrewliteError, RuntimeError):
    """The main thread of the program has ended, so Python refuses a thread that the run needs, and the run has stopped.

    None of its steps has failed, and the same program goes on when it is started again. `refusal`: what Python said.
    """

    code = "program_ending"
    ends_run = True

    def __init__(self, refusal: str) -> None:
        super().__init__(
            f"The main thread of this program has ended, so Python refuses a thread that the run needs ({refusal}). "
            f"The run has stopped, and none of its steps has failed. Start the program again to go on, and let its "
            f"main thread wait until the run has ended"
        )
        self.refusal = refusal


STOPS = (Suspended, AnswerRefused, BudgetExceeded, ProgramEnding)
"""Errors that stop a run until somebody acts."""

NOT_TO_SWALLOW = (*STOPS, InDoubt, AnswerMisfit, NonDeterminism, TaskDrifted, ChangeUnused)
"""Errors that code of the run cannot swallow: the enclosing steps stop too. The last five say that somebody has to
decide what the record means before the run can go on."""

CONTROL_FLOW = (StoreError, BranchConflictError, JournalCorrupt, RunCancelled, *STOPS)
"""Errors that a step raises without having failed itself: storage failed, the run was stopped, it waits for a person,
or a budget is used up. They end the attempt, and are not recorded as its failure."""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
