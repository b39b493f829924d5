"""`cutlayer advise`: the cut and the codec with the shortest step, and the table behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson, Flag, Threads
from cutlayer.commands.runs.cuts import InputShape, ModelClasses, ModelWidth, meta, sample_shape
from cutlayer.commands.runs.model_check import build_for, example
from cutlayer.commands.threads import use_threads
from cutlayer.errors import ConfigError, FileError
from cutlayer.imports import need

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cutlayer.split import CutPoint
    from cutlayer.tools.advise import Choice, Setting
    from cutlayer.wire.link.model import Link

# From many bits to few; `ems` joins where it is installed.
CODECS = (
    *("dense", "dense:dtype=float16", "qu:bits=8", "qu:bits=4", "qu:bits=3"),
    *("ms:ratio=0.99,bits=3,rounding=nearest", "ms:ratio=0.99,bits=2,rounding=nearest"),
    "ms:ratio=0.99,bits=1,rounding=nearest",
)
_EMS = ("ems:bpe=2", "ems:bpe=1.5", "ems:bpe=1", "ems:bpe=0.75", "ems:bpe=0.5", "ems:bpe=0.25")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("advise")(advise_command)


@dataclass(frozen=True)
class _Subject:
    """A model, a batch to run it on, and where both came from."""

    name: str
    model: nn.Module
    inputs: Tensor
    classes: int
    told: str


def advise_command(
    model: Annotated[
        str,
        typer.Argument(help="a run's directory, a built-in model or package.module:factory", metavar="MODEL"),
    ],
    link: Annotated[str, Flag(help="the clients' link, as 20mbit,30ms", metavar="LINK")],
    device_speed: Annotated[
        str, Flag(help="a client's speed: 0.1 of this machine's, or 5gmadds a second")
    ] = "1",
    server_speed: Annotated[str, Flag(help="the server's speed, in the same units")] = "1",
    error: Annotated[float, Flag(help="the largest relative squared error of the smashed data")] = 0.1,
    codec: Annotated[
        list[str] | None, Flag(help="a codec to consider; may be repeated", metavar="SPEC")
    ] = None,
    down: Annotated[str | None, Flag(help="codec of the gradients sent to clients")] = None,
    sync_codec: Annotated[str | None, Flag(help="codec of the weights or gradients to average")] = None,
    sync_every: Annotated[int, Flag(help="steps between averages; 0 for one client", min=0)] = 1,
    batch: Annotated[int, Flag(help="batch size of each client", min=1)] = 32,
    features: Annotated[
        Path | None, Flag(help="feature maps in a .safetensors file, each named after its cut")
    ] = None,
    shape: InputShape = None,
    width: ModelWidth = 64,
    classes: ModelClasses = 10,
    root: Annotated[str | None, Flag(help="the folder of a run's data, if they have moved")] = None,
    rows: Annotated[int, Flag(help="rows of the table to show; 0 for all", min=0)] = 12,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Find the cut and codec with the shortest training step on a link.

    Work is counted in multiply-adds, bytes are those of real frames, and
    errors are measured on feature maps: those of a trained run, those in
    --features, or else those of an untrained model on random input.

    \b
    Examples:
      cutlayer advise runs/ms --link 20mbit,30ms --device-speed 0.1
      cutlayer advise resnet18 --width 16 --link 20mbit,30ms \\
          --device-speed 2gmadds --server-speed 1000gmadds --error 0.2
      cutlayer advise vgg19 --link 5mbit,50ms --codec qu:bits=4 --codec ms
    """
    if not 0 <= error < float("inf"):
        raise ConfigError(f"--error {error}: expected a relative squared error of 0 or more, as 0.1")
    import torch

    from cutlayer.codecs import codec as parse_codec
    from cutlayer.split import cut_points
    from cutlayer.tools.advise import Setting, advise, candidates, measure_speed, relative, speed
    from cutlayer.wire.link.model import Link

    chosen = Link.parse(link)
    codecs = [parse_codec(spec) for spec in codec or _default_codecs()]
    subject = (
        _of_run(model, batch, root) if Path(model).is_dir() else _of_name(model, shape, width, classes, batch)
    )
    example = torch.zeros(1, *subject.inputs.shape[1:], device="meta")
    points = candidates(cut_points(meta(subject.model), example))
    if points:
        use_threads(threads, (points[0].client_madds + points[0].server_madds) * batch)
    maps, told = _maps(subject, points, features)
    points = [point for point in points if point.name in maps]
    here = None
    if relative(device_speed) or relative(server_speed):
        here = measure_speed(subject.model, subject.inputs, points[0].client_madds + points[0].server_madds)
    setting = Setting(
        chosen,
        speed(device_speed, here),
        speed(server_speed, here),
        batch,
        subject.classes,
        None if down is None else parse_codec(down),
        None if sync_codec is None else parse_codec(sync_codec),
        sync_every,
    )
    choices = advise(points, maps, codecs, setting, error)
    assumptions = _assumptions(setting, told, here)
    if as_json:
        best = choices[0].to_json() if choices[0].fits else None
        found = [choice.to_json() for choice in choices]
        show.print_json({"advice": best, "error": error, "assumptions": assumptions, "choices": found})
    else:
        _show(subject.name, choices, points, error, chosen, rows)
        show.say("Assumed: " + "; ".join(assumptions) + ".")
    if not choices[0].fits:
        least = min(choices, key=lambda choice: choice.error)
        raise ConfigError(
            f"no codec keeps the error within {error:g}; the least is {least.error:.3g}, of {least.codec} at "
            f"{least.cut}. Allow more with --error, or give a finer codec with --codec"
        )


