"""The trainer: a run from its first step to its last, with its records, evaluations and checkpoints.

Whether clients are in this process or on other machines is their pool's business. If one of them has lost
its state, all go back to the last checkpoint.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from cutlayer.errors import CheckpointError, DivergedError, NonFiniteError, RollbackError
from cutlayer.files import remove_partial_files, write_atomically
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.plan import when_extended
from cutlayer.server.evaluation import evaluate
from cutlayer.server.results import Evaluation
from cutlayer.server.split_server import SplitServer
from cutlayer.split.max_pool_at_cut import max_pool_at_cut
from cutlayer.training import checkpoint
from cutlayer.training.progress import Display
from cutlayer.training.provenance import provenance
from cutlayer.training.records import TASK_FILE, RecordWriter
from cutlayer.training.result import Result, Standing
from cutlayer.training.tensorboard import TensorBoard


@dataclass(frozen=True)
class Schedule:
    """How long a run is, and what happens along it."""

    epochs: int
    evaluate_every: int = 1
    """Epochs between evaluations; the last epoch is always evaluated. 0: only the last."""
    checkpoint_every: int = 0
    """Steps between checkpoints, beside the one at the end of each epoch. 0: none beside it."""
    evaluation_batch: int = 500


@dataclass(frozen=True)
class Outputs:
    """Where results go, and what is written beside them."""

    directory: Path
    keep: int = 3
    """How many checkpoints to keep, beside the best."""
    tensorboard: bool = True
    seed: int = 0
    settings: str = ""
    """The resolved settings, as TOML."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """The settings that a checkpoint must share to be continued."""


class Listener(Protocol):
    """Is told each step and each epoch: records, curves, metrics, and what a person sees."""

    def step(self, record: dict[str, Any]) -> None:
        """A step is complete."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is complete."""


