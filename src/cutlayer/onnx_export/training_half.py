"""Export the client's half of a configuration for training without PyTorch: forward pass and VJP."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import safetensors.numpy
import torch

from cutlayer.codecs.registry import codec_of
from cutlayer.config.schema import Config
from cutlayer.data.spec import DataSpec
from cutlayer.device.batches import AUGMENTATIONS
from cutlayer.device.inference_half import ABOUT, FORMAT, INPUT, SMASHED
from cutlayer.device.optimizers import OPTIMIZERS
from cutlayer.device.settings import BEYOND, BEYOND_CODEC
from cutlayer.device.training_half import AFTER, EVALUATE, GRADIENT, GRADIENT_OF, STATE, VJP
from cutlayer.errors import ConfigError, FileError
from cutlayer.files import reason, write_atomically
from cutlayer.imports import need
from cutlayer.models import ANY_MODEL
from cutlayer.onnx_export.graph import Graph, Value
from cutlayer.onnx_export.inference_half import check_form, data_fields, one_tensor
from cutlayer.onnx_export.tape import gradients
from cutlayer.onnx_export.trace import Traced, trace
from cutlayer.protocol.build import make_client, make_task, prepare_model
from cutlayer.protocol.handshake import settings_for_clients
from cutlayer.rates.ladder import at_bits
from cutlayer.rates.scheduled import RateSchedule
from cutlayer.split.client import ClientModel
from cutlayer.tasks.classification import Classification


def export_training(config: Config, spec: DataSpec, path: str | Path) -> dict[str, Any]:
    """Write the half to a file; what it holds, in numbers."""
    need("onnx", "exporting ONNX", "export")
    check_form(spec)
    check(config, spec)
    data = spec.placeholder_data()
    if not isinstance(make_task(config, data.train), Classification):
        raise ConfigError("only classification can be trained without PyTorch yet")
    _, parts = prepare_model(config, data.train, ANY_MODEL)
    model = make_client(config, parts).model
    blank = torch.zeros(1, *spec.shape, dtype=torch.uint8 if spec.pixels else torch.float32)
    images = spec.preprocess().test(blank)
    with torch.no_grad():
        one_tensor(model.head.eval()(images))
    evaluation = trace(model.head, images, training=False)
    forward = trace(model.head, images, training=True)
    state = {name: t.detach().contiguous().numpy().copy() for name, t in model.head.state_dict().items()}
    about = {
        "format": FORMAT,
        "kind": "training",
        "settings": settings_for_clients(config),
        "data": data_fields(spec),
        "smashed": forward.output.shape[1:],
        "rates": rates(config),
        "parameters": model.parameter_names,
        "buffers": model.buffer_names,
    }
    vjp, saved = _vjp(forward, model)
    metadata = {
        ABOUT: json.dumps(about, sort_keys=True),
        VJP: _text(vjp),
        EVALUATE: _text(_evaluation(evaluation)),
        STATE: _text(safetensors.numpy.save(state)),
    }
    content = _forward(forward, saved, metadata)
    try:
        write_atomically(Path(path), content, parents=True)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({reason(error)})") from error
    return {
        "bytes": len(content),
        "weights": sum(p.numel() for p in model.parameters),
        "operators": len(forward.tape.graph.nodes),
        "vjp_bytes": len(vjp),
    }


def check(config: Config, spec: DataSpec) -> None:
    """Raise ConfigError for settings with which only PyTorch can take part."""
    train = config.train
    if train.mode != "parallel":
        raise ConfigError(f"train.mode: a half is trained without PyTorch in mode parallel, not {train.mode}")
    if train.aggregation != "server":
        raise ConfigError(
            f"train.aggregation: without PyTorch the server averages; {train.aggregation} needs PyTorch"
        )
    if train.optimizer not in OPTIMIZERS:
        raise ConfigError(f"train.optimizer: {train.optimizer} needs PyTorch; use {' or '.join(OPTIMIZERS)}")
    identity = config.identity()
    for section, names in (("train", BEYOND), ("codec", BEYOND_CODEC)):
        for name in names:
            if name in identity[section]:
                told = f"{section}.{name}: {identity[section][name]}"
                raise ConfigError(f"{told} needs PyTorch on every client; leave it out")
    if config.codec.follows_link:
        raise ConfigError("codec.rate: a rate that follows the link needs PyTorch; use fixed or until:...")
    if spec.augment not in AUGMENTATIONS:
        raise ConfigError(
            f"data.augment: {spec.augment} needs PyTorch; use one of {', '.join(AUGMENTATIONS)}"
        )


def rates(config: Config) -> list[tuple[float | None, str]]:
    """The codec of smashed data until each share of the run; the last one to its end."""
    up = codec_of(config.codec.up)
    stages = () if config.codec.rate == "fixed" else RateSchedule.parse(config.codec.rate).stages
    return [*((stage.until, str(at_bits(up, stage.bits))) for stage in stages), (None, str(up))]


def _vjp(forward: Traced, model: ClientModel) -> tuple[bytes, list[Value]]:
    """The graph of the VJP, and the values of the forward pass that it needs."""
    weights = [forward.inputs[name] for name in model.parameter_names if name in forward.inputs]
    graph, found = gradients(forward.tape, forward.output, GRADIENT, weights)
    outputs = []
    for weight in weights:
        if weight.name in found:
            outputs.append(_renamed(graph, found[weight.name], GRADIENT_OF + weight.name, weight))
    graph = _only_needed(graph, {value.name for value in outputs})
    used = {name for node in graph.nodes for name in node.input if name}
    own = {name for node in graph.nodes for name in node.output} | set(graph.constants)
    inputs = [Value(GRADIENT, forward.output.shape)] if GRADIENT in used else []
    inputs += [value for value in forward.inputs.values() if value.name in used]
    constants = forward.tape.graph.constants
    graph.constants |= {name: constants[name] for name in used if name in constants}
    known = own | {value.name for value in inputs} | set(graph.constants)
    made = {name for node in forward.tape.graph.nodes for name in node.output}
    shapes = _shapes(forward)
    saved = [
        Value(name, shapes[name][0], False, shapes[name][1]) for name in sorted(used - known) if name in made
    ]
    return graph.model([*inputs, *saved], outputs, {}), saved


def _only_needed(graph: Graph, wanted: set[str]) -> Graph:
    """The nodes on which the wanted values depend, and their constants."""
    needed, kept = set(wanted), []
    for node in reversed(graph.nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    constants = {name: value for name, value in graph.constants.items() if name in needed}
    return Graph(graph.prefix, kept[::-1], constants, graph.used, graph._count)


def _shapes(forward: Traced) -> dict[str, tuple[Any, Any]]:
    """Shapes and types of all values of the forward pass. A size that is not fixed is that of the batch."""
    onnx = need("onnx", "exporting ONNX", "export")
    data = forward.tape.graph.model(forward.inputs.values(), [forward.output], {})
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(data), strict_mode=True)
    found = {}
    for info in model.graph.value_info:
        kind = info.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
        found[info.name] = shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    return found | {forward.output.name: (forward.output.shape, forward.output.dtype)}


def _renamed(graph: Graph, name: str, new: str, like: Value) -> Value:
    """A value under another name."""
    onnx = need("onnx", "exporting ONNX", "export")
    graph.nodes.append(onnx.helper.make_node("Identity", [name], [new]))
    return Value(new, like.shape, False, like.dtype)


def _forward(forward: Traced, saved: list[Value], metadata: dict[str, str]) -> bytes:
    graph = forward.tape.graph
    outputs = [_renamed(graph, forward.output.name, SMASHED, forward.output)]
    outputs += [_renamed(graph, new.name, AFTER + name, new) for name, new in forward.changed.items()]
    graph = _only_needed(graph, {value.name for value in [*outputs, *saved]})
    return graph.model(_used(graph, forward), [*outputs, *saved], metadata)


def _evaluation(evaluation: Traced) -> bytes:
    graph = evaluation.tape.graph
    output = _renamed(graph, evaluation.output.name, SMASHED, evaluation.output)
    graph = _only_needed(graph, {SMASHED})
    return graph.model(_used(graph, evaluation), [output], {})


def _used(graph: Graph, traced: Traced) -> list[Value]:
    names = {name for node in graph.nodes for name in node.input} | {INPUT}
    return [value for value in traced.inputs.values() if value.name in names]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
