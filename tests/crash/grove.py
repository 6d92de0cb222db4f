"""Trees of steps: nested, side by side, mapped, failing, tried again, waiting for people. One flow grows them all.

A tree is plain data: the name of a form, then what the form is called with.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from crewlite import CheckpointConfig, durable
from crewlite.flow import FlowFunction, ask, flow, sleep_for, step

Tree = tuple[Any, ...]
DOOMED = 9  # failures of a leaf that no retry mends


class Broken(Exception):
    """What a step of a tree raises."""


outside: Callable[[], object] = int
"""What every step of a tree does first, in the world outside. A trial puts its own here."""


def _act(value: int, fails: int) -> int:
    outside()
    if len(durable.scope().past) < fails:
        raise Broken(value)
    return value


@step(retries=2, retry_delay=0.001)
async def leaf(value, fails):
    return _act(value, fails)


@step(retries=2, retry_delay=0.001)
def blocking_leaf(value, fails):
    return _act(value, fails)


@step
async def moody(value):
    """Fails until a step around it is tried again."""
    return _act(value, 0 if "!" in durable.scope().address else DOOMED)


@step
async def nap(value):
    outside()
    await sleep_for(value / 1000)
    return value


@step
async def question(value):
    outside()
    return ["told", await ask(f"More than {value}?", int)]


@step
def blocking_question(value):
    outside()
    return ["told", ask(f"More than {value}?", int, name="how many")]


@step
async def mapped(values):
    outside()
    return ["mapped", *await leaf.map(values, [0] * len(values))]


@step
def crossed(values):
    outside()
    return ["crossed", *blocking_leaf.product(values, [0, 1]).result()]


@step
async def each(children):
    outside()
    return ["each", *[await grow(child) for child in children]]


@step
def blocking(children):
    outside()
    return ["blocking", *[sprout(child) for child in children]]


@step(max_concurrency=2)
async def side(children):
    outside()
    begun = [begin(child) for child in children]
    return ["side", *[await future for future in begun]]


@step
async def tolerant(child):
    outside()
    try:
        return ["well", await grow(child)]
    except Broken as error:
        return ["ill", str(error)]


@step
def blocking_tolerant(child):
    outside()
    try:
        return ["well", sprout(child)]
    except Broken as error:
        return ["ill", str(error)]


@step(retries=1)
async def stubborn(child):
    outside()
    return ["stubborn", await grow(child)]


LEAVES = (leaf, blocking_leaf, moody, nap, question, blocking_question, mapped, crossed)
NODES = (each, blocking, side, tolerant, blocking_tolerant, stubborn)
FORMS = {form.name: form for form in (*LEAVES, *NODES)}
BLOCKING = (blocking_leaf, blocking_question, crossed, blocking, blocking_tolerant)


def begin(tree):
    form, *arguments = tree
    return FORMS[form].submit(*arguments)


async def grow(tree):
    form, *arguments = tree
    made = FORMS[form]
    return await (made.submit if made in BLOCKING else made)(*arguments)


def sprout(tree):
    return begin(tree).result()


def flow_of(config: CheckpointConfig, *, blocking: bool, width: int | None = None) -> FlowFunction[..., Any]:
    """The flow that grows a tree, as a function or a coroutine; at most `width` of its steps run side by side."""

    async def grown(tree):
        return await grow(tree)

    return flow(name="tree", checkpoint=config, max_concurrency=width)(sprout if blocking else grown)


def planted(chance: random.Random, depth: int = 3) -> Tree:
    """A random tree."""
    if depth == 0 or chance.random() < 0.2:
        form, value = chance.choice(LEAVES), chance.randrange(10)
        if form in (mapped, crossed):
            return form.name, [chance.randrange(10) for _ in range(chance.randint(1, 3))]
        fails = chance.choice([0] * 6 + [1, 2, DOOMED])
        return (form.name, value, fails) if form in (leaf, blocking_leaf) else (form.name, value)
    form = chance.choice(NODES)
    if form in (each, blocking, side):
        return form.name, [planted(chance, depth - 1) for _ in range(chance.randint(1, 3))]
    return form.name, planted(chance, depth - 1)


def regrown(tree: Tree, chance: random.Random) -> Tree:
    """The tree with another one in place of a random part of it."""
    form, inside = tree[0], tree[1]
    if FORMS[form] in LEAVES or chance.random() < 0.2:
        return planted(chance, 1)
    if not isinstance(inside, list):
        return form, regrown(inside, chance)
    at = chance.randrange(len(inside))
    return form, [regrown(one, chance) if n == at else one for n, one in enumerate(inside)]
