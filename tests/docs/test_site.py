"""The pages of docs/ and the site that `make docs` builds of them are the same; the reference lists the public names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pages import ROOT

from tests.docs.reference import PACKAGES, REFERENCE, page_of

DOCS = ROOT / "docs"


def pages_in(nav: Any) -> Iterator[str]:
    """The files that a part of mkdocs.yml's `nav` names."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav if isinstance(nav, list) else nav.values():
            yield from pages_in(part)


def test_the_site_shows_every_page_once_and_no_other():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    shown = list(pages_in(settings["nav"]))
    assert sorted(shown) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_the_site_loads_nothing_from_elsewhere():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "://" not in settings
    assert yaml.safe_load(settings)["theme"]["font"] is False


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_lists_what_the_package_offers(package):
    text = (REFERENCE / f"{package}.md").read_text(encoding="utf-8")
    assert text == page_of(package), "refresh it: python -m tests.docs.catalogue"


def test_the_reference_has_no_page_of_a_package_that_is_gone():
    assert sorted(path.stem for path in REFERENCE.iterdir()) == sorted(PACKAGES)
