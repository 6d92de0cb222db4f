"""One crew, kicked off for many inputs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload
from uuid import UUID

from crewlite.crew.output import CrewOutput
from crewlite.keywords import known_keywords
from crewlite.lazy import lazy
from crewlite.tracebacks import shortened

many = lazy("crewlite.runtime.kickoffs.many")  # it needs the engine

_GO_ON = "give the runs a name, run_id='NAME': the same call again goes on with those that are unfinished"
_ALONE = "it is about one run: call kickoff(run_id='NAME.0', {}) for the run of inputs[0], then this again"
_OF_ONE_RUN = {
    "resume": _GO_ON,
    "from_checkpoint": _GO_ON,
    "answers": _ALONE.format("answers={...}"),
    "rerun": _ALONE.format("rerun=[...]"),
}
"""What to write instead of the options of a kickoff that are about one run."""


class EachOptions(TypedDict, total=False):
    """The options of a kickoff for many inputs."""

    run_id: str | UUID | None
    max_concurrency: int | None
    auto_approve: bool | None
    wait: bool


class ForEach:
    """The methods of a crew that kick it off once for each of many inputs."""

    @overload
    def kickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: Literal[True], **options: Unpack[EachOptions]
    ) -> list[CrewOutput | Exception]: ...
    @overload
    def kickoff_for_each(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[EachOptions],
    ) -> list[CrewOutput]: ...
    @known_keywords("kickoff_for_each of a crew", *EachOptions.__annotations__, instead=_OF_ONE_RUN)
    def kickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: bool = False, **options: Unpack[EachOptions]
    ) -> Any:
        """Run the crew once for each set of inputs, side by side. Results come in the order of the inputs.

        At most `max_concurrency` runs are at work at once: 32, unless CREWLITE_MAX_CONCURRENCY says otherwise.

        With a `run_id`, the runs are `run_id.0`, `run_id.1`, ..., and each can be resumed alone. If one fails, the
        others still end; then its failure is raised, with a note that names its inputs. With `return_exceptions` the
        failure is returned in place of the result instead. Raises ConfigError for a crew that is bound to a run, and
        what `kickoff` raises.
        """
        with shortened():
            return many.kickoff_for_each(self, inputs, return_exceptions=return_exceptions, **options)

    @overload
    async def akickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: Literal[True], **options: Unpack[EachOptions]
    ) -> list[CrewOutput | Exception]: ...
    @overload
    async def akickoff_for_each(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[EachOptions],
    ) -> list[CrewOutput]: ...
    @known_keywords("kickoff_for_each of a crew", *EachOptions.__annotations__, instead=_OF_ONE_RUN)
    async def akickoff_for_each(
        self, inputs: Sequence[Mapping[str, Any]], *, return_exceptions: bool = False, **options: Unpack[EachOptions]
    ) -> Any:
        """Do the same as `kickoff_for_each`, for code on an event loop: await it there."""
        with shortened():
            return await many.akickoff_for_each(self, inputs, return_exceptions=return_exceptions, **options)

    kickoff_for_each_async = akickoff_for_each
