"""The page of a flow in Chromium: it shows what it holds, runs nothing, and can be clicked, narrowed and darkened."""

from __future__ import annotations

from tests.browser import Driven, needs_chromium, needs_driven_chromium, shown
from tests.class_flows.test_plot import Page, waiting as waiting

_SHADE = "getComputedStyle({}).backgroundColor"


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
    row = "document.getElementById('of-write')"
    plain, light = (page.value(_SHADE.format(of)) for of in (f"{row}.cells[0]", "document.body"))
    page.click('[data-method="write"]')
    page.expect("location.hash == '#of-write'")
    page.expect(f"-1 < {row}.getBoundingClientRect().top && {row}.getBoundingClientRect().top < innerHeight")
    page.expect(f"{_SHADE.format(f'{row}.cells[0]')} != {plain!r}")
    page.click('[data-method="archive"]')
    page.click("details summary")
    page.expect("document.querySelector('details').open")
    assert page.value("location.hash") == "#of-write", "a method that has not begun leads nowhere"
    page.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.expect(f"{_SHADE.format('document.body')} != {light!r}")
    for width in (1600, 1200, 700, 360):
        page.do("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        page.expect(f"innerWidth == {width}")
        assert page.value("document.documentElement.scrollWidth") <= width, "nothing is wider than the screen"
    assert page.requested == [waiting[1].as_uri()], "nothing is loaded"
    assert page.value("document.title") == "Book · run"
