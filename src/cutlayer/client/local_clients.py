"""All clients of a run in this process, reached through a loopback."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cutlayer.client.split_client import SplitClient
from cutlayer.data.spec import DataSpec
from cutlayer.errors import CheckpointError
from cutlayer.protocol.state_bytes import OWN
from cutlayer.split.client import ClientHalf
from cutlayer.split.state import client_state, restore_client, under
from cutlayer.wire.loopback import Loopback


class LocalClients:
    """Clients in one process, as `server.client_pool.ClientPool` has them. The first one is the evaluator."""

    def __init__(self, clients: Sequence[SplitClient], data_spec: DataSpec, test_samples: int) -> None:
        self.clients = list(clients)
        self.data_spec = data_spec
        self.transport = Loopback([client.handle for client in clients])
        self._test_samples = test_samples

    @property
    def halves(self) -> list[ClientHalf]:
        """The half of each client."""
        return [client.half for client in self.clients]

    def begin(self, number: int) -> None:
        """See `ClientPool.begin`. All are there, in the state that they have."""

    def admit_newcomers(self, number: int) -> Sequence[int]:
        """See `ClientPool.admit_newcomers`. Nobody leaves or comes back."""
        return ()

    def evaluator(self) -> tuple[int, int]:
        """See `ClientPool.evaluator`."""
        return 0, self._test_samples

    def state(self, number: int) -> dict[str, Tensor]:
        """See `ClientPool.state`."""
        tensors: dict[str, Tensor] = {}
        for i, half in enumerate(self._models()):
            tensors |= {f"client.{i}.{name}": t for name, t in client_state(half).items()}
        if self._buffers_apart:
            tensors["clients.buffers"] = torch.stack([half.buffer_vector() for half in self.halves])
        for i, client in enumerate(self.clients):
            tensors |= {f"client.{i}.{OWN}{name}": t for name, t in client.own_state().items()}
        return tensors

    def restore(self, tensors: Mapping[str, Tensor], number: int) -> None:
        """See `ClientPool.restore`."""
        for i, half in enumerate(self._models()):
            restore_client(half, under(f"client.{i}.", tensors), number)
        if self._buffers_apart:
            if len(tensors.get("clients.buffers", ())) != len(self.clients):
                raise CheckpointError("the checkpoint is of a run with another number of clients")
            for half, vector in zip(self.halves, tensors["clients.buffers"], strict=True):
                half.load_buffers(vector)
        for i, client in enumerate(self.clients):
            client.restore_own(under(f"client.{i}.{OWN}", tensors))

    def rolled_back(self, number: int, reason: str) -> None:
        """See `ClientPool.rolled_back`. Nobody has to be told."""

    @property
    def _buffers_apart(self) -> bool:
        """Whether clients share a model and have only their batch-norm statistics for themselves."""
        first = self.clients[0].half
        return first.shared and bool(first.buffers)

    def _models(self) -> list[ClientHalf]:
        """One half for each model that there is: a single one if clients share it."""
        halves = self.halves
        return halves[:1] if halves[0].shared else halves
