"""`join`: a client that takes part in a run over the network until the server says goodbye."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cutlayer.errors import CutlayerError, NonFiniteError, RefusedError
from cutlayer.run.device import Device
from cutlayer.run.interrupt import Interrupt
from cutlayer.wire.connection import Connection, Event
from cutlayer.wire.credentials import ClientSecurity
from cutlayer.wire.link import Link
from cutlayer.wire.messages import Report, Turn, pack, unpack


@dataclass
class Taken:
    """What a client has done."""

    client: int = 0
    steps: int = 0
    samples: int = 0
    reason: str = ""


def join(
    address: str,
    device: Device,
    security: ClientSecurity,
    *,
    claims: int | None = None,
    retry: float = 300.0,
    link: Link | None = None,
    note: Callable[[str], None] = lambda text: None,
    step: Callable[[int], None] = lambda number: None,
) -> Taken:
    """Take part until the run is complete. Raises what keeps this client from taking part."""
    taken = Taken()
    with torch.random.fork_rng(devices=[]), Interrupt() as interrupt:
        connection = Connection(address, security, claims=claims, retry=retry, note=note, link=link)
        try:
            while True:
                event = _next(connection, interrupt)
                if event.kind == "lost":
                    raise event.content
                if event.kind == "goodbye":
                    code, taken.reason = event.content
                    if code != "DONE":
                        raise RefusedError(f"{address}: {taken.reason}")
                    return taken
                _react(connection, device, event, taken, note, step)
        finally:
            connection.close()


def _next(connection: Connection, interrupt: Interrupt) -> Event:
    while not interrupt.requested:
        try:
            return connection.events.get(timeout=0.2)
        except queue.Empty:
            continue
    raise KeyboardInterrupt


def _react(
    connection: Connection,
    device: Device,
    event: Event,
    taken: Taken,
    note: Callable[[str], None],
    step: Callable[[int], None],
) -> None:
    try:
        if event.kind == "offer":
            connection.prepared(event, device.prepare(event.content))
            taken.client = device.client
        elif event.kind == "welcome":
            device.begin(event.content)
            note(f"client {device.client} takes part from step {event.content.step}")
        elif event.conversation is connection.conversation:
            message = unpack(event.content)
            for answer in device.handle(message):
                connection.send(event.conversation, pack(answer))
                if isinstance(answer, Report):
                    taken.steps += 1
                    taken.samples += answer.samples
            if isinstance(message, Turn):
                step(message.number)
    except CutlayerError as error:
        connection.failed(str(error), diverged=isinstance(error, NonFiniteError))
        raise
