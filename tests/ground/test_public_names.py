"""No name hides another: public names are there, are no modules, and mean one thing."""

from __future__ import annotations

import pkgutil
import re
import textwrap

import pytest

import crewlite
from tests.ground.modules import ask, modules

LOOK = """
    def names():
        return {name: [type(getattr(crewlite, name)).__name__, getattr(getattr(crewlite, name), "__module__", "")]
                for name in crewlite.__all__}

    def submodules():
        for info in pkgutil.walk_packages(crewlite.__path__, "crewlite."):
            if not info.name.endswith("__main__"):
                importlib.import_module(info.name)
"""


def test_no_public_name_is_hidden_by_a_submodule_in_either_order():
    start = "import crewlite, importlib, json, pkgutil\n" + textwrap.dedent(LOOK)
    names_first = ask(start + "first = names(); submodules()\nprint(json.dumps([first, names()]))")
    modules_first = ask(start + "submodules()\nprint(json.dumps(names()))")
    assert names_first[0] == names_first[1] == modules_first
    assert not [name for name, (kind, _) in modules_first.items() if kind in ("module", "_Lazy")]


def test_no_public_name_of_any_room_is_the_name_of_a_module_in_it():
    for module, path in modules().items():
        if path.name == "__init__.py":
            own = __import__(module, fromlist=["x"])
            inside = {info.name for info in pkgutil.iter_modules([str(path.parent)])}
            assert not inside & set(getattr(own, "__all__", ())), module


def test_no_two_classes_of_the_record_and_the_engine_have_one_name():
    """Nor do a class and a type: a reader who knows one of them would misread the other."""
    homes: dict[str, list[str]] = {}
    for module, path in modules().items():
        if module.startswith(("crewlite.state.", "crewlite.runtime.")):
            for name in re.findall(
                r"(?m)^(?:class (?=[A-Z])|(?=[A-Z]\w+ = \w+\[))(\w+)", path.read_text(encoding="utf-8")
            ):
                homes.setdefault(name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_every_public_name_is_there():
    for module, path in modules().items():
        if path.name == "__init__.py":
            own = __import__(module, fromlist=["x"])
            assert not [name for name in getattr(own, "__all__", ()) if not hasattr(own, name)], module
    with pytest.raises(AttributeError, match="crewlite has no 'Agnet'"):
        _ = crewlite.Agnet
    assert set(crewlite.__all__) <= set(dir(crewlite))
