"""Who averages what clients share: one interface, and three ways to do it.

`at_server.py`: the split server itself. `remote.py`: an aggregator in a process of its own, which the server
gives orders. `among_clients.py`: the clients among themselves; the server says whose shares make a mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor

from cutlayer.protocol.plan import Place
from cutlayer.wire.messages.types import Placeholder, Share, SyncUp

#: What a client shared: itself, or the word that it travels another way.
Shared = SyncUp | Placeholder


class Round(ABC):
    """One mean, from the first client that is in it to its delivery."""

    @abstractmethod
    def add(self, client: int, shared: Shared) -> None:
        """The next client is in the mean. Clients come in the order of the weights."""

    @abstractmethod
    def deliver(self, place: Place, recipients: Sequence[int]) -> int:
        """Have the mean delivered to these clients. The bytes that the server sends each of them for it."""

    @abstractmethod
    def deliver_exact(self, number: int, evaluator: int) -> None:
        """Have the mean delivered uncompressed to one client, for an evaluation after `number` steps."""


class Aggregation(ABC):
    """Averages what clients share, as the split server sees it."""

    #: What the server receives where a client shares something.
    shares: type[Shared] = SyncUp

    @abstractmethod
    def round(self, samples: Sequence[int]) -> Round:
        """Begin a mean over clients with so many samples, to which they are added in this order."""

    @abstractmethod
    def raw_bytes(self, share: Share) -> int:
        """What one client's share would cost the server's link as plain float32."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint of the server needs."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` gave. Here: from nothing."""
        return


class HandsOver(Aggregation):
    """An aggregation that can also relay one client's weights to the next, as mode `relay` needs."""

    @abstractmethod
    def hand_over(self, client: int, shared: Shared, place: Place, heir: int) -> int:
        """Have one client's weights delivered to the next as they are. The bytes that the server sends."""
