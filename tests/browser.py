"""Pages of HTML in tests: what one holds, and what a real browser makes of it."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import TypeVar

import pytest

from tests.children import run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    not CHROMIUM, reason="looks at the page in Chromium: apt-get install chromium, as .ci/run does"
)


class Parsed(HTMLParser):
    """What a page has: its elements as (tag, attributes), and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def values(self, attribute: str) -> list[str | None]:
        return [about[attribute] for _, about in self.elements if attribute in about]


P = TypeVar("P", bound=Parsed)


def check_is_harmless(page: Parsed) -> None:
    """Fail unless a page runs nothing, loads nothing, and leads nowhere but to its own parts."""
    assert not page.tags & {"script", "img", "link", "iframe", "object", "form", "b"}
    assert not [name for _, about in page.elements for name in about if name.startswith("on") or name == "src"]
    assert all(link and link.startswith("#") for link in page.values("href"))
    (policy,) = [about["content"] for _, about in page.elements if "http-equiv" in about]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def shown(path: Path, directory: Path, parsed: type[P] = Parsed) -> P:
    """Open a page in Chromium, which also takes a picture that has to show something. Returns what it holds then."""
    assert CHROMIUM
    picture = directory / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory / 'profile'}"]
    done = run(
        [CHROMIUM, *options, f"--screenshot={picture}", "--window-size=1200,900", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000, "the picture is not empty"
    return parsed(done.stdout)
