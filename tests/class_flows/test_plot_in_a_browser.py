"""The page of a flow in Chromium: it shows what it holds, runs nothing, and can be clicked, narrowed and darkened."""

from __future__ import annotations

from tests.browser import Driven, needs_chromium, needs_driven_chromium, shown
from tests.class_flows.test_plot import Page, waiting as waiting


@needs_chromium
def test_a_browser_shows_the_page_and_runs_nothing_in_it(waiting, tmp_path):
    _, path = waiting
    page = shown(path, tmp_path, Page)
    assert page.boxes == Page(path.read_text()).boxes
    assert page.text.partition("</style>")[0].strip().startswith("Book · run"), "the title is as it was"
    assert "script" not in page.tags


@needs_driven_chromium
def test_in_a_browser_a_box_leads_to_its_method_and_the_page_fits_screens_and_the_dark(tmp_path, waiting):
    page = Driven(waiting[1], tmp_path)
    shade = "getComputedStyle(document.getElementById('of-write').cells[0]).backgroundColor"
    before = page.value(shade)
    page.click('[data-method="write"]')
    assert page.value("location.hash") == "#of-write"
    top = page.value("document.getElementById('of-write').getBoundingClientRect().top")
    assert 0 <= top < page.value("innerHeight")
    assert page.value(shade) != before, "its row is marked"
    page.click('[data-method="archive"]')
    assert page.value("location.hash") == "#of-write", "a method that has not begun leads nowhere"
    page.click("details summary")
    assert page.value("document.querySelector('details').open")
    light = page.value("getComputedStyle(document.body).backgroundColor")
    page.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.value("getComputedStyle(document.body).backgroundColor") != light
    for width in (1600, 1200, 700, 360):
        page.do("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        assert page.value("document.documentElement.scrollWidth") <= width, "nothing is wider than the screen"
    assert page.requested == [waiting[1].as_uri()], "nothing is loaded"
    assert page.value("document.title") == "Book · run"
