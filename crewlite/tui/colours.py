"""The named colours of the command line, with enough contrast on the two backgrounds of the view."""

from __future__ import annotations

from rich.terminal_theme import TerminalTheme

_Colour = tuple[int, int, int]


def _theme(background: _Colour, foreground: _Colour, colours: list[_Colour]) -> TerminalTheme:
    return TerminalTheme(background, foreground, colours, colours)


DARK = _theme(
    (18, 18, 18),
    (224, 224, 224),
    [
        (88, 88, 88),  # black
        (242, 119, 122),  # red
        (129, 199, 132),  # green
        (240, 198, 116),  # yellow
        (124, 178, 242),  # blue
        (206, 158, 232),  # magenta
        (110, 203, 214),  # cyan
        (224, 224, 224),  # white
    ],
)
LIGHT = _theme(
    (224, 224, 224),
    (32, 32, 32),
    [
        (32, 32, 32),
        (176, 24, 40),
        (22, 106, 46),
        (136, 84, 0),
        (22, 84, 168),
        (124, 44, 150),
        (0, 102, 118),
        (96, 96, 96),
    ],
)
