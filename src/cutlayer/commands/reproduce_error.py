"""`cutlayer reproduce error`: Fig. 2."""

import typer

from cutlayer.commands import reproduce_options as options
from cutlayer.run.reproduce.scales import Scale


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("error")(error)


def error(
    scale: options.ScaleOption = Scale.SMOKE,
    root: options.Root = options.DEFAULT_ROOT,
    out: options.Out = options.DEFAULT_OUT,
    jobs: options.Jobs = 1,
    threads: options.Threads = 1,
    seed: options.Seed = 0,
    codec: options.CodecOption = None,
    as_json: options.Json = False,
) -> None:
    """Fig. 2: compression errors of QU, SP, MS and RT at equal rates, on feature maps of trained models.

    Models are trained first, once, and kept under OUT/models. Finished cells are never repeated.

    \b
    Examples:
      cutlayer reproduce error                                  seconds, on scikit-learn's digits
      cutlayer reproduce error --scale laptop --root ~/data     CIFAR-10, Tiny-ImageNet-50, ImageNet samples
      cutlayer reproduce error --codec km:bits=3                one more row
    """
    from cutlayer.run.reproduce import error as experiment

    options.perform(
        experiment,
        scale=scale,
        root=root,
        out=out,
        jobs=jobs,
        threads=threads,
        seed=seed,
        codec=codec,
        as_json=as_json,
    )
