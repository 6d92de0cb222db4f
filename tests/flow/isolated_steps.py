"""Steps for test_isolated.py: a process of its own finds them by the name of this module."""

import asyncio
import functools
import os
import signal
import threading
import time
from pathlib import Path

from pydantic import BaseModel

from crewlite import idempotency_key
from crewlite.flow import step


class Shape(BaseModel):
    sides: int


class Odd(Exception):
    """An error that only this module knows."""


@step(runtime="isolated")
def process():
    return os.getpid()


@step(runtime="isolated")
async def waiting(n):
    await asyncio.sleep(0)
    return n, os.getpid()


@step(runtime="isolated")
def shaped(shape: Shape, *, add: int = 0) -> Shape:
    return Shape(sides=shape.sides + add)


@step(runtime="isolated")
def key():
    return idempotency_key()


@step(runtime="isolated", retries=1)
def crashes_once(flag):
    if not Path(flag).exists():
        Path(flag).touch()
        os._exit(7)
    return "survived"


@step(runtime="isolated")
def crashes():
    os.kill(os.getpid(), 9)


@step(runtime="isolated")
def interrupted():
    signal.raise_signal(signal.SIGINT)
    return "went on"


@step(runtime="isolated", timeout=1.0)
def hangs(flag):
    Path(flag).write_text(str(os.getpid()))
    time.sleep(60)


@step(runtime="isolated")
def raises(kind):
    if kind == "live":
        raise Odd("no", threading.Lock())
    if kind == "file":
        Path("/nowhere/to/be/found").read_text()
    raise {"key": KeyError, "odd": Odd}[kind]("no")


@step(runtime="isolated")
def anything(value):
    return object() if value == "object" else value


@step(runtime="isolated", cache=True)
def kept(n):
    return os.getpid()


def twice(func):
    @functools.wraps(func)
    def call(*args):
        return 2 * func(*args)

    return call


@step(runtime="isolated")
@twice
def doubled(n):
    return n


def taken(n):
    return n


renamed = step(runtime="isolated")(taken)
taken = None
