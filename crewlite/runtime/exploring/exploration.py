"""The result of `explore`: a row for each variant, as data and as a printed table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from crewlite.errors import meant
from crewlite.pages.rendering import cost, duration
from crewlite.state.run_history import Base
from crewlite.texts.wording import cut, escaped, table
from crewlite.usage import NO_USAGE, Usage

VariantStatus = Literal["finished", "failed", "waiting", "stopped", "cancelled"]
_SHOWN = 100  # characters of an output that the table shows
_SHOWN_OF_AN_ERROR = 500  # the end of an error says what to do


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one variant."""

    name: str
    ref: str
    """The branch of the variant, as `run/branch`: fork, diff or explore it under this ref."""
    status: VariantStatus
    """`waiting`: for a person's answer. `stopped`: by a budget. Exploring again continues all but `finished`
    variants."""
    output: str = ""
    """The text of the result; "" if the variant has not finished."""
    score: float | None = None
    reason: str = ""
    """The judge's reason for the score."""
    usage: Usage = NO_USAGE
    """The tokens and cost of the branch, without what was paid before the fork and without the judge."""
    judge_usage: Usage = NO_USAGE
    seconds: float = 0.0
    """How long the branch has worked since the fork, in all kickoffs; parallel steps count once."""
    error: str = ""
    """Why the variant has not finished, or was not judged; "" if there is no problem."""
    waiting: dict[str, str] = field(default_factory=dict)
    """The open questions to people, by address."""
    result: Any = field(default=None, repr=False, compare=False)
    """What the kickoff returned, such as a CrewOutput; None if the variant has not finished."""
    definition: Any = field(default=None, repr=False, compare=False)
    """The crew, agent or flow that ran the variant, with its model and prompt, for continuing from `ref`."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """A comparison of variants of one run, in the order in which they were given. Print it for a table."""

    study: str
    run_id: str
    location: str
    base: Base
    """The commit that all variants are forked from."""
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row | None:
        """The row with the highest score; the first of several; None if none has a score."""
        return max((row for row in self.rows if row.score is not None), key=lambda row: row.score or 0.0, default=None)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        known = [row.name for row in self.rows]
        raise KeyError(f"no variant {name!r}; {meant(str(name), known) or 'there are ' + ', '.join(known)}")

    def __str__(self) -> str:
        cells = [["variant", "status", "score", "tokens", "cost", "time", "branch"]]
        cells += [[row.name, row.status, *numbers_of(row), row.ref] for row in self.rows]
        return "\n".join([table(cells), "", *(f"{row.name}: {said_by(row)}" for row in self.rows)])


def numbers_of(row: Row) -> list[str]:
    """Return the score, tokens, cost and time of a row as texts."""
    score = "-" if row.score is None else f"{row.score:g}"
    return [score, f"{row.usage.total_tokens:,}", cost(row.usage.cost) or "-", duration(row.seconds)]


def said_by(row: Row) -> str:
    """Return a row's output, error or open question as one printable line."""
    questions = "; ".join(f"{address}: {question}" for address, question in row.waiting.items())
    said = f"{row.output} ({row.error})" if row.output and row.error else row.output or questions or row.error
    text, most = " ".join(said.split()), _SHOWN if row.output or questions else _SHOWN_OF_AN_ERROR
    return escaped(cut(text, most))
