"""The table of training codec by evaluation codec: what final weights score under codecs of other runs."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.reproduce.convergence.rows import Row
from cutlayer.reproduce.results import Table


def matrix(id_: str, title: str, rows: Sequence[Row]) -> Table | None:
    """Test accuracy of final weights, means over seeds: a line a row, a column an evaluation codec.

    None if no run was evaluated. Seeds are those that were evaluated with all codecs of the line.
    """
    evaluated = [row for row in rows if any(run.evaluations for run in row.ended)]
    codecs = list(dict.fromkeys(spec for row in evaluated for run in row.ended for spec in run.evaluations))
    if not codecs:
        return None
    lines: list[list[object]] = []
    for row in evaluated:
        of_cut = {spec for run in row.ended for spec in run.evaluations}
        whole = [run.evaluations for run in row.ended if of_cut <= run.evaluations.keys()]
        means = (sum(one[spec] for one in whole) / len(whole) if spec in of_cut else None for spec in codecs)
        lines.append([row.first.cut, row.first.label, row.first.epochs, len(whole), *means])
    return Table(id_, title, ("cut", "trained with", "epochs", "seeds", *codecs), lines)
