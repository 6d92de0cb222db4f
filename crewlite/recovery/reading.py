"""Read a policy from plain data: the arguments of a FailurePolicy, checked as a whole before one is built.

A strategy is written as its name, or as one name with its arguments: a mapping by name, a list in order, or one value.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crewlite.errors import ConfigError, meant
from crewlite.lazy import lazy
from crewlite.recovery import strategies
from crewlite.recovery.breaker import CircuitBreaker
from crewlite.recovery.classify import RulesClassifier, Symptom
from crewlite.recovery.guards import LoopDetector, RequireIdempotency
from crewlite.recovery.strategies import Rule
from crewlite.recovery.types import FailureType

yaml = lazy("yaml")

STRATEGIES: dict[str, Callable[..., Any]] = {
    name: one
    for name, one in vars(strategies).items()
    if inspect.isfunction(one) and one.__module__ == strategies.__name__ and name[0] != "_"
}
"""The strategies by the names that a policy may be written with."""
GUARDS: dict[str, Callable[..., Any]] = {
    "circuit_breaker": CircuitBreaker,
    "loop_detector": LoopDetector,
    "require_idempotency": RequireIdempotency,
}
"""The guards by the names that a policy may be written with. A RiskThreshold needs a function, so it is set in code."""


def loaded(source: str | os.PathLike[str]) -> Any:
    """Return the data of a YAML file, or of a text that is YAML itself: one with a line break, `: ` or `{`."""
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"The policy is {source!r}; wanted the path of a YAML file, or a text that is YAML")
    text = os.fspath(source)
    where = "The policy"
    if not isinstance(source, str) or (text.strip() and not any(mark in text for mark in ("\n", ": ", "{"))):
        where = text
        try:
            text = Path(text).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:  # ValueError: no text in UTF-8, or a path that no file can have
            raise ConfigError(f"{where} cannot be read: {error}") from None
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also for 2026-02-30, and for many levels
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None
    if data is None:
        raise ConfigError(f"{where} is empty; wanted settings, such as `TIMEOUT: retry`, one a line")
    if repeated := list(_repeated(node, set())):
        raise ConfigError(f"{where} names settings twice: {'; '.join(repeated)}. Keep one of each")
    return data


def _repeated(node: Any, seen: set[int]) -> Iterator[str]:
    """Yield the keys that a mapping in a YAML document has more than once, of which only the last would count."""
    if id(node) in seen or not isinstance(node.value, list):
        return
    seen.add(id(node))
    lines: dict[str, int] = {}
    for part in node.value:
        pair = part if isinstance(part, tuple) else (part,)
        if len(pair) == 2 and not pair[0].tag.endswith(":merge"):
            key, line = str(pair[0].value), pair[0].start_mark.line + 1
            if key in lines:
                yield f"{key} in line {lines[key]} and in line {line}"
            lines[key] = line
        for inner in pair:
            yield from _repeated(inner, seen)


def arguments(data: object) -> dict[str, Any]:
    """Return the arguments of a FailurePolicy. Raises ConfigError, which lists all mistakes."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"The policy is {data!r}; wanted a mapping, such as {{'TIMEOUT': 'retry'}}")
    problems: list[str] = []
    found = {}
    for name, value in data.items():
        key = str(name).upper() if str(name).upper() in FailureType.__members__ else str(name)
        read = _READERS.get(key) or (_strategy if key in FailureType.__members__ else None)
        if read is None:
            known = [*FailureType.__members__, *_READERS]
            hint = meant(key, known) or meant(key.upper(), known) or f"wanted some of {', '.join(known)}"
            problems.append(f"{name} is no setting of a policy ({hint})")
        elif key in found:
            problems.append(f"{key} is given twice, in two spellings")
        else:
            found[key] = read(str(name), value, problems)
    if problems:
        raise ConfigError(f"The policy cannot be built: {'; '.join(problems)}")
    return found


