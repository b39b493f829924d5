"""Find runs and results of `cutlayer reproduce` in folders, and check that they can be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutlayer.errors import FileError, RecordError
from cutlayer.report.compare_runs import compare_runs
from cutlayer.reproduce import results
from cutlayer.reproduce.results import Result


def find_results(paths: Sequence[Path]) -> list[Result]:
    """All results in these folders, in order. All runs together make one result, which comes first."""
    found = [place for path in paths for place in _places(path)]
    places = list({place.resolve(): place for place in found}.values())
    trained = [place for place in places if _is_run(place)]
    read = [_read(place) for place in places if not _is_run(place)]
    return ([compare_runs(trained)] if trained else []) + read


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The directories of all runs in these folders, each once. Results of `reproduce` are left out."""
    found = [place for path in paths for place in _places(path)]
    runs = list({place.resolve(): place for place in found if _is_run(place)}.values())
    if not runs:
        raise FileError(f"{', '.join(map(str, paths))}: there is no run (config.toml and records.jsonl)")
    return runs


def _places(path: Path) -> list[Path]:
    if _is_run(path) or _is_result(path):
        return [path]
    if not path.is_dir():
        raise FileError(f"{path}: there is no such folder; give the folder of a run or of a result")
    inside = sorted(child for child in path.iterdir() if _is_run(child) or _is_result(child))
    if not inside:
        raise FileError(
            f"{path}: neither a run (config.toml and records.jsonl) nor a result (result.json), nor a folder "
            "of these"
        )
    # Results first tell what was found, in the order of the paper.
    order = ("error", "convergence", "traffic", "time", "bias", "bounds")
    return sorted(inside, key=lambda p: order.index(p.name) if p.name in order else len(order))


def _read(place: Path) -> Result:
    """Read a result and check its tables and plots, so that drawing them cannot fail."""
    result = results.read(place)
    for table in result.tables:
        if any(len(row) != len(table.columns) for row in table.rows):
            raise RecordError(f"{place}: a row of the table {table.id!r} has not as many cells as columns")
    for plot in result.plots:
        for series in plot.series:
            sides = [side for side in (series.y, series.low, series.high) if side is not None]
            if any(len(side) != len(series.x) for side in sides):
                raise RecordError(f"{place}: {series.name!r} of the plot {plot.id!r} has not a y for each x")
    for claim in result.claims:
        if claim.holds not in list(results.VERDICTS):
            raise RecordError(
                f"{place}: a claim holds (true), does not (false), partly or is undecided, "
                f"not {claim.holds!r}"
            )
    return result


def _is_run(path: Path) -> bool:
    return (path / "config.toml").is_file() and (path / "records.jsonl").is_file()


def _is_result(path: Path) -> bool:
    return (path / results.NAME).is_file()
