"""Make demo.svg, the picture in the README, from what `crewlite demo` prints. Run it again after changing the demo.

$ python docs/pictures/demo.py
"""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 84
PICTURE = Path(__file__).with_suffix(".svg")


def main() -> None:
    """Run the demo, and draw its first part, in which a crew is killed, and its fourth: who did what."""
    told = subprocess.run(
        [sys.executable, "-c", "from crewlite.cli.main import main; main()", "demo"],
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)},
    ).stdout
    parts = re.split(r"(?m)^(?=\S*\d\. )", told)
    lines = [*parts[1].rstrip().splitlines(), "", "  [...]", "", *parts[4].rstrip().splitlines()]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in ["$ make demo", "", *lines]:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop")
    svg = console.export_svg(title="crewlite", unique_id="demo")
    PICTURE.write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")  # no web fonts


if __name__ == "__main__":
    main()
