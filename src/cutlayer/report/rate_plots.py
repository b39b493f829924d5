"""Plots of the rates that clients chose: bits an element, step by step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from cutlayer.reproduce.results import Axis, Plot, Series

_CLIENTS = 8
"""With more of them, the least, the middle and the most of each step are drawn."""
_POINTS = 200


def rate_plots(run: str, records: Sequence[dict[str, Any]]) -> list[Plot]:
    """A plot for a run with adaptive rates; none for other runs."""
    steps = [record for record in records if record.get("kind") == "step" and record.get("bits")]
    if not steps:
        return []
    steps = steps[:: -(-len(steps) // _POINTS)]
    clients = sorted({client for record in steps for client in record["bits"]}, key=int)
    if len(clients) > _CLIENTS:
        x = [record["global_step"] for record in steps]
        chosen = [list(record["bits"].values()) for record in steps]
        series = [
            Series("least", x, [min(bits) for bits in chosen]),
            Series("median", x, [statistics.median(bits) for bits in chosen]),
            Series("most", x, [max(bits) for bits in chosen]),
        ]
    else:
        series = []
        for client in clients:
            own = [record for record in steps if client in record["bits"]]
            series.append(
                Series(f"client {client}", [r["global_step"] for r in own], [r["bits"][client] for r in own])
            )
    title = f"Rates that clients chose: {run}"
    return [Plot(f"rates-{run}", title, "line", Axis("step"), Axis("bits an element, up"), series)]
