"""Find a crew, agent or flow by its target, and what it takes.

A target is `package.module:attribute`, `path/to/file.py:attribute`, or the file of a crew in JSON.

Only modules that the user names, on the command line or in pyproject.toml, are imported. Names in a record never are.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

import click
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from crewlite import Agent, CheckpointConfig, Crew
from crewlite.cli.exits import Failed
from crewlite.errors import ConfigError, text_of
from crewlite.flow import Flow, FlowFunction
from crewlite.lazy import lazy
from crewlite.runtime.kickoffs.runnable import Runnable
from crewlite.runtime.kickoffs.storage import refused
from crewlite.texts.secrets import Secrets

loader = lazy("crewlite.project.crew_loader")  # only crews in JSON need it
Definition: TypeAlias = Runnable[Any]
D = TypeVar("D", bound=Definition)
KINDS: dict[str, type[Definition]] = {kind.run_kind.name: kind for kind in (Crew, Agent, FlowFunction)}
"""The classes of definitions, by the kind that their runs are recorded as."""

_WANTED = (
    "a Crew, an Agent, a function with @flow, a class of flows, a function without required arguments that returns "
    "one, or a class with a method crew() that does"
)
_NOT_OURS = tuple(
    os.path.join(os.path.abspath(path), "")
    for path in (os.path.dirname(os.path.dirname(__file__)), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
)


def find(target: str) -> Definition:
    """Import and return the definition that a target names. Raises as `find_with_inputs` does."""
    return find_with_inputs(target)[0]


def find_with_inputs(target: str) -> tuple[Definition, dict[str, Any]]:
    """Return the definition that a target names, and the inputs of its file if that is a crew in JSON.

    Raises UsageError if the target names no definition, Failed if the code that it names raises an error, and
    ConfigError for mistakes in a file in JSON.
    """
    return loader.load_crew(target) if target.endswith((".json", ".jsonc")) else (_imported(target), {})


def _imported(target: str) -> Definition:
    where, colon, name = target.rpartition(":")
    if not colon or not where or not all(part.isidentifier() for part in name.split(".")):
        wanted = "wanted package.module:attribute, file.py:attribute or a crew in JSON, such as crew.jsonc"
        there = ""
        if target.endswith(".py") and Path(target).is_file():
            with _of_the_user(target):
                there = _what_there_is(_module(target), f"{target}:")
        raise click.UsageError(f"{target!r} names no definition; {wanted}.{there}")
    with _of_the_user(where):
        module = _module(where)
        found = _attribute(module, name, target)
    if inspect.iscoroutinefunction(found):
        raise click.UsageError(f"{target} is an async function; wanted {_WANTED}. Define it with `def`.")
    if not isinstance(found, Runnable) and callable(found) and _makes_one(found):
        with _of_the_user(target, called=True):
            found = found()
            found = found if isinstance(found, Runnable) or not hasattr(found, "crew") else found.crew()
    if not isinstance(found, Runnable):
        raise click.UsageError(f"{target} is {_called(found)}; wanted {_WANTED}.{_what_there_is(module)}")
    return found


def of_the_project() -> str | None:
    """Return the target that pyproject.toml of this directory names: `[tool.crewlite] crew = "..."`. Raises Failed."""
    path = Path("pyproject.toml")
    if not path.is_file():
        return None
    try:
        ours = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("crewlite", {})
        unknown, target = sorted(ours.keys() - {"crew"}), ours.get("crew")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise Failed(f"pyproject.toml cannot be read: {error}") from error
    if unknown:
        raise Failed(f"pyproject.toml: [tool.crewlite] has {', '.join(map(repr, unknown))}; it takes only crew")
    if target is not None and not isinstance(target, str):
        raise Failed(f'pyproject.toml: crew in [tool.crewlite] is {target!r}; wanted "package.module:attribute"')
    return target


def checked_inputs(
    definition: Definition,
    inputs: Mapping[str, Any],
    message: str | None = None,
    model: str | None = None,
    *,
    complete: bool = False,
) -> dict[str, Any]:
    """Return the inputs converted to the types of the definition: `n=3` is a number for `n: int`.

    Inputs without a declared type stay as they are. Raises UsageError for inputs, a message or a model that the
    definition does not take; with `complete` also if a message or an input is missing, as far as the run itself does
    not check that.
    """
    kind = definition.run_kind
    if kind.takes_messages and inputs:
        raise click.UsageError(f"an {kind} takes no inputs; pass a message instead: --message TEXT")
    if message is not None and not kind.takes_messages:
        raise click.UsageError(f"--message is for an agent, and this is a {kind}; pass inputs: --input NAME=TEXT")
    try:
        if model:
            definition.with_model(model)
        if inputs:
            definition.as_inputs(inputs)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    if complete and kind.takes_messages and message is None:
        raise click.UsageError(f"an {kind} needs a message: --message TEXT")
    required = definition.required_inputs() if complete and not kind.takes_messages else ()
    if missing := [repr(name) for name in required if name not in inputs]:
        what = f"{kind} {definition.run_name!r}: missing {', '.join(missing)}"
        raise click.UsageError(f"{what}. Pass it: --input NAME=TEXT")
    types = definition.input_types() if inputs else {}
    return {name: _typed(name, value, types[name]) if name in types else value for name, value in inputs.items()}


def saving(definition: D, location: str | None) -> D:
    """Return the definition with its runs saved at `location`, or at its own; by default on disk.

    A definition with checkpoint=False, or one whose inner definitions have a store, is not changed.
    """
    own = definition.checkpoint
    if own is None and not location and not any(definition.inner_settings()):
        return definition.with_checkpoint(True)
    if location and own is not False:
        config = own if isinstance(own, CheckpointConfig) else CheckpointConfig()
        return definition.with_checkpoint(config.overridden_by(CheckpointConfig(location=location, provider=None)))
    return definition


def culprit(error: BaseException) -> str:
    """Return where in the user's own code an error was raised, as ` (file, line n)`; "" if it was raised elsewhere."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({_near(error.filename)}, line {error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.abspath(frame.filename)
        if not frame.filename.startswith("<") and not path.startswith(_NOT_OURS):
            return f" ({_near(path)}, line {frame.lineno})"
    return ""


