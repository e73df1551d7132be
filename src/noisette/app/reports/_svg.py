"""Pictures as inline SVG: a few hundred bytes, crisp at any size, in the colours of the page that they stand on.

Colours come from the page's style sheet by class, so that a picture follows it into the dark and onto paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup, escape

__all__ = ["Plot", "dots", "ticks"]

_WIDTH, _HEIGHT = 380, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 16, 46


class Plot:
    """Axes from (0 or `low`, 0) to (`right`, `top`) with labels, and what is drawn between them.

    >>> plot = Plot("p", "A line", right=1.0, top=1.0, across="x", up="y")
    >>> plot.line([(0, 0), (1, 1)], "best")
    >>> '<title id="p">A line</title>' in plot.svg()
    True
    """

    def __init__(
        self,
        name: str,
        title: str,
        *,
        right: float,
        top: float,
        across: str,
        up: str,
        low: float = 0.0,
        number: Callable[[float], str] = "{:g}".format,
        height: Callable[[float], str] = "{:g}".format,
    ) -> None:
        self._name, self._title, self._low = name, title, low
        self._right, self._top = right, top
        self._parts: list[Markup] = []
        inner = _WIDTH - _RIGHT
        for value in ticks(low, right):
            self._text(self._x(value), _HEIGHT - _BOTTOM + 18, number(value), "middle")
        for value in ticks(0.0, top):
            y = self._y(value)
            self._add('<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>', _LEFT, y, inner)
            self._text(_LEFT - 7, y + 4, height(value), "end")
        self._text((_LEFT + inner) / 2, _HEIGHT - 6, across, "middle", "label")
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        self._text(13, middle, up, "middle", "label", Markup('transform="rotate(-90 13 {:.1f})"').format(middle))

    def _x(self, value: float) -> float:
        return _LEFT + (value - self._low) / (self._right - self._low) * (_WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self._top * (_HEIGHT - _TOP - _BOTTOM)

    def _add(self, text: str, *values: object) -> None:
        self._parts.append(Markup(text).format(*values))

    def _text(
        self, x: float, y: float, text: str, anchor: str, kind: str = "tick", extra: Markup | None = None
    ) -> None:
        more = extra or Markup("")
        form = '<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}" {}>{}</text>'
        self._add(form, kind, x, y, anchor, more, text)

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line through `points`, of the class `kind`."""
        self._add('<path class="{}" d="{}"/>', kind, self._path(points))

    def area(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """The area inside of `points`."""
        self._add('<path class="{}" d="{}Z"/>', kind, self._path(points))

    def _path(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self._x(x):.1f} {self._y(y):.1f}" for x, y in points)

    def dot(self, x: float, y: float, kind: str, label: str, side: str = "right") -> None:
        """A dot at (x, y), with words on its right, or above and to the left."""
        self._add('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="4.5"/>', kind, self._x(x), self._y(y))
        across, down, anchor = (9, 4, "start") if side == "right" else (4, -10, "end")
        self._text(self._x(x) + across, self._y(y) + down, label, anchor, "mark")

    def words(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """Words at (x, y)."""
        self._text(self._x(x), self._y(y), text, anchor, "tick")

    def svg(self) -> Markup:
        """The picture, with its title for those who cannot see it."""
        head = '<svg class="plot" viewBox="0 0 {} {}" role="img" aria-labelledby="{}"><title id="{}">{}</title>'
        return Markup(head).format(_WIDTH, _HEIGHT, self._name, self._name, escape(self._title)) + Markup(
            "".join([*self._parts, "</svg>"])
        )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most so many.

    >>> ticks(0, 1), ticks(0, 130), ticks(0.5, 0.95)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 50.0, 100.0], [0.5, 0.6, 0.7, 0.8, 0.9])
    """
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def dots(name: str, title: str, count: int) -> Markup:
    """A hundred dots, ten by ten, of which `count` are filled."""
    cells = "".join(
        f'<circle class="{"hit" if number < count else "miss"}" cx="{12 * (number % 10) + 6}" '
        f'cy="{12 * (number // 10) + 6}" r="4.2"/>'
        for number in range(100)
    )
    head = '<svg class="dots" viewBox="0 0 120 120" role="img" aria-labelledby="{}"><title id="{}">{}</title>'
    return Markup(head).format(name, name, title) + Markup(cells + "</svg>")
