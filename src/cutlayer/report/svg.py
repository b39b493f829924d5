"""Plots as SVG, in the colours of the reader's light or dark theme, with a tooltip for each value.

They are written by hand, and not by matplotlib, because of what a page needs of them: matplotlib's SVG has
fixed colours, no tooltips, ids that clash when several plots stand in one page, and more than twice the size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from cutlayer.report.axis import Scale, number, scale_of
from cutlayer.report.palette import MARKERS, Palette, colours, escape, plot_css
from cutlayer.reproduce.results import Plot, Series

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 34, 46
_LETTER, _TITLE_LETTER = 6.5, 7.4
"""About the width of a letter: enough to place legends, as nothing here can measure text."""


@dataclass(frozen=True)
class Panel:
    """A plot's position and axes in a drawing."""

    plot: Plot
    x: float
    width: float
    height: float
    xs: Scale | None
    """None: categories."""
    ys: Scale
    categories: tuple[str, ...] = ()

    def across(self, value: object) -> float:
        """The x coordinate of a value, or of the middle of a category."""
        inner = self.width - _LEFT - _RIGHT
        if self.xs is None:
            return self.x + _LEFT + inner * (self.categories.index(str(value)) + 0.5) / len(self.categories)
        return self.x + _LEFT + inner * self.xs.at(float(value))  # type: ignore[arg-type]

    def down(self, value: float) -> float:
        """The y coordinate of a value."""
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * self.ys.at(value)

    def shows(self, x: object, y: float | None) -> bool:
        """Whether the axes can show a point."""
        return self.ys.fits(y) and (self.xs is None or (isinstance(x, int | float) and self.xs.fits(x)))


def draw(
    plots: Sequence[Plot], palette: Palette | None = None, *, alone: bool = False, width: float = 520
) -> str:
    """One plot, or several side by side that share a vertical axis and a legend.

    `alone` makes a file of its own, which includes the styles that a page has once for all plots.
    """
    chosen = palette or Palette([[series.name for plot in plots for series in plot.series]])
    height = 330.0
    ys = [value for plot in plots for value in _heights(plot)]
    shared = scale_of(ys, plots[0].y.log, from_zero=any(plot.kind == "bar" for plot in plots))
    total = width * len(plots)
    body: list[str] = []
    for place, plot in enumerate(plots):
        body += _panel(_placed(plot, place * width, width, height, shared), chosen)
    names = list(dict.fromkeys(series.name for plot in plots for series in plot.series))
    rows = _legend_rows(names, total - _LEFT)
    for line, row in enumerate(rows):
        body += _legend_line(row, height + 6 + 20 * line, chosen, all(plot.kind == "bar" for plot in plots))
    full = height + 20 * len(rows) + 4
    about = escape("; ".join(plot.title for plot in plots))
    size = f'width="{total:g}" height="{full:g}" ' if alone else ""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}viewBox="0 0 {total:g} {full:g}" role="img"'
    # A background of its own: where a site's theme is not the system's, letters must still be read.
    paper = '<rect width="100%" height="100%" rx="6" fill="var(--paper)"/>'
    style = f"<style>{_own_style()}</style>{paper}" if alone else ""
    return f'{head} aria-label="{about}">{style}{"".join(body)}</svg>'


def _own_style() -> str:
    return f"svg{{{colours(False)}}}@media(prefers-color-scheme:dark){{svg{{{colours(True)}}}}}{plot_css()}"


def _heights(plot: Plot) -> Iterator[float | None]:
    for series in plot.series:
        for values in (series.y, series.low or (), series.high or ()):
            yield from values


def _placed(plot: Plot, x: float, width: float, height: float, ys: Scale) -> Panel:
    values = [value for series in plot.series for value in series.x]
    if plot.kind == "bar" or any(isinstance(value, str) for value in values):
        categories = tuple(dict.fromkeys(str(value) for value in values)) or ("",)
        return Panel(plot, x, width, height, None, ys, categories)
    return Panel(plot, x, width, height, scale_of(values, plot.x.log), ys)


def _panel(panel: Panel, palette: Palette) -> Iterator[str]:
    plot = panel.plot
    left, right = panel.x + _LEFT, panel.x + panel.width - _RIGHT
    top, bottom = _TOP, panel.height - _BOTTOM
    # A title that is too long for its panel is set narrower.
    fitted = f' textLength="{right - left:g}" lengthAdjust="spacingAndGlyphs"'
    narrow = fitted if len(plot.title) * _TITLE_LETTER > right - left else ""
    yield f'<text class="title" x="{left:g}" y="20"{narrow}>{escape(plot.title)}</text>'
    for tick in panel.ys.ticks:
        y = panel.down(tick)
        yield f'<path class="grid" d="M{left:g} {y:.1f}H{right:g}"/>'
        yield f'<text class="tick" text-anchor="end" x="{left - 6:g}" y="{y + 4:.1f}">{number(tick)}</text>'
    for place, label in _x_ticks(panel):
        yield f'<path class="grid" d="M{place:.1f} {top}V{bottom:g}"/>' if panel.xs else ""
        yield f'<text class="tick" text-anchor="middle" x="{place:.1f}" y="{bottom + 16:g}">{label}</text>'
    middle = (left + right) / 2
    yield f'<text text-anchor="middle" x="{middle:g}" y="{bottom + 36:g}">{escape(plot.x.label)}</text>'
    turned = f'transform="translate({panel.x + 14:g} {(top + bottom) / 2:g}) rotate(-90)"'
    yield f'<text text-anchor="middle" {turned}>{escape(plot.y.label)}</text>'
    for position, series in enumerate(plot.series):
        yield f'<g class="c{palette.colour(series.name)}">'
        if plot.kind == "bar":
            yield from _bars(panel, series, position)
        else:
            if plot.kind == "line":
                yield from _line(panel, series)
            yield from _marks(panel, series, palette.marker(series.name))
        yield "</g>"