@contextlib.contextmanager
def _of_the_user(where: str, *, called: bool = False) -> Iterator[None]:
    """Import or call the user's code in the block. Raises Failed, with one line, for an error or a kickoff in it."""
    why = (
        f"{where} kicks off while it is {'called' if called else 'imported'}, so it would run twice. Put that under "
        f'`if __name__ == "__main__":`, and leave the definition where it is'
    )
    os.getcwd()  # which fails if that was deleted: this is no error of the user's code
    try:
        with refused(why):
            yield
    except click.ClickException:
        raise
    except SystemExit as error:
        when = "called" if called else "imported"
        raise Failed(f"{where} ends the program when it is {when} (exit {error.code}){culprit(error)}") from error
    except Exception as error:  # the border: whatever a module of the user raises
        said = error.msg if isinstance(error, SyntaxError) else text_of(error)
        what = "was called and raised" if called else "cannot be imported:"
        text = f"{where} {what} {type(error).__name__}: {said}{culprit(error)}"
        raise Failed(Secrets.of().mask(text)) from error


def _module(where: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    if where.endswith(".py") or os.sep in where or "/" in where:
        return _file(Path(where))
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where and not where.startswith(f"{error.name}."):
            raise
        file = f" There is {where}.py: {where}:NAME" if Path(f"{where}.py").exists() else ""
        raise click.UsageError(
            f"there is no module {error.name!r}, neither in {here} nor installed.{file} A file can be named as well: "
            f"path/to/file.py:attribute"
        ) from error


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise click.UsageError(f"there is no file {path}")
    path = path.resolve()
    name = path.stem if path.stem not in sys.modules else f"_{path.stem}_of_the_command"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path} is no Python file; wanted one whose name ends in .py")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, dir(found), n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"{target}: there is no {part!r} in it.{meant}{_what_there_is(module)}")
        found = getattr(found, part)
    return found


def _makes_one(found: Any) -> bool:
    """Return whether an object is a function without required arguments, a class of flows, or one with `crew()`."""
    if isinstance(found, type) and not issubclass(found, Flow) and not callable(getattr(found, "crew", None)):
        return False
    return _is_ready(found)


def _is_ready(function: Any) -> bool:
    """Return whether a function can be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _what_there_is(module: ModuleType, before: str = "") -> str:
    """Return a sentence that lists the definitions in a module, with `before` before each name; "" if none."""
    found = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    names = [name for name, value in found if isinstance(value, Runnable) or _may_make_one(value, module)]
    return f" What there is: {', '.join(f'{before}{name}' for name in names)}." if names else ""


def _may_make_one(value: object, module: ModuleType) -> bool:
    """Return whether an object of this module seems to return a definition, judged without calling it."""
    if isinstance(value, type):
        return value.__module__ == module.__name__ and _makes_one(value)
    if not inspect.isfunction(value) or value.__module__ != module.__name__ or inspect.iscoroutinefunction(value):
        return False
    if "return" not in value.__annotations__:
        return not inspect.signature(value).parameters
    says = value.__annotations__["return"]
    return _is_ready(value) and getattr(says, "__name__", str(says)) in {kind.__name__ for kind in KINDS.values()}


def _called(found: object) -> str:
    if inspect.isfunction(found):
        return f"a function with the arguments {inspect.signature(found)}"
    return f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"


def _typed(name: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value)
    except PydanticUserError:  # pydantic cannot convert to this class: the flow gets the value as it is
        return value
    except ValidationError as error:
        problems = "; ".join(item["msg"] for item in error.errors(include_url=False))
        as_json = f". The value is taken as text; to give JSON, write {name}:=..." if isinstance(value, str) else ""
        raise click.UsageError(f"--input {name}: {problems}{as_json}") from None


def _near(path: str) -> str:
    """Return the path relative to this directory if it is below it."""
    with contextlib.suppress(ValueError):
        return str(Path(path).resolve().relative_to(Path.cwd()))
    return path
