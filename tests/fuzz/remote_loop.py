"""Lies in a loop of a client's own: to a `RemoteServer`, to a connected client, and about where to call."""

from __future__ import annotations

import queue
import random
import secrets
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from lies import DENSE, _frame, foreign  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional as F

from cutlayer.errors import AbsentError, CutlayerError
from cutlayer.remote import stream
from cutlayer.remote.client import Remote
from cutlayer.remote.engine import PartEngine
from cutlayer.remote.offer import RemoteOffer
from cutlayer.remote.packing import pack_tensor
from cutlayer.remote.requests import INPUTS, OUTPUTS, TARGETS, Applied, Requests
from cutlayer.remote.transport import LoopTransport
from cutlayer.wire.address import is_loopback, parse_address
from cutlayer.wire.grpc.connection import Event
from cutlayer.wire.grpc.peer import Stream
from cutlayer.wire.messages.base import Message, pack
from cutlayer.wire.messages.named import MOST, Named
from cutlayer.wire.messages.remote_loop import Backward, Forward, InputGradients, Outputs, Rejected
from cutlayer.wire.messages.types import unpack
from cutlayer.wire.meter import Kind
from cutlayer.wire.policy import Policy
from cutlayer.wire.security.credentials import ClientSecurity

X, Y = torch.linspace(-1, 1, 64).reshape(4, 16), torch.tensor([0, 1, 2, 0])
NUMBERS = [0, 1, 7, 1 << 62]


def named(**tensors: Tensor) -> bytes:
    """The body of a request with these tensors."""
    entries = [Named(name, Kind.SMASHED, pack_tensor(tensor, DENSE, 0)) for name, tensor in tensors.items()]
    return Forward.pack_tensors(entries)


def damaged(rng: random.Random, body: bytes, name: str) -> bytes:
    """The body of a message with another tensor, under another name, or with no table that can be read."""
    frame = pack_tensor(X, DENSE, 0)
    entry = rng.choice([lambda: _frame(rng, frame), lambda: frame])()
    flipped = bytearray(body or b"x")
    flipped[rng.randrange(min(len(flipped), 30))] ^= 1 << rng.randrange(8)
    wrong = rng.choice([name, "another", INPUTS])
    return rng.choice(
        [
            lambda: Forward.pack_tensors([Named(wrong, rng.choice(list(Kind)), entry)]),
            lambda: bytes(flipped),
            lambda: body[: rng.randrange(40)],
            lambda: body + b"x",
            lambda: bytes([rng.choice([0, MOST, 255])]) + body[1:],
            lambda: b"",
        ]
    )()


def request(rng: random.Random) -> bytes:
    """Anything that a client of a `RemoteServer` could send."""
    number, session = rng.choice(NUMBERS), rng.choice(NUMBERS)
    targets = rng.choice([Y, Y + 5, -Y - 1, Y.float(), Y[:2]])
    x = rng.choice([X, X * 1e5, X * 1e9, X[:, :3], X.double(), X.long(), X.repeat(90, 1)])
    bodies = [
        lambda: named(inputs=x),
        lambda: named(inputs=x, targets=targets),
        lambda: named(outputs=x[:, :3]),
    ]
    body = rng.choice(bodies)()
    if rng.random() < 0.5:
        body = damaged(rng, body, rng.choice([INPUTS, TARGETS, OUTPUTS]))
    scale = rng.choice([1.0, 0.0, -1e6, 1e6, 1e12, float("nan"), float("inf")])
    message: Message = rng.choice(
        [
            lambda: Forward(number, body, session, rng.random() < 0.5, rng.random() < 0.7),
            lambda: Backward(number, rng.choice([body, b""]), session, scale),
            lambda: foreign(rng, number),
        ]
    )()
    data = b"".join(pack(message))
    return data[: rng.randrange(1, 20)] if rng.random() < 0.1 else data


def against_remote_server(seed: int) -> str:
    """A client that sends a `RemoteServer` anything. What another one asks for is answered as before."""
    rng = random.Random(seed)
    torch.manual_seed(0)
    part = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    notes: list[str] = []
    transport = LoopTransport(2, Policy("drop"), note=notes.append)
    loss = F.cross_entropy if rng.random() < 0.6 else None
    offer = RemoteOffer(loss is not None, rng.choice([(16,), None]), 64, rng.choice([1, 8]))
    engine = PartEngine(part, loss)
    requests = Requests(transport, engine, offer, DENSE, max_elements=1 << 16, max_value=1e6, seed=0)

    def come(number: int) -> None:
        hello = SimpleNamespace(incarnation=secrets.token_bytes(16), attempt=1, era="", received=0)
        with transport.lock:
            transport.greet(number, hello, Stream(lambda function: None))
            transport.prepared(number, SimpleNamespace())
        transport.admit(number, 0)

    def say(number: int, data: bytes) -> Any:
        with transport.lock:
            transport.arrived(number, memoryview(data))
        found = requests.serve(number)
        if isinstance(found, Applied):
            for gradient in found.gradients:
                assert gradient is None or bool(torch.isfinite(gradient).all()), f"seed {seed}"
            requests.answer([found])
        return found

    transport.begin(0, "e")
    come(0)
    honest = b"".join(pack(Forward(0, named(inputs=X), 3, False, False)))
    say(0, honest)
    for _ in range(rng.randrange(1, 9)):
        if transport.peers[1].conversation is None:
            if transport._penalties.left(1):
                break  # it has to stay away
            come(1)
        try:
            say(1, request(rng))
        except AbsentError:
            continue
    say(0, honest)
    (first, *_, last) = _sent(transport, 0)
    assert pack(first) == pack(last), f"seed {seed}: the honest pay"
    assert not any("Traceback" in note for note in notes)
    return "remote server"


