"""The port to models that turn texts into vectors. It is a port alone: whoever needs vectors is given one of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; write one by giving it a name and an `aembed`.

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
    """Vectors of one model are not compared with those of another."""

    async def aembed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in their order, all of the same length."""
