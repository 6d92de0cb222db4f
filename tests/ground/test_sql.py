"""What is put together to SQL is listed here, by how the code writes it: names of tables and columns, and conditions.

Values go to SQLite as parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import crewlite

SQLITE = Path(crewlite.__file__).parent / "state" / "providers"
SQL = re.compile(r"\b(?:SELECT|INSERT|DELETE|UPDATE|FROM|WHERE|PRAGMA|IN \()")
PARTS = {
    "', '.join(COLUMNS)",
    "', '.join(kept)",  # whole numbers
    "MAY_REWIND",
    "SCHEMA",  # a whole number
    "_COPIED",
    "_PUT",
    "_QUOTED",
    "among",  # of `strays` and `index`, which pass their values as parameters
    "found",  # in a migration, which makes it of constants
    "rows",  # as among, of `_orphans_among`
}


def parts(source: str) -> Iterator[str]:
    """Return what a source puts into texts with words of SQL, however it does that."""
    for node in ast.walk(ast.parse(source)):
        texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if not any(map(SQL.search, texts)):
            continue
        if isinstance(node, ast.JoinedStr):
            yield from (ast.unparse(one.value) for one in node.values if isinstance(one, ast.FormattedValue))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            yield ast.unparse(node)


def test_no_other_text_is_put_into_sql() -> None:
    found = {part for path in SQLITE.glob("sqlite*.py") for part in parts(path.read_text(encoding="utf-8"))}
    assert found == PARTS


@pytest.mark.parametrize(
    "source", ['f"SELECT {x} FROM t"', '"SELECT " + x', '"DELETE FROM %s" % x', '"WHERE {}".format(x)']
)
def test_the_law_sees_what_it_is_about(source: str) -> None:
    assert [*parts(source)]
