"""`cutlayer train`: a run with all clients in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import Flag, RunOutput, Threads
from cutlayer.commands.runs.model_check import threads_for_training
from cutlayer.commands.runs.partition import partition_table
from cutlayer.commands.runs.settings import RunSettings
from cutlayer.commands.runs.show_result import show_result
from cutlayer.commands.trackers import tracked
from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config.schema import Config


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train")(train)


@with_groups
def train(
    settings: RunSettings,
    *,
    data: Annotated[str | None, Flag(help="digits, cifar10, a path, ... or package.module:dataset")] = None,
    root: Annotated[str | None, Flag(help="the folder of data sets that are given by name")] = None,
    track_bias: Annotated[
        str | None, Flag(help="measure the gradient bias each N steps", metavar="every=N")
    ] = None,
    link: Annotated[
        str | None,
        Flag(help="simulate the time on a link, as 100mbit,10ms; several, with ; between, in turn"),
    ] = None,
    output: RunOutput,
    threads: Threads = None,
) -> None:
    """Train a split model, with all clients in this process.

    Settings come from a recipe or a TOML file, then from flags, then from
    --set. The run's directory gets the resolved settings, records, TensorBoard
    events, checkpoints and provenance.

    \b
    Examples:
      # Digits, ten clients, in seconds
      cutlayer train
      cutlayer train --recipe demo/digits-ms --link 100mbit,10ms
      cutlayer train my.toml --clients 4 --codec qu:bits=4 --set train.sync=20
      cutlayer train --recipe laptop/resnet18-cifar10-medium-ms --root ~/data
      # Labels never leave the clients
      cutlayer train --mode u-shaped --cut layer1,fc
      # What does compression do to the gradients?
      cutlayer train --codec ms --track-bias every=10
      # The rate follows each client's link
      cutlayer train --codec ms --rate auto --link "20mbit,10ms; 1mbit,30ms"
      # 0.5 bits an element in the first four fifths of the steps, then 2.4
      cutlayer train --codec ems:bpe=2.4 --rate until:80%=0.5
      # After a crash, or Ctrl-C
      cutlayer train --resume --out runs/ms
    """
    display = output.display
    more = {
        "data.source": data,
        "data.root": root,
        "train.track_bias": None if track_bias is None else _every(track_bias),
        "link.spec": link,
    }
    config = settings.resolve(output.out, output.resume, more)
    from cutlayer.config.resolve import refuse_existing_run
    from cutlayer.protocol.build import prepare_data
    from cutlayer.training import progress
    from cutlayer.training.train import train as train_run

    refuse_existing_run(config.output.dir, output.resume)
    loaded = prepare_data(config)
    threads_for_training(threads, config, loaded.train.shape)
    if display == "auto":
        show.console().print(partition_table(loaded.parts, loaded.train, config.data.partition))
        show.say(f"{_about(config)}\nrun: {config.output.dir}\n")
    try:
        with tracked(output.tracker, config) as listeners:
            result = train_run(
                config,
                progress=progress.display(display),
                resume=output.resume,
                data=loaded,
                listeners=listeners,
            )
    except KeyboardInterrupt:
        again = f"cutlayer train --resume --out {config.output.dir}"
        show.say(f"stopped; to continue: {again}", stderr=True)
        raise typer.Exit(130) from None
    show_result(result.directory, display)
    if display == "auto":
        show.say(f"The run is in {result.directory}. Next, for example:")
        for command in ("eval", "predict", "export") if loaded.train.form.classed else ("eval", "export"):
            show.say(f"  cutlayer {command} {result.directory}")


def _about(config: Config) -> str:
    cut = config.model.cut if isinstance(config.model.cut, str) else " and ".join(config.model.cut)
    return (
        f"{config.model.name} (width {config.model.width}) cut at {cut}, mode {config.train.mode}, "
        f"codec up {config.codec.up}, down {config.codec.down}, seed {config.seed}"
    )


def _every(text: str) -> int:
    """The number in every=N."""
    word, _, number = text.partition("=")
    if word.strip() != "every" or not number.strip().isdecimal():
        raise ConfigError(f"--track-bias {text}: expected every=N with a whole number of steps, as every=10")
    return int(number)
