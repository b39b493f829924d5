"""A loop over the network whose cuts several tensors cross: skip connections, masks, a U-shape."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import cutlayer
from cutlayer.codecs.tensor_set.frame_set import join_frames
from cutlayer.errors import InputError, RefusedError
from cutlayer.remote.packing import pack_tensors
from cutlayer.wire.messages.named import Named
from cutlayer.wire.messages.remote_loop import Backward, Forward
from cutlayer.wire.meter import Kind
from tests.remote.lies import refused
from tests.several_nets import Masked, UNet

X, Y = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
DENSE = cutlayer.codec("dense")


def sgd(*parts: Any) -> torch.optim.SGD:
    return torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("model", "at", "names"),
    [
        (UNet(3, 1), "down2", ["relu", "down2"]),
        (Masked(3), "first", ["lt", "first"]),
        # The skip connection begins in the server's part, and comes down beside what it goes around.
        (UNet(3, 1), ("down1", "up2"), ["relu", "relu_1"]),
    ],
    ids=["skip", "mask", "u-shape"],
)
def test_it_is_the_loop_in_one_process(serve: Any, model: Any, at: Any, names: list[str]) -> None:
    whole = copy.deepcopy(model)
    head, body, *tail = cutlayer.cut(model, at=at, example=X)
    assert list(body(head(X)) if tail else head(X)) == names
    served = serve(body, loss=None if tail else F.cross_entropy, optimizer=sgd(body))
    mine, all_of_it = sgd(head, *tail), sgd(whole)
    with served.connect() as remote:
        for _ in range(3):
            smashed = head(X)
            loss = F.cross_entropy(tail[0](remote(smashed)), Y) if tail else remote(smashed, Y)
            expected = F.cross_entropy(whole(X), Y)
            assert loss.item() == expected.item()
            for each, optimizer in ((loss, mine), (expected, all_of_it)):
                each.backward()
                optimizer.step()
                optimizer.zero_grad()
        remote.eval()
        with torch.no_grad():
            outputs = remote(head(X))
            assert torch.equal(tail[0](outputs) if tail else outputs, whole(X))
    served.join()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


def test_what_cannot_cross_is_an_error_before_it_is_sent(serve: Any, net: Any) -> None:
    served = serve(net()[2:], loss=F.cross_entropy, shape=(16,))
    with served.connect() as remote:
        for bad, said in (
            ({}, "tensors with the samples in front"),
            ({"a": X, "b": 3}, "tensors with the samples in front"),
            ({"a": Y}, "have floats among them"),
            ({"a": X, "b": X[:3]}, r"\[3, 4\] samples"),
            ({"a": X, "b": X}, r"several tensors \(a, b\); the server's part takes \[samples, 16\]"),
        ):
            with pytest.raises(InputError, match=said):
                remote(bad, Y)
    served.join()


def named(x: Any, name: str = "inputs") -> bytes:
    data = x if isinstance(x, bytes) else pack_tensors(x, DENSE, 0)
    return Forward.pack_tensors([Named(name, Kind.SMASHED, data)])


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ({"a": X, "b": X[:3]}, "expected floats of any shape"),
        ({"a": Y, "b": Y}, "expected floats of any shape"),
        ({"a": X, "b": X * 1e9}, "values of smashed data are up to"),
        ({"a": torch.zeros(4, 200), "b": torch.zeros(4, 200)}, "elements"),  # each would fit alone
        (join_frames({"a": b"\x89CUT"}), "header takes"),
    ],
)
def test_a_bad_set_of_tensors(serve: Any, x: Any, said: str) -> None:
    _, body = cutlayer.cut(UNet(3, 1), at="down2", example=X)
    served = serve(body, loss=F.cross_entropy, clients=2, max_elements=1500)
    liar, honest = served.connect(client=1), served.connect(client=0)
    liar.eval()
    with torch.no_grad(), pytest.raises(RefusedError, match="this part takes relu, down2; it got other"):
        liar({"other": torch.zeros(4, 2)})  # well-formed, and no input of this part
    refused(liar, Forward(9, named(x), 1, True, True), said)
    honest.close()
    with served.connect(client=1):
        pass
    served.join()


@pytest.mark.parametrize("names", [["relu"], ["relu", "relu_1", "more"]])
def test_gradients_of_other_tensors_than_went_out(serve: Any, names: list[str]) -> None:
    head, body, _ = cutlayer.cut(UNet(3, 1), at=("down1", "up2"), example=X)
    served = serve(body, clients=2)
    liar, honest = served.connect(client=1), served.connect(client=0)
    outputs: dict[str, Tensor] = liar(head(X))
    assert list(outputs) == ["relu", "relu_1"]
    body_of = named({name: torch.zeros(4, 2) for name in names}, "outputs")
    refused(liar, Backward(0, body_of, liar._calls.session, 1.0), "for outputs of shape .*relu_1")
    honest.close()
    with served.connect(client=1):
        pass
    served.join()
