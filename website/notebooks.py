"""The first two tutorials as notebooks, made from their pages: `python -m website.notebooks` writes them.

Python that runs on the page becomes a cell. Everything else, commands included, stays text.
"""

import json
import re
from pathlib import Path

from website.pages import DOCS, blocks

TUTORIALS = ("own-model", "between-machines")


def cells(text: str) -> list[dict[str, object]]:
    """The cells of a page. Outputs on the page are left out: running the notebook makes them."""
    lines = text.split("\n")
    found: list[dict[str, object]] = []
    begin = 0

    def add(kind: str, content: str, **fields: object) -> None:
        # A notebook stands alone: comments for the tests and links to other pages mean nothing in it.
        if kind == "markdown":
            content = re.sub(r"^<!--.*?-->\n?", "", content, flags=re.MULTILINE)
            content = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", content)
            content = re.sub(r"^Download this page as a notebook\.\n?", "", content, flags=re.MULTILINE)
        if content.strip():
            source = content.strip("\n").splitlines(keepends=True)
            found.append(
                {"cell_type": kind, "id": f"cell-{len(found)}", "metadata": {}, **fields, "source": source}
            )

    for block in blocks(text):
        if block.language != "python" or not block.runs:
            continue
        add("markdown", "\n".join(lines[begin : block.line - 1]))
        add("code", block.code, execution_count=None, outputs=[])
        begin = block.line + block.code.count("\n") + 1
        if block.output is not None:
            begin = lines.index("```", lines.index("```text", begin)) + 1
    add("markdown", "\n".join(lines[begin:]))
    return found


def notebook(page: Path) -> str:
    """A page as the text of an .ipynb file."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": cells(page.read_text("utf-8")),
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def files() -> dict[Path, str]:
    """Each notebook and its content."""
    pages = (DOCS / "tutorials" / f"{name}.md" for name in TUTORIALS)
    return {page.with_suffix(".ipynb"): notebook(page) for page in pages}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
