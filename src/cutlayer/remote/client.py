"""`connect` and `Remote`: the server's part of a model as a module in the client's own loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from cutlayer.codecs import Codec
from cutlayer.codecs import codec as codec_of
from cutlayer.errors import ConfigError, InputError
from cutlayer.remote.calls import Calls
from cutlayer.remote.crossing import cross
from cutlayer.remote.stream import RequestStream
from cutlayer.split.tensors import Tensors, tensors_of
from cutlayer.wire.link.model import Link
from cutlayer.wire.meter import Meter
from cutlayer.wire.security.credentials import ClientSecurity


class Remote(nn.Module):
    """The server's part, far away: `remote(x)` gives its outputs, `remote(x, targets)` the loss.

    `x` is what crosses the cut: a tensor, or several by name, as the client's part of a cut model gives them.
    Gradients flow through it: `backward()` updates the server's weights and goes on to those before. In
    `eval()` mode the server's part is in evaluation mode, too. It has no weights of its own. Close it when
    the loop is over, or use it in `with`: the server then knows that this client is done.
    """

    def __init__(self, stream: RequestStream, codec: Codec, *, seed: int, max_elements: int) -> None:
        super().__init__()
        self.codec = codec
        self._stream = stream
        self._calls = Calls(stream, codec, seed=seed, max_elements=max_elements)

    @property
    def meter(self) -> Meter:
        """The bytes that crossed the network, by kind and direction."""
        return self._stream.meter

    @property
    def client(self) -> int:
        """This client's number at the server."""
        return self._stream.client

    @overload
    def forward(self, x: Tensors, targets: Tensor) -> Tensor: ...

    @overload
    def forward(self, x: Tensors, targets: None = None) -> Any: ...

    def forward(self, x: Tensors, targets: Tensor | None = None) -> Any:
        """The outputs of the server's part for smashed data, or its loss where targets are given.

        Outputs are a tensor, or several by name at the second cut of a U-shape through which several go.
        """
        self._stream.offer.check(x, targets, self._stream.address)
        if torch.is_grad_enabled() and (self.training or any(t.requires_grad for t in tensors_of(x))):
            return cross(self._calls, x, targets, training=self.training)
        return self._calls.ask(x, targets, training=self.training, gradient=False).result

    def close(self) -> None:
        """The loop is over: wait until all gradients have arrived, and say goodbye."""
        with self._calls.lock:
            self._stream.close(finished=True)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._calls.lock:
            self._stream.close(finished=kind is None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Remote:
        return self  # a copy of a model has the same server

    def __reduce__(self) -> Any:
        raise InputError("a connection cannot be pickled; connect in the process that uses it")

    def extra_repr(self) -> str:
        """Where, for print(model)."""
        return f"{self._stream.address!r}, codec={self.codec}"


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
