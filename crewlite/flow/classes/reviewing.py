"""Have a person look at what a method returns. The work, the question and the outcome are separate steps.

So a run that waits for the person, or is killed meanwhile, neither does the work again nor asks a second time, and a
model says only once what an answer means.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial
from typing import Any, Literal, cast

from pydantic import create_model

from crewlite import durable, kinds
from crewlite.agent.loop import answer_as
from crewlite.durable import Step
from crewlite.encoding import codec
from crewlite.encoding.comparable import comparable
from crewlite.errors import ConfigError
from crewlite.events.family import FamilyEvents
from crewlite.flow.classes.base import Flow
from crewlite.flow.classes.feedback import Feedback, HumanFeedbackResult
from crewlite.flow.classes.methods import FlowMethod
from crewlite.flow.classes.results import encoded
from crewlite.flow.classes.running import original, running
from crewlite.ids import now
from crewlite.llm.models import resolve_llm
from crewlite.runtime.people.human import question_step
from crewlite.runtime.steps.future import requested
from crewlite.step_parts import INHERITED
from crewlite.texts import templates


async def reviewed(
    flow: Flow[Any], method: FlowMethod[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> HumanFeedbackResult:
    """Call the method within the enclosing step, and ask a person about its result."""
    feedback, scope, name = method.feedback, durable.scope(), method.name
    assert feedback
    how = method.execution  # its options are about the work, not the person
    doing = _step(flow, name, lambda: method.call(flow, args, kwargs), None)
    policies = INHERITED._replace(own=how.remedies)
    made = dataclasses.replace(doing, timeout=how.timeout, policies=policies, rests_on_more=True)
    output = await scope.step(made)
    question = feedback.question(original(flow), flow.run_name, name, output)
    address = scope.reserve_address(kinds.HUMAN.name, name)
    asked = dataclasses.replace(question_step(question, name), address=address)
    said: str = question.in_time(await scope.step(asked))
    recorded = scope.recorded(address)
    outcome = feedback.outcome(said)
    if feedback.emit and outcome is None:
        sorting = partial(_sorted, flow, feedback, name, said)
        outcome = await scope.step(_step(flow, "outcome", sorting, [said, feedback.message, list(feedback.emit)]))
    at = datetime.fromisoformat(recorded.at) if recorded else now()
    return HumanFeedbackResult(output, said, outcome, at, name, dict(feedback.metadata))


def call(method: FlowMethod[Any, Any], flow: Flow[Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make one method's call of another that has feedback: return the outcome, or without `emit` the feedback.

    On the run's event loop, await the call. Raises ConfigError outside a run, where no answer could be recorded.
    """
    scope = durable.scope()
    if scope.loop is None:
        raise ConfigError(
            f"{method.name} asks a person for feedback, but was called outside a run, so the answer could not be "
            f"recorded. Kick off the flow, or call {type(flow).__name__}.{method.name}(flow) for its result without "
            f"the question"
        )
    given = {"args": args, "kwargs": kwargs}
    step = _step(flow, method.name, lambda: reviewed(flow, method, args, kwargs), comparable(given), given)
    return requested(scope, step, f"self.{method.name}(...)", _answer)


def _answer(result: HumanFeedbackResult) -> Any:
    if at_work := running.get():
        at_work.feedback.append(result)
    return result if result.outcome is None else result.outcome


def _step(flow: Flow[Any], name: str, does: Any, question: Any, given: object = None) -> Step[Any]:
    return Step(
        kind=kinds.STEP,
        name=name,
        work=does,
        question=question,
        events=FamilyEvents.silent(flow),
        given=given,
        encode=encoded,
        decode=codec.decode,
        effect="idempotent",
        policies=INHERITED,
        strict_replay=True,
        round_trip=True,
    )


async def _sorted(flow: Flow[Any], feedback: Feedback, name: str, said: str) -> str:
    """Have the model say which outcome an answer means. Raises OutputInvalid if it names none, three times."""
    form = create_model("Outcome", outcome=(cast(Any, Literal[feedback.emit]), ...))
    role, title = "Feedback", f"the outcome of the feedback on {name!r}"
    prompt = templates.render(
        "crewlite.flow",
        "outcome.j2",
        message=feedback.message,
        answer=templates.marked("answer", said),
        outcomes=", ".join(feedback.emit),
    )
    llm, messages = resolve_llm([feedback.llm], agent=role), [{"role": "user", "content": prompt}]
    found: Any = await answer_as(form, llm, messages, role=role, title=title, verbose=flow.verbose)
    return str(found.outcome)
