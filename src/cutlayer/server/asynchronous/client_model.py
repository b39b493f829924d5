"""The clients' half as the server keeps it in mode async: clients get its weights and give gradients."""

from torch import Tensor

from cutlayer.aggregation.robust import MeanRule
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.split.client import ClientHalf
from cutlayer.split.weights import add_weighted, unflatten
from cutlayer.wire.messages.types import Share, SyncDown, SyncUp


class KeptClientModel:
    """One half for all clients, with its optimizer, and the gradients that wait for the next update.

    Batch-norm statistics are those of the clients that take part in an update, averaged with its weights.
    """

    def __init__(self, half: ClientHalf, codecs: RunCodecs, rule: MeanRule) -> None:
        self.half = half
        self._codecs = codecs
        self._rule = rule
        self._gradients: Tensor | None = None
        self._buffers: Tensor | None = None
        self._buffer_weight = 0.0
        self._message: SyncDown | None = None

    def message(self, number: int, lr: float) -> SyncDown:
        """The weights and statistics after `number` updates, as they are: one message for all clients."""
        if self._message is None or self._message.number != number:
            share = self.shared(number)
            self._message = SyncDown(number, share.body, Share.WEIGHTS, share.first, lr, False)
        return self._message

    def shared(self, number: int) -> SyncUp:
        """The weights and statistics as a client would share them."""
        weights = self._codecs.plain(self.half.weight_vector())
        rest = self._codecs.plain(self.half.buffer_vector())
        return SyncUp(number, weights + rest, Share.WEIGHTS, len(weights))

    def add(self, client: int, shared: SyncUp, discount: float, weight: float) -> None:
        """Take in a client's gradients with a weight, and its statistics with that of their age."""
        gradients, buffers = self._codecs.decode_shared(shared, client)
        if gradients is not None:
            self._gradients = add_weighted(self._gradients, self._rule.clipped(gradients), weight)
        if buffers is not None:
            self._buffers = add_weighted(self._buffers, buffers, discount)
            self._buffer_weight += discount

    def update(self, lr: float) -> None:
        """One optimizer step with the gradients that have come since the last."""
        gradients, self._gradients = self._gradients, None
        if gradients is not None:
            self.half.model.apply(unflatten(gradients, self.half.model.parameters), lr)
        if self._buffers is not None:
            self.half.load_buffers(self._buffers / self._buffer_weight)
        self._buffers, self._buffer_weight = None, 0.0
        self._message = None

    def discard(self) -> None:
        """Drop what waits."""
        self._gradients = self._buffers = self._message = None
        self._buffer_weight = 0.0
