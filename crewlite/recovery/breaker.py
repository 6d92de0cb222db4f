"""A circuit breaker: calls of a tool or model that keeps failing are refused for a while.

The processes that use the same store share the state of a circuit, so one of them finds out for all that a service is
down, and only one of them tries whether it works again. Each has a copy of the state, which it reads again once a
second at most. If the shared state cannot be read or written, a process goes by its copy.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Self

from crewlite.definitions.keywords import constructor_with_known_keywords
from crewlite.encoding import codec
from crewlite.errors import CallVetoed, CircuitOpen, ConfigError
from crewlite.ids import new_id
from crewlite.recovery.checks import whole
from crewlite.recovery.failure import Failure
from crewlite.recovery.guards import Guard, GuardedCall, Shared
from crewlite.system.forked import OwnLock, lock

_OUTSIDE = ("unavailable", "later", "timeout", "empty")
"""The kinds of failures that tell of a service rather than of the call."""
_READ_EVERY = 1.0  # seconds


@constructor_with_known_keywords
class CircuitBreaker(OwnLock, Guard):
    """Stops calling what keeps failing: after `failure_threshold` failures of a tool or model within `window_seconds`.

    Calls are refused for `cooldown_seconds` then. After that one call is let through: if it succeeds, all are; if it
    fails, the wait begins again; if it has not ended after `cooldown_seconds`, as in a process that was killed, another
    one is let through. Only failures of services count, such as lost connections and timeouts.

    Breakers with the same settings share what they know of a tool or model in all runs that use the same store, also in
    other processes. Without a store, and with `shared=False`, only calls through this object count. `clock` returns
    seconds, which all processes count from the same moment.
    """

    def __init__(
        self,
        failure_threshold: int = 5,
        window_seconds: float = 60.0,
        cooldown_seconds: float = 30.0,
        *,
        shared: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        whole("CircuitBreaker", 1, failure_threshold=failure_threshold)
        for name, value in (("window_seconds", window_seconds), ("cooldown_seconds", cooldown_seconds)):
            if type(value) not in (int, float) or not value > 0:
                raise ConfigError(f"CircuitBreaker: {name} is {value!r}; wanted seconds, more than 0")
        if type(shared) is not bool:
            raise ConfigError(f"CircuitBreaker: shared is {shared!r}; wanted True or False")
        self.failure_threshold, self.window, self.cooldown = failure_threshold, window_seconds, cooldown_seconds
        self.shared = shared
        self._clock, self._lock = clock, lock()
        self._copies: dict[tuple[str, str], _Copy] = {}

    def state(self, what: str) -> Literal["closed", "open", "half_open"]:
        """Return the state for a tool or model, such as "tool search" or "model openai/gpt-4o".

        It is as this process has last seen it; if it uses several stores, the most restrictive of their states.
        """
        with self._lock:
            opened = [
                copy.circuit.refuses_for(self._clock(), self.cooldown) > 0
                for (_, name), copy in self._copies.items()
                if name == what and copy.circuit.opened is not None
            ]
        return "closed" if not opened else "open" if any(opened) else "half_open"

    def is_same(self, other: Guard) -> bool:
        """Return whether the other breaker shares its circuits with this one."""
        if self is other or not isinstance(other, CircuitBreaker):
            return self is other
        return self.shared and other.shared and self._settings == other._settings

    def before(self, call: GuardedCall) -> Awaitable[None] | None:
        """Raise CircuitOpen if the circuit is open, or another call is its probe."""
        if shared := self._shared(call):
            return self._before(call, shared)
        self._admit(call, new_id(), self._clock())
        return None

    async def _before(self, call: GuardedCall, shared: Shared) -> None:
        copy, probe, now = self._copy(call), new_id(), self._clock()
        with contextlib.suppress(OSError):  # the engine warns of it
            if not abs(now - copy.read) < _READ_EVERY:
                seen = copy.circuit
                try:
                    found = Circuit.of(await shared.read(self._key(call)))
                finally:
                    copy.read = now
                if copy.circuit is seen:  # else a call that ended meanwhile was counted in the copy
                    copy.circuit = found
            if copy.circuit.opened is not None and copy.circuit.refuses_for(now, self.cooldown) <= 0:
                copy.circuit = Circuit.of(
                    await shared.change(
                        self._key(call), lambda data: Circuit.of(data).tried_by(probe, now, self.cooldown).data()
                    )
                )
        self._admit(call, probe, now)  # the same `now`: no call becomes a probe that the store does not know

    def _admit(self, call: GuardedCall, probe: str, now: float) -> None:
        """Raise CircuitOpen unless the circuit is closed, or half-open with this call as its probe.

        `probe`: the id of this call as the probe.
        """
        copy = self._copy(call)
        with self._lock:
            circuit = copy.circuit = copy.circuit.tried_by(probe, now, self.cooldown)
            if circuit.opened is None:
                return
            if circuit.probe != probe:
                left = circuit.refuses_for(now, self.cooldown)
                raise CircuitOpen(call.what, len(circuit.failures), left or self.cooldown)
            copy.probes[id(call)] = probe

    def after(self, call: GuardedCall, error: BaseException | None) -> None:
        """Close the circuit after a success; count a failure of the service."""
        copy, now = self._copy(call), self._clock()
        with self._lock:
            probe, known = copy.probes.pop(id(call), ""), copy.circuit
            copy.circuit = self._ended(known, error, probe, now)
        if copy.circuit != known and (shared := self._shared(call)):
            shared.post(self._key(call), lambda data: self._ended(Circuit.of(data), error, probe, now).data())

    def _ended(self, circuit: Circuit, error: BaseException | None, probe: str, now: float) -> Circuit:
        """Return the circuit after a call has ended. `probe`: the id of the call if it was the probe; else ""."""
        probes = bool(probe) and circuit.probe == probe
        if error is None:
            return Circuit()
        if isinstance(error, CallVetoed) or Failure.of(error).kind not in _OUTSIDE:
            return replace(circuit, probe="") if probes else circuit
        failures = (*(at for at in circuit.failures if abs(now - at) < self.window), now)
        if probes or len(failures) >= self.failure_threshold:
            return Circuit(failures, opened=now)
        return replace(circuit, failures=failures)

    def _shared(self, call: GuardedCall) -> Shared | None:
        return call.shared if self.shared else None

    def _copy(self, call: GuardedCall) -> _Copy:
        where = shared.location if (shared := self._shared(call)) else ""
        with self._lock:
            return self._copies.setdefault((where, call.what), _Copy())

    def _key(self, call: GuardedCall) -> str:
        """Return the key of the shared state. It differs for other settings, because these count differently."""
        return codec.digest(["circuit", call.what, *self._settings])

    @property
    def _settings(self) -> tuple[float, ...]:
        return self.failure_threshold, self.window, self.cooldown


@dataclass(frozen=True, slots=True)
class Circuit:
    """The state of a circuit. Times are in seconds.

    A time far in the future does not count: it was written before a clock was set back.
    """

    failures: tuple[float, ...] = ()
    """The times of the latest failures of the service."""
    opened: float | None = None
    """When the circuit was opened; None while it is closed."""
    probe: str = ""
    """The id of the probe, the one call that tries whether the service works again; "" if there is none."""
    probed: float = 0.0
    """When the probe began."""

    @classmethod
    def of(cls, data: bytes | None) -> Self:
        """Read a circuit from its data. If the data cannot be read, the circuit is closed."""
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            given = json.loads((data or b"{}").decode())
            failures, opened = map(float, given.get("failures", ())), given.get("opened")
            probe, probed = str(given.get("probe", "")), float(given.get("probed", 0.0))
            return cls(tuple(failures), None if opened is None else float(opened), probe, probed)
        return cls()

    def data(self) -> bytes:
        """Return the circuit as data."""
        return json.dumps(asdict(self)).encode()

    def refuses_for(self, now: float, cooldown: float) -> float:
        """Return the seconds for which all calls are refused; 0 if the circuit is closed or half-open."""
        return 0.0 if self.opened is None else _left(self.opened, now, cooldown)

    def tried_by(self, probe: str, now: float, cooldown: float) -> Self:
        """Return the circuit with `probe` as its probe, if it is half-open and no probe is under way."""
        is_tried = self.probe and _left(self.probed, now, cooldown)
        if self.opened is None or _left(self.opened, now, cooldown) or is_tried:
            return self
        return replace(self, probe=probe, probed=now)


def _left(since: float, now: float, seconds: float) -> float:
    """Return how many of these seconds since a moment are left."""
    return since + seconds - now if abs(now - since) < seconds else 0.0


@dataclass(slots=True)
class _Copy:
    """What this process knows of a circuit."""

    circuit: Circuit = field(default_factory=Circuit)
    read: float = -math.inf
    """When the circuit was last read from the store."""
    probes: dict[int, str] = field(default_factory=dict)
    """The probes of this process: by `id()` of the GuardedCall, the id of the probe."""