class Trainer:
    """Epochs, records, evaluation and checkpoints of a run.

    `make_server` builds the run's server at its very beginning, and again when it has to go back.
    `before_step` gives further figures for the record of the next step.
    """

    def __init__(
        self,
        make_server: Callable[[], SplitServer],
        schedule: Schedule,
        outputs: Outputs,
        shown: Display,
        *,
        listeners: Sequence[Listener] = (),
        before_step: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.server = make_server()
        self._make_server = make_server
        self._schedule = schedule
        self._outputs = outputs
        self._directory = outputs.directory
        self._checkpoints = outputs.directory / "checkpoints"
        self._shown = shown
        self._listeners = tuple(listeners)
        self._before_step = before_step
        self._records = RecordWriter(outputs.directory / "records.jsonl", shown.note)
        # Nobody else writes here while the records are locked: these are of processes that were killed.
        remove_partial_files(self._checkpoints)
        self._tensorboard: TensorBoard | None = None
        self._standing = Standing(self.server.task.main)
        self._began = time.monotonic()

    def begin(self, resume: bool) -> None:
        """Start from the beginning or from a checkpoint."""
        if resume:
            self._restore()
        self._records.truncate_after(self.server.number)
        write_atomically(self._directory / "config.toml", self._outputs.settings)
        self.server.clients.data_spec.write(self._directory)
        described = json.dumps(self.server.task.describe(), indent=2) + "\n"
        write_atomically(self._directory / TASK_FILE, described)
        about = json.dumps(provenance(self._outputs.seed), indent=2) + "\n"
        write_atomically(self._directory / "provenance.json", about)
        if self._outputs.tensorboard:
            self._tensorboard = TensorBoard(
                self._directory / "tensorboard", self.server.number if resume else None
            )
        metrics = self.server.task.metrics
        self._shown.begin(self._schedule.epochs, self.server.plan.total, self.server.number, metrics)
        if not self.server.codecs.exact:
            self._note_max_pool()

    def complete(self, interrupt: Interrupt) -> Result:
        """Run all steps that are left, going back to the last checkpoint whenever a state is lost."""
        while True:
            try:
                self.server.clients.begin(self.server.number)
                self._steps(interrupt)
                return self._result()
            except RollbackError as error:
                if self.server.diverging:
                    number = self.server.number
                    raise DivergedError(
                        f"training diverged before step {number + 1}: {error}. {self._remedy()}", number
                    ) from error
                self._go_back()
                self.server.clients.rolled_back(self.server.number, str(error))

    def close(self) -> None:
        """Let go of files and the terminal."""
        self._shown.close()
        self._records.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _steps(self, interrupt: Interrupt) -> None:
        every = self._schedule.checkpoint_every
        while not self.server.done:
            try:
                further = self._before_step()
                result = self.server.step()
            except DivergedError as error:
                raise DivergedError(f"{error}. {self._remedy()}", error.step) from error
            if result.step.clients:
                self._tell("step", result.record() | further)
                self._standing.sums.add(result)
            if result.step.last:
                self._end_epoch(result.step.epoch)
            elif interrupt.requested or (every and self.server.number % every == 0):
                self._save()
            if interrupt.requested and not self.server.done:
                if interrupt.calm:
                    return
                raise KeyboardInterrupt

    def _go_back(self) -> None:
        """To the newest checkpoint, or to the very beginning if there is none."""
        self.server = self._make_server()
        self.server.transport.meter.restore({})
        self._standing = Standing(self.server.task.main)
        self._restore()
        self._records.truncate_after(self.server.number)
        if self._tensorboard is not None:
            self._tensorboard.close()
            self._tensorboard = TensorBoard(self._directory / "tensorboard", self.server.number)

    def _restore(self) -> None:
        """Continue from the newest checkpoint that can be restored."""
        while True:
            found = checkpoint.latest(self._checkpoints, self._shown.note, self._outputs.identity)
            if found is None:
                return
            try:
                self.server.restore(found.tensors, found.state["session"])
                self._standing.restore(found.state)
                self._note_extension(found.run)
                return
            except (CheckpointError, LookupError, TypeError, ValueError) as error:
                earlier = [step for step in checkpoint.steps(self._checkpoints) if step < found.step]
                if not earlier:
                    raise
                self._shown.note(
                    f"{found.path.name}: {error}; going back to the checkpoint of step {earlier[-1]}"
                )
                checkpoint.set_aside(found.path)
                self.server = self._make_server()

    def _note_max_pool(self) -> None:
        pool = max_pool_at_cut(self.server.half.part)
        if pool is not None:
            self._shown.note(
                f"{pool} is a max pool right behind the cut: compressed values tie for the largest, and only "
                "the first of them gets the gradient. Accuracy suffers; cut behind the pool if you can"
            )

    def _note_extension(self, before: Mapping[str, Any]) -> None:
        train = before.get("train", {})
        if train.get("epochs", self._schedule.epochs) < self._schedule.epochs:
            told = when_extended(train.get("schedule", ""), train["epochs"], self._schedule.epochs)
            self._shown.note(told)

    def _end_epoch(self, epoch: int) -> None:
        last = epoch + 1 == self._schedule.epochs
        every = self._schedule.evaluate_every
        scored = None
        if last or (every and (epoch + 1) % every == 0):
            scored = self._evaluate()
            if scored is not None:
                self._standing.evaluated(scored, self.server.number)
        record = self._standing.sums.record(epoch, self.server.number, scored, self.server.task.metrics)
        record["simulated_seconds"] = self.server.timeline.clock.seconds
        record["client_bytes"] = {
            str(client): {"up": sent["up"], "down": sent["down"]}
            for client, sent in self.server.transport.meter.by_client().items()
        }
        self._tell("epoch", record)
        self._standing.begin_epoch()
        # After the record: a run killed in between repeats the evaluation and writes the record again.
        self._save()

    def _evaluate(self) -> Evaluation | None:
        scored = None
        try:
            scored = evaluate(self.server, self._schedule.evaluation_batch, self._shown.note)
            what = None if scored is None or math.isfinite(scored.loss) else f"the test loss is {scored.loss}"
        except NonFiniteError as error:
            what = str(error)
        if what is not None:
            number = self.server.number
            raise DivergedError(
                f"training diverged at step {number}, found in evaluation: {what}. {self._remedy()}",
                number - 1,
            )
        return scored

    def _tell(self, kind: str, record: dict[str, Any]) -> None:
        for listener in (self._records, self._tensorboard, self._shown, *self._listeners):
            if listener is not None:
                getattr(listener, kind)(record)

    def _save(self) -> None:
        tensors, state = self.server.state()
        bad = _not_finite(tensors)
        if bad is not None:
            raise DivergedError(
                f"training diverged before step {self.server.number + 1}: {bad} is not finite. "
                f"{self._remedy()}",
                self.server.number,
            )
        self._records.sync()
        about = {"session": state, **self._standing.state()}
        checkpoint.save(self._checkpoints, self.server.number, tensors, about, self._outputs.identity)
        checkpoint.keep(self._checkpoints, self._outputs.keep, self._standing.best_step or None)

    def _remedy(self) -> str:
        steps = checkpoint.steps(self._checkpoints)
        kept = (
            f"The last good checkpoint, of step {steps[-1]}, is kept"
            if steps
            else "No checkpoint was made yet"
        )
        return f"{kept}; try a lower learning rate or a warm-up"

    def _result(self) -> Result:
        timeline = self.server.timeline
        return Result(
            directory=self._directory,
            epochs=self._schedule.epochs,
            steps=self.server.number,
            scored=self._standing.scored,
            metric=self._standing.metric,
            best=self._standing.best,
            best_step=self._standing.best_step,
            bytes=self.server.transport.meter.snapshot(),
            seconds=time.monotonic() - self._began,
            simulated_seconds=timeline.clock.seconds if timeline.simulates else None,
            stopped=not self.server.done,
        )


def _not_finite(tensors: dict[str, Tensor]) -> str | None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None
