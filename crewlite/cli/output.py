"""The result of a run, alone on stdout: the text of an answer, data as JSON, or with --json the last line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from crewlite.cli.checkpoint import document
from crewlite.cli.exits import writing
from crewlite.console.text import printable
from crewlite.lazy import lazy

if TYPE_CHECKING:
    from crewlite.runtime.kickoffs.preview import Preview

rich = lazy("rich.console")


class Output:
    """Stdout as it was when the command began."""

    def __init__(self, out: TextIO, as_json: bool) -> None:
        self.out, self._as_json = out, as_json

    def answer(self, raw: str, **about: Any) -> None:
        """Print the answer of a crew or an agent."""
        if self._as_json:
            return self.tell({"type": "result", "raw": raw, **about})
        return self._text(raw)

    def value(self, value: Any, **about: Any) -> None:
        """Print what a flow returned: text as it is, other data as JSON in one line, nothing for None."""
        if self._as_json:
            return self.tell({"type": "result", "value": value, **about})
        if value is None:
            return None
        return self._text(value if isinstance(value, str) else json.dumps(document.plain(value), ensure_ascii=False))

    def branch(self, run_id: str, branch: str) -> None:
        """Print the name of a new branch."""
        if self._as_json:
            return self.tell({"type": "branch", "run_id": run_id, "branch": branch})
        return self._text(f"{run_id}/{branch}")

    def preview(self, foreseen: Preview) -> None:
        """Print the preview of a run."""
        if self._as_json:
            return self.tell({"type": "preview", **asdict(foreseen)})
        return self._text(str(foreseen))

    def tell(self, data: dict[str, Any]) -> None:
        """Print one line of JSON."""
        self._print(json.dumps(document.plain(data)))

    def _text(self, text: str) -> None:
        if self.out.isatty():
            console = rich.Console(file=self.out)
            text = "\n".join(printable(line.replace("\t", "    "), console) for line in text.split("\n"))
        encoding = getattr(self.out, "encoding", None) or "utf-8"
        self._print(text.encode(encoding, "backslashreplace").decode(encoding))

    def _print(self, text: str) -> None:
        """Print a text unchanged: click would remove colours from a text that goes into a pipe."""
        with writing():
            self.out.write(f"{text}\n")
            self.out.flush()
