"""An exported model depends on the run alone."""

from pathlib import Path

import torch
from safetensors.torch import load

from cutlayer.inference.export import canonical_file, export
from cutlayer.training.load_run import open_run


def test_equal_models_give_equal_files() -> None:
    tensors = {"b.weight": torch.arange(6.0).view(2, 3), "a": torch.ones(3).half(), "ü": torch.zeros(1)}
    metadata = {"format": "pt", "cutlayer": '{"part":"client"}', "note": 'größe "x"'}
    # The library draws the order of metadata from a hash that differs from call to call.
    files = {canonical_file(tensors, dict(reversed(metadata.items()))) for _ in range(50)}
    files |= {canonical_file(dict(reversed(tensors.items())), metadata) for _ in range(50)}
    (file,) = files
    found = load(file)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert all(found[name].dtype == tensor.dtype for name, tensor in tensors.items())


def test_a_run_exported_again_gives_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    files = set()
    for number in range(8):
        path = tmp_path / f"{number}.safetensors"
        export(open_run(trained), path, "client")
        files.add(path.read_bytes())
    assert len(files) == 1
