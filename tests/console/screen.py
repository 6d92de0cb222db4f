"""A terminal small enough to read: what one would see of what is written to it."""

import io
import re

_TOKEN = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[[\d;]*m|(\r)|(\n)|([^\x1b\r\n]+)")


class Screen(io.StringIO):
    """A stream that says it is a terminal. `shown` is what one would see, without empty lines at the end."""

    encoding = "utf-8"

    def isatty(self):
        return True

    @property
    def shown(self):
        return shown(self.getvalue())


def shown(text):
    """The lines that are on the screen."""
    lines, row, column = [""], 0, 0
    for count, command, home, below, plain in _TOKEN.findall(re.sub(r"\x1b\[[\d;]*m", "", text)):
        if command == "A":
            row -= int(count or 1)
            assert row >= 0
        elif command == "J":
            lines[row:] = [lines[row][:column]]
        elif home:
            column = 0
        elif below:
            row += 1
            column = 0  # as terminals do unless they are told otherwise
            lines += [""] * (row + 1 - len(lines))
        elif plain:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + plain + line[column + len(plain) :]
            column += len(plain)
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.rstrip() for line in lines]
