"""Parts of a cut model under DistributedDataParallel: two processes, to which the parts are pickled."""

import socket
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
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


def train(rank: int, port: int, parts: list[nn.Module], folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    torch.manual_seed(1)
    x, y = torch.randn(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    layer = CutLayer(up="qu:bits=8")
    wrapped = [DistributedDataParallel(part) for part in parts]
    crossing = wrapped[0](x[2 * rank : 2 * rank + 2])
    F.cross_entropy(wrapped[1](layer(crossing)), y[2 * rank : 2 * rank + 2]).backward()
    if rank == 0:
        torch.save([p.grad for part in parts for p in part.parameters()], Path(folder, "gradients"))
    torch.distributed.destroy_process_group()


def test_two_processes_have_the_mean_of_their_gradients(tmp_path: Path) -> None:
    torch.manual_seed(0)
    parts: Any = cut(Skip(), at="b")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    torch.multiprocessing.spawn(train, (port, list(parts), str(tmp_path)), nprocs=2)
    torch.manual_seed(1)
    x, y = torch.randn(4, 1, 4, 4), torch.tensor([0, 1, 2, 0])
    layer = CutLayer(up="qu:bits=8")
    for i in (0, 2):
        (F.cross_entropy(parts[1](layer(parts[0](x[i : i + 2]))), y[i : i + 2]) / 2).backward()
    expected = [p.grad for part in parts for p in part.parameters()]
    for a, b in zip(torch.load(tmp_path / "gradients"), expected, strict=True):
        torch.testing.assert_close(a, b)
