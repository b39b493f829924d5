"""A graph of ONNX operators, built node by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutlayer.imports import need

#: The first set of operators whose reductions take axes as an input, and ScatterElements can add.
OPSET = 18
IR_VERSION = 9
BATCH = "batch"

Shape = tuple[int | None, ...]  # None is the number of samples


@dataclass(frozen=True)
class Value:
    """An array in a graph."""

    name: str
    shape: Shape
    trained: bool = False
    """Whether it depends on trained weights."""
    dtype: Any = np.float32


@dataclass
class Graph:
    """Nodes and constants. Names of values are unique among all graphs with the same prefix."""

    prefix: str
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    _count: int = 0

    def add(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or the names if there are several."""
        helper = need("onnx", "exporting ONNX", "export").helper
        names = [self.new() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        self.used.update(name for name in inputs if name)
        return names[0] if outputs == 1 else names

    def new(self) -> str:
        """A name that no other value has."""
        self._count += 1
        return f"{self.prefix}{self._count}"

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A constant array."""
        name = self.new()
        self.constants[name] = np.array(value, dtype)
        return name

    def indices(self, *values: int) -> str:
        """A constant list of integers."""
        return self.constant(list(values), np.int64)

    def reduce(self, operator: str, x: str, axes: Sequence[int], keep: bool = True) -> str:
        """ReduceSum or ReduceMean over some axes."""
        name: str = self.add(operator, [x, self.indices(*axes)], keepdims=int(keep))
        return name

    def model(self, inputs: Iterable[Value], outputs: Iterable[Value], metadata: Mapping[str, str]) -> bytes:
        """The graph as an ONNX file. Outputs are values of the graph or its inputs, under any name."""
        onnx = need("onnx", "exporting ONNX", "export")
        helper, numpy_helper = onnx.helper, onnx.numpy_helper
        made = helper.make_graph(
            self.nodes,
            "half",
            [_info(helper, value) for value in inputs],
            [_info(helper, value) for value in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(
            made,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="cutlayer",
        )
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        found: bytes = model.SerializeToString(deterministic=True)
        return found


def _info(helper: Any, value: Value) -> Any:
    shape = [BATCH if size is None else size for size in value.shape]
    return helper.make_tensor_value_info(
        value.name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), shape
    )
