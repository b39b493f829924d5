"""`cutlayer eval`: a trained split model on its test set, with its codec or another one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cutlayer.commands import show
from cutlayer.commands.options import AsJson, Checkpoint, Flag, RunArgument, Threads
from cutlayer.commands.runs.model_check import threads_for_inference
from cutlayer.imports import need


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("eval")(evaluate)


def evaluate(
    run: RunArgument,
    codec: Annotated[
        list[str] | None, Flag(help="test with this codec instead; may be repeated", metavar="SPEC")
    ] = None,
    checkpoint: Checkpoint = "last",
    root: Annotated[str | None, Flag(help="the folder of the data, if they have moved")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Test a trained split model with the codec in place.

    The test set goes through the client's half, the codec and the server's
    half, as it would in use.

    \b
    Examples:
      cutlayer eval runs/ms
      cutlayer eval runs/ms --codec none --codec ms:ratio=0.995,bits=2
    """
    need("pydantic", "reading a run")
    from cutlayer.protocol.build import prepare_data
    from cutlayer.training.load_run import restore, settings

    own = settings(run)
    configs = [settings(run, spec) for spec in codec or [own.codec.up]]
    if root is not None:
        own = own.model_copy(update={"data": own.data.model_copy(update={"root": root})})
    data = prepare_data(own)
    threads_for_inference(threads, own, data.test.shape, own.train.evaluate_batch)
    found: list[dict[str, Any]] = []
    for config in configs:
        restored = restore(run, checkpoint, config, data, lambda text: show.say(text, stderr=True))
        scored = restored.evaluate()
        metrics = restored.server.task.metrics
        fields = asdict(scored)
        fields |= fields.pop("metrics")
        found.append({"codec": config.codec.up, "step": restored.number, **fields})
    if as_json:
        show.print_json(found)
        return
    named = [metric for metric in metrics if metric.name in found[0]]
    names = [metric.name.replace("_", " ") for metric in named]
    columns = ["codec", "step", "samples", "loss", *names, "smashed data up"]
    rows = []
    for row in found:
        shares = [f"{row['loss']:.4f}", *(metric.text(row[metric.name]) for metric in named)]
        sent = show.size(row["bytes"].get("up/smashed", 0))
        rows.append([row["codec"], row["step"], row["samples"], *shares, sent])
    show.console().print(show.table(f"{run.name} on the test set of {data.test.name}", columns, rows))
