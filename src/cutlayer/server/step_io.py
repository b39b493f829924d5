"""The messages of one step, as the modes see them: receive, send, and collect what ends a client's step.

Every message passes the boundary, is put on the timeline and counted as what it would have cost as float32.

A patient transport brings everybody's messages sooner or later, and each is taken in client order. On any
other, quorum and deadline decide who is in (`Transport.present`), and messages are taken and decoded before
the step computes, because the weights of a mean depend on who takes part in it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from cutlayer.aggregation.base import Aggregation, Shared
from cutlayer.errors import AbsentError, MessageError, NonFiniteError
from cutlayer.protocol.boundary import Boundary, Decode
from cutlayer.protocol.client_memory import ClientMemory
from cutlayer.protocol.plan import Step
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.server.timeline import Timeline
from cutlayer.split.server import ServerHalf
from cutlayer.split.tensors import Tensors, elements, floats, has_integers, raw_bytes
from cutlayer.wire.messages.types import GRADIENTS, Ask, Gradient, Report, Share, Smashed
from cutlayer.wire.meter import Direction, Kind
from cutlayer.wire.transport import Transport

#: What a client's batch can make of a pass. Integers may be indices, and no check knows how far a model lets
#: them go: PyTorch says so.
BLAMEABLE = (NonFiniteError, IndexError, RuntimeError)


class NobodyError(Exception):
    """Everybody who could take part in a step is gone. The run goes on with the next one."""


@dataclass(frozen=True)
class Parties:
    """What all steps of a run have in common: how clients are reached, and who averages."""

    transport: Transport
    boundary: Boundary
    codecs: RunCodecs
    aggregation: Aggregation
    timeline: Timeline
    note_rates: bool = False
    """Whether clients choose how many bits an element takes, so that it is worth a record."""
    early: bool = False
    """Whether all batches are taken before the first pass, so that no pass waits for the network."""
    means: bool = True
    """Whether gradients that clients share make a mean of this step. In mode async they wait for others."""
    at_least: int | None = None
    """How many clients have to be left for a step to go on; None for the transport's quorum."""
    memories: Mapping[int, ClientMemory] = field(default_factory=dict)
    """What is remembered of each client's samples, where smashed data travel as what has changed."""