def _default_codecs() -> tuple[str, ...]:
    from cutlayer.codecs import names as codec_names

    return (*CODECS, *(_EMS if "ems" in codec_names() else ()))


def _of_name(model: str, shape: str | None, width: int, classes: int, batch: int) -> _Subject:

    sample = sample_shape(model, shape)
    built = build_for(model, sample, width, classes)
    inputs = example(model, sample, batch)
    told = (
        "errors on feature maps of an untrained model on random input; those of a trained model on real data "
        "compress otherwise: give a run"
    )
    return _Subject(f"{model}, width {width}", built, inputs, classes, told)


def _of_run(directory: str, batch: int, root: str | None) -> _Subject:
    import torch

    need("pydantic", "reading a run")
    from cutlayer.config.schema import from_mapping
    from cutlayer.protocol.build import prepare_data
    from cutlayer.training.load_run import open_run

    run = open_run(directory)
    settings = run.config.model_dump()
    if root is not None:
        settings["data"]["root"] = root
    test = prepare_data(from_mapping(settings, directory)).test
    inputs = run.data_spec.preprocess().test(test.batch(torch.arange(min(batch, len(test))))[0])
    if not isinstance(inputs, torch.Tensor):
        raise ConfigError("advise needs a model with one input; this run's samples have several")
    name = f"run {Path(directory).name}"
    told = f"errors on feature maps of the {name} at step {run.step}, on {len(inputs)} test samples"
    return _Subject(name, run.model, inputs, run.data_spec.classes, told)


def _maps(subject: _Subject, points: list[CutPoint], features: Path | None) -> tuple[dict[str, Tensor], str]:
    if not points:
        raise ConfigError(f"{subject.name} has no cut with weights on both sides; see `cutlayer cuts`")
    from cutlayer.commands.codecs.arrays import read_tensors
    from cutlayer.tools.advise import feature_maps

    if features is None:
        return feature_maps(subject.model, subject.inputs, [point.name for point in points]), subject.told
    given = read_tensors(features)
    shapes = {point.name: point.shape for point in points}
    for name, x in given.items():
        if name not in shapes or tuple(x.shape[1:]) != shapes[name]:
            known = ", ".join(f"{cut} {list(s)}" for cut, s in shapes.items())
            raise FileError(
                f"{features}: {name} {list(x.shape)} is not a batch of what crosses a cut of this model: "
                f"{known}"
            )
    return given, f"errors on the feature maps in {features.name}"


def _assumptions(setting: Setting, told: str, here: float | None) -> list[str]:
    every = setting.sync_every
    what = "clients' gradients averaged each step"
    if every != 1:
        what = f"clients' halves averaged each {every} steps" if every else "one client, nothing averaged"
    found = [
        told,
        f"batches of {setting.batch}, {setting.classes} classes",
        f"client {show.count(setting.device)} and server {show.count(setting.server)} multiply-adds a second",
        f"gradients down as {setting.down or 'float32'}, {what} as {setting.sync or 'float32'}",
        "a backward pass takes twice a forward pass",
        "encoding, decoding, and all that multiply-adds do not count, take no time",
        "the server works for this client alone, and its own link is wide enough",
    ]
    if here is not None:
        found.insert(3, f"this machine does {show.count(here)} of them, measured in forward passes")
    return found


def _show(
    name: str, choices: list[Choice], points: list[CutPoint], budget: float, link: Link, rows: int
) -> None:
    best = choices[0]
    if best.fits:
        show.say(
            f"Cut at {best.cut} and send with {best.codec}: {show.duration(best.seconds)} a step, "
            f"error {best.error:.3g}.",
            style="bold",
        )
    columns = ["cut", "codec", "error", "bits", "up", "down"]
    columns += ["client s", "up s", "server s", "down s", "step s"]
    shown = choices[: rows or None]
    cells = [_cells(choice) for choice in shown]
    title = f"{name} on {link}: shortest step first; error at most {budget:g}; bits an element"
    show.console().print(show.table(title, columns, cells, text=2))
    if len(shown) < len(choices):
        show.say(f"{len(shown)} of {len(choices)} rows ({len(points)} cuts); all with --rows 0 or --json")


def _cells(choice: Choice) -> list[Any]:
    work = (choice.client_seconds, choice.up_seconds, choice.server_seconds, choice.down_seconds)
    error = f"{choice.error:.3g}" + ("" if choice.fits else " !")
    sizes = (show.size(choice.up_bytes), show.size(choice.down_bytes))
    return [
        choice.cut,
        choice.codec,
        error,
        f"{choice.bits:.2f}",
        *sizes,
        *(f"{t:.3g}" for t in (*work, choice.seconds)),
    ]
