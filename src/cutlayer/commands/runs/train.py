"""`cutlayer train`: settings from a file, a recipe and flags; then the run, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer

from cutlayer.commands import show
from cutlayer.commands.runs.compare import traffic_table
from cutlayer.commands.runs.partition import partition_table
from cutlayer.errors import ConfigError
from cutlayer.imports import need
from cutlayer.training.progress import Mode

if TYPE_CHECKING:
    from cutlayer.config.schema import Config

Flag = typer.Option


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)


def train(
    config: Annotated[
        Path | None, typer.Argument(help="a configuration file in TOML", metavar="CONFIG")
    ] = None,
    recipe: Annotated[str | None, Flag(help="a named recipe; `cutlayer recipes` lists them")] = None,
    model: Annotated[
        str | None, Flag(help="vgg19, resnet18, resnet34, tiny or package.module:factory")
    ] = None,
    cut: Annotated[str | None, Flag(help="shallow, medium, deep or a module; two (a,b) for u-shaped")] = None,
    data: Annotated[str | None, Flag(help="digits, cifar10, a path, ... or package.module:dataset")] = None,
    root: Annotated[str | None, Flag(help="where data sets lie that are given by name")] = None,
    clients: Annotated[int | None, Flag(help="how many clients share the data")] = None,
    epochs: Annotated[int | None, Flag(help="how often each client sees its samples")] = None,
    batch: Annotated[int | None, Flag(help="batch size of each client")] = None,
    lr: Annotated[float | None, Flag(help="learning rate")] = None,
    codec: Annotated[str | None, Flag(help="codec for smashed data, as ms:ratio=0.99,bits=2")] = None,
    down: Annotated[str | None, Flag(help="codec for gradients on the way down")] = None,
    sync_codec: Annotated[str | None, Flag(help="codec for what clients average")] = None,
    rate: Annotated[
        str | None,
        Flag(help="bits an element that change: auto follows the link, until:80%=0.5 begins with few"),
    ] = None,
    mode: Annotated[str | None, Flag(help="parallel, sequential, relay or u-shaped")] = None,
    track_bias: Annotated[
        str | None, Flag(help="also record gradient bias each N steps, as every=10", metavar="every=N")
    ] = None,
    link: Annotated[
        str | None, Flag(help="also tell the time at a link, as 100mbit,10ms; several with ; between")
    ] = None,
    seed: Annotated[int | None, Flag(help="decides weights, order, partition and random codecs")] = None,
    out: Annotated[Path | None, Flag(help="the run's directory; made up if not given")] = None,
    overrides: Annotated[
        list[str] | None, Flag("--set", help="any other setting, as train.momentum=0.8", metavar="A.B=C")
    ] = None,
    threads: Annotated[
        int | None, Flag(help="threads of PyTorch; small models are fastest with 1", min=1)
    ] = None,
    resume: Annotated[bool, Flag("--resume", help="continue the run in --out exactly where it was")] = False,
    quiet: Annotated[bool, Flag("--quiet", help="show warnings and errors only")] = False,
    as_json: Annotated[bool, Flag("--json", help="print the records and the result as JSON lines")] = False,
) -> None:
    """Train a split model with N clients in this process.

    Settings come from a recipe or a TOML file, then from flags, then from --set. The run's directory
    gets the resolved settings, records, TensorBoard events, checkpoints and where it all came from.

    \b
    Examples:
      cutlayer train                                          digits, ten clients, in seconds
      cutlayer train --recipe demo/digits-ms --link 100mbit,10ms
      cutlayer train --recipe laptop/resnet18-cifar10-medium-ms --root ~/data --out runs/ms
      cutlayer train my.toml --clients 4 --codec qu:bits=4 --set train.momentum=0.8
      cutlayer train --mode u-shaped --cut layer1,fc          labels never leave the clients
      cutlayer train --codec ms --track-bias every=10         what compression does to gradients
      cutlayer train --codec ms --rate auto --link "20mbit,10ms; 1mbit,30ms"   rates follow the links
      cutlayer train --codec ems:bpe=2.4 --rate until:80%=0.5  few bits first, many in the last fifth
      cutlayer train --resume --out runs/ms                   after a crash, or Ctrl-C
    """
    if quiet and as_json:
        raise ConfigError("--quiet and --json exclude each other; give one of them")
    need("pydantic", "training")
    from cutlayer.config.resolve import resolve_config

    if threads is not None:
        torch.set_num_threads(threads)

    flags: dict[str, Any] = {
        "model.name": model,
        "model.cut": tuple(cut.split(",")) if cut and "," in cut else cut,
        "data.source": data,
        "data.root": root,
        "train.clients": clients,
        "train.epochs": epochs,
        "train.batch_size": batch,
        "train.lr": lr,
        "codec.up": codec,
        "codec.down": down,
        "codec.sync": sync_codec,
        "codec.rate": rate,
        "train.mode": mode,
        "train.track_bias": None if track_bias is None else _every(track_bias),
        "link.spec": link,
        "seed": seed,
        "output.dir": None if out is None else str(out),
    }
    given = {key: value for key, value in flags.items() if value is not None}
    settled = resolve_config(config, recipe, given, overrides or [], resume)
    run(settled, resume, "quiet" if quiet else "json" if as_json else "auto")


def _every(text: str) -> int:
    """The number in every=N."""
    word, _, number = text.partition("=")
    if word.strip() != "every" or not number.strip().isdecimal():
        raise ConfigError(f"--track-bias {text}: expected every=N with a whole number of steps, as every=10")
    return int(number)


def run(settled: Config, resume: bool, mode: Mode) -> None:
    """Train as settled, telling in the given mode what happens."""
    from cutlayer.config.resolve import refuse_existing_run
    from cutlayer.protocol.build import prepare_data
    from cutlayer.report.run_summary import summarize
    from cutlayer.training import progress
    from cutlayer.training.train import train as train_run

    refuse_existing_run(settled.output.dir, resume)
    for_people = mode == "auto"
    screen = show.console()
    data = prepare_data(settled)
    if for_people:
        screen.print(partition_table(data.parts, data.train, settled.data.partition))
        cut = settled.model.cut if isinstance(settled.model.cut, str) else " and ".join(settled.model.cut)
        screen.print(
            f"{settled.model.name} (width {settled.model.width}) cut at {cut}, mode {settled.train.mode}, "
            f"codec up {settled.codec.up}, down {settled.codec.down}, seed {settled.seed}"
        )
        screen.print(f"run: {settled.output.dir}\n", soft_wrap=True)
    try:
        result = train_run(settled, progress=progress.display(mode), resume=resume, data=data)
    except KeyboardInterrupt:
        again = f"cutlayer train --resume --out {settled.output.dir}"
        show.console(stderr=True).print(f"stopped; to continue: {again}", soft_wrap=True)
        raise typer.Exit(130) from None
    summary = summarize(result.directory)
    if mode == "json":
        show.print_line({"kind": "result", "directory": str(result.directory), **summary.to_json()})
    if for_people:
        screen.print(traffic_table(summary))
        screen.print(f"The run is in {result.directory}. Next, for example:", soft_wrap=True)
        for command in ("eval", "predict", "export"):
            screen.print(f"  cutlayer {command} {result.directory}", soft_wrap=True)
