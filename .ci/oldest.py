"""Print the oldest versions of the dependencies that pyproject.toml allows, as pip takes them."""

import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
wanted = project["dependencies"] + project["optional-dependencies"]["tui"]
print(*(each.partition(",")[0].replace(">=", "==") for each in wanted))
