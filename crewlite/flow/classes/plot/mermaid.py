"""The graph of a flow as Mermaid text, which many viewers of Markdown show as a picture."""

from __future__ import annotations

from crewlite.flow.classes.graph import Edge, Graph

_SHAPES = {"start": "([{}])", "router": "{{{{{}}}}}", "method": "[{}]"}


def mermaid(graph: Graph) -> str:
    """Return a flowchart: starts are round, routers have six sides, and what joins methods has a box of its own.

    The line of a label that a router may return, but is not known to, is dotted.
    """
    numbers = {name: f"m{number}" for number, name in enumerate(graph.methods)}
    joints = {name: f"{numbers[name]}j" for name, one in graph.conditions.items() if one.brief not in ("", "or")}
    lines = ["flowchart TD"]
    for name, number in numbers.items():
        lines.append(f"    {number}{_SHAPES[shape(graph, name)].format(_quoted(name))}")
        if name in joints:
            brief = graph.conditions[name].brief
            joint = ("(({}))" if brief == "and" else "[/{}/]").format(_quoted(brief))
            lines.append(f"    {joints[name]}{joint} --> {number}")
    ends = {name: joints.get(name, number) for name, number in numbers.items()}
    lines += [f"    {numbers[edge.source]} {_line(graph, edge)} {ends[edge.target]}" for edge in graph.edges]
    return "\n".join(lines) + "\n"


def shape(graph: Graph, name: str) -> str:
    """Return what a method is drawn as: start, router or method."""
    method = graph.methods[name]
    return "router" if method.routes else "start" if method.begins else "method"


def _line(graph: Graph, edge: Edge) -> str:
    if edge.label is None:
        return "-->"
    return f"-. {_quoted(edge.label)} .->" if graph.is_possible(edge) else f"-->|{_quoted(edge.label)}|"


def _quoted(text: str) -> str:
    """Return a text in quotes, in which nothing has a meaning for Mermaid or HTML."""
    kept = (mark if mark.isalnum() or mark in " _-.,()" else f"#{ord(mark)};" for mark in " ".join(text.split()))
    return f'"{"".join(kept)}"'
