"""INT8 for ONNX halves: weights and activations as 8-bit integers, with ranges from samples of the run."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cutlayer.device.inference_half import INPUT
from cutlayer.errors import DataError, ModelError
from cutlayer.imports import need

#: Samples from which the ranges of activations are taken, and how many at a time.
CALIBRATION, _BATCH = 256, 32


def quantized(graph: bytes, samples: Any) -> bytes:
    """A graph with 8-bit weights (a scale for each channel) and activations (static ranges).

    `samples` are stored samples of the training data; the first `CALIBRATION` are used.
    """
    if len(samples) == 0:
        raise DataError("quantization needs samples from which to take ranges")
    quantization = need("onnxruntime.quantization", "INT8 halves", "export")
    chosen = np.ascontiguousarray(samples[:CALIBRATION])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._pieces: Iterator[Any] = iter(
                [chosen[i : i + _BATCH] for i in range(0, len(chosen), _BATCH)]
            )

        def get_next(self) -> dict[str, Any] | None:
            piece = next(self._pieces, None)
            return None if piece is None else {INPUT: piece}

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, prepared, target = (Path(folder, name) for name in ("a.onnx", "b.onnx", "c.onnx"))
        source.write_bytes(graph)
        try:
            need("onnxruntime.quantization.shape_inference", "INT8 halves", "export").quant_pre_process(
                str(source), str(prepared), skip_symbolic_shape=True
            )
            quantization.quantize_static(
                str(prepared),
                str(target),
                Reader(),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                op_types_to_quantize=["Conv", "MatMul", "Gemm", "Add"],
            )
        except Exception as error:  # onnxruntime raises whatever its tools stumble over
            raise ModelError(
                f"the half cannot be quantized ({type(error).__name__}: {str(error)[:200]})"
            ) from error
        return target.read_bytes()
