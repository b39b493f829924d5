"""`cutlayer reproduce convergence` and `traffic`: the same grid of runs, and two views of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.options import Flag
from cutlayer.commands.reproduce.options import (
    DEFAULT_OUT,
    DEFAULT_ROOT,
    CodecOption,
    Jobs,
    Json,
    Out,
    Root,
    Threads,
    show_result,
)
from cutlayer.errors import ConfigError
from cutlayer.imports import need
from cutlayer.reproduce.scales import GridScale

if TYPE_CHECKING:
    from cutlayer.reproduce.policies import Policy

ScaleOption = Annotated[
    GridScale,
    Flag(
        "--scale",
        help="smoke: seconds; laptop: real images, minutes a run; proxy: two minutes a run, for many seeds; "
        "testbed: trained to the end, half an hour a run; paper: for a GPU",
        metavar="SCALE",
    ),
]
Cuts = Annotated[str, Flag("--cuts", help="which cuts, as shallow,deep", metavar="A,B")]
Policies = Annotated[
    str,
    Flag(
        "--policies",
        help="none, qu, sp, ms, ms-nearest, rt, ems, ems-rising, ems-all, none-longer, ems-1-longer, "
        "ems-longer, ems-all-longer or an installed codec; at scales proxy and testbed none, ems-100x, "
        "all-30x, ems, ms-nearest, qu, sp; by default all of them. Only if named: ems-0.1, ems-0.2, ems-0.5, "
        "ems-2.0; ems-100x-committed, all-30x-committed, ...; splitfc, fedlite, slacc, c3sl, uq, sp-coded, "
        "aqsgd, splitcom, ...; sync-20, down-1, ... (see the page on convergence)",
        metavar="A,B",
    ),
]
Seeds = Annotated[str, Flag("--seeds", help="which seeds, as 0,1", metavar="A,B")]
Tasks = Annotated[
    str,
    Flag(
        "--tasks",
        help="which models and data, as vgg19-cifar10; at scales proxy and testbed airbench-cifar10, the "
        "default, airbench-cifar10-dirichlet and airbench-tiny-imagenet-50",
        metavar="A,B",
    ),
]


CONVERGENCE = """Fig. 3: loss and accuracy of each policy at each cut.

Each cut, policy and seed is a training run of its own, with ten clients, in
OUT/convergence/runs. A run that was stopped or killed goes on where it was,
and a finished one is not repeated. The result covers all runs in OUT, so a
second command can add seeds, cuts or codecs.

\b
Examples:
  # Digits, in seconds
  cutlayer reproduce convergence
  cutlayer reproduce convergence --scale laptop --root ~/data --jobs 2
  cutlayer reproduce convergence --policies none,ms --seeds 1
  cutlayer reproduce convergence --policies none --codec ms:ratio=0.99,bits=3
"""

TRAFFIC = """Table 1: the bytes that each policy needs for the baseline's accuracy.

Reads the runs of `cutlayer reproduce convergence` in OUT and trains those
that are missing. Counts smashed data, as the paper does, and beside it all
traffic. INF means that the baseline's accuracy is never reached.

\b
Examples:
  # Digits, in seconds
  cutlayer reproduce traffic
  cutlayer reproduce traffic --scale laptop --root ~/data --jobs 2
"""


def register(group: typer.Typer) -> None:
    """Add both commands."""
    _add(group, "convergence", CONVERGENCE)
    _add(group, "traffic", TRAFFIC)


def _add(group: typer.Typer, name: str, help: str) -> None:
    def command(
        scale: ScaleOption = GridScale.SMOKE,
        root: Root = DEFAULT_ROOT,
        out: Out = DEFAULT_OUT,
        cuts: Cuts = "shallow,medium,deep",
        policies: Policies = "",
        codec: CodecOption = None,
        seeds: Seeds = "0",
        tasks: Tasks = "",
        jobs: Jobs = 1,
        threads: Threads = 1,
        as_json: Json = False,
    ) -> None:
        need("pydantic", "training")
        from cutlayer.reproduce.convergence.cross_evaluation import evaluate_all
        from cutlayer.reproduce.convergence.grid import grid
        from cutlayer.reproduce.convergence.grid_result import conclude
        from cutlayer.reproduce.convergence.process_pool import train_all
        from cutlayer.training.progress_bar import progress_bar

        runs = grid(
            scale,
            out,
            _chosen(scale, policies, codec or []),
            root=str(root),
            cuts=_words(cuts),
            seeds=_numbers(seeds),
            tasks=_words(tasks),
        )
        try:
            train_all(runs, jobs=jobs, threads=threads, quiet=as_json)
            evaluate_all(out, root=str(root), bar=progress_bar(quiet=as_json), threads=threads)
        except KeyboardInterrupt:
            told = "stopped; every run is saved, and the same command goes on from there"
            show.say(told, stderr=True)
            raise typer.Exit(130) from None
        result = conclude(name, scale, out)
        if as_json:
            show.print_json(result.to_json())
        else:
            show_result(result, out)

    group.command(name, help=help)(command)


def _chosen(scale: GridScale, policies: str, specs: list[str]) -> list[Policy]:
    """The rows of the grid: those that were asked for, and codecs by their specs."""
    from cutlayer.reproduce.convergence.grid import choose
    from cutlayer.reproduce.further_policies import FURTHER
    from cutlayer.reproduce.policies import added, long_run_policies, training_policies

    known = long_run_policies if scale in (GridScale.PROXY, GridScale.TESTBED) else training_policies
    chosen = choose([*known(specs), *(FURTHER if policies else ())], _words(policies))
    if policies and specs:
        chosen += [row for row in added(specs) if row not in chosen]
    return chosen


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        seeds = [int(word) for word in _words(text)]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise ConfigError(f"--seeds {text!r}: expected whole numbers from 0, as in --seeds 0,1")
    return seeds
