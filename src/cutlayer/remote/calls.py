"""The client's calls: tensors packed and sent, and the server's answers unpacked and checked."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from threading import RLock

import torch
from torch import Tensor

from cutlayer.codecs import Codec
from cutlayer.codecs import codec as codec_of
from cutlayer.errors import FrameError, MessageError
from cutlayer.protocol.tensor_forms import check_values
from cutlayer.remote.packing import pack_tensor, pack_tensors, shapes_of, typed_as, unpack_tensors
from cutlayer.remote.requests import INPUTS, OUTPUTS, TARGETS
from cutlayer.remote.stream import RequestStream
from cutlayer.split.layer import mix
from cutlayer.split.tensors import Tensors, elements, floats, samples_in, tensors_of
from cutlayer.wire.messages.named import Named
from cutlayer.wire.messages.remote_loop import Backward, Forward, InputGradients, Outputs
from cutlayer.wire.meter import Kind

# Beyond it a float32 is infinite.
_ALL = 3.4e38


@dataclass(frozen=True)
class Answer:
    """What the server made of a batch: its outputs, or a loss of which it has sent the gradient, too."""

    number: int
    result: Tensors
    message: Outputs


class Calls:
    """One client's calls, over one stream. Backward may run in a thread of autograd's."""

    def __init__(self, stream: RequestStream, codec: Codec, *, seed: int, max_elements: int) -> None:
        self.session = secrets.randbits(63)
        self.lock = RLock()
        self._stream = stream
        self._codec = codec
        self._seed = seed
        self._max_elements = max_elements
        self._number = 0

    def ask(self, x: Tensors, targets: Tensor | None, *, training: bool, gradient: bool) -> Answer:
        """Run a batch through the server's part."""
        device = tensors_of(x)[0].device
        with self.lock:
            number, self._number = self._number, self._number + 1
            codec = self._codec if training else self._codec.deterministic()
            tensors = [Named(INPUTS, Kind.SMASHED, pack_tensors(x, codec, mix(self._seed, 2 * number)))]
            if targets is not None:
                packed = pack_tensor(targets, codec_of("dense"), 0)
                tensors.append(Named(TARGETS, Kind.LABELS, packed))
            message = Forward(number, Forward.pack_tensors(tensors), self.session, training, gradient)
            answer = self._stream.forward(message)
        if targets is not None:
            if not math.isfinite(answer.loss):
                raise MessageError(f"{self._stream.address}: the server's loss is {answer.loss}")
            return Answer(number, torch.tensor(answer.loss, dtype=torch.float32, device=device), answer)
        outputs = self._tensors(answer, OUTPUTS, self._max_elements, device)
        for tensor in tensors_of(outputs):
            if not tensor.dim() or len(tensor) != samples_in(x):
                raise MessageError(
                    f"{self._stream.address}: outputs of shape {list(tensor.shape)} for {samples_in(x)} "
                    "samples"
                )
        return Answer(number, outputs, answer)

    def backward(self, number: int, gradient: Tensors) -> InputGradients:
        """Send the gradient of outputs; the server's answer."""
        with self.lock:
            data = pack_tensors(gradient, self._codec, mix(self._seed, 2 * number + 1))
            body = Backward.pack_tensors([Named(OUTPUTS, Kind.GRADIENTS, data)])
            found = self._stream.backward(Backward(number, body, self.session, 1.0), wait=True)
            if found is None:
                raise RuntimeError("no answer")
            return found

    def backward_from_loss(self, number: int, scale: float) -> None:
        """Tell the server that its loss counts, and how much. Its gradient is here already."""
        with self.lock:
            self._stream.backward(Backward(number, b"", self.session, scale), wait=False)

    def input_gradient(self, answer: Outputs | InputGradients, x: Tensors) -> Tensors:
        """The gradient of smashed data, in their form; `x` may be a placeholder of it."""
        wanted = floats(x)
        found = self._tensors(answer, INPUTS, elements(wanted), tensors_of(x)[0].device)
        expected, given = (shapes_of(each) for each in (wanted, found))
        if given != expected:
            raise MessageError(
                f"{self._stream.address}: a gradient of shape {given} for smashed data of shape {expected}"
            )
        return typed_as(found, wanted)

    def _tensors(
        self, answer: Outputs | InputGradients, name: str, most: int, device: torch.device
    ) -> Tensors:
        """What an answer has to have under that name, and nothing else."""
        try:
            entries = answer.tensors
            if [entry.name for entry in entries] != [name]:
                raise MessageError(f"an answer with {[e.name for e in entries]}; expected {name}")
            found = unpack_tensors(entries[0].data, most, device)
            if isinstance(found, Tensor) and not found.is_floating_point():
                raise MessageError(f"{name} of {found.dtype}; expected floats")
            for tensor in tensors_of(found):
                check_values(tensor, _ALL, name)
        except (MessageError, FrameError) as error:
            raise MessageError(f"{self._stream.address}: batch {answer.number}: {error}") from error
        return found
