"""The file that a task's answer is written to. It must be in the working directory.

Whoever gives the inputs of a crew, perhaps a stranger, chooses part of the path. So the path is checked as a text when
the crew is kicked off, and on the disk, links followed, before the model is asked and before the file is written.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path, PureWindowsPath

from crewlite.errors import ConfigError
from crewlite.lazy import lazy
from crewlite.system.paths import why_no_path
from crewlite.texts.wording import cut

disk = lazy("crewlite.system.disk")  # only a kickoff writes, and every task loads this module

_LONGEST = 200  # bytes of one name: file systems take 255, and the file that is written first has a longer one
_ANYWHERE = "output_file_anywhere=True"


def check_text(text: str, where: str, *, anywhere: bool) -> None:
    """Raise ConfigError if `text` is no path of a file, or leads out of the working directory without `anywhere`.

    `where`: the definition that the error names.
    """
    if problem := _no_file(text) or ("" if anywhere else _leads_out(text)):
        raise ConfigError(f"{where}: output_file is {_shown(text)}, {problem}")


def check_links(text: str, where: str, *, anywhere: bool) -> Path:
    """Return the absolute path. Raises ConfigError if symbolic links lead out of the working directory."""
    path = Path(text).absolute()
    try:
        target = _followed(path)
        if anywhere or target.is_relative_to(Path.cwd().resolve()):
            return path
    except (OSError, RuntimeError) as error:  # a RuntimeError is a circle of links
        raise ConfigError(f"{where}: output_file is {_shown(text)}, where no file can be: {error}") from None
    raise ConfigError(f"{where}: output_file is {text!r}, which a link leads to {str(target)!r}; {_allowed()}")


def check_place(text: str, where: str, *, anywhere: bool, create_directory: bool) -> Path:
    """Return the absolute path. Raises ConfigError if no file can be written there, or it is not allowed there."""
    path = check_links(text, where, anywhere=anywhere)
    try:
        there = next(one for one in (path, *path.parents) if one.exists())
        is_directory = there.is_dir()
    except OSError as error:
        raise ConfigError(f"{where}: output_file is {_shown(text)}, where no file can be: {error}") from None
    if there == path and is_directory:
        raise ConfigError(f"{where}: output_file is {text!r}, which is a directory; wanted the name of a file")
    if there != path and not is_directory:
        raise ConfigError(f"{where}: output_file is {text!r}, but {there} is no directory; wanted another place")
    if not create_directory and there not in (path, path.parent):
        raise ConfigError(
            f"{where}: output_file is {text!r}, and there is no directory {str(path.parent)!r}; make it, or leave out "
            f"create_directory=False"
        )
    return path


def write(path: Path, text: str, key: str) -> None:
    """Write the file, all or nothing. Creates its directory. `key`: the idempotency key of the task that writes."""
    disk.make_directory(path.parent, mode=0o777)
    disk.replace(path, text.encode("utf-8", "backslashreplace"), mode=0o666, writer=key[:8])


def _followed(path: Path) -> Path:
    """Return the path with symbolic links resolved. Raises OSError or RuntimeError for a circle of links."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return path.resolve(strict=True)
    return path.resolve()  # a part that is not there is no link; from Python 3.13 on, this would not tell of a circle


def _no_file(text: str) -> str:
    """Return why a path cannot name a file anywhere; "" if it can."""
    if not text.strip() or re.split(r"[\\/]", text)[-1] in ("", ".", ".."):
        return "which names no file; wanted the name of a file"
    why = why_no_path(text, _LONGEST)
    return why and f"which {why}"


def _leads_out(text: str) -> str:
    """Return the part that leads a path out of the working directory; "" if none does."""
    windows = PureWindowsPath(text)  # takes both kinds of slashes
    if ".." in windows.parts:
        return f"which goes up with '..'; {_allowed()}"
    if (windows.drive or windows.root) and not Path(text).is_relative_to(Path.cwd()):
        return f"which is an absolute path; {_allowed()}"
    if text.startswith("~"):
        return "and ~ is not replaced by a home directory; write os.path.expanduser(...), with " + _ANYWHERE
    return ""


def _allowed() -> str:
    return f"a file of a task is inside the working directory, unless Task({_ANYWHERE})"


def _shown(text: str) -> str:
    return repr(cut(text, 100))
