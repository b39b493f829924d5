"""`RemoteServer`: the server's part of a model, for clients that run loops of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from cutlayer.codecs import Codec
from cutlayer.codecs import codec as codec_of
from cutlayer.errors import AbsentError, ConfigError
from cutlayer.remote.engine import LossFunction, PartEngine
from cutlayer.remote.offer import MOST_OPEN, RemoteOffer
from cutlayer.remote.requests import Accepted, Applied, Requests
from cutlayer.remote.saved import SavedState
from cutlayer.remote.transport import LoopTransport
from cutlayer.wire.grpc.server import Listening, running
from cutlayer.wire.limits import Limits
from cutlayer.wire.meter import Meter
from cutlayer.wire.policy import Policy
from cutlayer.wire.security.credentials import ServerSecurity


@dataclass(frozen=True)
class RemoteStep:
    """Gradients that have reached the server's part: of one batch, or the mean of one of each client."""

    update: int
    """Counts them from 1, also over a restart from a checkpoint."""
    clients: tuple[int, ...]
    samples: tuple[int, ...]
    losses: tuple[float | None, ...]
    """None where the client has the loss."""

    @property
    def loss(self) -> float | None:
        """The mean over clients, where it is known."""
        known = [loss for loss in self.losses if loss is not None]
        return sum(known) / len(known) if known else None


