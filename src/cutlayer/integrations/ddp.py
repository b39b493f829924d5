"""A communication hook for DistributedDataParallel: gradients travel as frames of a codec.

    model = DistributedDataParallel(net)
    model.register_comm_hook(CompressedGradients(cutlayer.codec("ems:bpe=2.0")), compressed_gradients)

Each rank encodes its gradients, an all-gather exchanges the frames, and each rank decodes all of them and
takes the mean. What a lossy codec drops is added to the next gradients (error feedback). All ranks get the
same mean, to the bit. Bytes grow with the number of ranks, as in every all-gather: this pays for a few ranks
on slow links.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cutlayer.codecs.base import Codec
from cutlayer.codecs.decode import decode
from cutlayer.split.layer import mix


class CompressedGradients:
    """The state of the hook on one rank: the codec, what it dropped so far, and the bytes."""

    def __init__(
        self, codec: Codec, *, feedback: bool = True, group: dist.ProcessGroup | None = None, seed: int = 0
    ) -> None:
        self.codec = codec
        self.feedback = feedback
        self.group = group
        self.seed = seed
        self.dropped: dict[int, Tensor] = {}
        """What was not sent yet, by bucket."""
        self.calls = 0
        self.sent_bytes = 0
        """All frames of this rank so far; `raw_bytes` is what float32 would have taken."""
        self.raw_bytes = 0


# DistributedDataParallel looks at these annotations, so they cannot be strings.
def compressed_gradients(
    state: CompressedGradients,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """The hook: give it to `register_comm_hook`, with a `CompressedGradients` of this rank's own."""
    mean = _exchange(state, bucket.index(), bucket.buffer())
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(mean)
    return done


def _exchange(state: CompressedGradients, index: int, gradient: Tensor) -> Tensor:
    kept = state.dropped.get(index)
    wanted = gradient if kept is None or kept.shape != gradient.shape else gradient + kept
    state.calls += 1
    rank = dist.get_rank(state.group)
    frame = state.codec.encode(wanted, seed=mix(mix(state.seed, rank), state.calls))
    if state.feedback:
        state.dropped[index] = wanted - decode(frame, max_elements=wanted.numel()).to(wanted)
    state.sent_bytes += len(frame)
    state.raw_bytes += 4 * gradient.numel()
    frames = _all_gather_bytes(frame, gradient.device, state.group)
    total = torch.zeros_like(gradient)
    # In the order of ranks: sums are the same everywhere.
    for one in frames:
        total += decode(one, max_elements=gradient.numel()).to(gradient).view_as(gradient)
    return total.div_(len(frames))


def _all_gather_bytes(frame: bytes, device: torch.device, group: Any) -> list[bytes]:
    """The frames of all ranks. Their sizes differ: sizes go first, then frames padded to the largest."""
    ranks = dist.get_world_size(group)
    size = torch.tensor([len(frame)], device=device)
    sizes = [torch.zeros_like(size) for _ in range(ranks)]
    dist.all_gather(sizes, size, group=group)
    largest = max(int(found) for found in sizes)
    padded = torch.zeros(largest, dtype=torch.uint8, device=device)
    padded[: len(frame)] = torch.frombuffer(bytearray(frame), dtype=torch.uint8).to(device)
    found = [torch.empty_like(padded) for _ in range(ranks)]
    dist.all_gather(found, padded, group=group)
    return [one[: int(n)].cpu().numpy().tobytes() for one, n in zip(found, sizes, strict=True)]
