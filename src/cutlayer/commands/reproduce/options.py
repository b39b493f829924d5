"""The options that all experiments of `cutlayer reproduce` share, and how a result is shown."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cutlayer.commands import show
from cutlayer.commands.options import Flag
from cutlayer.imports import need
from cutlayer.reproduce.scales import Scale

if TYPE_CHECKING:
    from cutlayer.reproduce.experiment import Experiment
    from cutlayer.reproduce.results import Result, Table

ScaleOption = Annotated[Scale, Flag("--scale", help="smoke: seconds; laptop: real images; paper: for a GPU")]
Root = Annotated[Path, Flag("--root", help="the folder of the image sets; smoke needs none")]
Out = Annotated[Path, Flag("--out", help="the folder for results and trained models")]
Jobs = Annotated[int, Flag("--jobs", min=1, help="processes that compute at the same time")]
Threads = Annotated[int, Flag("--threads", min=1, help="threads of PyTorch in each process")]
Seed = Annotated[int, Flag("--seed", min=0, help="seed of weights, batches and random codecs")]
CodecOption = Annotated[
    list[str] | None,
    Flag(
        "--codec",
        help="one more codec, as ms:bits=3; may be repeated. Installed ones are included",
        metavar="SPEC",
    ),
]
Json = Annotated[bool, Flag("--json", help="print the result as JSON")]

_SCREENFUL, _WIDTH = 80, 14
DEFAULT_ROOT = Path()
DEFAULT_OUT = Path("experiments/results")


def add(app: typer.Typer, name: str, module: str, help: str) -> None:
    """Add the command of an experiment, whose module is imported when the command runs."""

    def command(
        scale: ScaleOption = Scale.SMOKE,
        root: Root = DEFAULT_ROOT,
        out: Out = DEFAULT_OUT,
        jobs: Jobs = 1,
        threads: Threads = 1,
        seed: Seed = 0,
        codec: CodecOption = None,
        as_json: Json = False,
    ) -> None:
        need("pydantic", "training")
        perform(
            cast("Experiment", import_module(module)),
            scale=scale,
            root=root,
            out=out,
            jobs=jobs,
            threads=threads,
            seed=seed,
            codec=codec,
            as_json=as_json,
        )

    app.command(name, help=help)(command)


def perform(
    experiment: Experiment,
    *,
    scale: Scale,
    root: Path,
    out: Path,
    jobs: int,
    threads: int,
    seed: int,
    codec: Sequence[str] | None,
    as_json: bool,
) -> None:
    """Run an experiment for a person or a program, and show what it found."""
    from cutlayer.codecs import codec as parse
    from cutlayer.reproduce.experiment import Request, run
    from cutlayer.training.progress_bar import progress_bar

    specs = tuple(str(parse(spec)) for spec in codec or ())
    request = Request(scale, root, out, jobs, threads, seed, specs)
    try:
        result = run(experiment, request, progress_bar(quiet=as_json))
    except KeyboardInterrupt:
        told = "stopped; finished cells are kept, and the same command goes on from them"
        show.say(told, stderr=True)
        raise typer.Exit(130) from None
    if as_json:
        show.print_json(result.to_json())
    else:
        show_result(result, out)


def show_result(result: Result, out: Path) -> None:
    """Print tables and claims, and where all of it is."""
    from cutlayer.reproduce.results import VERDICTS

    screen = show.console()
    show.say(f"{result.title} (scale {result.scale})\n", style="bold")
    for table in result.tables:
        if len(table.rows) <= _SCREENFUL and len(table.columns) <= _WIDTH:
            screen.print(_rich(table))
        else:
            show.say(f"{table.title}: {len(table.rows)} rows, in {out / result.name / table.id}.csv\n")
    for claim in result.claims:
        show.say(f"{claim.claim}: {VERDICTS[claim.holds]}. {claim.evidence}")
    show.say(f"\nThe result is in {out / result.name}.")


def _rich(table: Table) -> Any:
    words = 0
    for column in zip(*table.rows, strict=True):
        if not all(isinstance(value, str) for value in column):
            break
        words += 1
    rows = [[_text(value) for value in row] for row in table.rows]
    return show.table(table.title, table.columns, rows, text=max(1, words))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
