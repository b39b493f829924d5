"""Collect what the site is built from in build/site-pages: pages by hand, and those made from the program.

The pages by hand link to files of the repository, as GitHub shows them. On the site these files become pages,
too, so that it needs no other place. Every staged page stands in the navigation, or belongs to one that does.
"""

import os
import re
import shutil
import tomllib
from pathlib import Path

from website import api_reference, command_reference, settings_reference
from website.pages import DOCS, ROOT, pages

STAGE = ROOT / "build" / "site-pages"
# Pages at the top of the repository, and where they stand on the site.
TOP = {
    "FORMAT.md": "reference/format.md",
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "SECURITY.md": "about/security-policy.md",
}
GENERATED = {
    "reference/python.md": api_reference.page,
    "reference/settings.md": settings_reference.page,
    "reference/commands.md": command_reference.page,
}
LANGUAGES = {
    ".py": "python",
    ".proto": "protobuf",
    ".toml": "toml",
    ".json": "json",
    ".cpp": "cpp",
    ".hpp": "cpp",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
DRAWING = re.compile(r"(!\[[^\]]*\]\([^)]+)-light\.svg\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def place(path: Path) -> str:
    """Where a file of the repository stands on the site, as a path below its root."""
    name = path.relative_to(ROOT).as_posix()
    if name in TOP:
        return TOP[name]
    if path.is_relative_to(DOCS) and path.suffix not in (".py", ".toml") and not path.is_dir():
        return path.relative_to(DOCS).as_posix()
    return f"source/{name}.md"


class Stage:
    """The directory from which the site is built, while it is filled."""

    def __init__(self, directory: Path = STAGE) -> None:
        self.directory = directory
        self.sources: set[Path] = set()

    def write(self, name: str, text: str) -> None:
        """Write a page."""
        target = self.directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")

    def page(self, path: Path) -> None:
        """A page by hand, its links made those of the site."""
        here = place(path)

        def link(found: re.Match[str]) -> str:
            file, hash_mark, anchor = found[2].partition("#")
            if not file or re.match(r"[a-z]+:", file):
                return found[0]
            target = (path.parent / file).resolve()
            there = place(target)
            if there.startswith("source/"):
                self.sources.add(target)
            return f"{found[1]}{os.path.relpath(there, Path(here).parent)}{hash_mark}{anchor}{found[3]}"

        # A drawing for light pages has a twin for dark ones.
        text = DRAWING.sub(r"\1-light.svg#only-light)\n\1-dark.svg#only-dark)", path.read_text("utf-8"))
        code = [match.span() for match in CODE.finditer(text)]
        self.write(
            here,
            LINK.sub(
                lambda found: found[0] if any(a <= found.start() < b for a, b in code) else link(found), text
            ),
        )

    def source(self, path: Path) -> None:
        """A file or folder of the repository that a page links to, as a page of its own."""
        name = path.relative_to(ROOT).as_posix()
        head = f"---\ntitle: {path.name}\nsearch:\n  exclude: true\n---\n\n# {path.name}\n\n`{name}`\n\n"
        if path.is_dir():
            files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if _is_source(file))
            body = "\n".join(f"- `{file}`" for file in files)
            if (path / "__init__.py").exists():
                body = f"```python\n{(path / '__init__.py').read_text('utf-8')}```\n\n{body}"
        elif path.suffix == ".md":
            body = path.read_text("utf-8")
        else:
            text = path.read_text("utf-8").rstrip("\n")
            body = f"````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n````"
        self.write(place(path), head + body + "\n")

    def fill(self) -> None:
        """Everything."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in [*(ROOT / name for name in TOP), *pages()]:
            self.page(path)
        for path in DOCS.rglob("*"):
            if path.suffix in (".svg", ".png", ".css", ".ipynb"):
                target = self.directory / path.relative_to(DOCS)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        for name, make in GENERATED.items():
            self.write(name, make())
        for path in sorted(self.sources):
            self.source(path)
        self.check()

    def check(self) -> None:
        """Every page is in the navigation once, and the navigation has only pages that are there."""
        with (ROOT / "zensical.toml").open("rb") as file:
            listed = _listed(tomllib.load(file)["project"]["nav"])
        there = {path.relative_to(self.directory).as_posix() for path in self.directory.rglob("*.md")}
        there = {name for name in there if not name.startswith("source/")}
        if missing := sorted(there - set(listed)):
            raise SystemExit(f"not in the nav of zensical.toml: {', '.join(missing)}")
        if gone := sorted(set(listed) - there) or sorted({name for name in listed if listed.count(name) > 1}):
            raise SystemExit(f"in the nav of zensical.toml, but not there or twice: {', '.join(gone)}")


def _is_source(path: Path) -> bool:
    return (
        path.is_file()
        and path.suffix in (*LANGUAGES, ".md", ".csv", ".svg")
        and "__pycache__" not in path.parts
    )


def _listed(nav: object) -> list[str]:
    """The pages in a navigation, at whatever depth."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return [name for entry in inner for name in _listed(entry)]


if __name__ == "__main__":
    Stage().fill()
