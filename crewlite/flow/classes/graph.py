"""The graph of a flow: its methods, the conditions that start them, and the check that they fit together.

It is built once, with the class, so that a wrong name is an error before anything is paid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import Parameter
from types import FunctionType
from typing import Any, NamedTuple

from crewlite.errors import ConfigError, meant
from crewlite.flow.classes.conditions import Condition, method_at
from crewlite.flow.classes.feedback import HumanFeedbackResult
from crewlite.flow.classes.labels import known_labels, label_of
from crewlite.flow.classes.methods import Decorator, FlowMethod
from crewlite.flow.classes.rounds import Cycles, Round
from crewlite.flow.classes.settings import gives_setting
from crewlite.system.forked import cached_property
from crewlite.texts.wording import what_is

_WITH_PARENTHESES = {
    "start": "@start(), with parentheses",
    "listen": "@listen(...), with the method, label or condition that starts it in parentheses",
    "router": "@router(...), with the method, label or condition that starts it in parentheses",
}
_VERBS = {"ask", "explore", "aexplore", "fork", "from_checkpoint", "mermaid", "plot", "preview", "apreview"}
_VERBS |= {"kickoff", "akickoff", "kickoff_async", "stream", "submit"}
"""The methods of every flow that a class may override, such as to do something more before it."""
_SHAPES = {"start": "([{}])", "router": "{{{{{}}}}}", "method": "[{}]"}
"""What Mermaid draws for each shape of a method."""


class Edge(NamedTuple):
    """The method `source` may start the method `target`."""

    source: str
    target: str
    label: str | None = None
    """The label that starts the other method; None if the end of the first method starts it."""


@dataclass(frozen=True)
class Graph:
    """The methods of a flow and their conditions, in the order in which the class defines them."""

    methods: Mapping[str, FlowMethod[Any, Any]]
    labels: Mapping[str, frozenset[str] | None]
    """The labels of each router; None if they cannot be known."""

    @cached_property
    def entries(self) -> Sequence[str]:
        """The methods with which the flow begins: the starts without a condition, or all starts if each has one."""
        starts = [name for name, method in self.methods.items() if method.begins]
        return [name for name in starts if self.methods[name].condition is None] or starts

    @cached_property
    def arguments(self) -> Sequence[Parameter]:
        """The parameters of the methods with which the flow begins, which inputs fill. Two methods may share a name."""
        return [one for name in self.entries for one in self.methods[name].parameters]

    @cached_property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions of the methods that have one."""
        return {name: method.condition for name, method in self.methods.items() if method.condition}

    @cached_property
    def edges(self) -> Sequence[Edge]:
        """Which method may start which, in the order of the methods that are started."""
        return [
            Edge(source, listener, None if source == name else name)
            for listener, condition in self.conditions.items()
            for name in dict.fromkeys(condition.names())
            for source in self.emitters(name)
        ]

    @cached_property
    def ambiguous(self) -> frozenset[str]:
        """The names of methods that other methods wait for. A label with such a name would start those others too."""
        return frozenset(name for one in self.conditions.values() for name in one.names() if name in self.methods)

    @cached_property
    def cycles(self) -> Cycles:
        """The cycles of the reachable methods."""
        return Cycles.of(self._following, self.entries, self.labels, self._starts_without)

    @cached_property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """For each reachable method: its distance from the beginning, and its position in the class."""
        far = self.cycles.ranks(self._following)
        return {name: (far[name], at) for at, name in enumerate(self.methods) if name in far}

    @cached_property
    def _beginnings(self) -> Mapping[str, tuple[int, int]]:
        """The first place in each cycle."""
        found: dict[str, tuple[int, int]] = {}
        for name, place in self.places.items():
            for cycle in self.cycles.paths[name]:
                found[cycle] = min(place, found.get(cycle, place))
        return found

    def _starts_without(self, method: str, others: Collection[str]) -> bool:
        """Return whether a method can start before any of `others` has finished."""
        if method in self.entries:
            return True
        return self.conditions[method].holds(lambda name: any(one not in others for one in self.emitters(name)))

    @property
    def _following(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for edge in self.edges:
            found.setdefault(edge.source, []).append(edge.target)
        return found

    @classmethod
    def of(cls, flow: type, base: type) -> Graph:
        """Collect the methods of a flow class, inherited ones included. Raises ConfigError for an unusable method."""
        methods: dict[str, FlowMethod[Any, Any]] = {}
        users = flow.__mro__[: flow.__mro__.index(base)]
        for ancestor in reversed(flow.__mro__):
            for name, value in vars(ancestor).items():
                is_hidden = hasattr(base, name) and not name.startswith("_") and hasattr(value, "__get__")
                is_hidden &= not gives_setting(name, value)
                if is_hidden and (isinstance(value, FlowMethod) or (ancestor in users and name not in _VERBS)):
                    raise ConfigError(
                        f"{flow.__name__}.{name}: every flow has a {name!r} of its own, which this method would hide; "
                        f"rename the method, for example to 'my_{name}'"
                    )
                if isinstance(value, Decorator):
                    raise ConfigError(f"{flow.__name__}.{name}: write {_WITH_PARENTHESES[value.of]}")
                if isinstance(getattr(value, "__func__", None), FlowMethod):
                    raise ConfigError(f"{flow.__name__}.{name} is {what_is(value)}; wanted a plain method with self")
                if isinstance(value, FlowMethod):
                    methods[name] = value
                elif name in methods and isinstance(value, FunctionType):  # overridden without a decorator
                    was = methods[name]
                    methods[name] = replace(was, func=value, execution=was.execution.of_another(value))
        for name, method in methods.items():
            if method.name != name:
                raise ConfigError(
                    f"{flow.__name__}.{name} is the method {method.name!r} under another name; wanted one name"
                )
            method.check_parameters(flow.__name__)
        labels = {
            name: known_labels(method.func) if method.emit is None else method.emit
            for name, method in methods.items()
            if method.routes
        }
        return cls(methods, labels)

    def label(self, method: str, result: object, *, recorded_at: str = "") -> str | None:
        """Return the label that a method's result stands for; None if the method is no router, or returned no label.

        Raises ConfigError for a result that cannot be one of its labels. `recorded_at`: the address of a recorded
        result. Other code may have returned it, so it must be among the labels in the source of the router, too.
        """
        if method not in self.labels:
            return None
        value = result.outcome if isinstance(result, HumanFeedbackResult) else result
        known = self.labels[method] if recorded_at else self.methods[method].declared
        label = label_of(value, method, known, recorded_at)
        if label in self.ambiguous:
            raise ConfigError(self._two_meanings(method, label))
        return label

    def meant(self, label: str) -> str:
        """Return the hint "did you mean 'x'?" for a label that starts nothing and resembles one that does; else ""."""
        starting = {name for condition in self.conditions.values() for name in condition.names()}
        return "" if label in starting else meant(label, starting)

    def check_edit(self, address: str, value: object) -> None:
        """Raise ConfigError if this is the address of a router and the value is none of its labels."""
        name = method_at(address)
        if name in self.labels:
            try:
                label_of(self.label(name, value), name, self.labels[name])
            except ConfigError as error:
                raise ConfigError(f"The edit of {address} does not fit. {error}") from None

    def emitters(self, name: str) -> Sequence[str]:
        """Return the methods that can make a name in a condition occur: the one so named, routers with this label."""
        if name in self.methods:
            return [name, *(router for router, labels in self.labels.items() if labels and name in labels)]
        return [router for router, labels in self.labels.items() if labels is None or name in labels]

    def decides(self, router: str, address: str) -> bool:
        """Return whether labels of a router may start the method with this address, directly or through others."""
        return method_at(address) in self._behind_labels[router]

    @cached_property
    def _behind_labels(self) -> Mapping[str, Collection[str]]:
        """For each router, the methods that its labels may start, directly or through others."""
        following, found = self._following, dict[str, set[str]]()
        for router in self.labels:
            found[router], new = set(), {one.target for one in self.edges if one.source == router and one.label}
            while new:
                found[router] |= new
                new = {target for name in new for target in following.get(name, ())} - found[router]
        return found

    def shape(self, method: str) -> str:
        """Return what a method is drawn as: start, router or method."""
        marked = self.methods[method]
        return "router" if marked.routes else "start" if marked.begins else "method"

    def mermaid(self) -> str:
        """Return a flowchart: starts are round, routers have six sides, an `and` or nested condition has its own box.

        Dotted edges show labels that a router may return, as its labels are not known.
        """
        numbers = {name: f"m{number}" for number, name in enumerate(self.methods)}
        joints = {name: f"{numbers[name]}j" for name, one in self.conditions.items() if one.brief not in ("", "or")}
        lines = ["flowchart TD"]
        for name, number in numbers.items():
            lines.append(f"    {number}{_SHAPES[self.shape(name)].format(_quoted(name))}")
            if name in joints:
                brief = self.conditions[name].brief
                joint = ("(({}))" if brief == "and" else "[/{}/]").format(_quoted(brief))
                lines.append(f"    {joints[name]}{joint} --> {number}")
        ends = {name: joints.get(name, number) for name, number in numbers.items()}
        lines += [f"    {numbers[edge.source]} {self._line(edge)} {ends[edge.target]}" for edge in self.edges]
        return "\n".join(lines) + "\n"

    def _line(self, edge: Edge) -> str:
        if edge.label is None:
            return "-->"
        is_known = self.labels[edge.source] is not None
        return f"-->|{_quoted(edge.label)}|" if is_known else f"-. {_quoted(edge.label)} .->"

    def place(self, method: str, round_: Round) -> tuple[tuple[int, ...], ...]:
        """Return a sort key for finding the last method of a run: farthest from the beginning, in the latest round."""
        found: list[tuple[int, ...]] = []
        for cycle, turn in zip(self.cycles.paths[method], round_, strict=True):
            found += [self._beginnings[cycle], (turn,)]
        return (*found, self.places[method])

    def check(self, flow: str, *, abstract: bool = False) -> None:
        """Raise ConfigError, which lists all mistakes in the graph, if there are any."""
        if problems := list(self._problems()):
            hint = f". (A class that only its subclasses complete: class {flow}(Flow, abstract=True))"
            if abstract:
                hint = ". (It is abstract: kick off a subclass that completes it)"
            elif problems[-1].endswith("?") or any(self.ambiguous & (known or set()) for known in self.labels.values()):
                hint = ""
            raise ConfigError(f"flow {flow!r} cannot work: {'; '.join(problems)}{hint}")

    @staticmethod
    def _two_meanings(router: str, label: str) -> str:
        return f"router {router!r} returns the label {label!r}, which is also the name of a method; rename one of them"

    def _problems(self) -> Iterator[str]:
        if not self.entries:
            yield "no method begins it; mark one with @start()"
            return
        for router, labels in self.labels.items():
            yield from (self._two_meanings(router, label) for label in sorted(self.ambiguous & (labels or set())))
        known = [*self.methods, *(label for labels in self.labels.values() for label in sorted(labels or ()))]
        unknown = set()
        for listener, condition in self.conditions.items():
            for name in dict.fromkeys(condition.names()):
                if not self.emitters(name):
                    unknown.add(name)
                    near = meant(name, known)
                    if listener in self.entries and not near:
                        continue  # it starts with the flow all the same
                    hint = near or self._returning(name) or f"it has {', '.join(map(repr, dict.fromkeys(known)))}"
                    yield f"{listener!r} waits for {name!r}, which is no method, and no router returns it; {hint}"
        reached = self._reached(unknown)
        for name, method in self.methods.items():
            if name not in reached:
                yield self._never(name, method.condition, reached)

    @staticmethod
    def _never(name: str, condition: Condition | None, reached: Collection[str]) -> str:
        if condition is None:
            return f"nothing starts {name!r}; give it a condition, or mark it with @start() too"
        if name in condition.names():
            return (
                f"{name!r} waits for {name!r}, which is the method itself, as a name is that of a method before it is "
                f"a label; rename the method, for example to 'on_{name}'"
            )
        missing = [repr(part) for part in dict.fromkeys(condition.names()) if part not in reached]
        return f"{name!r} never starts, as {' and '.join(missing)} can never occur"

    def _returning(self, label: str) -> str | None:
        """Return a hint at the first method that returns this text and is no router; None if there is none."""
        for name, method in self.methods.items():
            with suppress(ConfigError):  # a method that is no router may return anything
                if not method.routes and label in (known_labels(method.func) or ()):
                    return f"{name!r} returns it, but only what a @router returns is a label"
        return None

    def _reached(self, also: set[str]) -> set[str]:
        """Return the methods and labels that can occur, assuming that those in `also` can."""
        found, before = {*also, *self.entries}, -1
        while len(found) != before:
            before = len(found)
            routers = [name for name in self.labels if name in found]
            found |= {label for name in routers for label in self.labels[name] or ()}
            if any(self.labels[name] is None for name in routers):
                found |= {name for one in self.conditions.values() for name in one.names()} - self.methods.keys()
            found |= {name for name, condition in self.conditions.items() if condition.holds(found.__contains__)}
        return found


def _quoted(text: str) -> str:
    """Return a text in quotes, escaped for Mermaid and HTML."""
    kept = (mark if mark.isalnum() or mark in " _-.,()" else f"#{ord(mark)};" for mark in " ".join(text.split()))
    return f'"{"".join(kept)}"'
