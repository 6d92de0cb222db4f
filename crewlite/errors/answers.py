"""Errors of answers: one that does not fit its question or its class, and one that never came."""

from __future__ import annotations

from crewlite.errors.root import CrewliteError
from crewlite.errors.run import RunMismatch
from crewlite.texts.resuming import branch_ref
from crewlite.texts.wording import cut


class AnswerRefused(CrewliteError, ValueError):
    """An answer does not fit its question or call, which still waits; or it is a second one, and the first counts."""

    code = "answer_refused"
    ends_run = True

    def __init__(
        self,
        address: str,
        problem: str,
        *,
        edit: bool = False,
        second: bool = False,
        unused: bool = False,
        by_run: bool = False,
        other_call: bool = False,
    ) -> None:
        """`edit`: whether the answer is an edit of a fork; `second`: whether the question has an answer that counts.

        `by_run`: whether the answer was recorded, and the run that read it refused it. With `second`, it is
        the recorded outcome of its question, no longer accepted by the program. `edit` and `second` exclude each other.
        `other_call`: whether it is the result of a call in doubt in whose place another call is requested.
        `unused`, with `second`: whether the run has not used the first answer yet, so that another may replace it.
        """
        what, next_ = ("edit of", "fork again") if edit else ("answer to", "answer again")
        if unused:
            next_ = (
                f"the run has not used that answer yet, so another may replace it: "
                f"history.answer(run, {address!r}, ..., replace=True)"
            )
        elif second:
            next_ = f"for another answer, fork the run with edits={{{address!r}: ...}}"
        elif other_call:
            next_ = (
                f"request the call with the arguments that it was begun with; or, if that call took no effect or both "
                f"calls are wanted, make the present one, with rerun=[{address!r}]"
            )
        follows = "Nothing was changed"
        if by_run:
            kept = edit or second
            follows = "The branch cannot go on with it" if kept else "The answer is withdrawn, and the question waits"
        self.found = f"The {what} {address} was refused: {problem}"
        super().__init__(f"{self.found}. {follows}: {next_}.")
        self.address, self.problem, self.by_run = address, problem, by_run
        self.edit, self.second, self.unused, self.other_call = edit, second, unused, other_call


class AnswerMisfit(RunMismatch):
    """A recorded answer does not fit the output class that it is to have now."""

    code = "answer_misfit"

    def __init__(
        self,
        what: str,
        model: str,
        problem: str,
        *,
        address: str = "",
        edited: str = "",
        run_id: str = "",
        branch: str = "",
    ) -> None:
        """`what`: whose answer it is, such as "task 'judge'"; `address`: the address of its step.

        `edited`: the same address, if the answer is an edit, made by the fork of this branch or of one it stands on.
        """
        ref = branch_ref(run_id, branch)
        instead = f"fork {ref!r} with rerun=[{address!r}] to ask again" if address else "begin another run"
        if edited:
            unfit = f"does not fit {model}, the class of {what} ({problem})"
            self.found = f"The edit of {edited} {unfit}. The branch cannot go on with it"
            instead = f"fork {ref!r} with another edit, or with rerun=[{edited!r}]"
            super().__init__(f"{self.found}: {instead}.")
        else:
            self.found = f"{what} is finished, but its recorded answer does not fit {model} ({problem})"
            super().__init__(f"{self.found}. Use the class as it was then, or {instead}.")
        self.what, self.model, self.problem, self.edited = what, model, problem, edited
        self.address = edited or address

    def at(self, address: str, *, edited: bool, run_id: str, branch: str) -> AnswerMisfit:
        """Return this error with the address of its step; unchanged if it has one already."""
        if self.address or not address:
            return self
        where = {"address": address, "run_id": run_id, "branch": branch} | ({"edited": address} if edited else {})
        return AnswerMisfit(self.what, self.model, self.problem, **where)


class AnswerTimeout(CrewliteError, TimeoutError):
    """Nobody answered the question at an address in time (seconds)."""

    code = "answer_timeout"

    def __init__(self, address: str, limit: float, question: str) -> None:
        """`address`: "" if the run was recorded before addresses were kept."""
        asked = cut(" ".join(question.split()), 300)
        super().__init__(
            f"Nobody answered {asked} within {limit:g} s. To go on without an answer, catch this error "
            f"where the flow asks. To be asked again, fork the run with the question in rerun."
        )
        self.address, self.limit, self.question = address, limit, question
