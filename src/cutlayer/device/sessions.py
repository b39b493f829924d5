"""Sessions of onnxruntime: a graph in bytes, checked, as a function of named arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutlayer.device.graph_check import check_graph
from cutlayer.errors import FileError
from cutlayer.imports import need

#: More than any half of a model has; protobuf itself ends at this size.
MOST_BYTES = 1 << 31
_TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64}
_OPERATOR = re.compile(
    r"implementation for (\w+\(\d+\))|No [Oo]p registered for (\w+)|(\w+) is not a registered"
)


def read_file(path: Path, how: str) -> bytes:
    """The bytes of an ONNX file; `how` says how such a file is made."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileError(f"{path}: is larger than an ONNX file can be; make one with: {how}")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}); make it with: {how}") from error


class Session:
    """One graph. `inputs` and `outputs` say what it takes and gives: names, shapes and types."""

    def __init__(self, graph: bytes, where: str, how: str, threads: int = 1) -> None:
        """`where` names the graph in errors, and `how` says how such a file is made."""
        runtime = need("onnxruntime", "running half of a model without PyTorch", "device")
        check_graph(graph, where, how)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # its errors are raised as well
        # A thread that waits must not keep the processor from the thread that it waits for.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has classes of its own for each kind
            raise _refused(error, where, how, runtime.__version__) from None
        self.where = where
        self.inputs = {i.name: (tuple(i.shape), _TYPES.get(i.type)) for i in self._session.get_inputs()}
        self.outputs = {o.name: (tuple(o.shape), _TYPES.get(o.type)) for o in self._session.get_outputs()}

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the file says about itself."""
        found: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        return found

    def __call__(self, values: Mapping[str, Any], names: Sequence[str] | None = None) -> list[Any]:
        """The outputs of these names, or all, for these inputs."""
        try:
            found: list[Any] = self._session.run(names, dict(values))
        except Exception as error:
            raise FileError(f"{self.where}: onnxruntime failed ({_first_line(error)})") from None
        return found


def _refused(error: Exception, where: str, how: str, version: str) -> FileError:
    text, kind = str(error), type(error).__name__
    operator = _OPERATOR.search(text)
    if kind == "NotImplemented" or operator:
        name = next(filter(None, operator.groups()), "one") if operator else "one"
        return FileError(
            f"{where}: onnxruntime {version} lacks an operator that the half needs ({name}); install a newer "
            f"onnxruntime, or export a model without it: {how}"
        )
    if kind == "InvalidProtobuf":
        return FileError(f"{where}: is not an ONNX file; make it with: {how}")
    return FileError(f"{where}: onnxruntime cannot run it ({_first_line(error)}); make it anew with: {how}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
