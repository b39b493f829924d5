"""Predictions that are no classes: the values of a regression, the probabilities of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.errors import ConfigError
from cutlayer.inference.samples import Samples
from cutlayer.protocol.build import target_of
from cutlayer.split.tensors import Inputs, split_inputs
from cutlayer.tasks import Task
from cutlayer.tasks import build as build_task
from cutlayer.tasks.multilabel import Multilabel
from cutlayer.tasks.registry import TASKS
from cutlayer.tasks.regression import Regression

# More values of a sample are no row of a table.
_MOST = 64


class ValueRows:
    """Rows of values for samples, and the metrics of the task where targets are known.

    Values of a regression are in the units of its targets.
    """

    def __init__(self, config: Config, data_spec: DataSpec) -> None:
        form, target = data_spec.form, config.data.target
        if form.target.dtype == "int64" or math.prod(form.target.shape) > _MOST:
            raise ConfigError(
                "predict writes classes, values or labels, and this model was trained for another task; its "
                "outputs come from Predictor and RemoteModel (`logits`) in Python"
            )
        own = config.task.name not in ("auto", *TASKS)
        self._task: Task | None = (
            None if own else build_task(config.task.name, target_of(form), config.task.options)
        )
        count = math.prod(form.target.shape)
        named = [target] if isinstance(target, str) else list(target or ())
        kind = "label" if form.target.dtype == "bool" else "value"
        self._names = named if len(named) == count else [f"{kind}_{i}" for i in range(count)]
        if count == 1 and not named:
            self._names = [kind]
        self._sums: list[float] = []
        self._samples = 0

    def rows(
        self, logits: Callable[[Inputs], Tensor], found: Samples, batch: int = 256
    ) -> Iterator[dict[str, Any]]:
        """What the model says of each sample, in order, and what is true where that is known."""
        index = 0
        for piece in split_inputs(found.images, batch):
            outputs = logits(piece)
            said = self._in_units(outputs).reshape(len(outputs), -1)
            if said.shape[1] != len(self._names):
                raise ConfigError(
                    f"the model gives {said.shape[1]} values a sample, and targets have {len(self._names)}; "
                    "its outputs come from Predictor and RemoteModel (`logits`) in Python"
                )
            truth = None if found.targets is None else found.targets[index : index + len(outputs)]
            if truth is not None and self._task is not None:
                new = self._task.sums(outputs, truth)
                self._sums = [a + b for a, b in zip(self._sums or [0.0] * len(new), new, strict=True)]
                self._samples += len(outputs)
            for i, values in enumerate(said.tolist()):
                row: dict[str, Any] = {"sample": found.names[index] if found.names else index}
                row |= {name: round(value, 6) for name, value in zip(self._names, values, strict=True)}
                if truth is not None:
                    # Booleans as 0 and 1.
                    true = (truth[i].int() if truth.dtype == torch.bool else truth[i]).reshape(-1).tolist()
                    row |= {
                        self._truth(name): round(value, 6)
                        for name, value in zip(self._names, true, strict=True)
                    }
                yield row
                index += 1

    @property
    def metrics(self) -> str:
        """The metrics of the samples so far, in words; empty if targets are not known."""
        if self._task is None or not self._samples:
            return ""
        results = self._task.results(self._sums, self._samples)
        return ", ".join(
            f"{metric.name} {metric.text(results[metric.name])}" for metric in self._task.metrics
        )

    def _truth(self, name: str) -> str:
        return "truth" if len(self._names) == 1 else f"truth_{name}"

    def _in_units(self, outputs: Tensor) -> Tensor:
        if isinstance(self._task, Multilabel):
            return outputs.sigmoid()
        if isinstance(self._task, Regression):
            return outputs * self._task.scale + self._task.shift
        return outputs
