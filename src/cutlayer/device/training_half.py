"""A client's half for training, as `cutlayer export CONFIG --part client --format onnx-training` writes it.

The file is the graph of the forward pass. Its metadata hold two more graphs, the vector-Jacobian product and
the forward pass of evaluation, and the first weights. Weights and batch-norm statistics are inputs of the
graphs: they live here, as arrays.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from cutlayer.codecs import Codec
from cutlayer.codecs.registry import codec_of
from cutlayer.device import data_form
from cutlayer.device.data_form import DataForm
from cutlayer.device.inference_half import INPUT, SMASHED, about_half
from cutlayer.device.optimizers import Optimizer, make_optimizer
from cutlayer.device.sessions import Session, read_file
from cutlayer.device.settings import RunSettings
from cutlayer.errors import CheckpointError, CutlayerError, FileError

HOW = "cutlayer export CONFIG --part client --format onnx-training"
VJP, EVALUATE, STATE = "cutlayer.vjp", "cutlayer.evaluate", "cutlayer.state"
#: Names of inputs and outputs: the gradient of smashed data, gradients of weights, statistics after a step.
GRADIENT, GRADIENT_OF, AFTER = "gradient", "gradient of ", "after "
_MOST_ELEMENTS = 1 << 28

Arrays = dict[str, Any]


@dataclass(frozen=True)
class TrainingFile:
    """An exported half, read and checked."""

    settings: str
    """The run's settings, word for word as the server offers them."""
    run: RunSettings
    """These settings as understood here."""
    form: DataForm
    shape: tuple[int, ...]
    """Of the smashed data of one sample."""
    rates: tuple[tuple[float, Codec], ...]
    """The codec of smashed data until each share of the run; the last one until infinity."""
    parameters: tuple[str, ...]
    """Trained weights, in the order of shared vectors."""
    buffers: tuple[str, ...]
    state: Mapping[str, Any]
    """Weights and buffers at the beginning of the run, and weights that are not trained."""
    forward: Session
    vjp: Session
    evaluate: Session

    @staticmethod
    def load(path: str | Path, threads: int = 1) -> TrainingFile:
        """From a file, which may come from anywhere."""
        where = str(path)
        forward = Session(read_file(Path(path), HOW), where, HOW, threads)
        metadata = forward.metadata
        try:
            about = about_half(metadata, "training")
            form = DataForm.parse(about["data"])
            shape = data_form.whole_numbers(about["smashed"], 1, _MOST_ELEMENTS, most=8)
            rates = tuple(
                (math.inf if until is None else data_form.number(until, 0, 1), codec_of(data_form.text(spec)))
                for until, spec in (
                    data_form.items(pair, 2) for pair in data_form.items(about["rates"], 1000)
                )
            )
            parameters = tuple(data_form.text(n) for n in data_form.items(about["parameters"], 1 << 16))
            buffers = tuple(data_form.text(n) for n in data_form.items(about["buffers"], 1 << 16))
            settings, run = about["settings"], RunSettings.parse(about["settings"])
            state = safetensors.numpy.load(base64.b64decode(metadata[STATE], validate=True))
            graphs = [base64.b64decode(metadata[name], validate=True) for name in (VJP, EVALUATE)]
            if not rates or rates[-1][0] != math.inf:
                raise ValueError("it does not say which codec smashed data have")
        except (KeyError, TypeError, ValueError, RecursionError, SafetensorError) as error:
            if isinstance(error, CutlayerError):
                raise FileError(f"{where}: {error}") from error
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)[:200]
            raise FileError(f"{where}: is not a half for training ({reason}); make it with: {HOW}") from error
        vjp, evaluate = (
            Session(graph, f"{where} ({name})", HOW, threads)
            for graph, name in zip(graphs, ("vector-Jacobian product", "evaluation"), strict=True)
        )
        found = TrainingFile(
            settings, run, form, shape, rates, parameters, buffers, state, forward, vjp, evaluate
        )
        found._check(where)
        return found

    def _check(self, where: str) -> None:
        """Raise FileError unless the graphs take and give what the file says."""
        residuals = set(self.forward.outputs) - {SMASHED} - {AFTER + name for name in self.buffers}
        known = set(self.state) | {INPUT}
        for problem in (
            None if set(self.parameters) | set(self.buffers) <= set(self.state) else "weights are missing",
            None if len(set(self.parameters)) == len(self.parameters) else "a weight stands there twice",
            None
            if set(self.forward.inputs) | set(self.evaluate.inputs) <= known
            else "an input is not known",
            None if set(self.vjp.inputs) <= known | residuals | {GRADIENT} else "an input is not known",
            None
            if SMASHED in self.forward.outputs and set(self.evaluate.outputs) == {SMASHED}
            else "no output",
            None
            if set(self.vjp.outputs) <= {GRADIENT_OF + name for name in self.parameters}
            else "a gradient of no weight",
        ):
            if problem:
                raise FileError(
                    f"{where}: the graphs do not fit what the file says ({problem}); make it with: {HOW}"
                )
        for name, value in self.state.items():
            for session in (self.forward, self.vjp, self.evaluate):
                shape, dtype = session.inputs.get(name, (value.shape, value.dtype))
                if shape != value.shape or dtype != value.dtype:
                    raise FileError(f"{where}: {name} has another shape in a graph; make it with: {HOW}")


