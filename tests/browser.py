"""Pages of HTML in tests: what one holds, and what a real browser makes of it."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.children import DEVNULL, PATIENCE, Child, run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    not CHROMIUM, reason="looks at the page in Chromium: apt-get install chromium, as .ci/run does"
)


needs_driven_chromium = pytest.mark.skipif(
    not CHROMIUM or os.name != "posix", reason="drives Chromium over inherited pipes: apt-get install chromium"
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
    picture = directory / "page.png"
    done = run(
        [*_chromium(directory), f"--screenshot={picture}", "--window-size=1200,900", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000, "the picture is not empty"
    return parsed(done.stdout)


class Driven:
    """A page that is open in Chromium, and is used as a person uses it."""

    def __init__(self, path: Path, directory: Path) -> None:
        import fcntl  # Windows has none

        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (*os.pipe(), *os.pipe())]
        theirs, self._to, self._from, back = ends

        def connect() -> None:  # Chromium reads commands from 3 and answers in 4
            os.dup2(theirs, 3)
            os.dup2(back, 4)

        command = [*_chromium(directory), "--remote-debugging-pipe", "about:blank"]
        Child(command, preexec_fn=connect, pass_fds=(3, 4), stdout=DEVNULL, stderr=DEVNULL)
        os.close(theirs)
        os.close(back)
        self._read, self._numbers, self._session = b"", itertools.count(1), {}
        self.requested: list[str] = []
        """What the page has asked for."""
        page = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.do("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}
        for domain in ("Page", "Network"):
            self.do(f"{domain}.enable")
        self.do("Page.navigate", url=path.as_uri())
        self.expect(f"document.readyState == 'complete' && location.href == '{path.as_uri()}'")

    def do(self, method: str, **params: Any) -> Any:
        """Do something of the DevTools protocol, and return what it comes to."""
        number = next(self._numbers)
        said = json.dumps({"id": number, "method": method, "params": params, **self._session})
        os.write(self._to, f"{said}\0".encode())
        answer = self._until(lambda told: told.get("id") == number)
        assert "error" not in answer, answer
        return answer["result"]

    def value(self, script: str) -> Any:
        """Return what an expression in JavaScript is on the page."""
        return self.do("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def expect(self, script: str) -> None:
        """Wait until an expression in JavaScript is true on the page. Fails if that takes too long."""
        given_up = time.monotonic() + PATIENCE
        while not self.value(script):
            assert time.monotonic() < given_up, f"never: {script}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click into the middle of an element, with the mouse."""
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.value(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _until(self, wanted: Any) -> Any:
        while True:
            while b"\0" not in self._read:
                assert select.select([self._from], [], [], PATIENCE)[0], "Chromium says nothing"
                found = os.read(self._from, 65536)
                assert found, "Chromium has ended"
                self._read += found
            text, _, self._read = self._read.partition(b"\0")
            told = json.loads(text)
            if told.get("method") == "Network.requestWillBeSent":
                self.requested.append(told["params"]["request"]["url"])
            if wanted(told):
                return told


def _chromium(directory: Path) -> list[str]:
    assert CHROMIUM
    return [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory / 'profile'}"]
