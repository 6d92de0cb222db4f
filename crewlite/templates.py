"""Texts from templates: prompts (jinja2 files of the package), and `{placeholders}` in texts of users.

Prompts are rendered in a jinja2 sandbox, in which a missing value is an error. Texts of users have one construct,
`{name}`; placeholders inside the values are not replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from crewlite.errors import MissingInput
from crewlite.lazy import lazy
from crewlite.stable_text import text_of

jinja2 = lazy("jinja2")  # takes tens of milliseconds to import, and only runs need it
sandbox = lazy("jinja2.sandbox")

_UNSAFE = re.compile(r"[^\w .:-]")
_PLACEHOLDER = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_-]*)\}(?(1)\})")


def fill(text: str, values: Mapping[str, Any], *, where: str) -> str:
    """Return `text` with each `{name}` replaced by its value, and each `{{name}}` by `{name}`.

    All other braces, such as those of JSON, stay as they are. Raises MissingInput for a name without a value; `where`
    says in the message whose text it is.
    """

    def one(match: re.Match[str]) -> str:
        doubled, name = match.groups()
        if doubled:
            return match.group(0)[1:-1]
        if name not in values:
            raise MissingInput(name, where=where, given=sorted(values))
        return text_of(values[name])

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
