"""Imports point one way: cli -> run -> {split, wire, codecs} -> errors."""

import ast
from pathlib import Path

import cutlayer

ROOT = Path(cutlayer.__file__).parent

# What each part of the package may import of the others.
ALLOWED = {
    "errors": set(),
    "codecs": {"errors", "_native"},
    "split": {"errors"},
    "wire": {"errors"},
    "analysis": {"errors", "codecs", "split"},
    "run": {"errors", "codecs", "split", "wire", "analysis", "_native"},
    "report": {"errors", "run"},
}


def imported(path: Path) -> set[str]:
    """The parts of cutlayer that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they point"
            names = [node.module or ""]
            if node.module == "cutlayer":
                names = [f"cutlayer.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("cutlayer.")}
    return found


def test_every_part_imports_only_what_it_may() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part in ALLOWED:
            extra = imported(path) - ALLOWED[part] - {part}
            wrong += [f"{path.relative_to(ROOT)} imports cutlayer.{name}" for name in sorted(extra)]
    assert not wrong


def test_the_parts_exist() -> None:
    assert {"errors", "codecs", "split", "wire", "run"} <= {
        p.name.removesuffix(".py") for p in ROOT.iterdir()
    }
