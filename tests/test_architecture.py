"""docs/architecture.md tells the truth: what it names exists, and a step runs through the files it lists."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import cutlayer
from cutlayer.training.local_run import LocalRun

ROOT = Path(cutlayer.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TEXT = PAGE.read_text("utf-8")
SOURCE = "../src/cutlayer/"

COMPRESSED = ("codec.up=ms:ratio=0.9,bits=2", "codec.down=qu:bits=8", "codec.sync=sp:ratio=0.5")


def section(begin: str, end: str) -> str:
    return TEXT.split(begin, 1)[1].split(end, 1)[0]


def listed(text: str) -> list[str]:
    """The files of a list, each an entry `- [name](link): what it is`."""
    entries = re.findall(rf"^- \[(.+?)\]\({re.escape(SOURCE)}(.+?)\)", text, re.MULTILINE)
    assert all(name == link for name, link in entries)
    return [link for _, link in entries]


PATH = listed(section("The path itself:", "Helpers,"))
HELPERS = listed(section("Helpers,", "The other modes"))


def traced(run: LocalRun) -> set[str]:
    """The files of cutlayer, codecs aside, whose functions run in one step."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run.server.step()
    finally:
        sys.setprofile(before)
    files = (Path(name).relative_to(ROOT) for name in seen if Path(name).is_relative_to(ROOT))
    return {file.as_posix() for file in files if file.parts[0] != "codecs"}


def test_step_runs_through_the_files_that_the_page_lists(start: Callable[..., LocalRun]) -> None:
    assert traced(start(*COMPRESSED)) == {*PATH, *HELPERS}


def test_path_is_short_and_lists_have_no_file_twice() -> None:
    assert 0 < len(PATH) <= 18
    assert len(PATH) + len(HELPERS) <= 28
    assert len({*PATH, *HELPERS}) == len(PATH) + len(HELPERS)


@pytest.mark.parametrize(
    "settings",
    [
        ("train.mode=sequential",),
        ("train.mode=relay", "train.sync=step"),
        ("train.mode=u-shaped", 'model.cut=["layer1", "fc"]'),
        ("train.server_batching=fused",),
        ("train.sync=1",),
    ],
    ids=str,
)
def test_other_modes_run_through_the_same_files(
    settings: tuple[str, ...], start: Callable[..., LocalRun]
) -> None:
    found = traced(start(*COMPRESSED, *settings))
    u_shaped = {"client/evaluator.py", "protocol/tensor_forms.py"}
    extra = u_shaped if "train.mode=u-shaped" in settings else set()
    assert found - {*PATH, *HELPERS} == extra


def resolve(name: str) -> object:
    """What a qualified name stands for: the longest module in front, then its attributes."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


NAMES = sorted(set(re.findall(r"`(cutlayer\.[\w.]+)`", TEXT)))


@pytest.mark.parametrize("name", NAMES)
def test_qualified_name_exists(name: str) -> None:
    assert name.startswith("cutlayer.")
    resolve(name)


def test_page_names_functions_and_its_links_lead_to_files() -> None:
    assert len(NAMES) > 40
    links = re.findall(r"\]\((\.\./[^)#]+)\)", TEXT)
    assert links
    missing = [link for link in links if not (PAGE.parent / link).exists()]
    assert not missing


def test_rooms_stand_in_the_order_of_the_table_of_imports() -> None:
    path = Path(__file__).with_name("test_imports.py")
    spec = importlib.util.spec_from_file_location("imports_table", path)
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    rooms = re.findall(r"^\| \[(\w+)\]\(", section("## Rooms", "## The path"), re.MULTILINE)
    assert rooms == [*table.ALLOWED, "commands"]