def _strategy(where: str, value: object, problems: list[str]) -> Any:
    name, given = _named(value)
    if not isinstance(name, str) or name not in STRATEGIES:
        known = f"wanted one of {', '.join(STRATEGIES)}, alone or with its arguments"
        problems.append(f"{where}: {name!r} is no strategy ({meant(str(name), STRATEGIES) or known})")
        return None
    here, before = f"{where}: {name}", len(problems)
    args, options = _as_arguments(given)
    if name in ("sequence", "chain", "compensate"):
        args = [_strategy(here, one, problems) for one in args]
        options = {key: _strategy(here, one, problems) for key, one in options.items()}
    return _made(here, STRATEGIES[name], args, options, problems) if len(problems) == before else None


def _classifier(where: str, value: object, problems: list[str]) -> Any:
    name, given = _named(value)
    if name != "rules":
        problems.append(f"{where}: {name!r} cannot be written here (wanted rules; give any other as an object)")
        return None
    args, options = _as_arguments(given)
    before = len(problems)
    if isinstance(options.get("symptoms"), list):
        options["symptoms"] = [_rule(Symptom, f"{where}: symptoms", one, problems) for one in options["symptoms"]]
    return _made(where, RulesClassifier, args, options, problems) if len(problems) == before else None


def _guards(where: str, value: object, problems: list[str]) -> Any:
    return tuple(_guard(where, one, problems) for one in (value if isinstance(value, list | tuple) else [value]))


def _guard(where: str, value: object, problems: list[str]) -> Any:
    name, given = _named(value)
    if not isinstance(name, str) or name not in GUARDS:
        problems.append(f"{where}: {name!r} is no guard ({meant(str(name), GUARDS) or ', '.join(GUARDS)})")
        return None
    return _made(f"{where}: {name}", GUARDS[name], *_as_arguments(given), problems)


def _rules(where: str, value: object, problems: list[str]) -> Any:
    given = value if isinstance(value, list | tuple) else [value]
    return tuple(_rule(Rule, where, one, problems) for one in given)


def _rule(cls: type, where: str, value: object, problems: list[str]) -> Any:
    if isinstance(value, Mapping):
        return _made(where, cls, [], dict(value), problems)
    problems.append(f"{where}: {value!r} is no {cls.__name__} (wanted a mapping of its settings)")
    return None


def _made(where: str, made: Callable[..., Any], args: list[Any], options: dict[str, Any], problems: list[str]) -> Any:
    """Call `made` with checked arguments. Mistakes are added to `problems`; the result is None then."""
    signature = inspect.signature(made)
    known = signature.parameters
    if unknown := [name for name in options if name not in known]:
        takes = f"it takes {', '.join(known)}"
        problems += [f"{where} has no argument {name!r} ({meant(name, known) or takes})" for name in unknown]
        return None
    try:
        signature.bind(*args, **options)
    except TypeError as error:  # such as an argument that is missing
        problems.append(f"{where}: {error} (it takes {', '.join(known)})")
        return None
    try:
        return made(*args, **options)
    except ConfigError as error:
        problems.append(f"{where}: {error}")
        return None


def _named(value: object) -> tuple[object, object]:
    """Split a strategy or guard as it is written into its name and its arguments."""
    return next(iter(value.items())) if isinstance(value, Mapping) and len(value) == 1 else (value, {})


def _as_arguments(given: object) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(given, Mapping):
        return [], {str(name): value for name, value in given.items()}
    return (list(given) if isinstance(given, list | tuple) else [] if given is None else [given]), {}


def _as_it_is(where: str, value: object, problems: list[str]) -> Any:
    return value


_READERS: dict[str, Callable[[str, object, list[str]], Any]] = {
    "default": _strategy,
    "rules": _rules,
    "classifier": _classifier,
    "guards": _guards,
    "max_recovery_attempts": _as_it_is,
    "max_recovery_attempts_per_run": _as_it_is,
}
