"""Evaluation on the client's side: the test set stays with a client, as on a network."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from cutlayer.data import Augment, DataSource
from cutlayer.errors import MessageError
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.protocol.tensor_forms import Forms, most_elements
from cutlayer.split.client import ClientHalf, ClientModel
from cutlayer.split.tensors import main_output, to_device
from cutlayer.tasks import Task
from cutlayer.tasks.classification import Classification
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.scores import Scores, Sums
from cutlayer.wire.messages.types import Evaluate, Labels, Smashed


class Evaluator:
    """Runs test batches through a copy of the client's half, so that training never notices."""

    def __init__(
        self,
        half: ClientHalf,
        task: Task,
        codecs: RunCodecs,
        test: DataSource,
        augment: Augment,
        features: Forms | None = None,
    ) -> None:
        """`features` are the forms of a server's activations in a U-shape, where it is not trusted."""
        self.task = task
        self.codecs = codecs
        self.test = test
        self.augment = augment
        self._features = features
        self._source = half.model
        self._half: ClientHalf | None = None
        self._open: tuple[int, Tensor] | None = None

    def load(self, weights: Tensor, buffers: Tensor) -> None:
        """Take over what is to be evaluated: weights, and averaged batch-norm statistics."""
        half = self._copy()
        half.load_weights(weights)
        half.load_buffers(buffers)

    @torch.no_grad()
    def begin(self, message: Evaluate) -> Iterable[Message]:
        """The smashed data of one batch, and its targets unless they stay here."""
        if not 0 <= message.first < message.last <= len(self.test):
            raise MessageError(f"samples {message.first} to {message.last} of a test set of {len(self.test)}")
        half = self._copy()
        inputs, targets = self.test.batch(torch.arange(message.first, message.last))
        inputs = to_device(self.augment.test(inputs), half.model.device)
        smashed = half.model.run(half.model.head, inputs)
        frame = self.codecs.encode_evaluation(self.codecs.up, smashed)
        if half.model.tail is not None:
            self._open = (message.number, targets)
            return [Smashed(message.number, frame)]
        return [
            Smashed(message.number, frame),
            Labels(message.number, self.task.pack(targets), len(targets)),
        ]

    def awaits(self, number: int) -> bool:
        """Whether the server's activations of that number belong to an evaluation in progress."""
        return self._open is not None and self._open[0] == number

    @torch.no_grad()
    def score(self, message: Smashed) -> Scores | Sums:
        """U-shape: what the tail makes of the server's activations."""
        model = self._copy().model
        tail = model.tail
        if self._open is None or tail is None:
            raise MessageError("no evaluation is in progress")
        targets, self._open = self._open[1], None
        most = most_elements(self._features, len(targets))
        outputs = main_output(model.run(tail, self.codecs.decode_cut(message.body, most)))
        sums = self.task.sums(outputs, targets.to(outputs.device))
        if isinstance(self.task, Classification):
            loss, top1, top5 = sums
            return Scores(message.number, len(targets), loss, int(top1), int(top5))
        return Sums(message.number, Sums.pack_values(sums), len(targets))

    def _copy(self) -> ClientHalf:
        if self._half is None:
            # Together: they may share weights.
            model = ClientModel(copy.deepcopy(self._source.parts), rule=self._source.rule)
            model.head.eval()
            if model.tail is not None:
                model.tail.eval()
            self._half = ClientHalf(model)
        return self._half
