"""Folders of `examples/` that the command needs: in an installed package they stand beside this file."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def shipped(name: str) -> Path:
    """Return the folder of this name, of the installed package or of a checkout."""
    installed = _HERE / name
    return installed if installed.is_dir() else _HERE.parents[1] / "examples" / name
