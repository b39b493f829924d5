"""Options that several commands share, each defined once.

Single options are types for parameters. Options that belong together are dataclasses for `with_groups`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from cutlayer.errors import ConfigError

Flag = typer.Option

RunArgument = Annotated[Path, typer.Argument(help="the directory of a run", metavar="RUN")]
Checkpoint = Annotated[str, Flag("--checkpoint", help="last, best, or the number of a step")]
DataRoot = Annotated[Path, Flag("--root", help="the folder of data sets that are given by name")]
AllowModel = Annotated[
    list[str] | None,
    Flag(
        "--allow-model",
        help="import this model if the server or file names it; may be given several times",
        metavar="PACKAGE.MODULE:FACTORY",
    ),
]
AllowTask = Annotated[
    list[str] | None,
    Flag(
        "--allow-task",
        help="import this task if the server names it; may be given several times",
        metavar="PACKAGE.MODULE:TASK",
    ),
]
Overwrite = Annotated[bool, Flag("--force", help="replace files that exist")]
AsJson = Annotated[bool, Flag("--json", help="print JSON instead of a table")]
Quiet = Annotated[bool, Flag("--quiet", help="show warnings and errors only")]
Threads = Annotated[
    int | None,
    Flag("--threads", help="threads of PyTorch; by default 1 for small models, else one a core", min=1),
]


@dataclass(frozen=True)
class RunOutput:
    """Where a run goes, and what the terminal shows of it."""

    out: Annotated[Path | None, Flag("--out", help="the run's directory; by default a new one in runs/")] = (
        None
    )
    resume: Annotated[bool, Flag("--resume", help="continue the run in --out from its last checkpoint")] = (
        False
    )
    quiet: Quiet = False
    as_json: Annotated[bool, Flag("--json", help="print the records and the result as JSON lines")] = False
    tracker: Annotated[
        list[str] | None,
        Flag(
            "--tracker", help="log to an experiment tracker: trackio, wandb; may be repeated", metavar="NAME"
        ),
    ] = None

    @property
    def display(self) -> Literal["auto", "quiet", "json"]:
        """The name of the progress display."""
        if self.quiet and self.as_json:
            raise ConfigError("--quiet and --json exclude each other; give one of them")
        return "quiet" if self.quiet else "json" if self.as_json else "auto"
