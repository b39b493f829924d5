"""The plot of all policies at a cut: final accuracy against all bytes, a point each, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cutlayer.analysis.paired import PairedComparison
from cutlayer.reproduce.convergence.curves import mean
from cutlayer.reproduce.convergence.rows import Row
from cutlayer.reproduce.results import Axis, Plot, Series

_MANY_PAIRS = 3


def policies_plot(
    id_: str, title: str, rows: Sequence[Row], compared: Mapping[str, PairedComparison | None]
) -> Plot:
    """A point a policy, means over seeds. Its whisker is the 95 % interval of the difference to none.

    The interval is put at the accuracy that none has with the same seeds. Without pairs, or with too few for
    an interval, there is no whisker. Where some policies have three pairs or more, those with fewer are left
    out: dozens of points would hide the ones that say something.
    """
    well = {label for label, found in compared.items() if found is not None and found.pairs >= _MANY_PAIRS}
    series = []
    for row in rows:
        if len(row.ended) < len(row.runs) or not row.ended:
            continue
        if well and compared[row.first.label] is not None and row.first.label not in well:
            continue
        found, label = compared[row.first.label], row.first.label
        low = high = None
        runs = row.ended
        if found is not None:
            runs, control = row.shared()
            base = mean(control).last.accuracy
            low, high = (base + end for end in (found.difference.low, found.difference.high))
        whole = mean(runs).last
        ends = [None, None] if low is None or not math.isfinite(low) else [low, high]
        series.append(Series(label, [whole.total / 1e9], [whole.accuracy], ends[:1], ends[1:]))
    return Plot(
        id_,
        title,
        "scatter",
        Axis("all bytes, up and down, GB", True),
        Axis("final test accuracy, %"),
        series,
    )
