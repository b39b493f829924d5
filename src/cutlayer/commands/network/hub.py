"""`cutlayer push` and `cutlayer pull`: runs as model repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AllowModel, AllowTask, Flag, RunArgument
from cutlayer.imports import need

Repository = Annotated[
    str, typer.Argument(help="a folder, as ./my-model, or user/name on the hub", metavar="REPOSITORY")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("push")(push)
    app.command("pull")(pull)


def push(
    run: RunArgument,
    repository: Repository,
    private: Annotated[bool, Flag("--private", help="a new repository is private")] = False,
) -> None:
    """Publish a run as a model repository, with a model card.

    The repository has the model, its halves, settings, records and the last
    checkpoint, but no data. A name like user/name that is no folder here is
    one on the Hugging Face hub.

    \b
    Examples:
      cutlayer push runs/ms ./my-model
      cutlayer push runs/ms me/digits-split --private
    """
    need("pydantic", "reading a run")
    from cutlayer.integrations import hub

    show.say(f"{run}: published as {hub.push(run, repository, private=private)}")


def pull(
    repository: Repository,
    run: Annotated[Path, typer.Argument(help="the folder of the run to make", metavar="RUN")],
    allow_model: AllowModel = None,
    allow_task: AllowTask = None,
    allow_data: Annotated[
        list[str] | None,
        Flag("--allow-data", help="let its data come from this function", metavar="PACKAGE.MODULE:FUNCTION"),
    ] = None,
) -> None:
    """Make a run of a model repository, to evaluate, serve or resume it.

    Nothing of the repository is run as code. A run that names code of its own
    is refused unless you allow that. The checkpoint's checksum is verified.

    \b
    Examples:
      cutlayer pull ./my-model runs/theirs
      cutlayer pull me/digits-split runs/theirs
    """
    need("pydantic", "reading a run")
    from cutlayer.integrations import hub

    allowed = hub.Allowed(tuple(allow_model or ()), tuple(allow_task or ()), tuple(allow_data or ()))
    show.say(f"{hub.pull(repository, run, allowed)}: next, for example: cutlayer eval {run}")
