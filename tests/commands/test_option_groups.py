from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from cutlayer.commands.option_groups import with_groups


@dataclass(frozen=True)
class Size:
    name: Annotated[str, typer.Argument()]
    width: Annotated[int, typer.Option("--wide", help="how wide")] = 3


def test_the_fields_of_a_group_are_options_of_the_command() -> None:
    seen = []

    @with_groups
    def command(size: Size, *, seed: Annotated[int, typer.Option()] = 1) -> None:
        """Say it."""
        seen.append((size, seed))

    app = typer.Typer()
    app.command()(command)
    assert CliRunner().invoke(app, ["box", "--wide", "5", "--seed", "2"]).exit_code == 0
    assert CliRunner().invoke(app, ["box"]).exit_code == 0
    assert seen == [(Size("box", 5), 2), (Size("box", 3), 1)]
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "how wide" in shown
    assert "Say it." in shown
    assert CliRunner().invoke(app, []).exit_code == 2


def test_two_options_of_one_name_are_a_mistake_of_ours() -> None:
    def command(size: Size, width: int = 2) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        with_groups(command)
