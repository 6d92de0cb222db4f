"""The tree on the left: runs, their branches, and the checkpoints along each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from crewlite.tui.places import Line, Place
from crewlite.tui.words import mark


class RunTree(Tree[Line]):
    """Shows lines, and keeps the cursor and what is expanded while lines come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "open", "Expand", show=False),
        Binding("left", "shut", "Collapse", show=False),
    ]
    ICON_NODE = "▹ "
    ICON_NODE_EXPANDED = "▿ "

    def __init__(self) -> None:
        super().__init__(Text("runs"), id="runs")
        self.show_root = False
        self.guide_depth = 2
        self.auto_expand = False
        self.statuses: dict[Place, str] = {}
        """The status of each branch, as far as it was read."""

    def show(self, node: TreeNode[Line], lines: Sequence[Line]) -> None:
        """Make these the lines below a node. Those that were there already stay as they are."""
        there = {child.data.key: child for child in node.children if child.data}
        wanted = {line.key for line in lines}
        for key, gone in there.items():
            if key not in wanted:
                gone.remove()
        for number, line in enumerate(lines):
            child = there.get(line.key)
            if child:
                child.data, child.allow_expand = line, line.opens
                if child.label != line.text:
                    child.set_label(line.text)
            else:
                before = number if number < len(node.children) else None
                node.add(line.text, line, before=before, allow_expand=line.opens)

    def state(self, branch: Place, status: str) -> None:
        """Show the status of a branch."""
        if self.statuses.get(branch) != status:
            self.statuses[branch] = status
            for node in self._below(self.root):
                if node.data and node.data.place == branch:
                    node.refresh()

    def visible_branches(self) -> list[Place]:
        """Return the branches whose lines are on the screen."""
        top = self.scroll_offset.y
        seen = [self.get_node_at_line(number) for number in range(top, top + max(1, self.size.height))]
        places = [node.data.place for node in seen if node and node.data and not node.data.more]
        return [place for place in places if place and place == place.head]

    def opened(self) -> list[TreeNode[Line]]:
        """Return the branches whose lines are shown, each before the ones below it."""
        nodes = self._below(self.root)
        return [one for one in nodes if one.is_expanded and one.data and one.data.place and not one.data.more]

    def go_to(self, place: Place) -> bool:
        """Move the cursor to the line of a place, and open what is above it. Returns whether there is such a line."""
        for node in self._below(self.root):
            if node.data and node.data.key == (place, False):
                parent = node.parent
                while parent and not parent.is_root:
                    parent.expand()
                    parent = parent.parent
                self.call_after_refresh(self.move_cursor, node)
                return True
        return False

    def begin(self) -> None:
        """Move the cursor to the first line, unless a key has moved it already."""
        if self.cursor_node is None and self.root.children:
            self.move_cursor(self.root.children[0])

    def _below(self, node: TreeNode[Line]) -> Iterator[TreeNode[Line]]:
        for child in list(node.children):
            yield child
            yield from self._below(child)

    def render_label(self, node: TreeNode[Line], base_style: Style, style: Style) -> Text:
        """Put the mark of its status before a branch."""
        label = cast(Text, node.label).copy()
        place = node.data.place if node.data else None
        if place and node.data and not node.data.more and place == place.head:
            sign, colour = mark(self.statuses.get(place, ""))
            label = Text.assemble((f"{sign} ", colour), label)
        label.stylize(style)
        icon = self.ICON_NODE_EXPANDED if node.is_expanded else self.ICON_NODE
        return Text.assemble((icon if node.allow_expand else "", base_style), label)

    def get_label_width(self, node: TreeNode[Line]) -> int:
        """Return the width of a line, without drawing it."""
        return cast(Text, node.label).cell_len + 4

    def action_open(self) -> None:
        """Expand the line, or go to the first line below it."""
        if (node := self.cursor_node) and node.allow_expand:
            if not node.is_expanded:
                node.expand()
            elif node.children:
                self.move_cursor(node.children[0])

    def action_shut(self) -> None:
        """Collapse the line, or go to the line above it."""
        if node := self.cursor_node:
            if node.is_expanded and node.allow_expand:
                node.collapse()
            elif node.parent and node.parent is not self.root:
                self.move_cursor(node.parent)
