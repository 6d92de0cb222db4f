"""Texts from templates: prompts of the package, `{placeholders}` in texts of users, and templates of users.

Prompts are jinja2 files, rendered in a sandbox in which a missing value is an error. Texts of users have one construct,
`{name}`. Templates that users write for prompts are jinja2 without calls, with few filters, and with a limit on what
they make; they are checked when a definition is made. Values are inserted as they are, never read as a template.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from crewlite.encoding.stable_text import text_of
from crewlite.errors import ConfigError, MissingInput, meant
from crewlite.lazy import lazy

if TYPE_CHECKING:
    import jinja2
    from jinja2 import meta, sandbox
else:  # takes tens of milliseconds to import, and only runs need it
    jinja2, meta, sandbox = lazy("jinja2"), lazy("jinja2.meta"), lazy("jinja2.sandbox")

LONGEST = 1_000_000
"""The maximum number of characters that a user's template may make."""
_FILTERS = ("capitalize", "default", "first", "join", "last", "length", "lower", "replace", "title", "trim", "upper")
_DOTTED = re.compile(r"\{\{(-?)\s*\.([A-Z][a-z]+)\s*(-?)\}\}")
_UNSAFE = re.compile(r"[^\w .:-]")
_PLACEHOLDER = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_-]*)\}(?(1)\})")


def fill(text: str, values: Mapping[str, Any], *, where: str) -> str:
    """Return `text` with each `{name}` replaced by its value, and each `{{name}}` by `{name}`.

    All other braces, such as those of JSON, stay as they are. Raises MissingInput for a name without a value; `where`
    says in the message whose text it is.
    """
    if "{" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        doubled, name = match.groups()
        if doubled:
            return match.group(0)[1:-1]
        if name not in values:
            raise MissingInput(name, where=where, given=sorted(values))
        try:
            return text_of(values[name])
        except RecursionError:
            problem = "is nested too deep to be written into a text; pass the part that is meant"
            raise ConfigError(f"{where}: the value of {{{name}}} {problem}") from None

    return _PLACEHOLDER.sub(one, text)


def escaped(text: str) -> str:
    """Return `text` with its placeholders escaped, so that `fill` returns `text` for any values."""
    return _PLACEHOLDER.sub(lambda match: f"{{{match.group(0)}}}", text)


def placeholders(text: str) -> list[str]:
    """Return the names that `fill` replaces in a text, in order of appearance, with repetitions."""
    return [name for doubled, name in _PLACEHOLDER.findall(text) if not doubled]


def render(package: str, name: str, /, **values: Any) -> str:
    """Render a prompt file of the folder `prompts` of `package`. Raises jinja2.UndefinedError if a value is missing."""
    template = _template(package, name)
    context = template.new_context(values, shared=True)  # without jinja's globals: prompts use none
    return "".join(template.root_render_func(context)).strip()


def marked(tag: str, text: str, **about: str) -> str:
    """Return a text between marks, which the text itself cannot close, so that a model sees where foreign data ends."""
    inside = re.sub(rf"<(/?)({tag})", r"&lt;\1\2", text, flags=re.IGNORECASE)
    attributes = "".join(f' {name}="{attribute(value)}"' for name, value in about.items())
    return f"<{tag}{attributes}>\n{inside}\n</{tag}>"


def attribute(value: str) -> str:
    """Return a value as it stands in an opening mark, where it cannot end the mark."""
    return _UNSAFE.sub("_", value)


@cache
def version(package: str, name: str) -> str:
    """Return a digest of the text of a prompt file: eight hexadecimal digits."""
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


def check_template(text: str, names: Collection[str], where: str) -> frozenset[str]:
    """Return the names that a template uses.

    Raises ConfigError if it cannot be read, uses others than `names`, or cannot be rendered with a text for each.
    `where` says in messages whose template it is. `{{ .Name }}` is the same as `{{ Name }}`.
    """
    environment = _users_environment()
    try:
        found = frozenset(meta.find_undeclared_variables(environment.parse(_plain(text))))
        environment.from_string(_plain(text))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{where} cannot be read as a template: {error.message} (line {error.lineno})") from None
    except jinja2.TemplateError as error:
        raise ConfigError(f"{where} cannot be read as a template: {error}") from None
    if unknown := sorted(found - set(names)):
        hints = [hint for name in unknown if (hint := meant(name, names))] or [f"there is {', '.join(names)}"]
        raise ConfigError(f"{where} uses {', '.join(unknown)}; {hints[0]}")
    render_template(text, dict.fromkeys(names, "text"), where)
    return found


def render_template(text: str, values: Mapping[str, Any], where: str) -> str:
    """Render a template with these values. Raises ConfigError if that fails, or makes more than LONGEST characters."""
    made, length = list[str](), 0
    try:
        for piece in _users_environment().from_string(_plain(text)).generate(**values):
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


@cache
def _users_environment() -> Any:
    class Environment(sandbox.ImmutableSandboxedEnvironment):
        """Calls nothing and multiplies nothing, as a short template could make a text of any length."""

        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            raise jinja2.exceptions.SecurityError(f"the operator {operator} cannot be used")

        def is_safe_callable(self, obj: Any) -> bool:
            return False

    made = Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
    made.filters = {name: made.filters[name] for name in _FILTERS}
    made.globals.clear()
    return made
