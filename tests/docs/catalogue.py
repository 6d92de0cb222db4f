"""What is made from the code: tables of docs/*.md (`TABLES`), the help in cli-reference.md, and docs/reference/.

Refresh it: python -m tests.docs.catalogue
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import click
from pydantic import BaseModel

from crewlite import Agent, BaseTool, CheckpointConfig, ConditionalTask, Crew, Task, errors
from crewlite.cli.main import main
from crewlite.coming_from.settings import ANY, SETTINGS
from crewlite.errors import CrewliteError
from crewlite.events.base import BaseEvent
from crewlite.events.registry import load
from crewlite.recovery import FailureType
from crewlite.recovery.classify import SYMPTOMS
from crewlite.recovery.types import MEANINGS
from tests.docs import reference

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- made from the code by: python -m tests.docs.catalogue -->", "<!-- end of what is made -->"
TABLES = (
    "event-types.md",
    "errors.md",
    "definitions.md",
    "checkpoint-reference.md",
    "cli-reference.md",
    "crewai-names.md",
    "policies.md",
)


def table_of(page: str) -> str:
    """What stands between the marks of a page."""
    made = {
        "event-types.md": _events,
        "errors.md": _errors,
        "definitions.md": _definitions,
        "checkpoint-reference.md": _checkpointing,
        "cli-reference.md": _help,
        "crewai-names.md": _settings,
        "policies.md": _failure_types,
    }
    return made[page]()


def refreshed(page: str, text: str) -> str:
    """The page with what stands between its marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table_of(page)}\n{END}{after}"


def _events() -> str:
    lines = ["## Every event", "", "| field | |", "|---|---|"]
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
            f"## {doc.splitlines()[0].rstrip('.')}",
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
    for cls in (Agent, Task, ConditionalTask, Crew, BaseTool):
        lines += ["", f"### {cls.__name__}", "", (inspect.getdoc(cls) or "").splitlines()[0], "", *_fields_of(cls)]
    return "\n".join(lines).lstrip() + "\n"


def _fields_of(cls: type[BaseModel]) -> list[str]:
    said, lines = _said(cls), ["| field | default | |", "|---|---|---|"]
    for name, kind in cls.__annotations__.items():
        if name not in cls.model_fields:
            continue
        field = cls.model_fields[name]
        default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
        shown = f"`{name}: {_taken(kind)}`".replace("|", "\\|")
        lines.append(f"| {shown} | {default} | {said.get(name, '')} |")
    return lines


def _taken(kind: str) -> str:
    """The type of what a field may be given: the first of `Takes[given, held]`."""
    [statement] = ast.parse(kind).body
    match statement:
        case ast.Expr(ast.Subscript(ast.Name("Takes"), ast.Tuple([given, _]))):
            return ast.unparse(given)
    return kind


def _checkpointing() -> str:
    return "\n".join(["## CheckpointConfig", "", *_fields_of(CheckpointConfig)]) + "\n"


def _settings() -> str:
    lines = ["| setting | of | accepted | what holds here | instead |", "|---|---|---|---|---|"]
    fields = {cls.__name__: cls.model_fields for cls in (Agent, Task, Crew)}
    for one in SETTINGS:
        missing = [cls for cls in one.of.split() if one.name not in fields.get(cls, ())]
        accepted = (
            "always" if one.accepted is ANY else "if off" if one.accepted is None else f"`{one.accepted!r}`, or off"
        )
        if missing:
            instead = re.sub(r"[@\w.]+\([^)]*\)", r"`\g<0>`", one.instead)
            lines.append(f"| `{one.name}` | {', '.join(missing)} | {accepted} | {one.here} | {instead} |")
    return "\n".join(lines) + "\n"


def _failure_types() -> str:
    lines = ["| type | what went wrong | classes of errors | HTTP status |", "|---|---|---|---|"]
    for kind in FailureType:
        signs = [symptom for symptom in SYMPTOMS if symptom.type == kind]
        classes = ", ".join(f"`{name}`" for symptom in signs for name in symptom.errors)
        statuses = ", ".join(str(status) for symptom in signs for status in symptom.statuses)
        lines.append(f"| `{kind.name}` | {MEANINGS[kind]} | {classes} | {statuses} |")
    return "\n".join(lines) + "\n"


def _help() -> str:
    lines: list[str] = []
    waiting = [(main, click.Context(main, info_name="crewlite", terminal_width=80, **main.context_settings))]
    while waiting:
        command, ctx = waiting.pop(0)
        lines += ["", f"## {ctx.command_path}", "", "```", command.get_help(ctx), "```"]
        if isinstance(command, click.Group):
            below = [(command.get_command(ctx, name), name) for name in command.list_commands(ctx)]
            waiting = [(sub, click.Context(sub, info_name=name, parent=ctx)) for sub, name in below if sub] + waiting
    return "\n".join(lines).lstrip() + "\n"


def _errors() -> str:
    lines = ["| class | code | also a | in a tool | |", "|---|---|---|---|---|"]
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and cls.__name__ == name and issubclass(cls, CrewliteError):
            builtin = ", ".join(_builtins(cls))
            if CrewliteError in cls.__bases__ or cls is CrewliteError:
                family = f"`{cls.__name__}`"
            else:
                family = f"`{cls.__name__}` ({cls.__bases__[0].__name__})"
            tool = "ends the run" if cls.ends_run else "told to the model"
            lines.append(f"| {family} | `{cls.code}` | {builtin} | {tool} | {(cls.__doc__ or '').splitlines()[0]} |")
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
    reference.refresh()
