"""The laws that storage providers must keep, as checks that anybody can run against a provider of their own.

```python
import itertools
from crewlite.state import InMemoryProvider
from crewlite.testing import check_provider

fresh = itertools.count()
check_provider(lambda: (InMemoryProvider(), f"store-{next(fresh)}"))
```

Each public function of the modules here is a law; its docstring states the law. A broken law raises AssertionError with
that sentence and the observed behaviour.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from crewlite.state.providers import BaseProvider
from crewlite.testing.bench import Bench, NotOffered
from crewlite.testing.laws import compaction, forks, journals, listings, remembering, sharing

Law = Callable[[Bench], None]
Make = Callable[[], tuple[BaseProvider, str]]
"""Returns a provider and a location where nothing was ever stored. It is called once for every law."""

LAWS: tuple[Law, ...] = tuple(
    law
    for subject in (journals, listings, forks, compaction, sharing, remembering)
    for name, law in vars(subject).items()
    if inspect.isfunction(law) and law.__module__ == subject.__name__ and not name.startswith("_")
)
"""All laws, in the order in which they are checked."""


def check_provider(make: Make) -> None:
    """Check a provider against every law of `Store`, and of `ResultCache` if its stores have `results`.

    This takes a second or two.

    Args:
        make: Returns `(provider, location)`, fresh at every call. The location need not exist; the kit removes nothing.

    Raises:
        AssertionError: A law is broken; the message says which, and how.
    """
    for law in LAWS:
        check_law(law, make)


def check_law(law: Law, make: Make) -> None:
    """Check a provider against one of the LAWS. With `pytest.mark.parametrize("law", LAWS)` each law is one test."""
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
