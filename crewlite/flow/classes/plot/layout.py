"""Where the boxes and lines of a graph stand: in rows from the top down, with lines that pass between the boxes.

A line that spans rows gets a lane through each of them, which is a narrow box. A line back, which a cycle has, gets
lanes from the row of its source up to that of its target; it leaves at the bottom of a box and arrives at the top.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BOX = 50.0  # the height of a box
GAP = 76.0  # between two rows
BADGE = 9.0  # how far a badge stands out above its box
_SPACE = 26.0  # between two boxes of a row
_LANE = 8.0  # the width of a lane
_EDGE = 24.0  # around the picture
_BOW = GAP / 4  # added where a line back leaves the last row or arrives at the first
_ORDERING, _SETTLING = 16, 32  # sweeps over all rows
_HEAVY = 12.0  # weight of a box; a lane has 1, so it gives way more
_STRAIGHT = 6.0  # pull between two lanes of a line; it is 1 between others


@dataclass(frozen=True, slots=True)
class Line:
    """A line between two boxes: the path of an SVG, and the place of its text."""

    source: str
    target: str
    text: str
    path: str
    at: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything stands, in pixels. `boxes`: the middle of each box."""

    boxes: Mapping[str, tuple[float, float]]
    lines: Sequence[Line]
    width: float
    height: float


def laid_out(
    rows: Mapping[str, int],
    widths: Mapping[str, float],
    lines: Sequence[tuple[str, str, str]],
    badges: Collection[str] = (),
) -> Layout:
    """Place boxes and lines.

    `rows`: the row of each box, from 0; `lines`: source, target and text of each; `badges`: the boxes that have one on
    their upper edge, at which lines end.
    """
    net = _Net(dict(rows), dict(widths))
    ways = [net.way(source, target) for source, target, _ in lines]
    x = net.placed()
    left = min(x[name] - net.widths[name] / 2 for name in x) - _EDGE
    width = max(x[name] + net.widths[name] / 2 for name in x) + _EDGE - left
    last, back = max(rows.values()), {line[:2] for line in lines if rows[line[1]] <= rows[line[0]]}
    top = _EDGE + (_BOW if any(rows[target] == 0 for _, target in back) else 0)
    at = {name: (x[name] - left, top + BOX / 2 + net.rows[name] * (BOX + GAP)) for name in x}
    taken: list[tuple[float, float, float]] = []
    drawn = [
        _line(at, way, *line, BADGE if line[1] in badges else 0, taken) for way, line in zip(ways, lines, strict=True)
    ]
    height = top + BOX + last * (BOX + GAP) + _EDGE + (_BOW if any(rows[source] == last for source, _ in back) else 0)
    return Layout({name: at[name] for name in rows}, drawn, width, height)


