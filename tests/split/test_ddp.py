"""Parts of a cut model under DistributedDataParallel: two processes, to which the parts are pickled."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cutlayer.split import CutLayer, cut


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(1, 2, 3, padding=1)
        self.b = nn.Conv2d(2, 2, 3, padding=1)
        self.fc = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        return self.fc((F.interpolate(b, scale_factor=2) + a).mean((2, 3)))


def train(rank: int, parts: list[nn.Module], folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.manual_seed(1)
    x, y = torch.randn(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    layer = CutLayer(up="qu:bits=8")
    wrapped = [DistributedDataParallel(part) for part in parts]
    crossing = wrapped[0](x[2 * rank : 2 * rank + 2])
    F.cross_entropy(wrapped[1](layer(crossing)), y[2 * rank : 2 * rank + 2]).backward()
    if rank == 0:
        found = [p.grad for part in parts for p in part.parameters()]
        save_file({str(i): g for i, g in enumerate(found) if g is not None}, Path(folder, "gradients"))
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_mean_of_their_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Processes that are spawned import this file by its name, and take over where to look for it.
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    torch.manual_seed(0)
    parts: Any = cut(Skip(), at="b")
    torch.multiprocessing.spawn(train, (list(parts), str(tmp_path)), nprocs=2)
    torch.manual_seed(1)
    x, y = torch.randn(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    layer = CutLayer(up="qu:bits=8")
    for i in (0, 2):
        (F.cross_entropy(parts[1](layer(parts[0](x[i : i + 2]))), y[i : i + 2]) / 2).backward()
    expected = [p.grad for part in parts for p in part.parameters()]
    found = load_file(tmp_path / "gradients")
    assert len(found) == len(expected)
    for i, gradient in enumerate(expected):
        torch.testing.assert_close(found[str(i)], gradient)
