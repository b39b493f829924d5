"""The pages of the documentation and the code blocks in them, for the tests, the notebooks and the site.

Tests run a block of `python` or `sh` unless a comment before it says why not. Comments before a block:

- `<!-- not run: WHY -->`: the block is not run. Commands in it are still checked against the program's flags.
- `<!-- output varies -->`: the `text` block behind it is an example, not the exact output.
- `<!-- uses runs/ms -->`: a short run on digits is put there before the page is run.
- `<!-- file: NAME -->`: the block is saved under this name, in the directory where the page is run.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(?P<language>[\w-]*)[^\n]*\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
_NOTES = re.compile(r"(?:^<!--[^\n]*-->\n+)+\Z", re.MULTILINE)
_NOTE = re.compile(r"<!--\s*(.*?)\s*-->")

RUN = ("python", "sh")
NOT_RUN = "not run"
VARIES = "output varies"
USES_RUN = "uses runs/ms"
FILE = "file: "
KNOWN = (NOT_RUN, VARIES, USES_RUN, FILE, "the decoder: ")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: language, code, comments before it, and the output that it should have."""

    line: int
    language: str
    code: str
    notes: tuple[str, ...]
    output: str | None

    def has(self, note: str) -> bool:
        """Whether a comment before the block begins with this."""
        return any(found.startswith(note) for found in self.notes)

    @property
    def reason(self) -> str | None:
        """Why the block is not run; None if it is."""
        for note in self.notes:
            if note.startswith(NOT_RUN):
                return note.removeprefix(NOT_RUN).lstrip(": ")
        return None

    @property
    def file(self) -> str | None:
        """The name under which the block is saved; None if it is no file."""
        for note in self.notes:
            if note.startswith(FILE):
                return note.removeprefix(FILE)
        return None

    @property
    def runs(self) -> bool:
        """Whether the tests run it."""
        return self.language in RUN and self.reason is None and self.file is None


def pages() -> list[Path]:
    """All pages that are written by hand."""
    return sorted(DOCS.rglob("*.md"))


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order. A `text` block right behind another one is its output."""
    found: list[Block] = []
    fences = list(_FENCE.finditer(text))
    for index, fence in enumerate(fences):
        before = text[fences[index - 1].end() if index else 0 : fence.start()]
        notes = _NOTES.search(before)
        behind = fences[index + 1] if index + 1 < len(fences) else None
        output = None
        if behind and behind["language"] == "text" and not text[fence.end() : behind.start()].strip():
            output = behind["code"]
        named = tuple(_NOTE.findall(notes[0])) if notes else ()
        line = text.count("\n", 0, fence.start("code"))
        found.append(Block(line, fence["language"], fence["code"], named, output))
    return found


def indented(text: str) -> list[int]:
    """Lines that begin an indented code block. Such blocks have no language: nobody can say what they are."""
    lines = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text).split("\n")
    before = ["", *lines]
    inside = False  # of a list, whose items may have indented paragraphs
    found = []
    for number, line in enumerate(lines, 1):
        if re.match(r" {0,3}([-*]|\d+\.) ", line):
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        if line.startswith("    ") and not before[number - 1].strip() and not inside:
            found.append(number)
    return found