@dataclass(slots=True)
class _Net:
    rows: dict[str, int]
    widths: dict[str, float]
    near: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    """For each box or lane: what it should stand near to, and how strongly it is pulled there."""

    def __post_init__(self) -> None:
        self.near = {name: [] for name in self.rows}

    def way(self, source: str, target: str) -> list[str]:
        """Add a line. Returns the boxes and lanes that it passes, from its source to its target."""
        back = self.rows[target] <= self.rows[source]
        first, last = self.rows[source], self.rows[target]
        between = range(first, last - 1, -1) if back else range(first + 1, last)
        lanes = [f"{source}\n{target}\n{row}" for row in between]  # no method has such a name
        for lane, row in zip(lanes, between, strict=True):
            self.rows[lane], self.widths[lane], self.near[lane] = row, _LANE, []
        way = [source, *lanes, target]
        for one, other in pairwise(way):
            pull = _STRAIGHT if one in lanes and other in lanes else 1.0
            beside = self.rows[one] == self.rows[other]  # box and lane of a line back: only the lane moves
            if not beside or one in lanes:
                self.near[one].append((other, pull))
            if not beside or other in lanes:
                self.near[other].append((one, pull))
        return way

    def placed(self) -> dict[str, float]:
        """Return where the middle of each box and lane stands: near its neighbours, in an order with few crossings."""
        count = max(self.rows.values()) + 1
        rows: list[list[str]] = [[] for _ in range(count)]
        for name, row in self.rows.items():
            rows[row].append(name)
        x = dict.fromkeys(self.rows, 0.0)
        for boxes in rows:
            x |= self._apart(boxes, x)
        for sweep in range(_ORDERING + _SETTLING):
            settling = sweep >= _ORDERING  # the order stays, and boxes move to the middle of their neighbours
            down = sweep % 2 == 0
            for boxes in rows if down else reversed(rows):
                wanted = {name: self._wanted(name, x, None if settling else down) for name in boxes}
                if not settling:
                    boxes.sort(key=wanted.__getitem__)
                x |= self._apart(boxes, wanted)
        return x

    def _wanted(self, name: str, x: Mapping[str, float], down: bool | None) -> float:
        own = self.rows[name]
        there = [
            (x[other] + (_SPACE if self.rows[other] == own else 0), pull)
            for other, pull in self.near[name]
            if down is None or self.rows[other] == own or (self.rows[other] < own) == down
        ]
        return sum(at * pull for at, pull in there) / sum(pull for _, pull in there) if there else x[name]

    def _apart(self, row: Sequence[str], wanted: Mapping[str, float]) -> dict[str, float]:
        """Return the places nearest to the wanted ones that keep the order and the space between boxes."""
        if not row:
            return {}
        offsets = [0.0]
        for one, other in pairwise(row):
            offsets.append(offsets[-1] + (self.widths[one] + self.widths[other]) / 2 + _SPACE)
        groups: list[tuple[float, float, int]] = []  # boxes that touch: the place of the first, weight, and number
        for name, offset in zip(row, offsets, strict=True):
            place, weight, size = wanted[name] - offset, 1.0 if self.widths[name] == _LANE else _HEAVY, 1
            while groups and groups[-1][0] > place:
                before, heavy, more = groups.pop()
                place = (place * weight + before * heavy) / (weight + heavy)
                weight, size = weight + heavy, size + more
            groups.append((place, weight, size))
        places = [place for place, _, size in groups for _ in range(size)]
        return {name: place + offset for name, place, offset in zip(row, places, offsets, strict=True)}


def _line(
    at: Mapping[str, tuple[float, float]],
    way: Sequence[str],
    source: str,
    target: str,
    text: str,
    badge: float,
    taken: list[tuple[float, float, float]],
) -> Line:
    """Draw a line through the boxes and lanes of its way. `taken`: where texts stand already, and half their widths."""
    half, bow = BOX / 2, GAP * 0.6
    back = at[target][1] <= at[source][1]
    points = [at[name] for name in way]
    path, here = [f"M{points[0][0]:.1f} {points[0][1] + half:.1f}"], (points[0][0], points[0][1] + half)
    text_at = here
    for number, (x, y) in enumerate(points[1:], start=1):
        arrives = number == len(points) - 1
        downward, from_above = not back or number == 1, not back or arrives  # a line back goes up in its lanes
        there = (x, y - half - (badge if arrives else 0)) if from_above else (x, y + half)
        leaves = (here[0], here[1] + (bow if downward else -bow))
        path.append(_curve(leaves, (x, there[1] + (-bow if from_above else bow)), there))
        if number == 1:
            text_at = _free(here, (there[0], there[1] + 2 * bow * 0.75 if back else there[1]), text, taken)
        passes = (x, y - half if back else y + half)
        if not arrives:
            path.append(f"L{passes[0]:.1f} {passes[1]:.1f}")
        here = passes
    return Line(source, target, text, "".join(path), text_at)


def _curve(one: tuple[float, float], other: tuple[float, float], end: tuple[float, float]) -> str:
    return f"C{one[0]:.1f} {one[1]:.1f} {other[0]:.1f} {other[1]:.1f} {end[0]:.1f} {end[1]:.1f}"


def _free(
    start: tuple[float, float], end: tuple[float, float], text: str, taken: list[tuple[float, float, float]]
) -> tuple[float, float]:
    """Return where a text stands on a curve, so that it covers no other text."""
    half = 3.6 * len(text) + 4
    spots = [(0.5, 0.5), (0.62, 0.68), (0.38, 0.32), (0.7, 0.8), (0.3, 0.2)]  # along x and y of such a curve
    places = [(start[0] + (end[0] - start[0]) * x, start[1] + (end[1] - start[1]) * y) for x, y in spots]
    free = [
        (x, y)
        for x, y in places
        if all(abs(x - other) > half + width or abs(y - row) > 13 for other, row, width in taken)
    ]
    found = (free or places)[0]
    if text:
        taken.append((*found, half))
    return found
