"""A client's part where clients average among themselves (`train.aggregation = "allreduce"`).

The sum that gloo itself would make depends on how many clients there are and how it cuts the vector. So the
encoded shares are gathered instead, and every client makes the mean as the aggregator would: in client
order, one after another, encoded under the sync codec with the seed of that place. All get the same bits,
and the same as with `aggregation = "server"`.
"""

from typing import Any

from cutlayer.aggregation.at_server import RunningMean
from cutlayer.aggregation.gloo import Mesh
from cutlayer.client.participant import Device
from cutlayer.errors import MessageError, RollbackError, UnreachableError
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import Crossings
from cutlayer.wire.messages.parse import unpack
from cutlayer.wire.messages.types import Combine, Share, SyncDown, SyncUp, pack

# After so many exchanges in a row that failed, it is not a client that died.
_ATTEMPTS = 3


class AmongClients:
    """Keeps what this client shares until the server says whose shares make a mean."""

    def __init__(self, mesh: Mesh) -> None:
        self.active = False
        self._mesh = mesh
        self._client = 0
        self._share: SyncUp | None = None
        self._crossings: Crossings
        self._failures = 0

    def prepare(self, device: Device) -> str:
        """The settings are known. Where clients meet, if this is the one who opens the place."""
        if device.config is None or device.config.train.aggregation != "allreduce":
            return ""
        self.active = True
        self._client = device.client
        return self._mesh.open() if device.client == 0 else ""

    def begin(self, device: Device, welcome: Any) -> None:
        """An era begins: nothing of an earlier one counts."""
        if not self.active or device.config is None:
            return
        self._share = None
        self._crossings = Crossings(device.config.codec, device.config.seed)
        self._crossings.sizes = device.shared_sizes
        self._crossings.limit = max(*device.shared_sizes, 1)
        self._mesh.begin(device.client, device.config.train.clients, welcome.meeting, welcome.era)

    def keep(self, share: SyncUp) -> None:
        """What this client shares in the next exchange."""
        self._share = share

    def combine(self, order: Combine) -> SyncDown | None:
        """The mean that the order asks for; None where it is not for this client.

        Raises `RollbackError` if the exchange broke: then this client's state is not that of the others.
        """
        own, self._share = self._share, None
        try:
            gathered = self._mesh.gather(b"" if own is None else b"".join(pack(own)))
        except RollbackError as error:
            self._failures += 1
            if self._failures < _ATTEMPTS:
                raise
            raise UnreachableError(
                f"{error}. This was the {self._failures}th time in a row: can the clients reach each other? "
                "Each gives an address that the others can reach with --allreduce-listen"
            ) from None
        self._failures = 0
        if order.evaluation and order.evaluator != self._client:
            return None
        weights = order.weights
        mean = RunningMean(self._crossings, list(weights.values()))
        for client in weights:
            self._add(mean, client, gathered, order.number)
        if order.evaluation:
            return mean.for_evaluation(order.number)
        return mean.message(
            Step(order.number, order.epoch, order.step, (), (), order.lr, Share.NOTHING, False)
        )

    def close(self) -> None:
        """Leave."""
        self._mesh.close()

    def _add(self, mean: RunningMean, client: int, gathered: list[bytes], number: int) -> None:
        if client >= len(gathered):
            raise MessageError(f"the server names client {client} of {len(gathered)}")
        if not gathered[client]:
            raise MessageError(f"client {client} shared nothing, though the server has it in the mean")
        share = unpack(gathered[client])
        if not isinstance(share, SyncUp) or share.number != number:
            raise MessageError(f"client {client} shared a {type(share).__name__} of step {share.number}")
        mean.add(share, client)
