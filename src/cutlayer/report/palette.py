"""Colours that people with any colour vision tell apart, on light and on dark, and a marker for each.

The first eight hues are those of Okabe and Ito. The very first, ink, is for the baseline. Series differ by
their marker, too, never by colour alone.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from itertools import count

from cutlayer.reproduce.policies import PAPER

LIGHT = (
    *("#1a1a1a", "#0072b2", "#d55e00", "#009e73", "#b0508a", "#b87f00", "#2f8fc9", "#707070"),
    *("#6a3fa0", "#7f4a1e", "#6b7a00", "#c0142c", "#00707a", "#d6408a", "#24408e", "#8f8352"),
)
DARK = (
    *("#f2f2f2", "#5ab4ec", "#f08a45", "#35c59c", "#e59cc4", "#edba3f", "#9bd4f5", "#a8a8a8"),
    *("#b79cf0", "#c89468", "#b9c94a", "#ff7d86", "#4fd0d8", "#ff9fd0", "#8fa8ff", "#d6caa0"),
)

#: Around (0, 0), about 8 units wide; one for each colour.
MARKERS = (
    '<circle r="4"/>',
    '<rect x="-3.6" y="-3.6" width="7.2" height="7.2"/>',
    '<path d="M0-4.8 4.6 3.4H-4.6Z"/>',
    '<path d="M0-5.2 5.2 0 0 5.2-5.2 0Z"/>',
    '<path d="M0 4.8 4.6-3.4H-4.6Z"/>',
    '<path d="M-4.6-1.5H-1.5V-4.6H1.5V-1.5H4.6V1.5H1.5V4.6H-1.5V1.5H-4.6Z"/>',
    '<path d="M0-5.2 5-1.6 3.1 4.2H-3.1L-5-1.6Z"/>',
    '<path d="M-4.2-2.1-2.1-4.2 0-2.1 2.1-4.2 4.2-2.1 2.1 0 4.2 2.1 2.1 4.2 0 2.1-2.1 4.2-4.2 2.1-2.1 0Z"/>',
    '<rect x="-2" y="-5.2" width="4" height="10.4"/>',
    '<rect x="-5.2" y="-2" width="10.4" height="4"/>',
    '<path d="M-4.4-4.6H4.4L-4.4 4.6H4.4Z"/>',
    '<path d="M-4.6-4.2V4.2L4.6-4.2V4.2Z"/>',
    '<path d="M-4.8 2.4A4.8 4.8 0 0 1 4.8 2.4Z"/>',
    '<path d="M-4.6 2 0-4.8 4.6 2 2.6 4.4 0 .6-2.6 4.4Z"/>',
    '<path fill-rule="evenodd" d="M0-4.8A4.8 4.8 0 1 1-.01-4.8ZM0-2A2 2 0 1 0 .01-2Z"/>',
    '<path d="M-2 4.8A4.8 4.8 0 0 1-2-4.8L4.6 0Z"/>',
)


_GREY = 7

#: Methods at rates of their own look like the policies of the same method.
_METHODS = ("none", "QU", "SP", "MS floor", "MS nearest", "RT")


class Palette:
    """Gives each name a colour and a marker, the same wherever the name appears on a page.

    `plots` are the names of the series of each plot. Two names of one plot differ in both, as long as it has
    no more series than there are colours.
    """

    def __init__(self, plots: Iterable[Iterable[str]] = ()) -> None:
        self._places = {name: place for known in (PAPER, _METHODS) for place, name in enumerate(known)}
        self._next = len(PAPER)
        together = [list(dict.fromkeys(names)) for names in plots]
        of_paper = any(self._places.get(name) for names in together for name in names)
        for name in dict.fromkeys(name for names in together for name in names):
            if name not in self._places:
                beside = {other for names in together if name in names for other in names}
                taken = {self._places[other] for other in beside if other in self._places}
                self._places[name] = next(p for p in _by_preference(of_paper) if p not in taken)
        self._next = max(self._next, *(place + 1 for place in self._places.values()))

    def place(self, name: str) -> int:
        """The name's number."""
        if name not in self._places:
            self._places[name] = self._next
            self._next += 1
        return self._places[name]

    def colour(self, name: str) -> int:
        """The index of the colour. Ink (0) is for the baseline only."""
        return self._look(name)[1]

    def marker(self, name: str) -> str:
        """The marker. When the colours repeat, they have other markers."""
        turn, colour = self._look(name)
        return MARKERS[(turn + colour) % len(MARKERS)]

    def _look(self, name: str) -> tuple[int, int]:
        """How often the colours were used up before, and the index of the colour."""
        place = self.place(name)
        if not place:
            return 0, 0
        turn, colour = divmod(place - 1, len(LIGHT) - 1)
        return turn, colour + 1


def _by_preference(of_paper: bool) -> Iterator[int]:
    """Places for a new name. Policies of the paper keep theirs where they are shown; grey comes last."""
    own, others = range(1, len(PAPER)), [p for p in range(len(PAPER), len(LIGHT)) if p != _GREY]
    yield from (*others, _GREY, *own) if of_paper else (*own, *others, _GREY)
    yield from count(len(LIGHT))


def colours(dark: bool) -> str:
    """The CSS variables of a theme."""
    chosen = DARK if dark else LIGHT
    ink, faint, paper = ("#e8e8e8", "#4a4d52", "#16181c") if dark else ("#222", "#d4d6da", "#fff")
    muted = "#a7abb3" if dark else "#5c6068"
    named = {"ink": ink, "faint": faint, "paper": paper, "muted": muted}
    named |= {f"c{i}": colour for i, colour in enumerate(chosen)}
    return "".join(f"--{name}:{value};" for name, value in named.items())


def plot_css() -> str:
    """The CSS rules of plots, in a page or in an SVG file of their own."""
    rules = "".join(f".c{i}{{--c:var(--c{i})}}" for i in range(len(LIGHT)))
    return rules + (
        "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--ink)}"
        "svg .title{font-weight:600;font-size:13.5px}svg .tick{fill:var(--muted);font-size:11px}"
        "svg .grid{stroke:var(--faint);stroke-width:1;fill:none}"
        "svg .line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}"
        "svg .band{fill:var(--c);opacity:.16;stroke:none}"
        "svg .whisker{stroke:var(--c);stroke-width:1.4;fill:none}"
        "svg .mark{fill:var(--c);stroke:var(--paper);stroke-width:1}svg .bar{fill:var(--c)}"
        "svg .mark:hover,svg .bar:hover{stroke:var(--ink);stroke-width:2}"
    )


def escape(text: object) -> str:
    """Text that is safe in HTML and in XML, also where names hold control characters."""
    return html.escape(
        re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", str(text))
    )
