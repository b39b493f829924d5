"""The ends of a step's turns: what clients share and report, from all of them or from those who are there.

A patient transport brings everybody's end sooner or later, and each is taken in client order. On any other
the quorum and the deadline decide whose ends count (`Transport.present`); the rest are left out of the mean.
"""

from contextlib import suppress

from cutlayer.aggregation.at_server import Aggregator
from cutlayer.errors import FrameError, MessageError
from cutlayer.protocol.plan import Step
from cutlayer.server.step_io import Dialogue
from cutlayer.wire.messages.types import Ask, Message, Report, Share, SyncUp
from cutlayer.wire.meter import Direction, Kind


class Turns:
    """The turns of one step, and what has come in at their ends."""

    def __init__(
        self, dialogue: Dialogue, aggregator: Aggregator, step: Step, trained: dict[int, int]
    ) -> None:
        self.gradients = aggregator.running(step.samples)
        """The mean of gradients that were shared, in the making."""
        self.weights: dict[int, Message] = {}
        """What each client shared, where weights are averaged; not looked into yet."""
        self.reports: list[Report] = []
        self._dialogue = dialogue
        self._transport = dialogue.transport
        self._aggregator = aggregator
        # Samples of each client since the last mean of weights; goes on from step to step.
        self._trained = trained

    def collect(self, step: Step, wait: bool) -> Step:
        """Take what clients send at the end of their turns, in client order: all, or what is there already.

        Gradients are added up as they come, so that those of a thousand clients need not wait in memory.
        Gives the step with those who ended it.
        """
        if not self._transport.patient:
            return self._collect_present(step) if wait else step
        while len(self.reports) < len(step.clients):
            client = step.clients[len(self.reports)]
            if not (wait or self._transport.ready(client)):
                return step
            shared, report = self._end(step, client)
            self.reports.append(report)
            if step.share == Share.GRADIENTS and shared is not None:
                with self._dialogue.timeline.server("sync"), self._dialogue.blaming(client):
                    self.gradients.add(shared, client)
            elif shared is not None:
                self.weights[client] = shared
        return step

    def ask_missing(self, step: Step, samples: dict[int, int]) -> dict[int, int]:
        """Where not everybody answers: ask those whose weights are missing, and leave out who does not."""
        if self._transport.patient:
            return samples
        members = self._transport.members()
        asked = [client for client in members if client in samples and client not in self.weights]
        self._transport.announce(asked, Ask(step.number, Share.WEIGHTS))
        for client in self._transport.present(asked, 1, at_least=0):
            with suppress(MessageError, FrameError):
                self.weights[client] = self.shared(step, client, Share.WEIGHTS)
        return {client: n for client, n in samples.items() if client in self.weights}

    def shared(self, step: Step, client: int, share: Share) -> Message:
        """What a client shares, not looked into yet."""
        message = self._dialogue.expect(step, client, self._aggregator.shared)
        if isinstance(message, SyncUp) and message.share != share:
            with self._dialogue.blaming(client):
                raise MessageError(f"client {client} shared {message.share.name} instead of {share.name}")
        self._dialogue.count_raw(Direction.UP, Kind.SYNC, self._aggregator.raw_bytes(share))
        return message

    def _collect_present(self, step: Step) -> Step:
        ended: dict[int, tuple[Message | None, Report]] = {}
        for client in self._transport.present(step.clients, 1 + (step.share != Share.NOTHING)):
            with suppress(MessageError, FrameError):
                shared, report = self._end(step, client)
                with self._dialogue.blaming(client):
                    if shared is not None:
                        self._aggregator.check(shared, client)
                ended[client] = (shared, report)
        step = step.only(ended)
        self.reports = [report for _, report in ended.values()]
        self.weights = {client: shared for client, (shared, _) in ended.items() if shared is not None}
        if step.share == Share.GRADIENTS:
            self.gradients = self._aggregator.running(step.samples)
            for client, shared in self.weights.items():
                self.gradients.add(shared, client)
        return step

    def _end(self, step: Step, client: int) -> tuple[Message | None, Report]:
        shared = self.shared(step, client, step.share) if step.share != Share.NOTHING else None
        report = self._dialogue.expect(step, client, Report)
        size = report.size + (shared.size if shared else 0)
        self._dialogue.timeline.finished(client, report, size)
        self._trained[client] = self._trained.get(client, 0) + self._dialogue.planned[client]
        return shared, report
