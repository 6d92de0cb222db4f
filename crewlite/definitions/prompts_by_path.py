"""New texts for the prompts of a definition, by path: `tasks.research.description`, as `bind` names its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crewlite.errors import ConfigError, meant


def by_part(prompts: Mapping[str, str], parts: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the texts by part, then by field. `parts`: the fields of each part, by the part's path.

    Raises ConfigError, listing every path that names no prompt.
    """
    paths = {".".join(filter(None, (part, field))): (part, field) for part, fields in parts.items() for field in fields}
    known = f"there are {', '.join(paths)}"
    wrong = [f"{path!r} names no prompt; {meant(path, paths) or known}" for path in prompts if path not in paths]
    if wrong:
        raise ConfigError(f"prompt: {'; '.join(wrong)}")
    found: dict[str, dict[str, str]] = {}
    for path, text in prompts.items():
        part, field = paths[path]
        found.setdefault(part, {})[field] = text
    return found
