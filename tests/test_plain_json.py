"""JSON that every parser accepts, in one line."""

import numpy as np
import torch

from cutlayer.plain_json import to_json


def test_json_is_one_line() -> None:
    assert to_json({"a": "x\ny", "b": (1, 2)}) == '{"a": "x\\ny", "b": [1, 2]}'


def test_numbers_of_numpy_and_pytorch_are_plain_and_nan_is_null() -> None:
    assert to_json([np.float32(0.5), torch.tensor(3), float("nan"), np.inf]) == "[0.5, 3, null, null]"
