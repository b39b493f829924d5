"""`connect` and `Remote`: the server's part of a model as a module in the client's own loop."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cutlayer.codecs import Codec
from cutlayer.codecs import codec as codec_of
from cutlayer.errors import ConfigError, FrameError, InputError, MessageError
from cutlayer.protocol.tensor_forms import check_values
from cutlayer.remote.packing import pack_tensor, unpack_tensor
from cutlayer.remote.requests import INPUTS, OUTPUTS, TARGETS
from cutlayer.remote.stream import RequestStream
from cutlayer.split.layer import mix
from cutlayer.wire.link.model import Link
from cutlayer.wire.messages.named import Named
from cutlayer.wire.messages.remote_loop import Backward, Forward, InputGradients, Outputs
from cutlayer.wire.meter import Kind, Meter
from cutlayer.wire.security.credentials import ClientSecurity

# Beyond it a float32 is infinite.
_ALL = 3.4e38


class Remote(nn.Module):
    """The server's part, far away: `remote(x)` gives its outputs, `remote(x, targets)` the loss.

    Gradients flow through it: `backward()` updates the server's weights and goes on to those before. In
    `eval()` mode the server's part is in evaluation mode, too. It has no weights of its own. Close it when
    the loop is over, or use it in `with`: the server then knows that this client is done.
    """

    def __init__(self, stream: RequestStream, codec: Codec, *, seed: int, max_elements: int) -> None:
        super().__init__()
        self.codec = codec
        self._stream = stream
        self._seed = seed
        self._max_elements = max_elements
        self._session = secrets.randbits(63)
        self._number = 0
        # Backward may run in a thread of autograd's.
        self._lock = RLock()

    @property
    def meter(self) -> Meter:
        """The bytes that crossed the network, by kind and direction."""
        return self._stream.meter

    @property
    def client(self) -> int:
        """This client's number at the server."""
        return self._stream.client

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """The outputs of the server's part for smashed data, or its loss where targets are given."""
        self._check(x, targets)
        if torch.is_grad_enabled() and (x.requires_grad or self.training):
            # Without a tensor that wants a gradient, backward() would never come here.
            anchor = torch.empty(0, requires_grad=True)
            result: Tensor = _Crossing.apply(x, anchor, self, targets)  # type: ignore[no-untyped-call]
            return result
        return self._ask(x, targets, gradient=False)[0]

    def close(self) -> None:
        """The loop is over: wait until all gradients have arrived, and say goodbye."""
        with self._lock:
            self._stream.close(finished=True)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._lock:
            self._stream.close(finished=kind is None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Remote:
        return self  # a copy of a model has the same server

    def __reduce__(self) -> Any:
        raise InputError("a connection cannot be pickled; connect in the process that uses it")

    def extra_repr(self) -> str:
        """Where, for print(model)."""
        return f"{self._stream.address!r}, codec={self.codec}"

    # For autograd.

    def _ask(self, x: Tensor, targets: Tensor | None, *, gradient: bool) -> tuple[Tensor, int, Outputs]:
        with self._lock:
            number, self._number = self._number, self._number + 1
            codec = self.codec if self.training else self.codec.deterministic()
            tensors = [Named(INPUTS, Kind.SMASHED, pack_tensor(x, codec, mix(self._seed, 2 * number)))]
            if targets is not None:
                packed = pack_tensor(targets, codec_of("dense"), 0)
                tensors.append(Named(TARGETS, Kind.LABELS, packed))
            message = Forward(number, Forward.pack_tensors(tensors), self._session, self.training, gradient)
            answer = self._stream.forward(message)
            if targets is not None:
                if not math.isfinite(answer.loss):
                    raise MessageError(f"{self._stream.address}: the server's loss is {answer.loss}")
                return torch.tensor(answer.loss, dtype=torch.float32, device=x.device), number, answer
            outputs = self._tensor(answer, OUTPUTS, self._max_elements, x.device)
            if not outputs.dim() or len(outputs) != len(x):
                raise MessageError(
                    f"{self._stream.address}: outputs of shape {list(outputs.shape)} for {len(x)} samples"
                )
            return outputs, number, answer

    def _go_back(self, number: int, gradient: Tensor) -> InputGradients:
        """Send the gradient of outputs; the server's answer."""
        with self._lock:
            data = pack_tensor(gradient, self.codec, mix(self._seed, 2 * number + 1))
            body = Backward.pack_tensors([Named(OUTPUTS, Kind.GRADIENTS, data)])
            found = self._stream.backward(Backward(number, body, self._session, 1.0), wait=True)
            if found is None:
                raise RuntimeError("no answer")
            return found

    def _go_back_from_loss(self, number: int, scale: float) -> None:
        """Tell the server that its loss counts, and how much. Its gradient is here already."""
        with self._lock:
            self._stream.backward(Backward(number, b"", self._session, scale), wait=False)

    def _input_gradient(
        self, answer: Outputs | InputGradients, x: tuple[torch.Size, torch.dtype, torch.device]
    ) -> Tensor:
        shape, dtype, device = x
        found = self._tensor(answer, INPUTS, shape.numel(), device)
        if found.shape != shape:
            raise MessageError(
                f"{self._stream.address}: a gradient of shape {list(found.shape)} for smashed data of shape "
                f"{list(shape)}"
            )
        return found.to(dtype)

    def _tensor(self, answer: Outputs | InputGradients, name: str, most: int, device: torch.device) -> Tensor:
        """The one tensor that an answer has to have."""
        try:
            entries = answer.tensors
            if [entry.name for entry in entries] != [name]:
                raise MessageError(f"an answer with {[e.name for e in entries]}; expected {name}")
            found = unpack_tensor(entries[0].data, most, device)
            if not found.is_floating_point():
                raise MessageError(f"{name} of {found.dtype}; expected floats")
            check_values(found, _ALL, name)
        except (MessageError, FrameError) as error:
            raise MessageError(f"{self._stream.address}: batch {answer.number}: {error}") from error
        return found

    def _check(self, x: Tensor, targets: Tensor | None) -> None:
        offer, where = self._stream.offer, self._stream.address
        if not isinstance(x, Tensor) or not x.is_floating_point() or not x.dim():
            raise InputError(f"{where}: smashed data must be a tensor of floats with the samples in front")
        if offer.shape is not None and tuple(x.shape[1:]) != offer.shape:
            raise InputError(
                f"{where}: smashed data of shape {list(x.shape)}; the server's part takes [samples, "
                f"{', '.join(map(str, offer.shape))}]. Are both cut at the same place?"
            )
        if len(x) > offer.batch:
            raise InputError(f"{where}: a batch of {len(x)} samples; the server takes {offer.batch} at most")
        if targets is None:
            return
        if not offer.loss:
            raise InputError(
                f"{where}: the server has no loss. Leave the targets out and compute it from the outputs, or "
                "start the server with loss=..."
            )
        if not isinstance(targets, Tensor) or not targets.dim() or len(targets) != len(x):
            raise InputError(f"{where}: {len(x)} samples need a tensor of {len(x)} targets")


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, remote: Remote, targets: Tensor | None) -> Tensor:
        result, ctx.number, answer = remote._ask(x, targets, gradient=True)
        ctx.remote, ctx.form = remote, (x.shape, x.dtype, x.device)
        ctx.answer = None if targets is None else answer
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, None]:
        remote: Remote = ctx.remote
        if ctx.answer is None:
            return remote._input_gradient(remote._go_back(ctx.number, grads[0]), ctx.form), None, None, None
        scale = float(grads[0])
        gradient = remote._input_gradient(ctx.answer, ctx.form)
        remote._go_back_from_loss(ctx.number, scale)
        return gradient if scale == 1 else gradient * scale, None, None, None


