"""Run an experiment: compute missing cells, in one process or several, and write the result."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from cutlayer.reproduce.cell_records import CellRecords, Record
from cutlayer.reproduce.results import Findings, Result
from cutlayer.reproduce.scales import Scale
from cutlayer.training.progress_bar import ProgressBar
from cutlayer.training.provenance import provenance

Records = Mapping[str, Record]


@dataclass(frozen=True)
class Request:
    """The options of an experiment. Only `scale`, `seed` and what `settings` adds change the results."""

    scale: Scale = Scale.SMOKE
    root: Path = Path()
    out: Path = Path("experiments/results")
    jobs: int = 1
    threads: int = 1
    seed: int = 0
    codecs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One entry of an experiment's table. `work` computes it; other processes must be able to import it."""

    key: str
    work: Callable[..., Record]
    arguments: dict[str, Any] = field(default_factory=dict)


class Experiment(Protocol):
    """The interface of an experiment."""

    name: str

    def settings(self, request: Request) -> dict[str, Any]:
        """All that results depend on beside a cell's key, as plain JSON. It is the same in a whole folder."""

    def prepare(self, request: Request, bar: ProgressBar) -> None:
        """Make what all cells need, such as trained models."""

    def cells(self, request: Request) -> Sequence[Cell]:
        """All cells, in order of computation."""

    def conclude(self, request: Request, records: Records) -> Findings:
        """Tables, plots and claims from the finished cells."""


def run(experiment: Experiment, request: Request, bar: ProgressBar | None = None) -> Result:
    """Compute what is missing and write the result into `<out>/<name>/`.

    Ctrl-C loses at most the cells in progress; the same call goes on from there.
    """
    bar = bar or ProgressBar()
    folder = request.out / experiment.name
    settings = {"scale": request.scale, "seed": request.seed, **experiment.settings(request)}
    cells = experiment.cells(request)
    store = CellRecords(folder, settings)
    try:
        missing = [cell for cell in cells if cell.key not in store.finished]
        if missing:
            with _threads(request.threads):
                store.session(provenance(request.seed))
                experiment.prepare(request, bar)
                before = len(cells) - len(missing)
                bar.begin(len(cells), before)
                for done, (cell, record) in enumerate(_computed(missing, request), before + 1):
                    store.add(cell.key, record)
                    bar.update(done, f"{experiment.name}: {done}/{len(cells)} cells", f"finished {cell.key}")
                bar.line(f"{experiment.name}: {len(cells)} cells finished")
        records = {cell.key: store.finished[cell.key] for cell in cells}
        found = experiment.conclude(request, records)
        result = Result(
            name=experiment.name,
            scale=request.scale,
            title=found.title,
            claims=found.claims,
            tables=found.tables,
            plots=found.plots,
            commands=store.commands,
            provenance=store.provenance,
            settings=settings,
        )
        result.write(folder)
        return result
    finally:
        bar.close()
        store.close()


def _computed(cells: Sequence[Cell], request: Request) -> Iterator[tuple[Cell, Record]]:
    if request.jobs == 1 or len(cells) == 1:
        for cell in cells:
            yield cell, _compute(cell, request)
        return
    # Fresh processes: a fork of one that has used PyTorch's threads can hang.
    context = multiprocessing.get_context("spawn")
    before = multiprocessing.active_children()
    with ProcessPoolExecutor(request.jobs, context, _start, (request.threads,)) as pool:
        try:
            waiting = {pool.submit(_compute, cell, request): cell for cell in cells}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # SIGTERM: training that is under way saves its step and ends.
            for child in multiprocessing.active_children():
                if child not in before:
                    child.terminate()
            raise


def _compute(cell: Cell, request: Request) -> Record:
    began = time.monotonic()
    with torch.random.fork_rng(devices=[]):
        record = cell.work(request, **cell.arguments)
    return {**record, "seconds": round(time.monotonic() - began, 3)}


def _start(threads: int) -> None:
    # Ctrl-C reaches the whole group of processes; the first one alone decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
