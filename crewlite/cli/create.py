"""`crewlite create`: write a small project that runs and passes its tests at once.

It is a copy of `examples/new_project`, a project that runs as it stands: no template language, only names that change.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from crewlite.cli.exits import Failed
from crewlite.cli.shell import shell_line
from crewlite.ids import new_id
from crewlite.system import disk

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")
_OF_WINDOWS = re.compile(r"con|prn|aux|nul|(com|lpt)\d")
_LONGEST = 50
_QUESTION = "When are spring tides?"


@click.command()
@click.argument("name")
@click.argument("second", required=False, metavar="")
@click.option("--yaml", "with_yaml", is_flag=True, help="A @CrewBase class, with its texts in YAML files.")
def create(name: str, second: str | None, with_yaml: bool) -> None:
    """Write a small project into a new folder NAME.

    It has a crew with two tools, its program and its tests, and runs at once: without a key and without a network.
    """
    if second is not None:  # as in `crewai create crew NAME`
        like_crewai = " --yaml" if name == "crew" else ""
        raise click.UsageError(f"wanted one name: crewlite create {second}{like_crewai}")
    project = Project.of(name)
    project.write("yaml" if with_yaml else "python")
    click.echo(project.what_next(with_yaml))


@dataclass(frozen=True, slots=True)
class Project:
    """A project to write, by its name."""

    name: str
    """Also the name of its folder."""

    @classmethod
    def of(cls, name: str) -> Project:
        """Return the project. Raises UsageError for a name that cannot be one, Failed if there is such a folder."""
        if not _NAME.fullmatch(name) or len(name) > _LONGEST:
            raise click.UsageError(
                f"{name!r} cannot name a project; wanted a letter and at most {_LONGEST - 1} more of a-z A-Z 0-9 - _, "
                f"such as tide-watch. It is written to a folder of this name in the current directory"
            )
        project = cls(name)
        if why := project._taken():
            raise click.UsageError(f"{name!r} cannot name a project: {why}. Choose another name, such as {name}-crew")
        if project.folder.exists() or project.folder.is_symlink():
            raise Failed(f"{project.folder} exists, and nothing is overwritten. Choose another name, or remove it")
        return project

    @property
    def folder(self) -> Path:
        """The folder it is written to."""
        return Path.cwd() / self.name

    @property
    def package(self) -> str:
        """The name of its package."""
        return self.name.replace("-", "_").lower()

    @property
    def class_name(self) -> str:
        """The name of its class, if it has one: it ends in Crew."""
        camel = "".join(part[:1].upper() + part[1:] for part in re.split("[-_]", self.name))
        return camel if camel.endswith("Crew") and camel != "Crew" else f"{camel}Crew"

    def write(self, kind: str) -> None:
        """Write all its files, or none. `kind` is `python` or `yaml`."""
        beside = self.folder.with_name(f".{self.name}.{new_id()[-12:]}.tmp")
        try:
            for path, data in self._files(kind):
                disk.make_directory((beside / path).parent, mode=0o777)
                disk.replace(beside / path, data, mode=0o666, durable=False)
            disk.rename(beside, self.folder)
        except FileExistsError:
            raise Failed(
                f"{self.folder} was created by another program meanwhile; it was not changed. Choose another name"
            ) from None
        except OSError as error:
            raise Failed(
                f"{self.folder} was not written ({error.strerror or error}): change to a directory you can write to"
            ) from error
        finally:
            disk.remove_directory(beside)

    def what_next(self, with_yaml: bool) -> str:
        """Return the text that says what was written, and what to do next."""
        python = "python" if sys.platform == "win32" else Path(sys.executable).name
        asked = f"question={_QUESTION}"
        lines = [
            f"Wrote {self.name}: a crew of two that answers questions from a folder of notes.",
            "",
            f"  cd {self.name}",
            f"  {python} -m {self.package}",
            f"  {shell_line(['crewlite', 'run', '--input', asked])}",
            f"  {python} -m pytest",
            "",
            f"Its texts are in {self.package}/{'config/' if with_yaml else 'crew.py'}, its tools in "
            f"{self.package}/tools.py; README.md says the rest.",
            "It asks no model until CREWLITE_MODEL names one, such as openai/gpt-4o-mini.",
        ]
        return "\n".join(lines)

    def _taken(self) -> str:
        """Return why its package cannot have its name; "" if it can."""
        package = self.package
        if keyword.iskeyword(package):
            return f"{package} is a word of Python"
        if package == "tests":
            return "its tests are in a folder of this name"
        if _OF_WINDOWS.fullmatch(package):
            return f"{package} is the name of a device on Windows, where no folder can have it"
        if package in sys.stdlib_module_names or importlib.util.find_spec(package):
            return f"there is a module {package} already, which its package would hide"
        return ""

    def _files(self, kind: str) -> Iterator[tuple[Path, bytes]]:
        """The files with their contents; those of `kind` come in addition to those of both kinds."""
        for root in (shipped("new_project") / "both", shipped("new_project") / kind):
            for path in sorted(root.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    place = self._named(path.relative_to(root).as_posix())
                    yield (
                        Path(".gitignore" if place == "gitignore" else place),
                        self._named(path.read_text(encoding="utf-8")).encode(),
                    )

    def _named(self, text: str) -> str:
        """Return a text of the model project with the names of this one."""
        names: Mapping[str, str] = {"my-crew": self.name, "my_crew": self.package, "MyCrew": self.class_name}
        return re.sub("|".join(names), lambda match: names[match[0]], text)


def shipped(name: str) -> Path:
    """Return a folder of `examples/`: in an installed package they stand beside this file."""
    here = Path(__file__).parent
    installed = here / name
    return installed if installed.is_dir() else here.parents[1] / "examples" / name