class RemoteServer:
    """The server's part of a model, for clients that run loops of their own: see `cutlayer.connect`.

        server = cutlayer.RemoteServer(part, "0.0.0.0:50551", loss=F.cross_entropy, security=...)
        for step in server:  # its gradients are in .grad, as after backward()
            optimizer.step()
            optimizer.zero_grad()

    With `update="each"` a step is one batch, in the order in which they come, clients in turn. With
    `update="all"` it is one batch of every client: means are taken in client order, and no answer depends on
    who was faster. The loop ends when all clients have closed theirs; with `stay` never.
    """

    def __init__(
        self,
        part: nn.Module,
        listening: Listening | str = "127.0.0.1:50551",
        *,
        loss: LossFunction | None = None,
        clients: int = 1,
        update: Literal["each", "all"] = "each",
        down: str | Codec | None = None,
        shape: Sequence[int] | None = None,
        batch: int = 4096,
        max_elements: int = 1 << 26,
        max_value: float = 1e6,
        open_batches: int = 8,
        optimizer: torch.optim.Optimizer | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 1,
        autocast: torch.dtype | None = None,
        seed: int = 0,
        security: ServerSecurity | None = None,
        insecure: bool = False,
        names: Sequence[str] = (),
        limits: Limits | None = None,
        stay: bool = False,
        note: Callable[[str], None] = lambda text: None,
        ready: Callable[[int], None] = lambda port: None,
    ) -> None:
        """`listening` is an address; or all of where and how to listen, in place of the keywords for it.

        `down` is the codec of what goes to clients. `shape` is that of one sample at the cut.

        Smashed data of another shape, of more than `batch` samples or `max_elements` elements, or with values
        beyond `max_value` are refused. Of each client `open_batches` are kept between forward and backward,
        in a U-shape with the weights that they used. `checkpoint` is a directory: the state of the part and
        of `optimizer` is saved there each `checkpoint_every` updates, and a server that finds one goes on
        from it.
        """
        if min(clients, batch, checkpoint_every, open_batches) < 1:
            raise ConfigError(
                f"{clients} clients, batches of {batch}, {open_batches} of them open and a checkpoint each "
                f"{checkpoint_every} updates cannot be; give 1 or more of each"
            )
        if open_batches > MOST_OPEN:
            raise ConfigError(
                f"{open_batches} batches between forward and backward; at most {MOST_OPEN} can be"
            )
        if update not in ("each", "all"):
            raise ConfigError(f"update={update!r}: use 'each' request, or 'all' clients together")
        self.optimizer = optimizer
        self._engine = PartEngine(part, loss, autocast=autocast)
        if isinstance(listening, str):
            listening = Listening(
                listening,
                security or ServerSecurity(),
                insecure,
                names,
                limits=limits or Limits(),
                ready=ready,
            )
        # To a server that was started anew a client sends all of its open batches again, both ways.
        waiting = max(listening.limits.waiting, 2 * open_batches + 2)
        # A client that is away holds up nobody under `each`; under `all` this file waits for it.
        self._listening = replace(
            listening, policy=Policy("drop"), limits=replace(listening.limits, waiting=waiting)
        )
        if self._listening.security.auth and len(self._listening.clients()) != clients:
            raise ConfigError(
                f"the server has {clients} clients, but {len(self._listening.clients())} are named; name "
                "each in the token file, or with names= for certificates"
            )
        self._transport = LoopTransport(
            clients,
            self._listening.policy,
            self._listening.limits,
            names=self._listening.clients(),
            note=note,
        )
        self._offer = RemoteOffer(
            loss is not None, None if shape is None else tuple(shape), batch, open_batches
        )
        self._saved = (
            None if checkpoint is None else SavedState(checkpoint, part, optimizer, checkpoint_every)
        )
        self._requests = Requests(
            self._transport,
            self._engine,
            self._offer,
            codec_of(down or "dense") if not isinstance(down, Codec) else down,
            max_elements=max_elements,
            max_value=max_value,
            seed=seed,
        )
        self._update = update
        self._stay = stay
        self._served = False
        self.updates = 0
        if self._saved is not None:
            self.updates, answers = self._saved.restore()
            self._requests.restore(answers)

    @property
    def meter(self) -> Meter:
        """The bytes that crossed the network, by kind and client."""
        return self._transport.meter

    def __iter__(self) -> Iterator[RemoteStep]:
        """Answer clients; give each step whose gradients are to be applied. It can be done once."""
        if self._served:
            raise ConfigError("a RemoteServer serves once; make another one to serve again")
        self._served = True
        with running(self._transport, self._listening, self._offer.to_json()):
            self._transport.begin(self.updates, largest_message=self._listening.limits.message)
            yield from self._each() if self._update == "each" else self._rounds()

    def run(self) -> None:
        """Serve with the optimizer that was given: one update a step."""
        optimizer = self.optimizer
        if optimizer is None:
            raise ConfigError("run() needs RemoteServer(..., optimizer=...); or iterate and update yourself")
        optimizer.zero_grad()
        for _ in self:
            optimizer.step()
            optimizer.zero_grad()

    def _over(self) -> bool:
        return not self._stay and len(self._requests.left) == self._transport.clients

    def _each(self) -> Iterator[RemoteStep]:
        last = -1
        while not self._over():
            client = self._transport.wait_for_any(last)
            if client is None:
                self._admit(self._transport.newcomers())
                continue
            last = client
            try:
                found = self._requests.serve(client)
            except AbsentError:
                continue
            if isinstance(found, Applied):
                self._engine.accumulate(found.gradients)
                yield from self._yielded([found])

    def _rounds(self) -> Iterator[RemoteStep]:
        """One batch of each client that has not left: forwards in client order, then backwards."""
        everybody = range(self._transport.clients)
        while not self._over():
            if len(self._requests.left) == len(everybody):
                self._transport.wait_for_any(-1)
            self._admit(self._transport.newcomers())
            applied: list[Applied] = []
            for client in everybody:
                self._until(client, Accepted, applied)
            for client in everybody:
                self._until(client, Applied, applied)
            if applied:
                weight = 1 / len({found.client for found in applied})
                for found in applied:
                    self._engine.accumulate(found.gradients, weight)
                yield from self._yielded(applied)

    def _until(self, client: int, kind: type[Accepted | Applied], applied: list[Applied]) -> None:
        """Answer a client until it has sent a batch to train on, or a backward, or leaves."""
        while client not in self._requests.left:
            self._transport.wait_for_client(client)
            self._admit([client])
            try:
                found = self._requests.serve(client)
            except AbsentError:
                continue
            if isinstance(found, Applied):
                applied.append(found)
            if isinstance(found, kind):
                return

    def _yielded(self, applied: Sequence[Applied]) -> Iterator[RemoteStep]:
        """Give a step to whoever updates, save what that made, and answer."""
        self.updates += 1
        due = self._saved is not None and self._saved.due(self.updates)
        if not due:
            self._requests.answer(applied)
        yield RemoteStep(
            self.updates,
            tuple(found.client for found in applied),
            tuple(found.samples for found in applied),
            tuple(found.loss for found in applied),
        )
        if due and self._saved is not None:
            self._requests.finish(applied)
            self._saved.save(self.updates, self._requests.answers())
            self._requests.answer(applied)

    def _admit(self, clients: Sequence[int]) -> None:
        for client in clients:
            self._transport.admit(client, self.updates)
            self._requests.left.discard(client)
