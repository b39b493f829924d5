"""`cutlayer predict`: classes, values or labels for samples, through both halves and the codec."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from cutlayer.commands import show
from cutlayer.commands.network.credentials import NETWORK, ClientCredentials
from cutlayer.commands.network.monitoring import messages, silence_grpc
from cutlayer.commands.option_groups import with_groups
from cutlayer.commands.options import AllowModel, Checkpoint, Flag, Threads
from cutlayer.commands.runs.model_check import threads_for_inference
from cutlayer.errors import ConfigError, CutlayerError, FileError
from cutlayer.imports import need

if TYPE_CHECKING:
    from cutlayer.device.predictions import Prediction
    from cutlayer.inference.client_half import ClientSide
    from cutlayer.inference.predict import Predictor
    from cutlayer.inference.remote_model import RemoteModel
    from cutlayer.training.load_run import Trained

# Samples in one forward pass; see Predictor.
_BATCH = 256


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("predict")(predict)


@with_groups
def predict(
    run: Annotated[
        Path,
        typer.Argument(
            help="the directory of a run; with --server also an exported client's half",
            metavar="RUN",
        ),
    ],
    *,
    source: Annotated[
        str | None, Flag("--data", help="a data set, a table, an image, or a folder of images")
    ] = None,
    root: Annotated[Path | None, Flag(help="the folder of data sets that are given by name")] = None,
    split: Annotated[Literal["test", "train"], Flag(help="which split of a data set")] = "test",
    limit: Annotated[int | None, Flag(help="predict only so many samples", min=1)] = None,
    out: Annotated[Path | None, Flag(help="write to a .csv or .jsonl file instead of the screen")] = None,
    codec: Annotated[str | None, Flag(help="another codec than the trained one", metavar="SPEC")] = None,
    checkpoint: Checkpoint = "last",
    server: Annotated[
        str | None,
        Flag(help="run the server's half there", metavar="HOST:PORT", rich_help_panel=NETWORK),
    ] = None,
    allow_model: AllowModel = None,
    credentials: ClientCredentials,
    threads: Threads = None,
) -> None:
    """Predict with a trained split model, the codec in place.

    Writes the class of each sample, the values of a regression, or the
    probability of each label. Without --data, the samples are those of the
    run's test set. Of a table without the target's column all rows are
    predicted. With --server only the client's half runs here; `cutlayer
    serve-inference` has the other.

    \b
    Examples:
      cutlayer predict runs/ms --limit 5
      cutlayer predict runs/ms --data photos/ --out labels.csv
      cutlayer predict runs/ms --data cifar10 --root ~/data --codec none
      cutlayer predict device.safetensors --data photos/ --server 127.0.0.1:50551
      cutlayer predict device.onnx --data photos/ --server 127.0.0.1:50551
    """
    if out is not None and out.suffix not in (".csv", ".jsonl"):
        raise FileError(f"{out}: predictions go to a .csv or .jsonl file; give it one of these names")
    if run.suffix == ".onnx" and not run.is_dir():
        _predict_without_torch(run, source, split, limit, out, codec, server, credentials, threads)
        return
    need("pydantic", "reading a run")
    need("torch", "a half that is no .onnx file")
    from cutlayer.inference.client_half import ClientSide
    from cutlayer.inference.predict import Predictor, predictions
    from cutlayer.inference.samples import Samples, samples
    from cutlayer.inference.values import ValueRows
    from cutlayer.models import ANY_MODEL, AllowedModels
    from cutlayer.training.load_run import open_run

    # The directory of a run is the user's own; a file may come from anywhere.
    allowed = ANY_MODEL if run.is_dir() else AllowedModels.of(allow_model or ())
    side: Trained | ClientSide
    if server is None:
        if credentials.given:
            raise ConfigError("--ca, --cert, --key and --token-file are for a --server; give one")
        side = open_run(run, checkpoint, messages(quiet=False))
    else:
        side = ClientSide.load(run, checkpoint, allowed)
    values = None if side.data_spec.form.classed else ValueRows(side.config, side.data_spec)
    if source is None:  # what the run was tested on
        if not run.is_dir():
            raise ConfigError(f"{run}: an exported half comes without data; say which with --data")
        own = side.config.data
        source, root, limit = own.source, root or Path(own.root), limit or own.limit
    threads_for_inference(threads, side.config, side.data_spec.shape, _BATCH, allowed)
    found: Samples = samples(source, side.config, side.data_spec, split, root or Path(), limit)
    predictor: Predictor | RemoteModel
    if isinstance(side, ClientSide):
        predictor = _remote(str(server), side, codec, credentials)
    else:
        predictor = Predictor(side, codec)
    if values is not None:
        _report(values.rows(predictor.logits, found), len(found), lambda: values.metrics, out, predictor)
        return
    names = side.data_spec.class_names
    _report_classes(predictions(predictor.logits, found.images), found, names, out, predictor)


def _predict_without_torch(
    file: Path,
    source: str | None,
    split: str,
    limit: int | None,
    out: Path | None,
    codec: str | None,
    server: str | None,
    credentials: ClientCredentials,
    threads: int | None,
) -> None:
    """Predict with an ONNX half: onnxruntime and NumPy suffice."""
    if server is None:
        raise ConfigError(f"{file}: an ONNX half needs the other half; say where it runs with --server")
    if source is None:
        raise ConfigError(f"{file}: an exported half comes without data; say which with --data")
    silence_grpc()
    need("grpc", "predicting with a server", "device")
    from cutlayer.device.inference_half import OnnxHalf
    from cutlayer.device.predictions import predictions
    from cutlayer.device.samples import read_samples
    from cutlayer.inference.remote_model import RemoteModel

    half = OnnxHalf.load(file, threads or 1)
    found = read_samples(source, half.data_spec, split, limit)
    with RemoteModel(server, half, credentials.load(), codec=codec) as model:
        _report_classes(predictions(model, found.images), found, half.data_spec.class_names, out, model)


def _report_classes(
    made: Iterable[Prediction],
    found: Any,
    names: Sequence[str] | None,
    out: Path | None,
    predictor: Predictor | RemoteModel,
) -> None:
    """Write the classes of samples, and then say how many were right."""
    right = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal right
        for each in made:
            row: dict[str, Any] = {"sample": found.names[each.index] if found.names else each.index}
            row |= {"label": each.label, "name": names[each.label] if names else str(each.label)}
            row["probability"] = round(each.probability, 6)
            if found.labels is not None:
                row["truth"] = int(found.labels[each.index])
                right += row["truth"] == each.label
            yield row

    def accuracy() -> str:
        return "" if found.labels is None else f"accuracy {right / len(found):.2%}"

    _report(rows(), len(found), accuracy, out, predictor)


def _report(
    rows: Iterable[dict[str, Any]],
    total: int,
    metrics: Callable[[], str],
    out: Path | None,
    predictor: Predictor | RemoteModel,
) -> None:
    """Write rows, and then say how much crossed the cut and how good they were."""
    if out is None:
        _write(rows, sys.stdout, ".csv")
    else:
        try:
            with out.open("w", encoding="utf-8", newline="") as file:
                _write(rows, file, out.suffix)
        except CutlayerError:
            raise  # those of the network are OSErrors, too
        except OSError as error:
            raise FileError(f"{out}: cannot be written ({error.strerror})") from error
    said = f"{total:,} samples, {show.size(predictor.bytes)} over the cut "
    said += f"({predictor.raw_bytes / predictor.bytes:.2f}x less than float32)"
    if good := metrics():
        said += f", {good}"
    show.say(said, stderr=True)


def _remote(server: str, side: ClientSide, codec: str | None, credentials: ClientCredentials) -> RemoteModel:
    silence_grpc()
    need("grpc", "predicting with a server", "network")
    from cutlayer.inference.remote_model import RemoteModel

    return RemoteModel(server, side, credentials.load(), codec=codec)


def _write(rows: Iterable[dict[str, Any]], file: IO[str], suffix: str) -> None:
    from cutlayer.plain_json import to_json

    if suffix == ".jsonl":
        file.writelines(to_json(row) + "\n" for row in rows)
        return
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
