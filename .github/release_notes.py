"""Print the notes of a release: the section of CHANGELOG.md for a tag, which must be the package's version.

python .github/release_notes.py v0.2.0
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(tag: str, changelog: str, version: str) -> str:
    """The section of a version, without its heading."""
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, but pyproject.toml says {version}; tag v{version}, or change it")
    found = re.search(
        rf"^## \[?{re.escape(version)}\]?[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE
    )
    if found is None or not found[1].strip():
        raise SystemExit(f"CHANGELOG.md has no section '## {version}'; write what changed")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sys.stdout.write(notes(sys.argv[1], text, project["version"]))