def _sent(transport: LoopTransport, client: int) -> list[Message]:
    conversation = transport.peers[client].conversation
    assert conversation is not None, "the honest client was expelled"
    return [unpack(b"".join(piece.parts)) for piece in conversation._kept]


class Answers:
    """In the place of a connection: answers each request with what a lying server would."""

    def __init__(self, rng: random.Random, offer: str) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.conversation: Any = object()
        self._rng = rng
        self.events.put(Event("offer", SimpleNamespace(settings=offer, client=0)))
        self.events.put(Event("welcome", SimpleNamespace(era="e"), self.conversation))

    def send(self, conversation: Any, *messages: Any) -> None:
        rng = self._rng
        for parts in messages:
            number = unpack(b"".join(parts)).number
            for _ in range(rng.randrange(3)):
                self._say(foreign(rng, number))
            gradient = named(inputs=rng.choice([X, X, X, X[:2], X.long()]))
            body = rng.choice([gradient, named(outputs=X[:, :3]), damaged(rng, gradient, INPUTS)])
            loss = rng.choice([1.0, float("nan"), 3e38])
            kinds = [
                Outputs(number, body, loss),
                InputGradients(number, body),
                Rejected(number, b"\xff\x1bno"),
            ]
            self._say(rng.choice(kinds))
        # It always ends.
        self.events.put(Event("goodbye", ("DONE", "over")))

    def _say(self, message: Message) -> None:
        data = b"".join(pack(message))
        if self._rng.random() < 0.1:
            data = data[: self._rng.randrange(20)]
        self.events.put(Event("data", memoryview(data), self.conversation))

    def prepared(self, event: Event, ready: Any) -> None:
        """The offer was answered."""

    def close(self) -> None:
        """Left."""


def against_connected_client(seed: int) -> str:
    """A server that answers a client's own loop with anything: a result, or a CutlayerError."""
    rng = random.Random(seed)
    offer = RemoteOffer(True, (16,), 64, 8).to_json()
    if rng.random() < 0.2:
        offer = offer.replace(
            rng.choice(["64", "8", "true", "16"]), rng.choice(["-1", "1e400", "[]", "[" * 99])
        )
    with mock.patch.object(stream, "Connection", return_value=Answers(rng, offer)):
        found = stream.RequestStream(
            "host:1", ClientSecurity(), claims=None, retry=0, link=None, note=lambda text: None
        )
        remote = Remote(found, DENSE, seed=0, max_elements=1 << 16)
        x = X.clone().requires_grad_()
        try:
            result = remote(x, Y) if rng.random() < 0.5 else remote(x).sum()
            result.backward()
            assert x.grad is not None
            assert x.grad.shape == x.shape
        except CutlayerError:
            pass
        finally:
            found.close(finished=False)
    return "connected client"


def sent_on(seed: int) -> str:
    """A server that sends a client on: never with a token, in plain text, to a host that nobody gave."""
    rng = random.Random(seed)
    hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "train.example.org",
        "10.0.0.7",
        "unix",
        "[::1",
        "a b",
        "",
        "\x1b[2J",
    ]
    ends = ["7000", "0", "99999", "-1", "7000/../", "", "٣", "7000@evil"]
    given, address = (f"{rng.choice(hosts[:5])}:7000" for _ in range(2))
    if rng.random() < 0.4:
        scheme, colon = rng.choice(["", "dns:///", "unix:"]), rng.choice([":", "", "::"])
        address = scheme + rng.choice(hosts) + colon + rng.choice(ends)
    token, tls, insecure = (rng.random() < 0.5 for _ in range(3))
    security = ClientSecurity(b"ca" if tls else None, token="t" if token else None, insecure=insecure)
    try:
        security.check_sent_on(given, address)
    except CutlayerError:
        return "sent on, refused"
    host, other = parse_address(given)[0], parse_address(address)[0]
    safe = tls or host == other or (is_loopback(host) and is_loopback(other))
    assert safe or (insecure and not token), f"seed {seed}: {given} sends a token to {address}"
    return "sent on, followed"
