"""The pages tell the truth: their code and commands run, and print what the pages say.

`website/pages.py` says which comments a block may carry. The blocks of a page run in order, in one fresh
process and an empty directory.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cutlayer.cli import app
from tests.ports import free_port
from website import command_reference
from website.pages import FILE, KNOWN, ROOT, RUN, USES_RUN, VARIES, Block, blocks, indented, pages
from website.stage import TOP

PAGES = [ROOT / "README.md", *pages()]
SEPARATOR = "\x1e\n"
PORT = "50551"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def found(page: Path) -> list[Block]:
    return blocks(page.read_text("utf-8"))


def program(page: list[Block]) -> str:
    """One program in which each line of Python has the number that it has on the page."""
    lines: list[str] = []
    for block in page:
        lines += [""] * (block.line - len(lines))
        if block.file is not None:
            lines.append(f"import pathlib; pathlib.Path({block.file!r}).write_text({block.code!r}, 'utf-8')")
        elif block.runs and block.language == "sh":
            lines.append(f"import page_commands; page_commands.sh({block.code!r})")
        elif block.runs:
            lines += block.code.splitlines()
        if block.runs:
            lines.append("print('\\x1e')")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits: a small model, one epoch. Pages say `uses runs/ms`."""
    from cutlayer.config.recipes import recipe
    from cutlayer.config.schema import from_mapping
    from cutlayer.training.train import train

    settings: dict[str, Any] = recipe("demo/digits-ms")
    settings["train"] |= {"epochs": 1, "clients": 2}
    settings["data"]["limit"] = 200
    settings["output"] = {"dir": str(tmp_path_factory.mktemp("shared") / "ms"), "tensorboard": False}
    return Path(train(from_mapping(settings)).directory)


@pytest.fixture(scope="module")
def page_server() -> Iterator[subprocess.Popen[str]]:
    """Forks a process for each page. With two threads, on a busy machine, one page took 40 s instead of 9."""
    places = [str(Path(place).resolve()) for place in sys.path if place]
    with subprocess.Popen(
        [sys.executable, "-X", "utf8", str(Path(__file__).with_name("page_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield server


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.runs for block in found(page))], ids=name
)
def test_code_of_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest, page_server: subprocess.Popen[str]
) -> None:
    run_of_page = found(page)
    if any(block.has(USES_RUN) for block in run_of_page):
        shutil.copytree(request.getfixturevalue("short_run"), tmp_path / "runs" / "ms")
    script = tmp_path / page.with_suffix(".py").name.replace("-", "_")
    # All but the port, which may be taken on this machine.
    script.write_text(program(run_of_page).replace(PORT, str(free_port())), "utf-8")
    output = tmp_path / "output.txt"
    assert page_server.stdin is not None
    assert page_server.stdout is not None
    request_line = {"script": str(script), "cwd": str(tmp_path), "output": str(output)}
    page_server.stdin.write(json.dumps(request_line) + "\n")
    page_server.stdin.flush()
    failed = page_server.stdout.readline() != "0\n"
    said, errors = output.read_text("utf-8"), Path(f"{output}.errors").read_text("utf-8")
    assert not failed, f"{name(page)} (line numbers are the page's):\n{errors}\n{said}"
    outputs = said.split(SEPARATOR)[:-1]
    for block, output in zip([block for block in run_of_page if block.runs], outputs, strict=True):
        if block.output is not None and not block.has(VARIES):
            assert output == block.output, f"{name(page)}, the block at line {block.line + 1}"


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / top for top in TOP), *pages()], ids=name)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    text = page.read_text("utf-8")
    assert not indented(text), (
        f"{name(page)}: indented blocks at lines {indented(text)}; use ``` and a language"
    )
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(found(page)), (
        f"{name(page)}: a fence is not seen"
    )
    for block in found(page):
        at = f"{name(page)}, the block at line {block.line + 1}"
        assert all(note.startswith(KNOWN) for note in block.notes), f"{at}: {block.notes} is not understood"
        if block.reason is not None:
            assert len(block.reason.split()) > 2, f"{at}: `not run` needs its reason: <!-- not run: WHY -->"
            for place in re.findall(r"(?:tests|docs)/[\w/.-]*\w", block.reason):
                assert (ROOT / place).exists(), f"{at}: the reason names {place}, which is not there"
        elif block.language not in ("text", "", *RUN):
            assert block.has(FILE), f"{at}: {block.language} is not run; say so: <!-- not run: WHY -->"


def commands(text: str) -> list[list[str]]:
    """The commands of `cutlayer` in a script, in words. COMMAND stands for any of them."""
    lines = text.replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(env/bin/)?cutlayer ", line)]
    return [line[1:] for line in split if "COMMAND" not in line]


@cache
def program_commands() -> Any:
    return typer.main.get_command(app)


def refuse(command: list[str]) -> str | None:
    """What is wrong with the flags of a command; nothing is run."""
    group = program_commands()
    # What stands behind these is the shell's.
    ends = [command.index(word) for word in ("&", ";", ">", "|", "done") if word in command]
    words = command[: min(ends, default=len(command))]
    context = None
    try:
        while True:
            context = group.make_context(group.name, list(words), parent=context)
            if not hasattr(group, "commands"):
                return None
            _, group, words = group.resolve_command(context, [*context._protected_args, *context.args])
    except Exception as error:
        return f"cutlayer {shlex.join(command)}: {getattr(error, 'message', error)!r}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_have_only_flags_that_exist(page: Path) -> None:
    scripts = [block.code for block in found(page) if block.language == "sh"]
    wrong = [refuse(command) for script in scripts for command in commands(script)]
    assert not [said for said in wrong if said], f"{name(page)}: {wrong}"


def test_examples_of_the_help_have_only_flags_that_exist() -> None:
    scripts = [block.code for block in blocks(command_reference.page())]
    assert len(scripts) > 15
    wrong = [refuse(command) for script in scripts for command in commands(script)]
    assert not [said for said in wrong if said], wrong


def test_a_wrong_flag_is_found() -> None:
    assert refuse(["train", "--codec", "ms"]) is None
    assert "--kodec" in str(refuse(["train", "--kodec", "ms"]))
    assert "traim" in str(refuse(["traim"]))


def test_a_block_without_reason_is_found() -> None:
    (bare,) = blocks("<!-- not run -->\n```python\nx\n```\n")
    assert bare.reason == ""
    assert indented("A line.\n\n    code\n\n- item\n\n    of the list\n") == [3]
