"""Not too many steps at a time: a step has its places with all that is inside it, and none waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from crewlite.durable import Limit
from crewlite.errors import StepDeadlock


class Room:
    """The places under one limit of one run."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.free = asyncio.Semaphore(limit.width)
        self.holders: set[Places] = set()


class Rooms:
    """All limits of one run, and who waits under one of them while holding a place under another."""

    def __init__(self) -> None:
        self._rooms: dict[str, Room] = {}
        self.waiting: dict[Places, Room] = {}

    def room(self, limit: Limit) -> Room:
        """The places under a limit."""
        if limit.key not in self._rooms:
            self._rooms[limit.key] = Room(limit)
        return self._rooms[limit.key]

    def stuck(self) -> dict[Places, Room]:
        """Those who could never go on: each waits for places whose holders have one of them inside."""
        stuck = dict(self.waiting)
        while stuck:
            inside = {holder for one in stuck for holder in _outwards(one)}
            moving = {room for room in set(stuck.values()) if not _kept(room, inside)}
            if not moving:
                break
            stuck = {one: room for one, room in stuck.items() if room not in moving}
        return stuck


class Places:
    """What one step holds while an attempt at it runs. Those of the steps around it are `outer`."""

    def __init__(self, rooms: Rooms, address: str, limits: Sequence[Limit], outer: Places | None) -> None:
        around = {room.limit.key for one in _outwards(outer) for room in one.held}
        self.address, self.outer = address, outer
        self.held: list[Room] = []
        self._rooms = rooms
        self._limits = [limit for limit in limits if limit.key not in around]

    async def take(self) -> None:
        """Wait for a place under each limit. Raises StepDeadlock if there can never be one."""
        for limit in self._limits:
            room = self._rooms.room(limit)
            if room.free.locked() and any(one.held for one in _outwards(self)):
                await self._wait(room)
            else:
                await room.free.acquire()
            self.held.append(room)
            room.holders.add(self)

    def leave(self) -> None:
        """Give up all places; no harm if there are none."""
        while self.held:
            room = self.held.pop()
            room.holders.discard(self)
            room.free.release()

    async def _wait(self, room: Room) -> None:
        self._rooms.waiting[self] = room
        try:
            stuck = self._rooms.stuck()
            if self in stuck:
                raise StepDeadlock({one.address: wanted.limit.key for one, wanted in stuck.items()})
            await room.free.acquire()
        finally:
            del self._rooms.waiting[self]


def _kept(room: Room, inside: set[Places]) -> bool:
    """Whether every place of a room is taken, each by one of these."""
    return len(room.holders) == room.limit.width and room.holders <= inside


def _outwards(one: Places | None) -> Iterator[Places]:
    while one:
        yield one
        one = one.outer
