"""What mkdocs needs to be told about these pages."""

import re

_NAMED = re.compile(r"^( *```\w+) ([\w./-]+)$", re.MULTILINE)
_TEST = re.compile(r"\[(`tests/[^`]+`)\]\([^)]+\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Show the name of the file that a code block is to be saved as (```python report.py), and tests without a link.

    The site has no page of a test; links to them are for readers of the repository.
    """
    return _TEST.sub(r"\1", _NAMED.sub(r'\1 title="\2"', markdown))