class StepIO:
    """One step between the server and its clients."""

    def __init__(self, parties: Parties, step: Step, trained: dict[int, int]) -> None:
        """`trained` counts each client's samples since weights were last averaged, from step to step."""
        self.gradients = parties.aggregation.round(step.samples)
        """The mean of gradients that were shared, in the making."""
        self.weights: dict[int, Shared] = {}
        """What each client shared, where it is not added up at once; not decoded yet."""
        self.reports: list[Report] = []
        self.raw: dict[str, int] = {}
        """What the step's tensors would take as plain float32, by direction and kind."""
        self.bits: dict[str, float] = {}
        """Bits an element of each client's smashed data, where clients choose them."""
        self._parties = parties
        self._transport = parties.transport
        self._boundary = parties.boundary
        self._timeline = parties.timeline
        self._samples = dict(zip(step.clients, step.samples, strict=True))
        self._trained = trained
        self._early: dict[int, Any] = {}

    def gather_batches(self, step: Step) -> Step:
        """The step with those clients whose smashed data and targets are there and in order."""
        return self._gather(step, 2, self._take_batch)

    def gather_tensors(self, step: Step, kind: type[Smashed | Gradient]) -> Step:
        """The step with those clients whose smashed data, or gradients, are there and in order."""
        return self._gather(step, 1, lambda step, client: self._take_tensor(step, client, kind))

    def receive_batch(self, step: Step, client: int) -> tuple[Tensors, Tensor]:
        """A client's smashed data and targets."""
        found: tuple[Tensors, Tensor] = (
            self._early.pop(client) if client in self._early else self._take_batch(step, client)
        )
        return found

    def receive_tensor(self, step: Step, client: int, kind: type[Smashed | Gradient]) -> Tensors:
        """A client's smashed data, or the gradient from its tail."""
        found: Tensors = (
            self._early.pop(client) if client in self._early else self._take_tensor(step, client, kind)
        )
        return found

    def send_down(self, step: Step, client: int, kind: type[Smashed | Gradient], tensor: Tensors) -> None:
        """Send a client its gradient, or the activations for its tail."""
        what = "down" if kind is Gradient else "down-features"
        codecs = self._parties.codecs
        with self._timeline.server("server_encode"):
            frame = codecs.encode(codecs.down, tensor, what, client, step.epoch, step.step)
        self._timeline.down(client, len(frame))
        message = kind(step.number, frame)
        self.count_raw(Direction.DOWN, message.kind, raw_bytes(tensor))
        self._transport.send(client, message)

    def collect(self, step: Step, wait: bool) -> Step:
        """Take what clients send at the end of their step, in client order: all, or what is there already.

        Gradients are added up as they come, so that those of a thousand clients need not wait in memory.
        Gives the step with those who ended it.
        """
        if not self._transport.patient:
            return self._collect_present(step) if wait else step
        if self._parties.early and not wait:
            return step
        while len(self.reports) < len(step.clients):
            client = step.clients[len(self.reports)]
            if not (wait or self._transport.ready(client)):
                return step
            shared, report = self._end(step, client)
            self.reports.append(report)
            if self._parties.means and step.share in GRADIENTS and shared is not None:
                with self._timeline.server("sync"), self._boundary.blame(client):
                    self.gradients.add(client, shared)
            elif shared is not None:
                self.weights[client] = shared
        return step

    def ask_missing(self, step: Step, samples: dict[int, int]) -> dict[int, int]:
        """Ask those for their weights who sat this step out. The samples of those who are in the mean."""
        members = set(self._transport.members())
        asked = [c for c in samples if c not in self.weights and (self._transport.patient or c in members)]
        if self._transport.patient:
            for client in asked:
                self._transport.send(client, Ask(step.number, step.share))
                self.weights[client] = self._shared(step, client, step.share)
            return samples
        self._transport.announce(asked, Ask(step.number, step.share))
        for client in self._transport.present(asked, 1, at_least=0):
            with suppress(AbsentError):
                self.weights[client] = self._shared(step, client, step.share)
        return {client: n for client, n in samples.items() if client in self.weights}

    @contextmanager
    def judged(self, client: int, smashed: Tensors, half: ServerHalf) -> Iterator[None]:
        """What is not finite inside comes of this client's batch, unless the model itself is not well."""
        try:
            yield
        except NonFiniteError as error:
            if self._boundary.trusts or not half.sound(smashed):
                raise
            with self._boundary.blame(client):
                raise MessageError(f"with its batch {error}") from None
        except (IndexError, RuntimeError) as error:
            if self._boundary.trusts or not has_integers(smashed):
                raise
            with self._boundary.blame(client):
                raise MessageError(f"the model cannot use its integers ({error})") from None

    def blamed_out(self, clients: Collection[int]) -> set[int]:
        """Those of the clients that still take part."""
        return set(clients) & set(self._transport.members())

    def remaining(self, step: Step, clients: Collection[int]) -> Step:
        """The step with those of its clients that were not left out."""
        if step.clients and not clients:
            raise NobodyError
        return step.only(clients)

    def count_raw(self, direction: Direction, kind: Kind, nbytes: int) -> None:
        """Count what would have crossed as plain float32."""
        if nbytes:
            key = f"{direction}/{kind}"
            self.raw[key] = self.raw.get(key, 0) + nbytes

    def _gather(self, step: Step, messages: int, take: Callable[[Step, int], Any]) -> Step:
        if self._transport.patient and not self._parties.early:
            return step
        for client in self._transport.present(step.clients, messages, self._parties.at_least):
            with suppress(AbsentError):
                self._early[client] = take(step, client)
        begun, step = step, step.only(self._early)
        if begun.clients and not step.clients:
            raise NobodyError
        return step

    def _take_batch(self, step: Step, client: int) -> tuple[Tensors, Tensor]:
        decode = self._decode(step, client)
        smashed, targets, sizes = self._boundary.batch(client, step.number, self._samples[client], decode)
        self._timeline.up(client, sum(sizes))
        self._count_up(client, Smashed, smashed, sizes[0])
        return smashed, targets

    def _take_tensor(self, step: Step, client: int, kind: type[Smashed | Gradient]) -> Tensors:
        decode = self._decode(step, client) if kind is Smashed else None
        tensor, nbytes = self._boundary.tensor(client, step.number, kind, self._samples[client], decode)
        self._timeline.up(client, nbytes)
        self._count_up(client, kind, tensor, nbytes)
        return tensor

    def _decode(self, step: Step, client: int) -> Decode | None:
        """What decodes a client's smashed data, where they are no plain frames."""
        memory = self._parties.memories.get(client)
        return None if memory is None else lambda message: memory.decode(message, step.epoch, step.step)

    def _count_up(self, client: int, kind: type[Smashed | Gradient], tensor: Tensors, nbytes: int) -> None:
        self.count_raw(Direction.UP, kind.kind, raw_bytes(tensor))
        if self._parties.note_rates and kind is Smashed:
            self.bits[str(client)] = 8 * nbytes / elements(floats(tensor))

    def _collect_present(self, step: Step) -> Step:
        ended: dict[int, tuple[Shared | None, Report]] = {}
        messages = 1 + (step.share != Share.NOTHING)
        for client in self._transport.present(step.clients, messages, self._parties.at_least):
            with suppress(AbsentError):
                shared, report = self._end(step, client)
                if shared is not None:
                    self._boundary.check_shared(client, shared)
                ended[client] = (shared, report)
        step = step.only(ended)
        self.reports = [report for _, report in ended.values()]
        self.weights = {client: shared for client, (shared, _) in ended.items() if shared is not None}
        if self._parties.means and step.share in GRADIENTS:
            self.gradients = self._parties.aggregation.round(step.samples)
            for client, shared in self.weights.items():
                self.gradients.add(client, shared)
        return step

    def _end(self, step: Step, client: int) -> tuple[Shared | None, Report]:
        shared = self._shared(step, client, step.share) if step.share != Share.NOTHING else None
        report = self._boundary.report(client, step.number, self._samples[client])
        size = report.size + (shared.size if shared else 0)
        self._timeline.finished(client, report, size)
        self._trained[client] = self._trained.get(client, 0) + self._samples[client]
        return shared, report

    def _shared(self, step: Step, client: int, share: Share) -> Shared:
        shared = self._boundary.shared(client, step.number, share)
        self.count_raw(Direction.UP, Kind.SYNC, self._parties.aggregation.raw_bytes(share))
        return shared
