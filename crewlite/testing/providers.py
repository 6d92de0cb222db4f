"""The law that storage providers keep, as tests anybody can run against a provider of their own.

```python
import itertools
from crewlite.state import InMemoryProvider
from crewlite.testing import check_provider

fresh = itertools.count()
check_provider(lambda: (InMemoryProvider(), f"store-{next(fresh)}"))
```

Each law is a function whose docstring is the law. A broken one raises AssertionError with that sentence and what was
seen instead.
"""

from __future__ import annotations

from collections.abc import Callable

from crewlite.state.providers import BaseProvider
from crewlite.testing.bench import Bench, NotOffered
from crewlite.testing.laws import LAWS, Law

Make = Callable[[], tuple[BaseProvider, str]]
"""Gives a provider and a location where nothing was ever stored; asked anew for every law."""


def check_provider(make: Make) -> None:
    """Hold a provider to every law of `Store`, and of `ResultCache` if its stores have `results`. A second or two.

    Args:
        make: Returns `(provider, location)`, fresh at every call. The location need not exist; the kit removes nothing.

    Raises:
        AssertionError: A law is broken; the message says which, and how.
    """
    for law in LAWS:
        check_law(law, make)


def check_law(law: Law, make: Make) -> None:
    """Hold a provider to one of the LAWS: `pytest.mark.parametrize("law", LAWS)` gives each a test of its own."""
    provider, location = make()
    broken = (
        f"Provider {getattr(provider, 'name', provider)!r} breaks a law: {(law.__doc__ or '').partition(chr(10))[0]}"
    )
    bench = Bench(provider, location)
    try:
        law(bench)
    except NotOffered:
        return
    except AssertionError as error:
        raise AssertionError(f"{broken} Here {error}") from error
    except Exception as error:
        raise AssertionError(f"{broken} Here it raised {type(error).__name__}: {error}") from error
    finally:
        bench.clear()
