"""Whatever one client sends, it is told what is wrong, and the server goes on with the others."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import cutlayer
from cutlayer.errors import ConfigError, CredentialError, MessageError, NonFiniteError, RefusedError
from cutlayer.remote.engine import OpenBatch, PartEngine
from cutlayer.remote.offer import MOST_OPEN, RemoteOffer
from cutlayer.remote.packing import pack_tensor
from cutlayer.remote.requests import Requests
from cutlayer.wire.messages.base import Message
from cutlayer.wire.messages.named import Named
from cutlayer.wire.messages.remote_loop import Backward, Forward, Outputs, Rejected
from cutlayer.wire.messages.types import BeginStep, Share
from cutlayer.wire.meter import Kind
from cutlayer.wire.security.credentials import ServerSecurity
from cutlayer.wire.security.tokens import Tokens, make
from tests.remote.lies import another_comes_and_goes, refused

DENSE = cutlayer.codec("dense")


def named(**tensors: Tensor) -> bytes:
    return Forward.pack_tensors(
        [Named(name, Kind.SMASHED, pack_tensor(tensor, DENSE, 0)) for name, tensor in tensors.items()]
    )


X, Y = torch.ones(4, 16), torch.zeros(4).long()
BAD: list[tuple[Message, str]] = [
    (Forward(0, b"\x05nonsense", 1, True, True), "table of tensors"),
    (Forward(0, b"", 1, True, True), "expected inputs"),
    (Forward(0, named(inputs=X, other=X), 1, True, True), "expected inputs"),
    (Forward(0, named(inputs=X[:, :15]), 1, True, True), r"expected floats of shape \[samples, 16\]"),
    (Forward(0, named(inputs=X.long()), 1, True, True), "expected floats"),
    (Forward(0, named(inputs=X.repeat(100, 1)), 1, True, True), "elements"),
    (Forward(0, named(inputs=X * 1e9), 1, True, True), "values of smashed data are up to"),
    (Forward(0, named(inputs=X, targets=Y[:3]), 1, True, True), "for 4 samples"),
    (
        Forward(0, Forward.pack_tensors([Named("inputs", Kind.SMASHED, b"\x89CUT")]), 1, True, True),
        "header takes",
    ),
    (BeginStep(0, 0, 0, 0.1, Share.NOTHING), "where a request is expected"),
]


@pytest.mark.parametrize(("message", "said"), BAD, ids=[said for _, said in BAD])
def test_a_bad_request(serve: Any, net: Any, batches: Any, message: Message, said: str) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy, shape=(16,), batch=64, clients=2)
    liar, honest = served.connect(client=1), served.connect(client=0)
    liar.eval()
    liar(X)  # it is a member now
    refused(liar, message, said)
    x, y = batches[0]
    honest(model[:2](x), y).backward()
    honest.close()
    assert any("client 1 broke the protocol and was disconnected" in note for note in served.notes)
    assert served.server.updates == 1
    with served.connect(client=1):  # it comes back, and leaves as it should
        pass
    served.join()


@pytest.mark.parametrize("scale", [math.nan, math.inf, 1e300, 1e12])
def test_a_scale_that_cannot_be(serve: Any, net: Any, batches: Any, scale: float) -> None:
    model = net()
    before = model[2].weight.detach().clone()
    served = serve(model[2:], loss=F.cross_entropy)
    remote = served.connect()
    remote(model[:2](batches[0][0]), batches[0][1])
    refused(remote, Backward(0, b"", remote._calls.session, scale), "scale of the loss")
    assert torch.equal(model[2].weight, before)
    with served.connect():
        pass
    served.join()


def test_a_backward_of_another_shape(serve: Any, net: Any) -> None:
    served = serve(net()[2:])
    remote = served.connect()
    assert remote(X).requires_grad
    body = Backward.pack_tensors([Named("outputs", Kind.GRADIENTS, pack_tensor(torch.ones(4, 2), DENSE, 0))])
    refused(remote, Backward(0, body, remote._calls.session, 1.0), r"for outputs of shape \[4, 3\]")
    another_comes_and_goes(served)


@pytest.mark.parametrize("diverged", [False, True])
def test_a_client_that_says_that_it_failed_is_alone_with_it(
    serve: Any, net: Any, batches: Any, diverged: bool
) -> None:
    model = net()
    served = serve(model[2:], loss=F.cross_entropy)
    remote = served.connect()
    remote(model[:2](batches[0][0]), batches[0][1])
    remote._stream._connection.failed("all is lost", diverged=diverged)
    remote._stream.close(finished=False)
    with served.connect() as other:
        other(model[:2](batches[0][0]), batches[0][1]).backward()
    served.join()
    assert served.server.updates == 1
    assert any("all is lost" in note for note in served.notes)


def test_credentials_are_those_of_other_servers(serve: Any, net: Any, batches: Any, tmp_path: Path) -> None:
    known, (secret,) = make(tmp_path, ["anna"])
    model = net()
    served = serve(model[2:], loss=F.cross_entropy, security=ServerSecurity(tokens=Tokens.load(known)))
    with pytest.raises(CredentialError, match="asks for a token"):
        served.connect()
    with served.connect(token_file=secret) as remote:
        remote(model[:2](batches[0][0]), batches[0][1]).backward()
    served.join()
    with pytest.raises(ConfigError, match="has 2 clients, but 1 are named"):
        serve(model[2:], clients=2, security=ServerSecurity(tokens=Tokens.load(known)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Outputs(0, b"", math.nan), "the server's loss is nan"),
        (Outputs(0, b"\x05x", 1.0), "table of tensors"),
        (BeginStep(0, 0, 0, 0.1, Share.NOTHING), "a BeginStep, which is no answer"),
        (Rejected(0, b"\xff\x1b[31mno"), r"batch 0: .*no"),
    ],
    ids=["loss", "table", "kind", "text"],
)
def test_a_server_that_answers_nonsense(
    serve: Any, net: Any, monkeypatch: pytest.MonkeyPatch, answer: Message, said: str
) -> None:
    monkeypatch.setattr(Requests, "_forward", lambda self, client, _: self._transport.send(client, answer))
    served = serve(net()[2:], loss=F.cross_entropy)
    remote = served.connect()
    with pytest.raises((MessageError, RefusedError), match=rf"(?s)127\.0\.0\.1:\d+: .*{said}") as found:
        remote(X, Y)
    assert "\x1b" not in str(found.value)
    remote._stream.close(finished=False)
    another_comes_and_goes(served)


@pytest.mark.parametrize("shape", [(4, 15), (3, 16)])
def test_a_gradient_that_does_not_fit_is_refused(
    serve: Any, net: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    gradient = Named("inputs", Kind.GRADIENTS, pack_tensor(torch.ones(shape), DENSE, 0))
    answer = Outputs(0, Outputs.pack_tensors([gradient]), 1.0)
    monkeypatch.setattr(Requests, "_forward", lambda self, client, _: self._transport.send(client, answer))
    served = serve(net()[2:], loss=F.cross_entropy)
    remote = served.connect()
    loss = remote(X.clone().requires_grad_(), Y)
    with pytest.raises(MessageError, match=r"127\.0\.0\.1:\d+: .*gradient of shape"):
        loss.backward()
    remote._stream.close(finished=False)
    another_comes_and_goes(served)


def test_a_server_of_another_kind_is_told_apart() -> None:
    with pytest.raises(RefusedError, match="host:1: the server there trains a run"):
        RemoteOffer.parse('{"seed": 0}', "host:1")
    good = RemoteOffer(True, (3, 4), 5, 6)
    assert RemoteOffer.parse(good.to_json(), "host:1") == good
    for bad in ("[]", "{", good.to_json().replace("5", '"x"'), good.to_json().replace("[3, 4]", "[3, -4]")):
        with pytest.raises(RefusedError):
            RemoteOffer.parse(bad, "host:1")


def test_a_gradient_that_its_scale_makes_infinite_reaches_no_weight() -> None:
    engine = PartEngine(torch.nn.Linear(1, 1), None)
    huge = OpenBatch(1, 1.0, [torch.full((1, 1), 3e38), None])
    with pytest.raises(NonFiniteError):
        engine.backward(huge, 10.0, None)


def test_a_server_cannot_make_a_client_keep_more_than_is_sound() -> None:
    offer = RemoteOffer(True, None, 5, MOST_OPEN + 1)
    with pytest.raises(RefusedError, match="cannot be read"):
        RemoteOffer.parse(offer.to_json(), "host:1")
    with pytest.raises(RefusedError, match="nested too deeply"):
        RemoteOffer.parse("[" * 100_000, "host:1")


def test_answers_without_end_take_no_memory(serve: Any, net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Outputs(0, Outputs.pack_tensors([]), float(n)) for n in range(1, 5)]

    def flood(self: Requests, client: int, _: Message) -> None:
        for answer in answers:
            self._transport.send(client, answer)

    monkeypatch.setattr(Requests, "_forward", flood)
    served = serve(net()[2:], loss=F.cross_entropy)
    remote = served.connect()
    remote(X, Y)
    stream = remote._stream
    while stream._requests[0].answers[0].loss < 4:  # type: ignore[attr-defined]
        stream._take()
    assert len(stream._requests[0].answers) == 1
    remote._stream.close(finished=False)
    another_comes_and_goes(served)
