"""Export the client's half of a trained run as one ONNX file: graph, pre-processing, codec and digest."""

from __future__ import annotations

import base64
import io
import json
import logging
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.data.spec import DataSpec
from cutlayer.device.data_form import DataForm
from cutlayer.device.inference_half import ABOUT, FEATURES, FORMAT, INPUT, LOGITS, SMASHED, TAIL, OnnxHalf
from cutlayer.errors import ConfigError, FileError, ModelError
from cutlayer.files import reason, write_atomically
from cutlayer.imports import need
from cutlayer.inference.client_half import ClientSide
from cutlayer.split.tensors import Tensors
from cutlayer.training.load_run import Trained

#: Makes INT8 of the bytes of a head; see `quantize`.
Quantize = Callable[[bytes], bytes]


class _WithPreprocessing(nn.Module):
    """A head that takes samples as they are stored."""

    factor: Tensor
    shift: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, spec: DataSpec, head: nn.Module) -> None:
        super().__init__()
        self.spec, self.head = spec, head
        self.as_given = not spec.pixels and not any(spec.mean) and set(spec.std) == {1.0}
        if spec.pixels:
            mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (spec.mean, spec.std))
            self.register_buffer("factor", 1 / (255 * std))
            self.register_buffer("shift", mean / std)
        else:
            shape = (1, -1, *[1] * (len(spec.shape) - 1))
            for name, values in (("mean", spec.mean), ("std", spec.std)):
                self.register_buffer(name, torch.tensor(values, dtype=torch.float64).view(shape))

    def forward(self, images: Tensor) -> Any:
        """Normalize as in training, cut to size at the centre, and run the head."""
        size = self.spec.size
        if size is not None and images.dim() == 4:
            top, left = (max(0, side - size) // 2 for side in self.spec.shape[1:])
            images = images[:, :, top : top + size, left : left + size]
        if self.spec.pixels:
            images = images.to(torch.float32) * self.factor - self.shift
        elif not self.as_given:  # in double, as `data.Augment` does it
            images = ((images.to(torch.float64) - self.mean) / self.std).to(torch.float32)
        return self.head(images)


class _Tail(nn.Module):
    """The tail of a U-shape, with one argument that has a name."""

    def __init__(self, tail: nn.Module) -> None:
        super().__init__()
        self.tail = tail

    def forward(self, features: Tensor) -> Any:
        """Logits from the server's activations."""
        return self.tail(features)


def export_onnx(trained: Trained, path: str | Path, quantize: Quantize | None = None) -> OnnxHalf:
    """Write the client's half of a run; the half as a device will load it, checked against PyTorch."""
    need("onnx", "exporting ONNX", "export")
    need("onnxscript", "exporting ONNX", "export")
    path = Path(path)
    if path.suffix != ".onnx":
        raise FileError(f"{path}: an ONNX half is an .onnx file; give it that name")
    side, spec = ClientSide.of(trained), trained.data_spec
    check_form(spec)
    samples = torch.zeros(2, *spec.shape, dtype=torch.uint8 if spec.pixels else torch.float32)
    smashed = one_tensor(side.smash(samples))
    head = graph_of(_WithPreprocessing(spec, side.head).eval(), samples, INPUT, SMASHED)
    metadata = {}
    if side.tail is not None:
        with torch.no_grad():
            features = one_tensor(trained.parts[1](side.decode(side.encode(smashed))))
        metadata[TAIL] = base64.b64encode(
            graph_of(_Tail(side.tail).eval(), features, FEATURES, LOGITS)
        ).decode()
    metadata[ABOUT] = json.dumps(
        {
            "format": FORMAT,
            "kind": "inference",
            "digest": side.digest,
            "codec": trained.config.codec.up,
            "data": data_fields(spec),
            "smashed": list(smashed.shape[1:]),
            "step": trained.step,
            "quantized": quantize is not None,
        },
        sort_keys=True,
    )
    content = with_metadata(quantize(head) if quantize else head, metadata)
    half = OnnxHalf(content, str(path))
    try:
        write_atomically(path, content, parents=True)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({reason(error)})") from error
    return half


def check_form(spec: DataSpec) -> None:
    """Raise ConfigError for data that a device without PyTorch cannot prepare."""
    form = spec.form
    if not form.plain:
        inputs = ", ".join(tensor.describe() for tensor in form.inputs)
        raise ConfigError(
            "an ONNX half takes images or float features and tells classes; these data have inputs of "
            f"{inputs} and targets of {form.target.describe()}. Export the half for PyTorch "
            "(--format safetensors)"
        )


def one_tensor(crossing: Tensors) -> Tensor:
    """The tensor that crosses a cut; ModelError if there are several."""
    if isinstance(crossing, dict):
        raise ModelError(
            f"several tensors cross the cut ({', '.join(crossing)}), and an ONNX half sends one; cut "
            "the model elsewhere, or export it for PyTorch (--format safetensors)"
        )
    return crossing


def data_fields(spec: DataSpec) -> dict[str, Any]:
    """What a device is told of the data: those fields that plain data have."""
    return {field.name: getattr(spec, field.name) for field in fields(DataForm)}


def graph_of(module: nn.Module, example: Tensor, given: str, found: str) -> bytes:
    """A module as an ONNX graph for batches of any size."""
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    quiet = io.StringIO()  # the exporter talks a lot
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                input_names=[given],
                output_names=[found],
                dynamic_shapes=({0: batch},),
                verbose=False,
            )
    except Exception as error:  # the exporter has classes of its own, and the model's code may raise anything
        raise ModelError(
            f"the half cannot be exported as ONNX: {_cause(error)}; cut the model elsewhere, or export it "
            "for PyTorch (--format safetensors)"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    if program is None:
        raise ModelError("the half cannot be exported as ONNX: PyTorch's exporter gave nothing")
    model: bytes = program.model_proto.SerializeToString(deterministic=True)
    return model


def with_metadata(graph: bytes, metadata: dict[str, str]) -> bytes:
    """A graph with what the file says about itself, and without what its exporter left there."""
    onnx = need("onnx", "exporting ONNX", "export")
    model = onnx.load_from_string(graph)
    for node in model.graph.node:  # traces of where in the model's code a node comes from
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]:
        del value.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, metadata)
    found: bytes = model.SerializeToString(deterministic=True)
    return found


def _cause(error: BaseException) -> str:
    """What is at the bottom of an error of the exporter."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
