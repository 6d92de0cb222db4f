"""One attempt at one step: its address, the settings it inherits and hands down, its child steps, and its work."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from crewlite import durable, kinds
from crewlite.concurrency import own_threads
from crewlite.concurrency.background import confine, in_foreign_thread, running_loop
from crewlite.concurrency.threads import check_program_goes_on
from crewlite.durable import Scope, Step
from crewlite.encoding import codec
from crewlite.errors import ChangeUnused, ConfigError, InDoubt, NonDeterminism
from crewlite.recovery import Guard, Policy, Remedy
from crewlite.recovery.guards import Shared, guards_inside
from crewlite.recovery.policy import nearest
from crewlite.recovery.types import RecoveryContext
from crewlite.runtime.steps import doubts, remedies
from crewlite.runtime.steps.budgets import HeldBudget
from crewlite.runtime.steps.children import Children
from crewlite.runtime.steps.mode import Basis, Mode
from crewlite.runtime.steps.required import missed
from crewlite.runtime.steps.run import Origin, Run
from crewlite.runtime.steps.sayings import Sayings
from crewlite.runtime.steps.slots import Slots
from crewlite.state.format.addresses import outers, prefix_inside
from crewlite.state.format.commit import CommitParts
from crewlite.state.format.numbering import is_counted
from crewlite.state.format.outcome import Attempt
from crewlite.state.journal.conflicts import Start
from crewlite.state.journal.view import View
from crewlite.step_parts import Limit
from crewlite.system.forked import in_child
from crewlite.usage import Usage

T = TypeVar("T")
in_child(durable.detach)  # only the parent has the run's loop: a step requested in a child would never end


class Inherited(NamedTuple):
    """What a step hands down to the steps inside it: an immutable value, so that no step can change another's."""

    mode: Mode
    limits: tuple[Limit, ...] = ()
    """Limits on how many steps run at once, which apply to every step inside."""
    policy: Policy | None = None
    """The failure policy of the steps inside that inherit."""
    guards: tuple[Guard, ...] = ()
    """The guards of this step's policy and of those around it, outermost first."""
    budgets: tuple[HeldBudget, ...] = ()
    """The budgets of this step and the enclosing steps, outermost first."""
    auto_approve: bool = False
    """Whether calls of tools that require approval are approved."""
    after: int = 0
    """The number of the latest commit that an enclosing step reacts to; 0 for none."""
    slots: Slots | None = None
    """The slots that the step holds under limits, or else those of the nearest enclosing step that has limits."""
    streamed: bool = False  # see `durable.Scope`

    def inside(self, step: Step[Any], budgets: tuple[HeldBudget, ...] = (), slots: Slots | None = None) -> Inherited:
        """Return what a child step, with these budgets and slots of its own, hands down."""
        mode, policy, guards = self.mode, self.policy, self.guards
        if mode.strict_replay is not step.strict_replay:
            mode = dataclasses.replace(mode, strict_replay=step.strict_replay)
        if (inside := step.policies.inside) is not None:
            policy = nearest(inside, policy)
            guards = guards_inside(guards, step.policies.overruled, inside)
        return Inherited(
            mode,
            self.limits + step.inherited_limits,
            policy,
            guards,
            self.budgets + budgets,
            self.auto_approve if step.auto_approve is None else step.auto_approve,
            self.after if step.after is None else max(self.after, step.after),
            slots or self.slots,
            self.streamed or step.streamed,
        )


