"""Print the oldest version of each dependency that pyproject.toml allows, as constraints for pip: see `make oldest`.

What only the tests need is left out: it may be new.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]

if __name__ == "__main__":
    for wanted in [*project["dependencies"], *extras["pdf"], *extras["office"], *extras["tui"]]:
        print(re.sub(r">=([\d.]+).*", r"==\1", wanted))
