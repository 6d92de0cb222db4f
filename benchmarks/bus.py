"""The bus: what an event costs that nobody hears, and one that ten handlers hear.

An event with a conversation in it is built, or built and emitted to nobody, in turns. Then one prebuilt event is
emitted to ten handlers, in turns with a bare blinker signal, used as its documentation shows, that sends it to ten
receivers. A bus of its own, so that nothing else of the process listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blinker import Signal

from benchmarks.measure import Row, in_turns, median_ms, ratio
from crewlite.events.event_bus import EventBus
from crewlite.events.types.llm_events import LLMCallStartedEvent

_ROUNDS = 25
_TIMES = 4000
_MESSAGES = ({"role": "system", "content": "You write."}, {"role": "user", "content": "Write part 1 of the report."})


def measure() -> Iterator[Row]:
    bus, source = EventBus(), object()
    built, emitted = in_turns(_ROUNDS, _often(_build), _often(lambda: bus.emit(source, _build())))
    yield Row("emit to nobody, against building the event", ratio(emitted, built), "x", 1.5, _each(emitted, built))

    event, signal = _build(), Signal()
    receivers = [_receiver() for _ in range(10)]  # blinker holds them weakly
    for receiver in receivers:
        signal.connect(receiver)
        bus.on(LLMCallStartedEvent, _handler())
    ours, theirs = in_turns(
        _ROUNDS, _often(lambda: bus.emit(source, event)), _often(lambda: signal.send(source, event=event))
    )
    yield Row("emit to 10 handlers, against bare blinker", ratio(ours, theirs), "x", 1.0, _each(ours, theirs))


def _build() -> LLMCallStartedEvent:
    return LLMCallStartedEvent(
        run_id="tides-1", address="task:write/llm#1", model="scripted", agent_role="Writer", messages=_MESSAGES
    )


def _handler() -> Callable[..., None]:
    def handler(source: object, event: LLMCallStartedEvent) -> None:
        """Hear, and do nothing."""

    return handler


def _receiver() -> Callable[..., None]:
    def receiver(sender: object, event: LLMCallStartedEvent) -> None:
        """Hear, and do nothing."""

    return receiver


def _often(once: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(_TIMES):
            once()

    return work


def _each(ours: list[float], theirs: list[float]) -> str:
    return f"{median_ms(ours) / _TIMES * 1000:.2f} us against {median_ms(theirs) / _TIMES * 1000:.2f} us"