class TrainingHalf:
    """A device's half at work: forward, backward, update; the twin of `split.client.ClientHalf` in NumPy."""

    def __init__(self, file: TrainingFile) -> None:
        self.file = file
        self.optimizer: Optimizer = make_optimizer(file.run)
        self.state: Arrays = {name: np.array(value) for name, value in file.state.items()}
        self.gradients: list[Any | None] = []
        self.applied = -1
        self._open: Arrays | None = None

    @property
    def weights(self) -> list[Any]:
        """The trained weights, in order."""
        return [self.state[name] for name in self.file.parameters]

    @property
    def buffers(self) -> list[Any]:
        """Batch-norm statistics and the like, in order."""
        return [self.state[name] for name in self.file.buffers]

    def forward(self, images: Any) -> Any:
        """The smashed data of a batch. What the backward pass needs is kept until then."""
        session = self.file.forward
        given = {name: images if name == INPUT else self.state[name] for name in session.inputs}
        found = dict(zip(session.outputs, session(given), strict=True))
        for name in self.file.buffers:
            if AFTER + name in found:
                self.state[name] = np.asarray(found.pop(AFTER + name), self.state[name].dtype)
        smashed = found.pop(SMASHED)
        self._open = found | {INPUT: images}
        return smashed

    def evaluate(self, images: Any, state: Mapping[str, Any] | None = None) -> Any:
        """The smashed data of a batch in evaluation, with this state or the half's own."""
        session, values = self.file.evaluate, state or self.state
        return session({name: images if name == INPUT else values[name] for name in session.inputs})[0]

    def backward(self, gradient: Any) -> None:
        """The gradients of weights from the gradient of the smashed data."""
        kept, self._open = self._open, None
        if kept is None:
            raise RuntimeError("backward without a forward before it")
        session = self.file.vjp
        # Trained weights have not changed since the forward pass, so that they need not be kept.
        given = {
            name: gradient if name == GRADIENT else kept[name] if name in kept else self.state[name]
            for name in session.inputs
        }
        found = dict(zip(session.outputs, session(given), strict=True)) if session.outputs else {}
        self.gradients = [found.get(GRADIENT_OF + name) for name in self.file.parameters]

    def gradient_vector(self) -> Any:
        """The gradients of all weights as one vector; missing ones are zeros. Clears the gradients."""
        pairs = zip(self.gradients, self.weights, strict=True)
        vector = flatten([np.zeros_like(w) if g is None else g for g, w in pairs])
        self.gradients = []
        return vector

    def step(self, lr: float) -> None:
        """Update the weights with this client's own gradients."""
        self.optimizer.step(self.weights, self.gradients, lr)
        self.gradients = []

    def apply_mean(self, gradients: Callable[[], Any], lr: float, number: int) -> None:
        """Update with averaged gradients, once for each step `number`."""
        self.gradients = []
        if number > self.applied:
            self.optimizer.step(self.weights, unflatten(gradients(), self.weights), lr)
            self.applied = number

    def load_weights(self, vector: Any) -> None:
        """Replace all weights; the optimizer keeps its own momentum."""
        assign(self.state, self.file.parameters, vector)

    def load_buffers(self, vector: Any) -> None:
        """Replace the buffers."""
        assign(self.state, self.file.buffers, vector)

    def full_state(self) -> Arrays:
        """Weights, buffers and optimizer, named as in a checkpoint."""
        model = {f"model.{name}": value for name, value in self.state.items()}
        return model | {f"optimizer.{name}": value for name, value in self.optimizer.state().items()}

    def restore(self, state: Mapping[str, Any], number: int) -> None:
        """Continue from what `full_state` gave after `number` steps."""
        for name, own in self.state.items():
            saved = state.get(f"model.{name}")
            if saved is None:
                raise CheckpointError(f"the checkpoint has no tensor {name!r}; it is of another model")
            if saved.shape != own.shape or saved.dtype != own.dtype:
                raise CheckpointError(
                    f"{name} has shape {list(saved.shape)} in the checkpoint, {list(own.shape)} in the model"
                )
        self.state = {name: np.array(state[f"model.{name}"]) for name in self.state}
        memory = {n.removeprefix("optimizer."): v for n, v in state.items() if n.startswith("optimizer.")}
        self.optimizer.restore(memory, self.weights)
        self.applied = number - 1
        self._open = None


def flatten(arrays: list[Any]) -> Any:
    """All elements in one float32 vector. Integers, such as batch counters, are converted, too."""
    return (
        np.concatenate([a.reshape(-1).astype(np.float32) for a in arrays])
        if arrays
        else np.empty(0, np.float32)
    )


def unflatten(vector: Any, like: list[Any]) -> list[Any]:
    """Pieces of a vector in the shapes and types of the given arrays."""
    if vector.shape != (sum(a.size for a in like),):
        raise ValueError(f"a vector of shape {list(vector.shape)} for {sum(a.size for a in like)} weights")
    if not like:
        return []
    ends = np.cumsum([a.size for a in like])[:-1]
    return [
        (piece if a.dtype.kind == "f" else np.rint(piece)).reshape(a.shape).astype(a.dtype)
        for piece, a in zip(np.split(vector, ends), like, strict=True)
    ]


def assign(state: Arrays, names: tuple[str, ...], vector: Any) -> None:
    """Put the pieces of a vector in the place of the arrays of these names."""
    state.update(zip(names, unflatten(vector, [state[name] for name in names]), strict=True))
