"""The ranks of a server as a group: they exchange words, add tensors, and fail together.

Every rank comes to the same points in the same order. At each it says how it fares: if one cannot go on, all
learn it there, and raise. Whoever waits for a rank that is gone gets `RankLostError`.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from cutlayer.errors import NonFiniteError, RankLostError, RollbackError
from cutlayer.ranks.environment import RankEnvironment
from cutlayer.ranks.start import agree_on_start, run_begins

# Not all that is used here is in PyTorch's own type descriptions.
dist: Any = torch.distributed
# A run may wait for a client for days, and all ranks with it. That a rank is gone shows otherwise: its
# connections close, and torchrun ends the others.
_PATIENCE = timedelta(days=30)
# Most words are shorter, and so take one collective.
_SHORT = 1020
# How often a thread that waits for others looks at signals.
_GLANCE = 0.2


class TogetherRollbackError(RollbackError):
    """All ranks know that the run has to go on from its last checkpoint."""


class TogetherNonFiniteError(NonFiniteError):
    """All ranks know that training has diverged."""


_FAILURES: dict[str, type[RollbackError | NonFiniteError]] = {
    "rollback": TogetherRollbackError,
    "diverged": TogetherNonFiniteError,
}


class RankGroup:
    """This rank's end. `place` counts ranks from the leader, which has place 0."""

    def __init__(self, environment: RankEnvironment, device: str = "cpu") -> None:
        self.environment = environment
        self.world = environment.world
        self._leader = 0
        self._goes_on = False
        self._store: Any = None
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="ranks", daemon=True).start()
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        self._call(lambda: self._join(backend))

    def _join(self, backend: str) -> None:
        """Meet the others at torchrun's store, where an earlier start may have left its addresses."""
        rank, world = self.environment.rank, self.world
        store, _, _ = next(dist.rendezvous("env://", rank, world, timeout=_PATIENCE))
        start = agree_on_start(store, rank, world)
        self._goes_on, self._store = start.goes_on, store
        fresh = dist.PrefixStore(f"cutlayer/start-{start.name}", store)
        dist.init_process_group(backend, store=fresh, rank=rank, world_size=world, timeout=_PATIENCE)

    @property
    def place(self) -> int:
        """This rank, counted from the leader."""
        return (self.environment.rank - self._leader) % self.world

    @property
    def leads(self) -> bool:
        """Whether this rank is the leader: it writes the run's directory and evaluates."""
        return self.place == 0

    def goes_on(self) -> bool:
        """Whether earlier ranks of this torchrun began the run, so that these go on with it."""
        # Without a store that outlives ranks, how often they were started tells; not whether they began.
        again = self._goes_on if self.environment.keeps_store else self.environment.restarts > 0
        return any(said["again"] for said in self.talk("again", again=again))

    def run_begins(self) -> None:
        """Ranks that torchrun starts after these are to go on with the run."""
        self._call(lambda: run_begins(self._store))

    def elect(self, newest: int) -> None:
        """Make the rank the leader that has the newest checkpoint; the first of them.

        Which rank a machine gets may change when torchrun starts ranks again; the run's directory stays.
        """
        found = [said["newest"] for said in self.talk("elect", newest=newest)]
        self._leader = found.index(max(found))

    def talk(self, point: str, **say: Any) -> list[dict[str, Any]]:
        """Tell all ranks something, as JSON, and hear what each says, the leader first.

        Raises what `fail` says at another rank.
        """
        return self._hear(point, {"at": point, "say": say})

    def fail(self, error: RollbackError | NonFiniteError) -> None:
        """Tell all ranks that this one cannot go on. Raises, as the next `talk` of all others does."""
        kind = "rollback" if isinstance(error, RollbackError) else "diverged"
        self._hear("", {"failed": kind, "why": str(error)[:500]})

    def command(self, name: str = "", **about: Any) -> dict[str, Any]:
        """The leader's next command: it says so, and the others hear it."""
        return self.talk("command", **({"name": name, **about} if self.leads else {}))[0]

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place. All get the same bits."""
        self._call(lambda: dist.all_reduce(tensor))
        return tensor

    def broadcast(self, tensor: Tensor, place: int) -> Tensor:
        """The tensor of one rank, in place."""
        source = (place + self._leader) % self.world
        self._call(lambda: dist.broadcast(tensor, source))
        return tensor

    def send_all(self, data: bytes | None) -> bytes:
        """The leader's bytes. The others give None."""
        length = self.broadcast(torch.tensor([len(data or b"")]), 0)
        content = torch.empty(int(length), dtype=torch.uint8)
        if data:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return self.broadcast(content, 0).numpy().tobytes()

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, at the leader, itself first; nothing elsewhere."""
        lengths = [said["length"] for said in self.talk("gather", length=len(data))]
        padded = _padded(data, max(1, *lengths))
        found = [torch.empty_like(padded) for _ in lengths] if self.leads else None
        self._call(lambda: dist.gather(padded, found, self._leader))
        if found is None:
            return []
        ordered = [found[(place + self._leader) % self.world] for place in range(self.world)]
        return [t[:n].numpy().tobytes() for t, n in zip(ordered, lengths, strict=True)]

    def exchange(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, at every rank, the leader's first."""
        head = len(data).to_bytes(4, "little") + data[:_SHORT]
        heads = self._all(_padded(head, 4 + _SHORT))
        lengths = [int.from_bytes(h[:4], "little") for h in heads]
        if max(lengths) <= _SHORT:
            return [h[4 : 4 + n] for h, n in zip(heads, lengths, strict=True)]
        return [t[:n] for t, n in zip(self._all(_padded(data, max(lengths))), lengths, strict=True)]

    def close(self) -> None:
        """Leave. The others must have come to their end, too."""
        self._call(dist.destroy_process_group)

    def _hear(self, point: str, said: Mapping[str, Any]) -> list[dict[str, Any]]:
        heard = [json.loads(answer) for answer in self.exchange(json.dumps(said).encode())]
        for place, answer in enumerate(heard):
            if "failed" in answer:
                where = "" if place == self.place else f"rank {(place + self._leader) % self.world}: "
                raise _FAILURES[answer["failed"]](where + answer["why"])
        points = {answer["at"] for answer in heard}
        if points != {point}:
            raise RuntimeError(f"ranks are at different points of the run: {', '.join(sorted(points))}")
        return [answer["say"] for answer in heard]

    def _all(self, tensor: Tensor) -> list[bytes]:
        found = [torch.empty_like(tensor) for _ in range(self.world)]
        self._call(lambda: dist.all_gather(found, tensor))
        return [found[(place + self._leader) % self.world].numpy().tobytes() for place in range(self.world)]

    def _call(self, collective: Callable[[], Any]) -> None:
        """Run a collective in the thread for them, so that signals reach this one while it waits."""
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._jobs.put((collective, done))
        while True:
            try:
                error = done.get(timeout=_GLANCE)
            except queue.Empty:
                continue
            if error is not None:
                raise RankLostError(f"another rank of the server is gone ({_gist(error)})") from error
            return

    def _work(self) -> None:
        while True:
            collective, done = self._jobs.get()
            try:
                collective()
                done.put(None)
            except Exception as error:  # whatever torch.distributed says of a peer that is gone
                done.put(error)


def _padded(data: bytes, length: int) -> Tensor:
    result = torch.zeros(length, dtype=torch.uint8)
    if data:
        result[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return result


def _gist(error: BaseException) -> str:
    """The first sentence of an error, without the place in somebody's source code."""
    first = str(error).strip().partition("\n")[0].rpartition(".cc:")[2].lstrip("0123456789] ")
    return first.partition(". ")[0][:200]


def flatten(tensors: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """Tensors as one vector, zeros for those that are missing, and behind it which of them are there."""
    present = torch.tensor([float(t is not None) for t in tensors])
    found = [torch.zeros_like(p) if t is None else t for t, p in zip(tensors, like, strict=True)]
    device = like[0].device if like else torch.device("cpu")
    return torch.cat([*(t.detach().reshape(-1) for t in found), present.to(device)])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor | None]:
    """What `flatten` took, or the sum of several such vectors; None for what nobody had."""
    pieces = torch.split(vector, [*(p.numel() for p in like), len(like)])
    return [
        piece.reshape(p.shape).to(p.dtype) if float(there) else None
        for piece, p, there in zip(pieces[:-1], like, pieces[-1], strict=True)
    ]
