"""Programs that are written as the pages write them pass a type checker, and it finds mistakes in others."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks

from tests import children

pytest.importorskip("mypy", reason="mypy comes with the extra `check`")

PROGRAM = Path(__file__).with_name("typed_program.py")
OPTIONS = (
    *("--no-incremental", "--ignore-missing-imports", "--follow-imports=silent"),
    *("--scripts-are-modules", "--check-untyped-defs", "--allow-redefinition"),
    # a page repeats names, and does not ask of each result of a search whether there is one
    *(f"--disable-error-code={code}" for code in ("no-redef", "has-type", "var-annotated", "union-attr")),
)
MEANT = {
    "definitions.md": "Unexpected keyword argument",  # settings of CrewAI without a meaning here
    "errors.md": "Unexpected keyword argument",  # a mistake, to show what is said of it
    "crew-files.md": "",  # what @CrewBase adds to a class is known to no checker, with CrewAI neither
}
"""Pages with code that a type checker refuses, and what it says there."""


def programs() -> dict[str, tuple[Path, str]]:
    """The code of each page and each of its files, and the examples, by the name of a module."""
    found = {f"example_{one.name}": (one, one.read_text(encoding="utf-8")) for one in (ROOT / "examples").glob("*.py")}
    for page in PAGES:
        code = [block for block in blocks(page.read_text(encoding="utf-8")) if block.language == "python"]
        texts = {block.file: block.code for block in code if block.file}
        texts[""] = "\n\n".join(block.code for block in code if not block.file)
        for file, text in texts.items():
            found[re.sub(r"\W", "_", f"{page.stem}_{file.removesuffix('.py')}") + ".py"] = page, text
    return found


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """What mypy says of all these programs and of `PROGRAM`: (module, line, problem)."""
    folder = tmp_path_factory.mktemp("typed")
    for name, (_, text) in {**programs(), PROGRAM.name: (PROGRAM, PROGRAM.read_text(encoding="utf-8"))}.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
    return found_in(folder, "--config-file=")


def found_in(folder, *more):
    command = [sys.executable, "-m", "mypy", *OPTIONS, *more, "."]
    told = children.run(
        command, cwd=folder, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=250
    )
    assert told.returncode == 1, told.stdout + told.stderr
    return [(line[1], int(line[2]), line[3]) for line in re.finditer(r"(.+?):(\d+): error: (.*)", told.stdout)]


def test_the_code_on_the_pages_and_the_examples_passes(problems):
    sources = {name: path.name for name, (path, _) in programs().items()}
    said = [(sources[module], line, problem) for module, line, problem in problems if module in sources]
    assert [one for one in said if MEANT.get(one[0], "nothing") not in one[2]] == []


def test_the_types_in_a_program_are_what_it_works_with(problems):
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    wrong = {number: line.partition("  # WRONG ")[2] for number, line in enumerate(lines, 1) if "  # WRONG " in line}
    said = [(line, problem) for module, line, problem in problems if module == PROGRAM.name]
    assert {line: problem.rpartition("[")[2].rstrip("]") for line, problem in said} == wrong, said


def test_with_pydantics_plugin_the_same_is_found(problems, tmp_path):
    """Unless told otherwise, it takes any value for the fields of a model."""
    (tmp_path / PROGRAM.name).write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "mypy.ini").write_text("[mypy]\nplugins = pydantic.mypy\n", encoding="utf-8")
    assert found_in(tmp_path) == [one for one in problems if one[0] == PROGRAM.name]