class Frame(Scope):
    """One attempt at one step. The frame that encloses the root step has the address ""."""

    __slots__ = (
        "__weakref__",
        "address",
        "around",
        "children",
        "fingerprint",
        "inherited",
        "origin",
        "own_step",
        "past",
        "run",
    )

    own_step: Step[Any]
    """The step; not set in the outermost frame."""
    address: str
    past: tuple[Remedy, ...]
    fails: tuple[type[BaseException], ...] = (Exception,)
    """The errors with which a step may fail. Any other one would end more than the step."""

    def __init__(self, run: Run, origin: Origin, *, inherited: Inherited | None = None, attempt: int = 1) -> None:
        self.run = run
        self.origin = origin
        """Where the events that this attempt announces come from."""
        self.address = address = origin.address
        self.inherited = inherited or Inherited(
            run.mode, (), None, run.guards, run.enclosing, run.record.auto_approve, streamed=run.streamed
        )
        prefix = prefix_inside(address, attempt)
        self.children = Children(prefix, run.earlier.ended_inside.get(prefix, ()))
        self.fingerprint = ""
        """The fingerprint of the step's question."""
        self.around: Frame | None = None
        """The frame of the enclosing step; None for the outermost."""
        self.past = ()
        """The remedies for this step's failed attempts so far."""

    @property
    def idempotency_key(self) -> str:
        """See `durable.Scope`."""
        return self.run.idempotency_key(self.address) if self.address else ""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def guards(self) -> Sequence[Guard]:
        """The guards of all failure policies around the step's work, outermost first."""
        return self.inherited.guards

    @property
    def shared(self) -> Shared | None:
        """See `durable.Scope`."""
        return self.run.shared if self.run.shared.offered else None

    @property
    def state(self) -> View | None:
        """The state as this attempt sees it."""
        return self.children.view

    @property
    def sayings(self) -> Sayings | None:
        """See `durable.Scope`."""
        return self.children.sayings

    @property
    def in_other_task(self) -> bool:
        """Whether the running task is not that of this step's own coroutine. Ask it on an event loop."""
        return self.children.task is not None and self.children.task is not asyncio.current_task()

    @property
    def is_beside(self) -> bool:
        """Whether the running code is beside the step's own code: another task, or a `bound` thread."""
        return own_threads.bound_scope() is self or self.in_other_task

    def waiting_for(self, asker: Scope) -> Callable[[str], AbstractContextManager[None]] | None:
        """See `durable.Scope`.

        Returns None for a step that this code has requested, as this step ends only after it in any case; and in
        another task or thread, as the step's own code may go on meanwhile.
        """
        if asker is self or not isinstance(asker, Frame) or asker.run is not self.run:
            return None
        is_coroutine = self.children.task is not None
        if (running_loop() is None or self.in_other_task) if is_coroutine else in_foreign_thread():
            return None
        return partial(self.run.pools.wait, self.address, self.inherited.slots)

    def doubt(self, what: str, failed: str, arguments: str) -> InDoubt:
        """See `durable.Scope`."""
        return self.run.doubt(self.address, what, failed, arguments)

    @property
    def outer(self) -> Frame:
        """The frame of the enclosing step; of the outermost frame, itself."""
        return self.around or self

    def start_inside(self) -> Start:
        """See `durable.Scope`."""
        view = self.children.view
        return view.start_inside() if view else self.run.journal.states.beginning

    @property
    def began(self) -> datetime:
        """The time at which the run began; on a fork, the branch."""
        return datetime.fromisoformat(self.run.record.started_at)

    @property
    def usage(self) -> Usage:
        """See `durable.Scope`."""
        return self.run.record.paid.inside(self.address)

    def origin_of(self, step: Step[Any], address: str) -> Origin:
        """Return where the events about a child step come from."""
        setting, origin = step.checkpoint, self.origin
        rule = origin.checkpoints if setting is None else self.run.subscriber.rule(setting)
        return Origin(address, step.name or step.kind.name, origin.parent, rule)

    def child(
        self,
        step: Step[Any],
        origin: Origin,
        fingerprint: str = "",
        number: int = 1,
        failed: Sequence[Attempt] = (),
        past: Sequence[Remedy] = (),
        view: View | None = None,
        budgets: tuple[HeldBudget, ...] = (),
        slots: Slots | None = None,
    ) -> Self:
        """Build the frame of attempt `number` at a child step, after its failed attempts.

        `origin`: where the events that the attempt announces come from. `past`: the remedies charged to the step's
        retry budget. `budgets`, `slots`: the step's own.
        """
        inherited = self.inherited.inside(step, budgets, slots)
        inside = remedies.number_inside(failed, number) if failed else number
        frame = type(self)(self.run, origin, inherited=inherited, attempt=inside)
        frame.own_step, frame.around, frame.fingerprint, frame.past = step, self, fingerprint, tuple(past)
        frame.children.view = view
        if step.may_report or self.children.sayings is not None:
            frame.children.sayings = Sayings()
        if failed and remedies.goes_on(failed):
            frame.go_on_otherwise()
        return frame

    def basis(self, address: str) -> Basis:
        """Return what the outcome of a step requested here depends on besides its own question.

        That is a digest of the questions of the enclosing steps, and of what their models heard before.
        """
        parts: list[list[str]] = []
        at = address
        frame: Frame | None = self
        while frame is not None:
            asked = [frame.fingerprint] if frame.address else []  # the root's question is the inputs of the run
            if part := asked + ([] if frame.inherited.mode.strict_replay else frame.children.heard_before(at)):
                parts.append(part)
            at, frame = frame.address, frame.around
        return Basis(codec.digest(parts) if parts else "", self.inherited.after)

    def go_on_otherwise(self) -> None:
        """Allow the code to change the questions of recorded steps, as its new course after a rollback may."""
        mode = dataclasses.replace(self.inherited.mode, rolled_back=True)
        self.inherited = self.inherited._replace(mode=mode)

    def recovery(self, *, around: bool = False) -> RecoveryContext | None:
        """Return what this attempt is told about earlier failures, as `durable.Scope.recovery` describes."""
        record = self.run.record
        if not record.attempts:
            return None
        for at in dict.fromkeys((self.address, *outers(self.address), "")):
            if at != self.address and not around and remedies.is_unit(record, at):
                return None
            tries = record.attempts.get(at, ())
            if (context := remedies.context_of(tries)) and (at or not remedies.is_behind(record, tries, self.address)):
                return context
        return None

    def cut(self) -> None:
        """Cancel the child steps that are still running, and all that are requested later."""
        self.children.siblings().cut()
        self.run.pools.forget(self.address)

    @property
    def is_cut(self) -> bool:
        """See `durable.Scope`."""
        return self.children.side_by_side is not None and self.children.side_by_side.is_cut

    def has_ended(self, address: str, model: str = "") -> bool:
        """Return whether a child step has its outcome or has failed; in a preview, where no step ends, True.

        `model`: the name of the model that must have given the outcome; "" for any.
        """
        if (outcome := self.run.record.outcomes.get(address)) is not None:
            return not model or outcome.provenance.get("model", model) == model
        return self.dry or address in self.children.failed

    def in_doubt(self, address: str) -> bool:
        """See `durable.Scope`."""
        return address in self.run.earlier.doubts and address not in self.run.earlier.undecided

    def mask(self, text: str) -> str:
        """See `durable.Scope`."""
        return self.run.journal.secrets.mask(text)

    def shown_of_beginning(self, text: str) -> int:
        """See `durable.Scope`."""
        return self.run.journal.secrets.shown_of_beginning(text)

    async def announce(
        self, source: object, event: type[Any], about: Mapping[str, Any], parts: CommitParts | None = None
    ) -> str:
        """Record an event that is no step's outcome, with the fields `about`; then emit it. Returns the event's id.

        `parts` are committed together with the event and the checkpoint that it creates, before handlers are called.
        An event without parts and checkpoint is recorded by the next commit.
        """
        made = await self.run.publish(source, (event, about), self.origin, parts=parts, now=bool(parts))
        return made.event_id if made else ""

    def tell(self, event: type[Any], about: Mapping[str, Any]) -> bool:
        """See `durable.Scope`."""
        journal = self.run.journal

        def emit() -> None:
            if not journal.closed:
                self.run.tell(journal, (event, about), self.origin)

        if not self.dry:
            journal.mailbox.do(emit)
        return True

    def with_usage(self, step: Step[T], address: str, value: T, more: codec.Json = None) -> T:
        """Return a child's outcome with the usage of all steps inside it. `more`: usage that is yet to be recorded."""
        if step.with_usage is None:
            return value
        recorded = self.run.record.paid.inside(address)
        return step.with_usage(value, recorded + Usage.of(more) if more else recorded)

    async def work(self) -> Any:
        """Do the work of the step, and wait for the steps that it began and did not await. Returns its outcome."""
        token = durable.enter(self)
        try:
            value = await self.own_step.work()
            if self.children.side_by_side:
                await self.children.side_by_side.join()
        except self.fails as error:  # an error of a child step that stops the run is raised below instead
            if self.children.side_by_side:
                await self.children.side_by_side.join_after_failure()
            if not self.children.stop.error:
                check_program_goes_on(error)
                raise
        except BaseException as error:  # an error that would end more than this step
            confine(error)
        finally:
            durable.reattach(token)
        if self.children.stop.error:  # the step's code may have caught it
            raise self.children.stop.error
        self.complete()
        if self.run.journal.states.common.used and (view := self.children.view):
            view.deliver_rest()
        return value

    def complete(self) -> None:
        """Check the requests of a step that has ended without an error.

        Raises NonDeterminism if it did not request a recorded step, InDoubt for a call in doubt, ChangeUnused for a
        step that the fork has changed; ConfigError if it requested a step and never awaited it.
        """
        unused = self.run.unrequested_changes  # mostly empty
        if unused and (left := [at for at in unused if not self.address or self.address in outers(at)]):
            raise ChangeUnused(sorted(left))
        if None in self.children.asked.values():
            never = sorted(address for address, outcome in self.children.asked.items() if outcome is None)
            raise ConfigError(
                f"{', '.join(never)} was requested in {self.address or self.origin.name} and not awaited, so it never "
                f"ran: write `await` before the call"
            )
        if self.children.unrequested:
            self.check_none_missed()
            doubts.check_none_left(self.run, self.children.unrequested)

    def is_changed_inside(self) -> bool:
        """Return whether a fork has edited a step inside this attempt, or set one to run again that is still to run."""
        outcomes = self.run.record.outcomes
        inside = (at for at in self.run.record.edited if at.startswith(self.children.prefix))
        return any(at not in outcomes or outcomes[at].edited for at in inside)

    def unused(self) -> list[str]:
        """Return the recorded steps inside this one that a fork has inherited and the code has not requested.

        Includes unrequested calls in doubt that a person has decided about and, with on_drift="rerun", all unrequested
        steps that belong to the outcome replaced by this step's new one.
        """
        children, run = self.children, self.run
        left = children.unrequested if run.on_drift == "rerun" else children.unrequested & run.earlier.left_in_doubt
        found = set(run.earlier.from_base.get(self.address, ())) - children.asked.keys()
        return sorted(found.union(at for at in left if not kinds.at(at).is_about_failure))

    def check_none_missed(self) -> None:
        """Raise NonDeterminism if the step has ended without requesting a recorded step inside it."""
        children, mode, prefix = self.children, self.inherited.mode, self.children.prefix
        if left := missed(self.run.record, mode, prefix, children.unrequested):
            asked, expected = ", ".join(list(children.asked)[-3:]) or "none", ", ".join(left[:3])
            unkeyed = [at for at in left if kinds.at(at).takes_key and "#[" not in at.removeprefix(prefix)]
            beside = not all(map(is_counted, unkeyed))
            raise NonDeterminism(self.run.run_id, self.address, expected, f"{asked}, and no more", beside=beside)
