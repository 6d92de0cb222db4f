"""The tables of docs/events.md, errors.md and definitions.md, made from the classes. Refresh them: python -m tests.docs.catalogue"""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

from crewlite import Agent, BaseTool, CheckpointConfig, Crew, Task, errors
from crewlite.errors import CrewliteError
from crewlite.events.base import BaseEvent
from crewlite.events.registry import load

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- made from the code by: python -m tests.docs.catalogue -->", "<!-- end of what is made -->"
TABLES = ("events.md", "errors.md", "definitions.md")


def table_of(page: str) -> str:
    """What stands between the marks of a page."""
    return {"events.md": _events, "errors.md": _errors, "definitions.md": _definitions}[page]()


def refreshed(page: str, text: str) -> str:
    """The page with what stands between its marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table_of(page)}\n{END}{after}"


def _events() -> str:
    lines = ["### Every event", "", "| field | |", "|---|---|"]
    said = _said(BaseEvent)
    lines += [f"| {field} | {said.get(name, '')} |" for name, field in _fields(BaseEvent).items()]
    families: dict[str, list[type[BaseEvent]]] = {}
    for cls in load().values():
        if cls is not BaseEvent:
            families.setdefault(cls.__module__, []).append(cls)
    for name, classes in sorted(families.items()):
        doc = inspect.getdoc(importlib.import_module(name)) or ""
        lines += [
            "",
            f"### {doc.splitlines()[0].rstrip('.')}",
            "",
            "| type, class | its own fields | |",
            "|---|---|---|",
        ]
        for cls in sorted(classes, key=lambda cls: inspect.getsourcelines(cls)[1]):
            fields = {k: v for base in cls.__mro__ if base is not BaseEvent for k, v in _fields(base).items()}
            fields.pop("type", None)
            about = " ".join((inspect.getdoc(cls) or "").split())
            kind = cls.model_fields["type"].default
            lines.append(f"| `{kind}`<br>{cls.__name__} | {', '.join(fields.values())} | {about} |")
    return "\n".join(lines) + "\n"


def _definitions() -> str:
    lines: list[str] = []
    for cls in (Agent, Task, Crew, CheckpointConfig, BaseTool):
        said, about = _said(cls), (inspect.getdoc(cls) or "").splitlines()[0]
        lines += ["", f"### {cls.__name__}", "", about, "", "| field | default | |", "|---|---|---|"]
        for name, kind in cls.__annotations__.items():
            if name not in cls.model_fields:
                continue
            field = cls.model_fields[name]
            default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
            shown = f"`{name}: {kind}`".replace("|", "\\|")
            lines.append(f"| {shown} | {default} | {said.get(name, '')} |")
    return "\n".join(lines).lstrip() + "\n"


def _errors() -> str:
    lines = ["| class | code | also a | |", "|---|---|---|---|"]
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, CrewliteError):
            builtin = ", ".join(_builtins(cls))
            if CrewliteError in cls.__bases__ or cls is CrewliteError:
                family = f"`{cls.__name__}`"
            else:
                family = f"`{cls.__name__}` ({cls.__bases__[0].__name__})"
            lines.append(f"| {family} | `{cls.code}` | {builtin} | {(cls.__doc__ or '').splitlines()[0]} |")
    return "\n".join(lines) + "\n"


def _builtins(cls: type) -> list[str]:
    """The nearest built-in errors that a class also is."""
    bases = [base for base in cls.__mro__ if base.__module__ == "builtins" and base is not object]
    return [b.__name__ for b in bases if not any(b is not other and issubclass(other, b) for other in bases)]


def _fields(cls: type) -> dict[str, str]:
    """The fields that one class declares, as `name: type`."""
    if not issubclass(cls, BaseEvent):
        return {}
    return {
        name: f"`{name}: {kind}`".replace("|", "\\|")
        for name, kind in cls.__annotations__.items()
        if name in cls.model_fields
    }


def _said(cls: type) -> dict[str, str]:
    """What stands below each field of a class."""
    [body] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, doc in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(doc.value.value).split())
    return found


if __name__ == "__main__":
    for name in TABLES:
        path = DOCS / name
        path.write_text(refreshed(name, path.read_text(encoding="utf-8")), encoding="utf-8")
