"""Text made from templates: prompts (jinja2 files shipped with the package) and `{placeholders}` (users' texts).

Prompts are code and rendered in a sandbox that forgives nothing; users' texts know one construct, `{name}`, and the
values filled in are never looked at again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from crewlite.errors import MissingInput
from crewlite.lazy import lazy

jinja2 = lazy("jinja2")  # tens of milliseconds that only a run has to pay
sandbox = lazy("jinja2.sandbox")

_PLACEHOLDER = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_-]*)\}(?(1)\})")


def fill(text: str, values: Mapping[str, Any], *, where: str) -> str:
    """`text` with each `{name}` replaced. `{{name}}` stands for `{name}` itself. Raises MissingInput.

    All other braces, such as those of JSON, stay as they are.
    """

    def one(match: re.Match[str]) -> str:
        doubled, name = match.groups()
        if doubled:
            return match.group(0)[1:-1]
        if name not in values:
            raise MissingInput(name, where=where, given=sorted(values))
        return str(values[name])

    return _PLACEHOLDER.sub(one, text)


def placeholders(text: str) -> list[str]:
    """The names that `fill` asks for, in the order in which they stand."""
    return [name for doubled, name in _PLACEHOLDER.findall(text) if not doubled]


def render(package: str, name: str, /, **values: Any) -> str:
    """A prompt file of `package` (its folder `prompts`), rendered. A name the template lacks a value for raises."""
    return str(_template(package, name).render(**values)).strip()


@cache
def version(package: str, name: str) -> str:
    """Which text a prompt file held: eight hexadecimal digits."""
    source, *_ = _environment(package).loader.get_source(_environment(package), name)
    return hashlib.blake2b(source.encode(), digest_size=4).hexdigest()


@cache
def _template(package: str, name: str) -> Any:
    return _environment(package).get_template(name)


@cache
def _environment(package: str) -> Any:
    return sandbox.ImmutableSandboxedEnvironment(
        loader=jinja2.PackageLoader(package, "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # plain text for a model, not HTML
    )
