"""Render a page from a template, with the style that all pages share. Every text of a run is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from crewlite.lazy import lazy
from crewlite.texts.wording import escaped, number_of

jinja2 = lazy("jinja2")


def rendered(name: str, /, *folders: str, **values: Any) -> str:
    """Render a template, which is looked up in these folders, such as `crewlite/state/comparing`, then in this one."""
    text: str = _environment(folders).get_template(name).render(**values)
    return text


def duration(seconds: float) -> str:
    """Return a duration as text."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def cost(dollars: float | None) -> str:
    """Return a cost as text; "" if it is unknown."""
    return "" if dollars is None else f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"


def beginning(text: str, most: int) -> str:
    """Return a text; of one with more than `most` characters, its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}\n... ({len(text):,} characters)"


def visible(value: Any) -> Any:
    """Return a text with its control characters as escapes, and marks that change the direction of writing too.

    Line breaks, tabs, text that is HTML already, and other values stay as they are.
    """
    return escaped(value, kept="\n\t") if type(value) is str else value


@cache
def _environment(folders: tuple[str, ...]) -> Any:
    places = [folder.partition("/") for folder in (*folders, "crewlite/pages")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, path) for package, _, path in places]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=visible,
    )
    environment.globals.update(duration=duration, cost=cost, number_of=number_of)
    return environment
