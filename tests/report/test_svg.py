import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

from cutlayer.report.find_results import find_results
from cutlayer.report.palette import DARK, LIGHT, MARKERS, Palette
from cutlayer.report.svg import draw
from cutlayer.reproduce.policies import PAPER
from cutlayer.reproduce.results import Result

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def place(mark: ET.Element) -> tuple[float, float]:
    x, y = mark.attrib["transform"].removeprefix("translate(").removesuffix(")").split()
    return float(x), float(y)


def test_values_are_where_they_belong_and_tell_themselves(result: Result) -> None:
    root = parsed(draw([result.plots[0]]))
    marks = [mark for mark in of_class(root, "mark") if mark.find(f"{SVG}title") is not None]
    assert len(marks) == 5, "the missing value has no mark"
    tips = [mark.findtext(f"{SVG}title") for mark in marks]
    assert tips[1] == "MS(0.99, 2)\nsmashed data up, MB: 4\ntest accuracy, %: 70\nfrom 69 to 71"
    (x0, y0), (x1, y1), (x2, y2), (x3, y3), (x4, y4) = map(place, marks)
    assert x0 < x1 < x2 < x3 < x4
    # 1 to 4 and 14 to 56 are the same factor.
    assert abs((x1 - x0) - (x4 - x2)) < 0.3
    assert y4 < y1 < y3 < y2 < y0, "more is higher up"


def test_a_line_is_broken_where_a_value_is_missing(result: Result) -> None:
    root = parsed(draw([result.plots[0]]))
    lines = of_class(root, "line")
    assert [path.attrib["d"].count("L") for path in lines] == [0, 0, 2]
    assert len(of_class(root, "band")) == 1


def test_bars_have_heights_in_proportion_and_whiskers(result: Result) -> None:
    root = parsed(draw([result.plots[1]]))
    first, second = (float(bar.attrib["height"]) for bar in of_class(root, "bar"))
    assert abs(second / first - 2.5 / 1.5) < 0.01
    assert len(of_class(root, "whisker")) == 2


def test_side_by_side_they_share_the_axis_and_the_legend(result: Result) -> None:
    plot = result.plots[0]
    other = replace(plot, series=[replace(plot.series[1], y=[10.0, 20.0, 30.0])])
    root = parsed(draw([plot, other], alone=True))
    ticks = [text.text for text in of_class(root, "tick")]
    assert ticks.count("0") == ticks.count("80") == 2
    labels = [text.text for text in root.iter(f"{SVG}text")]
    assert labels.count("none") == 1
    assert "prefers-color-scheme:dark" in root.findtext(f"{SVG}style", "")


def test_only_a_title_that_is_too_long_is_set_narrower(result: Result) -> None:
    short, long = (draw([replace(result.plots[0], title="x" * letters)]) for letters in (20, 200))
    assert "textLength" not in short
    assert 'lengthAdjust="spacingAndGlyphs"' in long


def test_hostile_names_stay_text(hostile: Result) -> None:
    for plot in hostile.plots:
        tags = {element.tag for element in parsed(draw([plot], alone=True)).iter()}
        assert tags <= {
            f"{SVG}{name}" for name in ("svg", "style", "rect", "g", "path", "text", "title", "circle")
        }


def test_every_policy_of_the_paper_has_a_colour_and_a_marker_of_its_own() -> None:
    palette = Palette()
    assert len({palette.colour(name) for name in PAPER}) == len(PAPER)
    assert len({palette.marker(name) for name in PAPER}) == len(PAPER)
    assert len(set(LIGHT)) == len(set(DARK)) == len(set(MARKERS)) == len(LIGHT)
    both = {(palette.colour(str(i)), palette.marker(str(i))) for i in range(50)}
    assert len(both) == 50, "when colours come round again, markers differ"
    assert 0 not in {colour for colour, _ in both}, "ink is for the baseline"


def test_two_series_of_one_plot_share_neither_colour_nor_marker() -> None:
    plots = [
        [*PAPER, *(f"ours {i}" for i in range(10))],
        ["QU", "EMS", "ours 3"],
        ["a", "EMS", "b", "ours 9"],
    ]
    palette = Palette(plots)
    for names in plots:
        assert len({palette.colour(name) for name in names}) == len(names)
        assert len({palette.marker(name) for name in names}) == len(names)
    assert palette.colour("QU") == palette.colour("QU(3)"), "one method looks the same at every rate"


def test_so_it_is_in_all_committed_results() -> None:
    results = find_results([Path(__file__).parents[2] / "experiments" / "results"])
    plots = [[series.name for series in plot.series] for result in results for plot in result.plots]
    palette = Palette(plots)
    for names in plots:
        looks = {(palette.colour(name), palette.marker(name)) for name in names}
        assert len(looks) == len({palette.colour(name) for name in names}) == len(set(names)), names


def brightness(colour: str) -> float:
    """Relative luminance as in WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_colours_stand_out_from_the_background() -> None:
    # 3 to 1 is what WCAG asks of graphics.
    assert all(1.05 / (brightness(colour) + 0.05) >= 3 for colour in LIGHT)
    dark = brightness("#16181c")
    assert all((brightness(colour) + 0.05) / (dark + 0.05) >= 3 for colour in DARK)
