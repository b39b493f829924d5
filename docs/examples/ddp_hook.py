"""Two processes train one model with DistributedDataParallel; gradients travel as frames of a codec.

python docs/examples/ddp_hook.py
"""

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import cutlayer
from cutlayer.integrations.ddp import CompressedGradients, compressed_gradients


def main(rank: int, ranks: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4)))
    state = CompressedGradients(cutlayer.codec("ems:bpe=2.0"))
    model.register_comm_hook(state, compressed_gradients)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(30):
        x = torch.randn(64, 64, generator=draw)
        target = x[:, :4].argmax(1)
        loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    checked = [torch.zeros(1) for _ in range(ranks)]
    dist.all_gather(checked, sum(p.detach().abs().sum() for p in model.parameters()).view(1))
    if rank == 0:
        print(f"loss {loss:.2f}")
        print(f"gradients {state.raw_bytes / state.sent_bytes:.1f} times smaller than float32")
        print("equal weights on all ranks:", bool(checked[0] == checked[1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, args=(2, f"{folder}/meeting"), nprocs=2)
