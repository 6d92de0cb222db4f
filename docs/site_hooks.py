"""What mkdocs needs to be told about these pages."""

import re

_NAMED = re.compile(r"^( *```\w+) ([\w./-]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Show the name of the file that a code block is to be saved as: ```python report.py."""
    return _NAMED.sub(r'\1 title="\2"', markdown)
