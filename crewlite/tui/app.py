"""Browsing a location: the tree of runs, and panels about the place that the cursor is on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.reactive import Reactive
from textual.widget import Widget
from textual.widgets import Footer, RichLog, Static, TabbedContent, TabPane, Tabs, Tree
from textual.widgets.tree import TreeNode

from crewlite.errors import CrewliteError
from crewlite.texts.wording import escaped_lines, number_of
from crewlite.tui.panels import Comparison, Events, Fields, Overview, Steps
from crewlite.tui.places import PAGE, Line, Listing, Place
from crewlite.tui.reading import Reading, Shown
from crewlite.tui.tree import RunTree
from crewlite.tui.words import DARK, LIGHT, line

T = TypeVar("T")
_LOOK = 1.0  # seconds between looks at what other processes have written
_PAUSE = 0.05  # seconds that the cursor rests on a line before its place is read
PANELS: dict[str, Callable[[], Widget]] = {
    "overview": Overview,
    "steps": Steps,
    "inputs": partial(Fields, "inputs"),
    "outputs": partial(Fields, "outputs"),
    "events": Events,
    "diff": Comparison,
}
"""What makes each panel, by its name."""


class Browser(App[None]):
    """Shows the runs of a location, and follows what is written there."""

    TITLE = "crewlite"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "app.tcss"
    ansi_theme_dark = Reactive(DARK, init=False)
    ansi_theme_light = Reactive(LIGHT, init=False)

    def __init__(self, location: str) -> None:
        super().__init__()
        self.location = location
        self.reading = Reading(location)
        self.shown: Shown | None = None
        """The place that the panels show; None if it cannot be read."""
        self._wanted: Place | None = None
        """The place under the cursor."""
        self._runs = PAGE
        self._checkpoints: dict[Place, int] = {}
        """The number of checkpoints to list, of branches of which more than a page was asked for."""
        self._touched: dict[Place, float] = {}

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Static(id="head", markup=False)
        with Horizontal(id="middle"):
            yield RunTree()
            with TabbedContent(id="panels"):
                for name, panel in PANELS.items():
                    with TabPane(name.capitalize(), id=f"tab-{name}"):
                        yield panel()
        yield RichLog(id="live", wrap=True, auto_scroll=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(Tabs).can_focus = False  # the numbers choose a panel
        self._listing = Listing()
        self._wake, self._anew, self._looked = asyncio.Event(), True, asyncio.Event()
        self._say(f"reading {self.location} …")
        self.query_one(RunTree).focus()
        self._follow()

    def on_unmount(self) -> None:
        """Close the location."""
        self.reading.close()

    async def read(self, work: Callable[[], T]) -> T:
        """Do some work on the thread of the location, and end with the view if it is closed meanwhile."""
        found = await self.reading.do(work)
        if not self.is_running:
            raise asyncio.CancelledError
        return found

    @work
    async def _follow(self) -> None:
        """Look at the location once a second, and at once when something is asked for."""
        while self.is_running:
            self._wake.clear()
            try:
                await self._look_around()
            except (CrewliteError, OSError) as error:
                self._say(str(error), "red")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _LOOK)

    async def _look_around(self) -> None:
        """Show what is new: branches, checkpoints of the opened ones, the place at the cursor, and statuses."""
        tree, anew, before = self.query_one(RunTree), self._anew, self._listing
        self._anew = False
        self._listing = await self.read(lambda: self.reading.listing(new=anew))
        listed = self._listing is not before
        if listed:
            self._list()
        opened = [node for node in tree.opened() if node.data and node.data.place and not node.data.place.checkpoint]
        visible = tree.visible_branches()
        places = {*visible, *(node.data.place for node in opened if node.data and node.data.place)}
        if self._wanted:
            places.add(self._wanted.head)
        now = await self.read(lambda: self.reading.touched(list(places)))
        changed = {place for place, when in now.items() if anew or self._touched.get(place) != when}
        self._touched.update(now)
        if self._wanted and self._wanted.head in changed:
            self._look(self._wanted)
        elif self._looked.is_set():
            self.query_one(Overview).again()
        for node in opened:
            place = node.data.place if node.data else None
            if place and (listed or place in changed or not node.children):
                await self._fill(node, place)
        for place in visible:
            if place in changed or tree.statuses.get(place, "at work") == "at work":
                tree.state(place, await self.read(partial(self.reading.status, place)))

    def _list(self) -> None:
        """Show the runs of the listing; at first, go to the newest and open it."""
        tree = self.query_one(RunTree)
        tree.show(tree.root, self._listing.first(self._runs))
        count = self._listing.runs
        self._say(f"{self.location}  {number_of(count, 'run')}")
        if tree.cursor_node is None and tree.root.children:
            tree.root.children[0].expand()
            tree.call_after_refresh(tree.begin)
        if not count:
            empty = "No runs are recorded here yet. They appear when a run begins."
            self.query_one(Overview).show([("", [("", Text(empty))])])

    async def _fill(self, node: TreeNode[Line], branch: Place) -> None:
        count = self._checkpoints.get(branch, PAGE)
        tree = self.query_one(RunTree)
        try:
            lines = await self.read(lambda: self.reading.below(branch, count))
        except (CrewliteError, OSError):
            return tree.state(branch, "damaged")
        tree.show(node, lines)
        for child in node.children:
            if child.data and child.data.place:
                tree.show(child, self._listing.forks(child.data))
        return None

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Line]) -> None:
        """Read what is below a branch that is opened."""
        self._wake.set()

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[Line]) -> None:
        """Show the place that the cursor is on."""
        if event.node.data and event.node.data.place and not event.node.data.more:
            self._look(event.node.data.place)
        self._wake.set()

    def on_tree_node_selected(self, event: Tree.NodeSelected[Line]) -> None:
        """Open a branch, list more, or go to the panel, if that has something to edit or the line is a checkpoint."""
        line_ = event.node.data
        if line_ is None:
            return
        edits = self.query_one(TabbedContent).active in ("tab-inputs", "tab-outputs")
        if not line_.more and line_.opens and not edits:
            event.node.toggle()
        elif not line_.more:
            self.screen.focus_next("TabPane *")
        elif line_.place:
            self._checkpoints[line_.place] = self._checkpoints.get(line_.place, PAGE) + 5 * PAGE
            self._touched.pop(line_.place, None)
        else:
            self._runs += 5 * PAGE
            self._list()
        self._wake.set()

    def _look(self, place: Place) -> None:
        """Show a place, in place of one that is still being read."""
        self._wanted = place
        self._looked.clear()
        self._show(place)

    @work(exclusive=True, group="look")
    async def _show(self, place: Place) -> None:
        await asyncio.sleep(_PAUSE)
        try:
            self.shown = await self.read(lambda: self.reading.look(place))
        except (CrewliteError, OSError) as error:
            self.shown = None
            self.query_one(Overview).show([("", [(place.name, Text(escaped_lines(str(error)), "red"))])])
        self._looked.set()
        self._paint()
        self.refresh_bindings()

    async def here(self, action: str) -> Shown | None:
        """Return the place under the cursor once it is read; None if it cannot be, or the action is not for it."""
        await self._looked.wait()
        return self.shown if self.check_action(action, ()) else None

    def on_tabbed_content_tab_activated(self) -> None:
        """Show the place in the panel that has come up."""
        self._paint()

    def _paint(self) -> None:
        """Show the place in the panel that is seen."""
        shown, panels = self.shown, self.query_one(TabbedContent)
        if shown is None:
            if self._looked.is_set():  # the overview tells why; the other panels still show another place
                panels.active = "tab-overview"
            return
        match panels.active:
            case "tab-overview":
                self.query_one(Overview).show(shown.sections)
            case "tab-steps":
                self.query_one(Steps).show(shown.rows, shown.steps)
            case "tab-inputs" | "tab-outputs":
                self._editors(shown)
            case "tab-events":
                self.query_one(Events).show(shown.events)

    def _editors(self, shown: Shown) -> tuple[Fields, Fields]:
        """Return the editors of inputs and outputs, with the values of this place."""
        inputs, outputs = (self.query_one(f"#tab-{name} Fields", Fields) for name in ("inputs", "outputs"))
        inputs.show(shown.place.head, shown.inputs)
        outputs.show(shown.place, shown.outputs)
        return inputs, outputs

    def action_refresh(self) -> None:
        """Read everything that is shown again."""
        self._anew = True
        self._wake.set()

    def action_to_tree(self) -> None:
        """Go to the tree."""
        self.query_one(RunTree).focus()

    def action_tab(self, name: str) -> None:
        """Show a panel."""
        self.query_one(TabbedContent).active = f"tab-{name}"

    def action_help_quit(self) -> None:
        """Say which key quits, as people press ctrl+c for that."""
        self.notify("q quits, ctrl+c does not", markup=False)

    def action_toggle_theme(self) -> None:
        """Change between dark and light."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def _say(self, text: str, style: str = "") -> None:
        """Show a line at the top."""
        self.query_one("#head", Static).update(line(("crewlite checkpoint  ", "bold"), (text, style)))
