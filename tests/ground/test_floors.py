"""The house stands: imports run downward, files stay short, and what is made in one place is made nowhere else."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from crewlite import kinds
from tests.ground.modules import ROOT, is_text, modules

FLOORS = {
    "ground": {
        "encoding",
        "system",
        "concurrency",
        "definitions",
        "texts",
        "pages",
        "errors",
        "recovery",
        "coming_from",
    }
    | {"attempt_hooks", "budget", "durable", "ids", "kinds", "lazy", "refs", "step_parts", "usage"},
    "ports": {"events", "llm", "tools", "knowledge"},
    "what is recorded": {"state.format"},
    "where it is kept": {"state.providers", "state.config"},
    "writing it": {"state.journal"},
    "reading it": {"state.reading", "state.comparing", "state.subscriber", "state.shared"},
    "changing it": {"state.verbs", "state.values"},
    "a run's state": {"state.runtime"},
    "all runs": {"state.run_history", "state.stored_runs", "state.run_page", "state.history", "state"},
    "steps of a run": {"runtime.steps", "runtime"},
    "people": {"runtime.people"},
    "the main thread": {"runtime.main_thread"},
    "kickoffs": {"runtime.kickoffs", "runtime.exploring"},
    "agents": {"agent"},
    "tasks": {"task"},
    "crews": {"crew", "flow", "project"},
    "roof": {"cli", "console", "testing", "tui", "__main__"},
}
ORDER = list(FLOORS)


def floor(module: str) -> str:
    parts = module.split(".")
    room = ".".join(parts[1:3]) if parts[1] in ("state", "runtime") else parts[1]
    return next((name for name, rooms in FLOORS.items() if room in rooms), f"no floor ({room})")


class Imports(ast.NodeVisitor):
    """The modules of this package that a module imports when it is loaded, and those it imports inside functions."""

    def __init__(self, module: str) -> None:
        self.module, self.inside = module, 0
        self.loaded: set[str] = set()
        self.late: set[tuple[str, int]] = set()
        self.lazy: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "lazy":
            (name,) = (argument.value for argument in node.args if is_text(argument))
            if name.startswith("crewlite."):
                self.lazy.add(name)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, f"{self.module}:{node.lineno} imports relatively"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            self.add(whole if whole in modules() else str(node.module), node.lineno)

    def add(self, name: str, line: int) -> None:
        if name.split(".")[0] != "crewlite":
            return
        if self.inside:
            self.late.add((name, line))
        else:
            self.loaded.add(name)


@cache
def imports(module: str) -> Imports:
    found = Imports(module)
    found.visit(ast.parse(modules()[module].read_text(encoding="utf-8")))
    return found


def test_every_room_has_a_floor():
    rooms = {module.split(".")[1] for module in modules() if "." in module}
    known = set().union(*FLOORS.values())
    assert rooms - known == set(), "new rooms want a floor in this test and in docs"


def test_imports_run_downward_only():
    for module in modules():
        if "." not in module:
            continue
        own = ORDER.index(floor(module))
        upward = [name for name in imports(module).loaded if "." in name and ORDER.index(floor(name)) > own]
        assert not upward, f"{module} is on the floor {floor(module)!r} and imports from above: {upward}"
        if floor(module) != "roof":
            assert "crewlite" not in imports(module).loaded, f"{module} imports the package itself: name the module"


def test_no_imports_go_in_circles():
    done: set[str] = set()

    def walk(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way[way.index(module) :], module))
        if module in done:
            return
        for name in sorted(imports(module).loaded):
            if name in modules() and name != module:
                walk(name, (*way, module))
        done.add(module)

    for module in modules():
        walk(module, ())


def test_no_module_imports_its_neighbours_inside_a_function():
    late = {module: sorted(imports(module).late) for module in modules() if imports(module).late}
    assert late == {}


AGAINST_THE_ORDER = {
    ("crewlite.llm.base", "crewlite.agent.bare_call"): "a model loads without the engine",
    ("crewlite.recovery.classify", "crewlite.agent.classifier"): "only classifiers that ask a model load it",
    ("crewlite.runtime.steps.deciding", "crewlite.runtime.people.suspending"): "it asks a person, a step like any",
    ("crewlite.runtime.kickoffs.engine", "crewlite.console.progress"): "verbose runs alone attach it",
    ("crewlite.runtime.kickoffs.engine", "crewlite.console.log_file"): "only runs that write one attach it",
    ("crewlite.runtime.main_thread.sync_bridge", "crewlite.cli.uncaught"): "only runs that fail or are cut load it",
    ("crewlite.runtime.kickoffs.runnable", "crewlite.runtime.kickoffs.chunks"): "a definition loads without the engine",
    ("crewlite.runtime.kickoffs.runnable", "crewlite.runtime.kickoffs.engine"): "a definition loads without the engine",
    ("crewlite.runtime.kickoffs.runnable", "crewlite.runtime.kickoffs.fork"): "a definition loads without the engine",
    ("crewlite.runtime.kickoffs.runnable", "crewlite.runtime.exploring.study"): "a definition loads without the engine",
    ("crewlite.runtime.exploring.judge", "crewlite.agent.judging"): "only studies that a model judges load it",
    ("crewlite.agent.agent", "crewlite.agent.root"): "a definition loads without the engine",
    ("crewlite.agent.agent", "crewlite.crew.alone"): "an agent that does one task makes a crew of it",
    ("crewlite.task.task", "crewlite.crew.alone"): "a task that is done alone makes a crew of it",
    ("crewlite.crew.crew", "crewlite.project.crew_files"): "a crew from files reads them",
    ("crewlite.crew.crew", "crewlite.crew.root"): "a definition loads without the engine",
    ("crewlite.crew.crew", "crewlite.crew.rebuild"): "a definition loads without the engine",
    ("crewlite.crew.repeated", "crewlite.crew.testing"): "a definition loads without the engine",
    ("crewlite.crew.repeated", "crewlite.crew.training"): "a definition loads without the engine",
    ("crewlite.flow.function", "crewlite.flow.root"): "a definition loads without the engine",
    ("crewlite.flow.classes.base", "crewlite.flow.classes.root"): "a definition loads without the engine",
    ("crewlite.flow.classes.methods", "crewlite.flow.classes.reviewing"): "a definition loads without the engine",
}
"""Modules loaded at first use that are on a higher floor, or lead back to who names them, and why."""


def test_what_loads_at_first_use_goes_downward_too_but_for_what_is_listed_here():
    found = set()
    for module in modules():
        for name in imports(module).lazy:
            assert name in modules(), f"{module} names {name}, which is not there"
            upward = ORDER.index(floor(name)) > ORDER.index(floor(module))
            if upward or module in reached(name):
                found.add((module, name))
    assert found == set(AGAINST_THE_ORDER)


def reached(module: str) -> set[str]:
    """All modules that load with this one."""
    found, left = {module}, [module]
    while left:
        new = {name for name in imports(left.pop()).loaded if name in modules()} - found
        found |= new
        left += new
    return found


def test_no_file_is_longer_than_a_reader_likes():
    longest = dict.fromkeys(modules().values(), 399) | dict.fromkeys(Path(__file__).parents[1].rglob("*.py"), 420)
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in longest}
    assert {path.name: length for path, length in lengths.items() if length > longest[path]} == {}


def test_no_wait_looks_at_a_clock_that_a_test_may_stop():
    looks = {module for module, path in modules().items() if "monotonic" in path.read_text(encoding="utf-8")}
    assert looks == {"crewlite.system.steady_clock"}


def test_only_providers_ask_which_provider_it_is():
    """The others ask for what a provider declares."""
    kinds = {f"{name}{what}" for name in ("Json", "Sqlite", "InMemory", "Base") for what in ("Provider", "Store")}
    for module, path in modules().items():
        text = path.read_text(encoding="utf-8")
        if module.startswith("crewlite.state.providers.") or not any(kind in text for kind in kinds):
            continue
        for node in ast.walk(ast.parse(text)):
            asks = isinstance(node, ast.Compare) or (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("is")
            )
            named = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} if asks else set()
            assert not named & kinds, f"{module}:{node.lineno} asks for {sorted(named & kinds)}"


def test_kinds_of_steps_are_compared_in_their_table_alone():
    names = {kind.name for kind in vars(kinds).values() if isinstance(kind, kinds.Kind)}
    found = []
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and "kind" in ast.unparse(node.left):
                given = {leaf.value for part in node.comparators for leaf in ast.walk(part) if is_text(leaf)}
                found += [f"{module}:{node.lineno}"] if given & names else []
    assert len(names) == 24
    assert found == []


def test_commits_are_typed_wherever_they_are_made_or_read():
    parts = {"commit", "parts", "checkpoint", "claim"}
    untyped = {"dict[str, Any]", "JsonObject", "Mapping[str, Any]", "Any"}
    for module, path in modules().items():
        if not module.startswith(("crewlite.state.", "crewlite.runtime.")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.arg if isinstance(node, ast.arg) else getattr(getattr(node, "target", None), "id", None)
            hint = getattr(node, "annotation", None)
            if name in parts and hint is not None:
                found = ast.unparse(hint).removesuffix(" | None")
                assert found not in untyped, (
                    f"{module}:{node.lineno}: {name} is {found}; see crewlite/state/format/commit.py"
                )


def test_a_commit_to_a_run_from_outside_says_whether_its_holder_has_died():
    """Others begin a branch, or end a claim for another reason: a fork, a rewind, a cancel, a release that is owed."""
    made = {name for name, path in modules().items() if "Commit.of(" in path.read_text(encoding="utf-8")}
    known = "verbs.from_outside", "verbs.fork", "verbs.rewind", "journal.cancel", "journal.upkeep"
    assert made == {f"crewlite.state.{name}" for name in known}


def test_child_processes_are_started_by_the_one_helper():
    tests, only_names = Path(__file__).parents[1], {"DEVNULL", "PIPE", "STDOUT", "CompletedProcess", "TimeoutExpired"}
    for file in [*tests.rglob("test_*.py"), *tests.rglob("conftest.py")]:
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "subprocess" in text else ():
            names = {name.name for name in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
            own = isinstance(node, ast.ImportFrom) and node.module == "subprocess" and not names <= only_names
            assert not own and "subprocess" not in names, (
                f"{file}: start processes by run or Child of tests/children.py"
            )


@pytest.mark.parametrize("folder", ["benchmarks", "examples"])
def test_no_program_has_a_neighbour_that_hides_a_module_of_the_standard_library(folder):
    """A program sees the files beside it before the standard library."""
    names = {path.stem for path in (ROOT.parent / folder).rglob("*.py")}
    assert names and not names & sys.stdlib_module_names


LOCKS = r"threading\.Lock\(|threading\.RLock\(|factory=threading\.Lock|os\.register_at_fork\(|@functools\.cached_property|from functools import .*cached_property"
"""What makes locks, which a cached property of Python 3.11 has too, and acts in forked children."""


def test_every_lock_and_every_act_in_a_forked_child_is_made_in_one_place():
    made = [
        f"{name}: {found}"
        for name, path in modules().items()
        for found in re.findall(LOCKS, path.read_text(encoding="utf-8"))
        if name != "crewlite.system.forked"
    ]
    assert made == []
