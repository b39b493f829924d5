"""What `train` and `serve` say when a run is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cutlayer.commands import show
from cutlayer.commands.runs.compare import traffic_table


def show_result(directory: Path, display: Literal["auto", "quiet", "json"]) -> None:
    """Accuracy and traffic of a run: a table for people, one line of JSON for programs."""
    if display == "quiet":
        return
    from cutlayer.report.run_summary import summarize

    summary = summarize(directory)
    if display == "json":
        show.print_line({"kind": "result", "directory": str(directory), **summary.to_json()})
    else:
        show.console().print(traffic_table(summary))
