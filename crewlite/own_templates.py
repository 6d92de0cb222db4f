"""Templates that users write for prompts: jinja2 without calls, with few filters, and with a limit on what they make.

They are checked when a definition is made, so that nothing fails in the middle of a run. Values are inserted as they
are: nothing in them is ever read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from crewlite.errors import ConfigError, meant
from crewlite.lazy import lazy

jinja2 = lazy("jinja2")  # takes tens of milliseconds to import, and only who writes templates needs it
jinja2_meta = lazy("jinja2.meta")
jinja2_sandbox = lazy("jinja2.sandbox")

LONGEST = 1_000_000
"""The maximum number of characters that a template may make."""
_DOTTED = re.compile(r"\{\{(-?)\s*\.([A-Z][a-z]+)\s*(-?)\}\}")
_FILTERS = ("capitalize", "default", "first", "join", "last", "length", "lower", "replace", "title", "trim", "upper")


def check_template(text: str, names: Collection[str], where: str) -> frozenset[str]:
    """Return the names that a template uses.

    Raises ConfigError if it cannot be read, uses others than `names`, or cannot be rendered with a text for each.
    `where` says in messages whose template it is. `{{ .Name }}` is the same as `{{ Name }}`.
    """
    environment = _environment()
    try:
        found = frozenset(jinja2_meta.find_undeclared_variables(environment.parse(_plain(text))))
        environment.from_string(_plain(text))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{where} cannot be read as a template: {error.message} (line {error.lineno})") from None
    except jinja2.TemplateError as error:
        raise ConfigError(f"{where} cannot be read as a template: {error}") from None
    if unknown := sorted(found - set(names)):
        hints = [hint for name in unknown if (hint := meant(name, names))]
        raise ConfigError(f"{where} uses {', '.join(unknown)}; {hints[0] if hints else f'there is {_listed(names)}'}")
    render_template(text, dict.fromkeys(names, "text"), where)
    return found


def render_template(text: str, values: Mapping[str, Any], where: str) -> str:
    """Render a template with these values. Raises ConfigError if that fails, or makes more than LONGEST characters."""
    made, length = list[str](), 0
    try:
        for piece in _environment().from_string(_plain(text)).generate(**values):
            made.append(piece)
            if (length := length + len(piece)) > LONGEST:
                raise ConfigError(
                    f"{where} renders to more than {LONGEST:,} characters; shorten it, or the values it shows"
                )
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{where} cannot be rendered: {error}") from None
    return "".join(made)


def _plain(text: str) -> str:
    return _DOTTED.sub(r"{{\1 \2 \3}}", text)


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)


@cache
def _environment() -> Any:
    class Environment(jinja2_sandbox.ImmutableSandboxedEnvironment):  # type: ignore[name-defined,misc]
        """Calls nothing and multiplies nothing, as a short template could make a text of any length."""

        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            raise jinja2_sandbox.SecurityError(f"the operator {operator} cannot be used")

        def is_safe_callable(self, obj: Any) -> bool:
            return False

    made = Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    made.filters = {name: made.filters[name] for name in _FILTERS}
    made.globals.clear()
    return made
