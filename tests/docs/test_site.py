"""The site: its pages are staged from the program and the repository, and what is drawn or copied is in step.

`make docs` builds it with zensical, strictly; these tests do without.
"""

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import cutlayer
from cutlayer.cli import app
from cutlayer.config import schema
from website import api_reference, command_reference, drawings, notebooks, result_tables, settings_reference
from website.pages import DOCS, ROOT, blocks
from website.stage import Stage, place


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages of the site, staged. Filling it fails where a name is undocumented or a page unlisted."""
    directory = tmp_path_factory.mktemp("site") / "pages"
    Stage(directory).fill()
    return directory


def test_every_link_of_a_staged_page_leads_to_a_staged_file(stage: Path) -> None:
    for page in stage.rglob("*.md"):
        text = re.sub(
            r"^(`{3,}).*?^\1$|`[^`\n]+`", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        for link in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", text):
            if not re.match(r"[a-z]+:", link) and "source" not in page.relative_to(stage).parts[:1]:
                assert (page.parent / link).exists(), f"{page.relative_to(stage)} links to {link}"


def test_reference_has_every_public_name_command_and_setting(stage: Path) -> None:
    python = (stage / "reference" / "python.md").read_text("utf-8")
    assert all(f"heading: cutlayer.{name}\n" in python for name in cutlayer.__all__)
    commands = (stage / "reference" / "commands.md").read_text("utf-8")
    names = [
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    ]
    assert len(names) > 15
    assert all(f"## cutlayer {name.replace('_', '-')}" in commands for name in names)
    settings = (stage / "reference" / "settings.md").read_text("utf-8")
    assert "| `batch_size` | integer | `32` | Samples of each client at a step. |" in settings


def test_an_undocumented_name_is_found() -> None:
    class Public:
        """Documented."""

        def method(self) -> None: ...

        def _hidden(self) -> None: ...

    assert api_reference.undocumented({"Public": Public}) == ["Public.method"]


def test_meanings_of_settings_are_those_that_the_schema_lacks() -> None:
    for name in settings_reference.MEANINGS:
        section, _, setting = name.partition(".")
        found = settings_reference.sections(schema.Config)[section]
        assert setting in found.model_fields, name
        assert setting not in settings_reference.field_docstrings(found), f"{name} is explained in the schema"


def test_a_page_that_is_not_in_the_navigation_fails(stage: Path) -> None:
    (stage / "stray.md").write_text("# Stray\n")
    try:
        with pytest.raises(SystemExit, match=r"not in the nav of zensical.toml: stray.md"):
            Stage(stage).check()
    finally:
        (stage / "stray.md").unlink()
    Stage(stage).check()


def test_files_of_the_repository_have_a_place_on_the_site() -> None:
    assert place(ROOT / "FORMAT.md") == "reference/format.md"
    assert place(DOCS / "codecs" / "ms.md") == "codecs/ms.md"
    assert place(ROOT / "src" / "cutlayer" / "errors.py") == "source/src/cutlayer/errors.py.md"
    assert command_reference.text("a | b\n<c>") == "a \\| b &lt;c>"


def test_nothing_is_fetched_when_a_page_is_read() -> None:
    config = (ROOT / "zensical.toml").read_text("utf-8")
    assert "font = false" in config
    assert "http" not in config


@pytest.mark.parametrize("maker", [drawings, notebooks, result_tables], ids=lambda maker: maker.__name__)
def test_made_files_are_in_step(maker: ModuleType) -> None:
    made: dict[Path, str] = maker.files()
    assert made
    for path, content in made.items():
        again = f"python -m {maker.__name__}"
        assert path.read_text("utf-8") == content, f"{path.relative_to(ROOT)} is not in step; run {again}"


@pytest.mark.parametrize("name", notebooks.TUTORIALS)
def test_cells_of_a_notebook_are_the_code_that_the_page_runs(name: str) -> None:
    # The page's code runs in test_pages.py; equal code needs no second run.
    notebook = json.loads((DOCS / "tutorials" / f"{name}.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    page = blocks((DOCS / "tutorials" / f"{name}.md").read_text("utf-8"))
    code = [block.code for block in page if block.language == "python" and block.runs]
    assert len(cells) == len(code) >= 3
    for cell, block in zip(cells, code, strict=True):
        assert cell == block.rstrip("\n")
        compile(cell, name, "exec")
