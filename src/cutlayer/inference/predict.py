"""Inference with a trained split model: both halves, and the codec between them, as in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from cutlayer.device.predictions import Prediction
from cutlayer.protocol.build import make_codecs
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.split.tensors import Inputs, Tensors, call, main_output, raw_bytes, split_inputs
from cutlayer.training.load_run import Trained


class Predictor:
    """Runs samples through the client's half, the codec, and the server's half, in batches.

    `codec` tries another codec than the one that the model was trained with. Random codecs take the
    form that they have in evaluation. `bytes` counts what crossed the cut, frame by frame.
    """

    def __init__(self, trained: Trained, codec: str | None = None) -> None:
        self._trained = trained
        found = make_codecs(trained.config)
        self._codecs = found if codec is None else replace(found, up=codec_of(codec), tensors={})
        self._preprocess = trained.data_spec.preprocess()
        self.bytes = 0
        self.raw_bytes = 0

    @torch.no_grad()
    def logits(self, images: Inputs) -> Tensor:
        """The model's output for a batch of samples as they are stored: uint8 images, features, or several
        tensors in a tuple or a dict."""
        self._trained.data_spec.form.check_inputs(images)
        codecs = self._codecs
        head, *rest = self._trained.parts
        x: Tensors = call(head, self._preprocess.test(images))
        # In a U-shape the second crossing goes down to the client.
        for part, how in zip(rest, (codecs.up, codecs.down), strict=False):
            frame = codecs.encode_evaluation(how, x)
            self.bytes += len(frame)
            self.raw_bytes += raw_bytes(x)
            x = part(codecs.decode_cut(frame))
        return main_output(x)

    def __call__(self, images: Inputs, batch: int = 256) -> Iterator[Prediction]:
        """Predict sample by sample, in order."""
        return predictions(self.logits, images, batch)


def predictions(logits: Callable[[Inputs], Tensor], images: Inputs, batch: int = 256) -> Iterator[Prediction]:
    """What a model says of each sample, in order."""
    index = 0
    for piece in split_inputs(images, batch):
        probabilities = logits(piece).softmax(1)
        values, labels = probabilities.topk(min(5, probabilities.shape[1]), dim=1)
        for value, row in zip(values.tolist(), labels.tolist(), strict=True):
            yield Prediction(index, row[0], value[0], tuple(row))
            index += 1
