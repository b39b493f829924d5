"""An ONNX half of somebody else's reads no file, and cannot loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutlayer.device.sessions import Session
from cutlayer.errors import FileError

onnx = pytest.importorskip("onnx")
FLOAT = 1


def model(weights: Any, *, as_attribute: bool = False, branch: bool = False) -> bytes:
    """A graph that adds weights to its input."""
    helper = onnx.helper
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    initializers = [] if as_attribute else [weights]
    if as_attribute:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=weights))
    if branch:
        inner = helper.make_graph(
            [helper.make_node("Identity", ["y"], ["z"])], "g", [], [value("z", 1, None)]
        )
        yes = helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])
        nodes += [
            helper.make_node("Constant", [], ["yes"], value=yes),
            helper.make_node("If", ["yes"], ["out"], then_branch=inner, else_branch=inner),
        ]
    graph = helper.make_graph(
        nodes, "g", [value("x", FLOAT, ["n", 4])], [value("y", FLOAT, ["n", 4])], initializers
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found: bytes = made.SerializeToString()
    return found


def tensor(where: str | None) -> Any:
    made = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    if where is not None:
        made.ClearField("raw_data")
        made.data_location = onnx.TensorProto.EXTERNAL
        made.external_data.add(key="location", value=where)
    return made


@pytest.mark.parametrize("as_attribute", [False, True], ids=["initializer", "constant"])
def test_weights_in_another_file_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_attribute: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private.key").write_bytes(b"k" * 16)
    with pytest.raises(FileError, match="in another file; nothing was read"):
        Session(model(tensor("private.key"), as_attribute=as_attribute), "half.onnx", "export")


def test_a_graph_with_branches_is_refused() -> None:
    with pytest.raises(FileError, match="loops or branches"):
        Session(model(tensor(None), branch=True), "half.onnx", "export")


def test_a_whole_graph_runs_and_every_cut_one_is_refused() -> None:
    good = model(tensor(None))
    (found,) = Session(good, "half.onnx", "export")({"x": np.zeros((1, 4), np.float32)})
    assert found.tolist() == [[1, 1, 1, 1]]
    for end in range(1, len(good)):
        with pytest.raises(FileError, match=r"half\.onnx"):
            Session(good[:end], "half.onnx", "export")
