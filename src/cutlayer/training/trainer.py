"""A run from its first step to its last: records, curves, evaluations and checkpoints around the steps.

Whether clients are in this process or elsewhere is the session's business.
"""

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.errors import DivergedError, NonFiniteError
from cutlayer.files import write_atomically
from cutlayer.interrupt import Interrupt
from cutlayer.protocol.plan import Plan
from cutlayer.server.results import Outcome, Result, Scored
from cutlayer.server.timeline import Timeline
from cutlayer.training import checkpoint
from cutlayer.training.epoch_sums import EpochSums
from cutlayer.training.progress import Display
from cutlayer.training.provenance import provenance
from cutlayer.training.records import RecordWriter
from cutlayer.training.tensorboard import TensorBoard
from cutlayer.wire.meter import Meter


class Trainable(Protocol):
    """What a driver needs of a session."""

    @property
    def number(self) -> int:
        """How many steps are complete."""

    @property
    def done(self) -> bool:
        """Whether all steps are complete."""

    @property
    def plan(self) -> Plan:
        """All steps."""

    @property
    def timeline(self) -> Timeline:
        """Where the time goes."""

    @property
    def meter(self) -> Meter:
        """The bytes of training."""

    def data_spec(self) -> DataSpec:
        """The data, without the data."""

    def outlook(self) -> dict[str, Any]:
        """Further figures for the record of the next step, which is not made yet."""

    def step(self) -> Outcome:
        """Run the next step."""

    def evaluate(self) -> Scored | None:
        """The model as it is now, on the test set; None if nobody who has one is there."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything: tensors by name, and the rest as plain JSON."""

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where `state` was taken."""


class Driver:
    """A session, and where its results go."""

    def __init__(self, config: Config, session: Trainable, directory: Path, shown: Display) -> None:
        self.config = config
        self.session = session
        self.directory = directory
        self.checkpoints = directory / "checkpoints"
        self.shown = shown
        self.records = RecordWriter(directory / "records.jsonl")
        self.tensorboard: TensorBoard | None = None
        self.sums = EpochSums()
        self.best: tuple[float, int] | None = None
        """The best accuracy and the step at which it was reached."""
        self.scored: Scored | None = None
        self.began = time.monotonic()

    def begin(self, resume: bool) -> None:
        """Start from the beginning or from a checkpoint."""
        if resume:
            self._restore()
        self.records.truncate_after(self.session.number)
        write_atomically(self.directory / "config.toml", self.config.to_toml())
        self.session.data_spec().write(self.directory)
        about = json.dumps(provenance(self.config.seed), indent=2) + "\n"
        write_atomically(self.directory / "provenance.json", about)
        if self.config.output.tensorboard:
            resumed_at = self.session.number if resume else None
            self.tensorboard = TensorBoard(self.directory / "tensorboard", resumed_at)
        self.shown.begin(self.config.train.epochs, self.session.plan.total, self.session.number)

    def rewind(self) -> None:
        """Go back to the newest checkpoint, if there is one. The session is at its very beginning."""
        self.sums, self.best, self.scored = EpochSums(), None, None
        self._restore()
        self.records.truncate_after(self.session.number)
        if self.tensorboard is not None:
            self.tensorboard.close()
            self.tensorboard = TensorBoard(self.directory / "tensorboard", self.session.number)

    def complete(self, interrupt: Interrupt) -> Result:
        """Run all steps that are left."""
        every = self.config.train.checkpoint_every
        while not self.session.done:
            try:
                outlook = self.session.outlook()
                outcome = self.session.step()
            except DivergedError as error:
                raise DivergedError(f"{error}. {self._remedy()}", error.step) from error
            if outcome.step.clients:
                self._tell("step", outcome.record() | outlook)
                self.sums.add(outcome)
            if outcome.step.last:
                self._end_epoch(outcome.step.epoch)
            elif interrupt.requested or (every and self.session.number % every == 0):
                self._save()
            if interrupt.requested and not self.session.done:
                raise KeyboardInterrupt
        return self._result()

    def close(self) -> None:
        """Let go of files and the terminal."""
        self.shown.close()
        self.records.close()
        if self.tensorboard is not None:
            self.tensorboard.close()

    def _restore(self) -> None:
        found = checkpoint.latest(self.checkpoints, self.shown.note, self.config.identity())
        if found is None:
            return
        self.session.restore(found.tensors, found.state["session"])
        self.sums.restore(found.state["sums"])
        best, scored = found.state["best"], found.state["scored"]
        self.best = (float(best[0]), int(best[1])) if best else None
        self.scored = Scored(**scored) if scored else None

    def _end_epoch(self, epoch: int) -> None:
        train = self.config.train
        last = epoch + 1 == train.epochs
        scored = None
        if last or (train.evaluate_every and (epoch + 1) % train.evaluate_every == 0):
            scored = self._evaluate()
            self.scored = scored or self.scored
            if scored is not None and (self.best is None or scored.top1 > self.best[0]):
                self.best = (scored.top1, self.session.number)
        record = self.sums.record(epoch, self.session.number, scored)
        record["simulated_seconds"] = self.session.timeline.clock.seconds
        record["client_bytes"] = {
            str(client): {"up": sent["up"], "down": sent["down"]}
            for client, sent in self.session.meter.by_client().items()
        }
        self._tell("epoch", record)
        self.sums = EpochSums()
        # After the record: a run killed in between repeats the evaluation and writes the record again.
        self._save()

    def _evaluate(self) -> Scored | None:
        scored = None
        try:
            scored = self.session.evaluate()
            what = None if scored is None or math.isfinite(scored.loss) else f"the test loss is {scored.loss}"
        except NonFiniteError as error:
            what = str(error)
        if what is not None:
            number = self.session.number
            raise DivergedError(
                f"training diverged at step {number}, found in evaluation: {what}. {self._remedy()}",
                number - 1,
            )
        return scored

    def _tell(self, kind: str, record: dict[str, Any]) -> None:
        for listener in (self.records, self.tensorboard, self.shown):
            if listener is not None:
                getattr(listener, kind)(record)

    def _save(self) -> None:
        tensors, state = self.session.state()
        bad = _not_finite(tensors)
        if bad is not None:
            raise DivergedError(
                f"training diverged before step {self.session.number + 1}: {bad} is not finite. "
                f"{self._remedy()}",
                self.session.number,
            )
        self.records.sync()
        about = {
            "session": state,
            "sums": self.sums.state(),
            "best": self.best,
            "scored": dataclasses.asdict(self.scored) if self.scored else None,
        }
        checkpoint.save(self.checkpoints, self.session.number, tensors, about, self.config.identity())
        best = self.best[1] if self.best else None
        checkpoint.keep(self.checkpoints, self.config.output.keep, best)

    def _remedy(self) -> str:
        steps = checkpoint.steps(self.checkpoints)
        kept = (
            f"The last good checkpoint, of step {steps[-1]}, is kept"
            if steps
            else "No checkpoint was made yet"
        )
        return f"{kept}; try a lower learning rate or a warm-up"

    def _result(self) -> Result:
        timeline = self.session.timeline
        return Result(
            directory=self.directory,
            epochs=self.config.train.epochs,
            steps=self.session.number,
            scored=self.scored,
            best_accuracy=self.best[0] if self.best else math.nan,
            best_step=self.best[1] if self.best else 0,
            bytes=self.session.meter.snapshot(),
            seconds=time.monotonic() - self.began,
            simulated_seconds=timeline.clock.seconds if timeline.links else None,
        )


def _not_finite(tensors: dict[str, Tensor]) -> str | None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None