def connect(
    address: str,
    *,
    codec: str | Codec | None = None,
    client: int | None = None,
    security: ClientSecurity | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    token_file: str | Path | None = None,
    insecure: bool = False,
    retry: float = 300.0,
    link: str | None = None,
    seed: int = 0,
    max_elements: int = 1 << 28,
    note: Callable[[str], None] = lambda text: None,
) -> Remote:
    """Connect to a `RemoteServer`: a module that stands for its part.

        with cutlayer.connect("host:50551", codec="ems:bpe=1.0", ca="ca.pem", token_file="a.token") as remote:
            for x, y in batches:
                loss = remote(head(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    `codec` is for what goes up. Credentials are those of `cutlayer join`; `security` has them already read.
    `client` is this client's number where the server knows no names. A server that cannot be reached is tried
    for `retry` seconds, now and whenever the connection breaks. Answers of more than `max_elements` elements
    are refused.
    """
    files = [None if path is None else Path(path) for path in (ca, cert, key, token_file)]
    if security is not None and (insecure or any(files)):
        raise ConfigError("give security=, or the files of the credentials, not both")
    security = security or ClientSecurity.load(files[0], files[1], files[2], files[3], insecure=insecure)
    up = codec if isinstance(codec, Codec) else codec_of(codec or "dense")
    stream = RequestStream(
        address,
        security,
        claims=client,
        retry=retry,
        link=None if link is None else Link.parse(link),
        note=note,
    )
    try:
        _ = stream.offer  # what is wrong with address or credentials shows here
    except BaseException:
        stream.close(finished=False)
        raise
    return Remote(stream, up, seed=seed, max_elements=max_elements)
