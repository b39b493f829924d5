"""Drawings of the site as SVG, each for light and dark pages: `python -m website.drawings` writes them."""

from pathlib import Path
from xml.sax.saxutils import escape

from website.pages import DOCS

IMAGES = DOCS / "images"
Colours = dict[str, str]
LIGHT: Colours = {
    "page": "#ffffff",
    "text": "#1b1f24",
    "faint": "#57606a",
    "line": "#8c959f",
    "client": "#dcebff",
    "server": "#e3f4e4",
}
LIGHT |= {
    "client-line": "#3672c4",
    "server-line": "#3b8a48",
    "wire": "#b35900",
    "bar": "#c9d1d9",
    "small": "#3672c4",
}
DARK: Colours = {
    "page": "none",
    "text": "#e6edf3",
    "faint": "#a0aab4",
    "line": "#6e7681",
    "client": "#14294a",
    "server": "#12321a",
}
DARK |= {
    "client-line": "#79b0ff",
    "server-line": "#6fcf7f",
    "wire": "#ffab5e",
    "bar": "#444c56",
    "small": "#79b0ff",
}


class Drawing:
    """Shapes on a canvas, with the colours of a light or a dark page."""

    def __init__(self, width: int, height: int, title: str, colours: Colours) -> None:
        self.size, self.title, self.colours = (width, height), title, colours
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A rounded box for a party."""
        fill, line = self.colours[kind], self.colours[f"{kind}-line"]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" stroke="{line}"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A plain bar."""
        fill = self.colours[colour]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height}" rx="2" fill="{fill}"/>'
        )

    def text(self, x: float, y: float, words: str, colour: str = "text", size: int = 14, **look: str) -> None:
        """Words; `anchor` is where x is (start, middle, end), `weight` may be bold."""
        style = f'text-anchor="{look.get("anchor", "start")}" font-weight="{look.get("weight", "normal")}"'
        fill = self.colours[colour]
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" {style}>{escape(words)}</text>'
        )

    def arrow(self, x: float, y: float, to: float, colour: str = "wire") -> None:
        """A horizontal arrow."""
        back = 9 if to < x else -9
        fill = self.colours[colour]
        self.parts.append(f'<path d="M{x} {y}H{to + back}" stroke="{fill}" stroke-width="2" fill="none"/>')
        self.parts.append(f'<path d="M{to} {y}l{back} -5v10z" fill="{fill}"/>')

    def lane(self, x: float, top: float, bottom: float) -> None:
        """A thin vertical line: the life of a party."""
        line = self.colours["line"]
        self.parts.append(
            f'<path d="M{x} {top}V{bottom}" stroke="{line}" stroke-dasharray="3 4" fill="none"/>'
        )

    def svg(self) -> str:
        """The whole file."""
        width, height = self.size
        font = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
        box = f'viewBox="0 0 {width} {height}" font-family="{font}" role="img"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
        # GitHub shows the light one on dark pages, too.
        ground = f'<rect width="{width}" height="{height}" fill="{self.colours["page"]}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", ground, *self.parts, "</svg>", ""])


def split_learning(colours: Colours) -> Drawing:
    """What the project is for: a model on two machines, and what crosses between them. Narrow, for phones."""
    d = Drawing(
        560, 290, "A model split between a device and a server; the bytes at the cut, by codec", colours
    )
    for x, kind, name, has, codec in (
        (4, "client", "Device", ("private data", "first layers"), "encode · decode"),
        (406, "server", "Server", ("the other layers", "loss"), "decode · encode"),
    ):
        d.box(x, 8, 150, 112, kind)
        d.text(x + 75, 34, name, weight="bold", anchor="middle", size=17)
        d.text(x + 75, 58, has[0], anchor="middle", size=15)
        d.text(x + 75, 79, has[1], anchor="middle", size=15)
        d.text(x + 75, 106, codec, f"{kind}-line", anchor="middle", size=15)
    d.arrow(160, 56, 400)
    d.text(280, 44, "feature map, as a frame", "wire", anchor="middle", size=15)
    d.arrow(400, 96, 160)
    d.text(280, 84, "gradient, as a frame", "wire", anchor="middle", size=15)
    d.text(4, 154, "Feature maps sent, and test accuracy: CIFAR-10, shallow cut", "faint", size=15)
    rows = [
        ("float32", 8190, "8.19 GB", "70.9 %", "bar"),
        ("ms (the paper)", 594, "594 MB", "68.4 %", "small"),
        ("ems, one bit", 256, "256 MB", "70.4 %", "small"),
    ]
    for index, (name, megabytes, size, accuracy, colour) in enumerate(rows):
        y, width = 172 + 38 * index, 270 * megabytes / 8190
        d.text(4, y + 17, name, size=15)
        d.bar(124, y, width, 24, colour)
        d.text(round(132 + width), y + 17, size, weight="bold", size=15)
        d.text(556, y + 17, accuracy, anchor="end", size=15)
    return d


def batch(colours: Colours) -> Drawing:
    """The path of a batch: one step of mode parallel, between one client and the server."""
    d = Drawing(860, 640, "The path of a batch between the split server and one client", colours)
    left, right = 640, 220
    d.lane(left, 66, 630)
    d.lane(right, 66, 630)
    d.box(right - 110, 16, 220, 50, "client")
    d.text(right, 46, "SplitClient", weight="bold", anchor="middle", size=16)
    d.box(left - 110, 16, 220, 50, "server")
    d.text(left, 46, "SplitServer", weight="bold", anchor="middle", size=16)
    messages = [
        (104, False, "BeginStep: number, learning rate"),
        (250, True, "Smashed: a frame; Labels: packed"),
        (380, False, "Gradient: a frame"),
        (470, True, "SyncUp: gradients of its weights; Report"),
        (580, False, "SyncDown: their mean"),
    ]
    for y, up, words in messages:
        d.arrow(*((right + 4, y, left - 4) if up else (left - 4, y, right + 4)))
        d.text(430, y - 8, words, "wire", anchor="middle")
    at_client = [
        (134, "loads and augments its batch"),
        (158, "forward pass of its half"),
        (182, "rate control picks the bits"),
    ]
    at_client += [
        (206, "encodes the feature map"),
        (406, "decodes the gradient"),
        (430, "backward pass of its half"),
    ]
    at_client += [(606, "updates its half")]
    for y, words in at_client:
        d.text(right - 14, y, words, anchor="end", size=13)
    at_server = [
        (104, "plans the step"),
        (276, "checks type, size, values"),
        (300, "decodes the frame"),
        (324, "forward, loss, backward"),
    ]
    at_server += [
        (348, "encodes the gradient"),
        (496, "adds up in client order"),
        (520, "updates its own half"),
        (606, "writes the record"),
    ]
    for y, words in at_server:
        d.text(left + 14, y, words, size=13)
    return d


DRAWINGS = {"split-learning": split_learning, "batch": batch}


def files() -> dict[Path, str]:
    """Each file and its content."""
    made = {}
    for name, draw in DRAWINGS.items():
        made[IMAGES / f"{name}-light.svg"] = draw(LIGHT).svg()
        made[IMAGES / f"{name}-dark.svg"] = draw(DARK).svg()
    return made


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content, "utf-8")
