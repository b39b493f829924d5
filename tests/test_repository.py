"""Files around the package agree with it: citation, templates, release notes, pre-commit."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import cutlayer

ROOT = Path(__file__).parents[1]


@pytest.fixture
def release_notes() -> ModuleType:
    path = ROOT / ".github" / "release_notes.py"
    spec = importlib.util.spec_from_file_location("release_notes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_version_everywhere() -> None:
    for name, form in (("pyproject.toml", r'^version = "(.+)"$'), ("CITATION.cff", r"^version: (.+)$")):
        found = re.search(form, (ROOT / name).read_text(), re.MULTILINE)
        assert found is not None
        assert found[1] == cutlayer.__version__, name


def test_the_notes_of_a_release_are_its_section(release_notes: ModuleType) -> None:
    changelog = "# Changelog\n\n## 0.2.0 (today)\n\n- new\n\n## 0.1.0\n\n- old\n"
    assert release_notes.notes("v0.2.0", changelog, "0.2.0") == "- new\n"
    assert release_notes.notes("v0.1.0", changelog, "0.1.0") == "- old\n"
    with pytest.raises(SystemExit, match=r"pyproject.toml says 0.2.0"):
        release_notes.notes("v0.3.0", changelog, "0.2.0")
    with pytest.raises(SystemExit, match="has no section"):
        release_notes.notes("v0.3.0", changelog, "0.3.0")
