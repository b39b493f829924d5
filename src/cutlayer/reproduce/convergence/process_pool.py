"""Train the runs of the grid: one by one in this process, or several at once in processes of their own."""

from __future__ import annotations

import io
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cutlayer.errors import RunError
from cutlayer.interrupt import Interrupt
from cutlayer.reproduce.convergence.grid import Run
from cutlayer.reproduce.convergence.grid_progress import GridProgress
from cutlayer.reproduce.convergence.run_process import STOPPED, prepare, train_run
from cutlayer.tasks import Metric
from cutlayer.training.progress import Quiet
from cutlayer.training.progress_bar import progress_bar

Event = tuple[str, dict[str, Any] | None]
"""A run's name and its record; None at its end."""


def train_all(runs: Sequence[Run], *, jobs: int = 1, threads: int = 1, quiet: bool = False) -> int:
    """Train all runs that are not finished yet; return their number.

    Ctrl-C lets each run end its step and be saved, and raises KeyboardInterrupt; so does a kill of this
    process, at the price of the steps since the last checkpoint.
    """
    waiting = [run for run in runs if prepare(run.config)]
    progress = GridProgress(len(runs), len(runs) - len(waiting), progress_bar(quiet=quiet))
    try:
        if jobs == 1 or len(waiting) < 2:
            torch.set_num_threads(threads)
            for run in waiting:
                train_run(run.config, _Shown(run.directory.name, progress))
                progress.done(run.directory.name)
        else:
            _Pool(waiting, jobs, threads, progress).run()
    finally:
        progress.close()
    return len(waiting)


class _Shown(Quiet):
    """Hands the records of a run in this process to the progress bar."""

    def __init__(self, name: str, progress: GridProgress) -> None:
        self._name = name
        self._progress = progress

    def begin(self, epochs: int, steps: int, done: int, metrics: Sequence[Metric] = ()) -> None:
        self._progress.take(self._name, {"kind": "begin", "steps": steps, "done": done})

    def step(self, record: Mapping[str, Any]) -> None:
        self._progress.take(self._name, {"kind": "step", **record})

    def epoch(self, record: Mapping[str, Any]) -> None:
        self._progress.take(self._name, {"kind": "epoch", **record})

    def note(self, text: str) -> None:
        self._progress.take(self._name, {"kind": "note", "text": text})


@dataclass
class _Pool:
    waiting: list[Run]
    jobs: int
    threads: int
    progress: GridProgress
    events: queue.Queue[Event] = field(default_factory=queue.Queue)
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def run(self) -> None:
        """Keep `jobs` processes busy until all runs are done."""
        try:
            with Interrupt() as interrupt:
                while self.waiting or self.running:
                    while self.waiting and len(self.running) < self.jobs:
                        self._start(self.waiting.pop(0))
                    self._take()
                    if interrupt.requested:
                        self._stop()
                        raise KeyboardInterrupt
        finally:
            for process in self.running.values():
                process.kill()
                _end(process)

    def _start(self, run: Run) -> None:
        name = run.directory.name
        words = [str(run.directory), str(self.threads), json.dumps(sys.argv)]
        process = subprocess.Popen(
            [sys.executable, "-m", "cutlayer.reproduce.convergence.run_process", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": str(self.threads)},
            # Ctrl-C on a terminal would reach it twice: from there and from us.
            start_new_session=True,
        )
        self.running[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        with process.stdout or io.StringIO() as stream:
            for line in stream:
                self.events.put((name, json.loads(line)))
        self.events.put((name, None))

    def _take(self) -> None:
        try:
            # Signals are looked at in between.
            name, record = self.events.get(timeout=0.5)
        except queue.Empty:
            return
        if record is not None:
            self.progress.take(name, record)
            return
        process = self.running.pop(name)
        code, complaint = _end(process)
        if code == STOPPED:
            raise KeyboardInterrupt
        if code != 0:
            why = complaint.splitlines()[-1] if complaint else f"its process ended with code {code}"
            raise RunError(f"the run {name} failed: {why}. Repeat the command to go on from where it was")
        self.progress.done(name)

    def _stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            _end(process)
        self.running.clear()


def _end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process; return its exit code and what it wrote to standard error."""
    with process.stderr or io.StringIO() as stream:
        complaint = stream.read().strip()
    return process.wait(), complaint
