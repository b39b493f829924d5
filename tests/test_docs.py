"""The pages tell the truth: their code runs, prints what they say it prints, and their links lead somewhere.

A ```python block runs unless `<!-- not run -->` stands before it. The blocks of a page run in order, in one
fresh process. A ```text block right behind a ```python block is its exact output, unless
`<!-- output varies -->` stands before the latter.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LINKED = sorted({*ROOT.glob("*.md"), *PAGES})
BLOCK = re.compile(
    r"(?P<notes>(?:^<!--[^\n]*-->\n+)*)^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
SEPARATOR = "\x1e\n"


@dataclass(frozen=True)
class Block:
    line: int
    code: str
    output: str | None


def blocks(text: str) -> list[Block]:
    """The blocks that are to be run; `output` is None where it may vary or is not shown."""
    return [
        Block(
            text.count("\n", 0, match.start("code")),
            match["code"],
            None if "<!-- output varies -->" in match["notes"] else match["output"],
        )
        for match in BLOCK.finditer(text)
        if "<!-- not run -->" not in match["notes"]
    ]


def script(found: list[Block]) -> str:
    """One program in which each line has the number that it has on the page."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - len(lines))
        lines += [*block.code.splitlines(), "print('\\x1e')"]
    return "\n".join(lines) + "\n"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p.read_text("utf-8"))], ids=name)
def test_code_of_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    found = blocks(page.read_text("utf-8"))
    program = tmp_path / page.with_suffix(".py").name.replace("-", "_")
    program.write_text(script(found), "utf-8")
    places = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    run = subprocess.run(
        [sys.executable, "-W", "error", "-X", "utf8", str(program)],
        cwd=tmp_path,
        # One thread: with two, on a busy machine, one page took 40 s instead of 9.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert run.returncode == 0, f"{name(page)} (line numbers are the page's):\n{run.stderr}"
    outputs = run.stdout.split(SEPARATOR)[:-1]
    for block, output in zip(found, outputs, strict=True):
        if block.output is not None:
            assert output == block.output, f"{name(page)}, the block at line {block.line + 1}"


def test_every_python_fence_is_seen() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        assert len(BLOCK.findall(text)) == len(re.findall(r"^ *```python", text, re.MULTILINE)), name(page)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}, which is not there"
        assert target.is_relative_to(ROOT), f"{name(page)} links to {link}, outside the repository"
        if anchor:
            assert anchor in anchors(target), f"{name(page)}: no heading for #{anchor} in {path or 'it'}"