def _x_ticks(panel: Panel) -> Iterator[tuple[float, str]]:
    if panel.xs is not None:
        yield from ((panel.across(tick), number(tick)) for tick in panel.xs.ticks)
        return
    room = (panel.width - _LEFT - _RIGHT) / len(panel.categories) / _LETTER
    for name in panel.categories:
        yield panel.across(name), escape(name if len(name) <= room else name[: max(1, int(room) - 1)] + "…")


def _line(panel: Panel, series: Series) -> Iterator[str]:
    """The line, broken where values are missing, and the band between the ends of the intervals."""
    places = range(len(series.y))
    if series.low is not None and series.high is not None:
        ends = list(zip(series.x, series.low, series.high, strict=True))
        whole = [(x, a, b) for x, a, b in ends if panel.shows(x, a) and panel.shows(x, b)]
        upper = [f"{panel.across(x):.1f} {panel.down(b):.1f}" for x, _, b in whole if b is not None]
        lower = [f"{panel.across(x):.1f} {panel.down(a):.1f}" for x, a, _ in whole if a is not None]
        if whole:
            yield f'<path class="band" d="M{"L".join(upper + lower[::-1])}Z"/>'
    for shown, piece in groupby(places, lambda i: panel.shows(series.x[i], series.y[i])):
        if shown:
            points = (f"{panel.across(series.x[i]):.1f} {panel.down(series.y[i] or 0):.1f}" for i in piece)
            yield f'<path class="line" d="M{"L".join(points)}"/>'


def _marks(panel: Panel, series: Series, marker: str) -> Iterator[str]:
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if y is None or not panel.shows(x, y):
            continue
        if panel.plot.kind == "scatter":
            yield _whisker(panel, series, i, panel.across(x))
        place = f"{panel.across(x):.1f} {panel.down(y):.1f}"
        yield f'<g class="mark" transform="translate({place})">{_tip(panel.plot, series, i)}{marker}</g>'


def _bars(panel: Panel, series: Series, position: int) -> Iterator[str]:
    slot = (panel.width - _LEFT - _RIGHT) / len(panel.categories) * 0.8
    width = slot / len(panel.plot.series)
    zero = panel.down(max(panel.ys.low, 0.0) if not panel.ys.log else panel.ys.low)
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if y is None or not panel.shows(x, y):
            continue
        left = panel.across(x) - slot / 2 + position * width
        top, bottom = sorted((panel.down(y), zero))
        place = (
            f'x="{left:.1f}" y="{top:.1f}" width="{max(1.0, width - 1.5):.1f}" height="{bottom - top:.1f}"'
        )
        yield f'<rect class="bar" {place}>{_tip(panel.plot, series, i)}</rect>'
        yield _whisker(panel, series, i, left + width / 2)


def _whisker(panel: Panel, series: Series, i: int, x: float) -> str:
    low = series.low[i] if series.low is not None else None
    high = series.high[i] if series.high is not None else None
    if low is None or high is None or not (panel.ys.fits(low) and panel.ys.fits(high)):
        return ""
    return f'<path class="whisker" d="M{x:.1f} {panel.down(low):.1f}V{panel.down(high):.1f}"/>'


def _tip(plot: Plot, series: Series, i: int) -> str:
    """The tooltip of a value."""
    x = series.x[i]
    shown = f"{x:.5g}" if isinstance(x, float) else str(x)
    lines = [series.name, f"{plot.x.label}: {shown}" if plot.x.label else shown]
    lines.append(f"{plot.y.label}: {series.y[i]:.5g}")
    if series.low is not None and series.high is not None:
        low, high = series.low[i], series.high[i]
        if low is not None and high is not None:
            lines.append(f"from {low:.5g} to {high:.5g}")
    return f"<title>{escape(chr(10).join(lines))}</title>"


def _legend_rows(names: Sequence[str], room: float) -> list[list[tuple[float, str]]]:
    rows: list[list[tuple[float, str]]] = [[]]
    x = 0.0
    for name in names:
        width = 34 + _LETTER * len(name)
        if rows[-1] and x + width > room:
            rows.append([])
            x = 0.0
        rows[-1].append((x, name))
        x += width
    return [row for row in rows if row]


def _legend_line(row: Sequence[tuple[float, str]], y: float, palette: Palette, bars: bool) -> Iterator[str]:
    for x, name in row:
        at = _LEFT + x
        marker = MARKERS[1] if bars else palette.marker(name)
        yield f'<g class="c{palette.colour(name)}"><g class="mark" transform="translate({at + 6:g} {y:g})">'
        yield f'{marker}</g></g><text x="{at + 16:g}" y="{y + 4:g}">{escape(name)}</text>'
