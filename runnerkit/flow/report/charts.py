"""Charts of runs and trials as SVG: points, lines over parallel axes, bars over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from statistics import quantiles
from typing import Any, NamedTuple

from runnerkit.flow.look.log_lines import is_number
from runnerkit.utils.numbers import in_seconds, in_short

WIDTH, HEIGHT = 400, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 36

#: The width of a letter of a label, about.
_LETTER = 6.0


class Point(NamedTuple):
    """A trial in a chart: its values, its class, what is shown when the pointer is on it."""

    x: Any
    y: Any
    kind: str
    text: str


class Line(NamedTuple):
    """A trial or run on parallel axes: its values, class, rank from 0 to 1, tooltip, and maybe another colour."""

    values: Sequence[Any]
    kind: str
    rank: float
    text: str
    colour: str = ''


class Axis:
    """Where values are on an axis, from 0 to 1.

    Numbers are on a logarithmic scale if they span more than a factor of 50; other values are in their order.

    Args:
        values: all that are shown.
        choices: the possible values in their order, each with a tick; without them, the axis is one of numbers if all
            values are.
        is_log: whether the scale is logarithmic; by default it depends on the values.
        is_cut: whether it leaves out values far from most others, of eight or more: these are at its very ends.
    """

    def __init__(
        self, values: Iterable[Any], choices: Sequence[Any] = (), is_log: bool | None = None, is_cut: bool = False
    ) -> None:
        known = [value for value in values if value is not None]
        are_numbers = bool(known) and all(is_number(value) and math.isfinite(value) for value in known)
        self.is_numeric = are_numbers and not choices
        names = dict.fromkeys(map(str, choices))
        rest = sorted({str(value) for value in known} - set(names))
        self._names: list[str] = [] if self.is_numeric else [*names, *rest]
        low, high = (min(known), max(known)) if self.is_numeric else (0, max(1, len(self._names) - 1))
        if is_cut and self.is_numeric and len(known) >= 8:
            first, _, third = quantiles(known, n=4)
            far = 3 * (third - first) or math.inf
            low, high = max(low, first - far), min(high, third + far)
        self._is_whole = self.is_numeric and all(isinstance(value, int) for value in known)
        self._is_log = self.is_numeric and low > 0 and (high > 50 * low if is_log is None else is_log)
        self._low, self._high = self._scaled(low), self._scaled(high)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._is_log else float(value)

    def at(self, value: Any) -> float:
        """The place of a value, with a margin at both ends; in the margin, if the axis leaves it out."""
        number = self._scaled(value) if self.is_numeric else self._names.index(str(value))
        part = (number - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        return 0.05 + 0.9 * min(1.05, max(-0.05, part))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels: of numbers the smallest, the middle and the largest, else at most eight names."""
        if not self.is_numeric:
            stride = -(-len(self._names) // 8) or 1
            return [(self.at(name), name) for name in self._names[::stride]]
        middle = (self._low + self._high) / 2
        values = [10**each if self._is_log else each for each in (self._low, middle, self._high)]
        if self._is_whole:
            values = [*map(round, values)]  # the ends are whole, but for rounding on a logarithmic scale
        if self._high == self._low:
            values = values[:1]
        return [(self.at(value), in_short(float(f'{value:.3g}'))) for value in dict.fromkeys(values)]


def scatter(
    title: str,
    names: tuple[str, str],
    points: Sequence[Point],
    line: Sequence[tuple[Any, Any]] = (),
    across: Axis | None = None,
) -> str:
    """Points over two axes, and maybe a line through some of their values; nothing without points.

    ``across`` is the horizontal axis, by default that of the points' values.
    """
    if not points:
        return ''
    across, up = across or Axis(point.x for point in points), Axis((point.y for point in points), is_cut=True)
    room = (WIDTH - _LEFT - _RIGHT) / len(across.ticks)
    parts = [
        *(_tick('y', _LEFT - 6, _y(at), label) for at, label in up.ticks),
        *(_tick('x', _x(at), HEIGHT - _BOTTOM + 16, _fitting(label, room)) for at, label in across.ticks),
        f'<text class="name" x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}">{escape(names[0][-60:])}</text>',
    ]
    if line:
        path = ' '.join(f'{_x(across.at(x)):.1f},{_y(up.at(y)):.1f}' for x, y in line)
        parts.append(f'<polyline class="line" points="{path}"/>')
    for x, y, kind, text in sorted(points, key=lambda point: point.kind == 'best'):
        place = f'cx="{_x(across.at(x)):.1f}" cy="{_y(up.at(y)):.1f}" r="{5 if kind == "best" else 3.5}"'
        far = '' if 0.04 < up.at(y) < 0.96 else ' far'
        parts.append(f'<circle class="{kind}{far}" {place}><title>{escape(text)}</title></circle>')
    return _figure(title, f'{len(points)} trials, {names[1]} over {names[0]}', parts)


def parallel(title: str, names: Sequence[str], lines: Sequence[Line], axes: Sequence[Axis] = ()) -> str:
    """A line for each trial or run over an axis for each of its values; nothing with less than two of either.

    ``axes`` are by default those of the lines' values.
    """
    if len(names) < 2 or len(lines) < 2:
        return ''
    axes = axes or [Axis(line.values[i] for line in lines) for i in range(len(names))]
    gap = (2 * WIDTH - 80) / (len(names) - 1)
    places = [40 + i * gap for i in range(len(names))]
    parts = []
    for line in sorted(lines, key=lambda line: (line.kind == 'best', line.rank)):
        found = zip(places, axes, line.values, strict=True)
        path = ' '.join(f'{x:.1f},{_y(axis.at(value)):.1f}' for x, axis, value in found if value is not None)
        colour = f'stroke:var({line.colour})' * bool(line.colour)
        parts.append(
            f'<polyline class="{line.kind}" style="--rank:{line.rank:.0%};{colour}" points="{path}">'
            f'<title>{escape(line.text)}</title></polyline>'
        )
    for i, (x, axis, name) in enumerate(zip(places, axes, names, strict=True)):
        last = i == len(names) - 1
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        for number, (at, label) in enumerate(axis.ticks):
            kind, side = ('end', x - 4) if last else ('in', x + 4)
            off = -4 if number or len(axis.ticks) == 1 else 12  # above the lines through a value, the lowest one below
            parts.append(_tick(kind, side, _y(at) + off, _fitting(label, gap / (1 + last))))
        # Every other name is in a second row: each has the room of two gaps, the outer ones end at the edge.
        kind, x = ('in', 0) if i == 0 else ('end', 2 * WIDTH) if last else ('x', x)
        parts.append(_tick(kind, x, HEIGHT - (18 if i % 2 else 4), _fitting(name, 1.8 * gap, from_end=True)))
    return _figure(title, f'{len(lines)} lines over {", ".join(names)}', parts, 2 * WIDTH)


def timeline(title: str, spans: Sequence[tuple[float, float, str, str]]) -> str:
    """A bar for each trial from its start to its end, in a row for each worker.

    A trial is in the first row that is free when it starts: as many rows as trials ran at once. Nothing is drawn of
    trials that ran one after another.
    """
    if not spans:
        return ''
    begin, end = min(start for start, *_ in spans), max(end for _, end, *_ in spans)
    free: list[float] = []
    parts = []
    for start, stop, kind, text in sorted(spans):
        row = next((i for i, until in enumerate(free) if until <= start), len(free))
        free[row:] = [stop, *free[row + 1 :]]
        x, width = (_x(part / (end - begin or 1)) for part in (start - begin, stop - start))
        size = f'x="{x:.1f}" y="{_TOP + 18 * row}" width="{max(1, width - _LEFT):.1f}" height="14"'
        parts.append(f'<rect class="{kind}" {size}><title>{escape(text)}</title></rect>')
    if len(free) < 2:
        return ''
    height = _TOP + 18 * len(free) + 22
    parts += [_tick('y', _LEFT - 6, _TOP + 11 + 18 * row, f'{row + 1}') for row in range(len(free))]
    parts += [_tick('x', _x(part), height - 6, in_seconds(part * (end - begin))) for part in (0.02, 0.5, 0.96)]
    return _figure(title, f'{len(spans)} trials on {len(free)} workers', parts, height=height)


def _x(part: float) -> float:
    return _LEFT + part * (WIDTH - _LEFT - _RIGHT)


def _y(part: float) -> float:
    return HEIGHT - _BOTTOM - part * (HEIGHT - _TOP - _BOTTOM)


def _tick(kind: str, x: float, y: float, label: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y + 3.5 * (kind == "y"):.1f}">{escape(label)}</text>'


def _fitting(label: str, room: float, from_end: bool = False) -> str:
    """As much of a label as fits into ``room``, from its beginning or to its end, with an ellipsis for the rest."""
    most = max(2, int(room / _LETTER))
    if len(label) <= most:
        return label
    return f'…{label[1 - most :]}' if from_end else f'{label[: most - 1]}…'


def _figure(title: str, about: str, parts: Iterable[str], width: int = WIDTH, height: int = HEIGHT) -> str:
    label = escape(f'{title}: {about}')
    drawing = (
        f'<svg class="still" role="img" aria-label="{label}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'
    )
    wide = ' class="twice"' * (width > WIDTH)
    return f'<figure{wide}><figcaption><b>{escape(title)}</b></figcaption>{drawing}</figure>'
