"""`cutlayer partition`: who would get which data, before any training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutlayer.commands import show
from cutlayer.commands.options import DataRoot, Flag
from cutlayer.errors import FileError
from cutlayer.imports import need

if TYPE_CHECKING:
    from rich.table import Table

    from cutlayer.data import DataSource, Partition

# More do not fit a screen: clients are left out in the middle, classes are summed up.
_MOST_CLIENTS = 20
_MOST_CLASSES = 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("partition")(partition)


def partition(
    source: Annotated[str, Flag("--data", help="digits, cifar10, a path, ...")] = "digits",
    root: DataRoot = Path(),
    clients: Annotated[int, Flag(help="number of clients")] = 10,
    spec: Annotated[
        str,
        Flag("--partition", help="even, contiguous, dirichlet:alpha=0.5 or shard:shards=2", metavar="SPEC"),
    ] = "even",
    seed: Annotated[int, Flag(help="the run's seed")] = 0,
    plot: Annotated[Path | None, Flag(help="also draw it into this file (.png, .svg, .pdf)")] = None,
    as_json: Annotated[bool, Flag("--json", help="print JSON: one row a client, one column a class")] = False,
) -> None:
    """Show which training samples each client would get.

    How many of each class, as a table, or as a picture with --plot. Nothing
    is trained.

    \b
    Examples:
      cutlayer partition --clients 5
      cutlayer partition --partition dirichlet:alpha=0.3 --plot shares.png
      cutlayer partition --data cifar10 --root ~/data --partition shard:shards=2
    """
    from cutlayer import data

    train = data.load(source, root=root)
    parts = data.partition_data(spec, train, clients, seed)
    counts = _counts(parts, train)
    if plot is not None:
        draw(counts, plot, f"{train.name}, {spec}")
    if as_json:
        show.print_json({"classes": train.class_names, "counts": counts})
        return
    show.console().print(partition_table(parts, train, spec))


def _counts(parts: Partition, train: DataSource) -> list[list[int]]:
    """The samples of each client: one column a class, or one for all where that is not known at once."""
    from cutlayer.data import IndexedDataset, summary

    if not train.form.classed or isinstance(train, IndexedDataset) or train.labels is None:
        return [[len(part)] for part in parts]
    return summary(parts, train.labels, train.form.outputs)


def partition_table(parts: Partition, train: DataSource, spec: str) -> Table:
    """The samples of each client by class, as a table that fits a screen."""
    counts = _counts(parts, train)
    classes = train.form.outputs
    known = len(counts[0]) == classes and train.form.classed
    wide = classes > _MOST_CLASSES
    if not known:
        columns = ["client", "samples"]
    elif wide:
        columns = ["client", "samples", "classes", "largest class"]
    else:
        columns = ["client", "samples", *(_names(train))]
    rows: list[list[object]] = []
    for client, row in enumerate(counts):
        samples = sum(row)
        if not known:
            rows.append([client, samples])
        elif wide:
            rows.append([client, samples, sum(n > 0 for n in row), f"{max(row) / samples:.0%}"])
        else:
            rows.append([client, samples, *(n or "·" for n in row)])
    if len(rows) > _MOST_CLIENTS:
        half = _MOST_CLIENTS // 2
        rows = [*rows[:half], ["...", *[""] * (len(columns) - 1)], *rows[-half:]]
    sizes = [len(part) for part in parts]
    about = f", {classes} classes" if known else ""
    title = (
        f"{sum(sizes):,} training samples of {train.name}{about}, "
        f"shared '{spec}' among {len(parts)} clients ({min(sizes):,} to {max(sizes):,} each)"
    )
    return show.table(title, columns, rows)


def draw(counts: list[list[int]], path: Path, title: str) -> None:
    """One bar a client, one colour a class."""
    need("matplotlib", "a plot").use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.5 + 0.2 * min(len(counts), 100)), layout="constrained")
    axes = figure.add_subplot()
    left = [0] * len(counts)
    for column in zip(*counts, strict=True):
        axes.barh(range(len(counts)), column, left=left, height=1.0 if len(counts) > 100 else 0.85)
        left = [a + b for a, b in zip(left, column, strict=True)]
    axes.set(xlabel="samples, coloured by class", ylabel="client", title=title)
    axes.invert_yaxis()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: the plot cannot be written ({error})") from error


def _names(train: DataSource) -> list[str]:
    names = train.class_names or tuple(str(label) for label in range(train.form.outputs))
    return [name if len(name) <= 10 else name[:9] + "…" for name in names]
