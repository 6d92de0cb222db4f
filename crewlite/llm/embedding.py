"""The port to models that turn texts into vectors. crewlite has no implementation of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. Write one of your own with an attribute `model` and a method `aembed`.

    ```python
    from crewlite.llm import Embedder

    class Lengths:
        model = "lengths-1"

        async def aembed(self, texts):
            return [[float(len(text))] for text in texts]

    assert isinstance(Lengths(), Embedder)
    ```
    """

    model: str
    """The model's name. Vectors of one model are not compared with those of another."""

    async def aembed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in the same order. All vectors have the same length."""
