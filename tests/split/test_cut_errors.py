"""What cannot be cut is refused, with the reason and the way out."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from cutlayer.errors import CutError, ModelError
from cutlayer.split import cut


class TwoPaths(nn.Module):
    """The input and an early value are both needed late."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.c = nn.Linear(4, 4)
        self.d = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = self.b(a)
        return self.d(self.c(b) + a + x)


class Tied(nn.Module):
    """Reads and writes through one matrix, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(4, 4)
        self.middle = nn.Linear(4, 4)
        self.write = nn.Linear(4, 4)
        self.write.weight = self.read.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.write(self.middle(self.read(x)))


def forward_is(forward: Callable[[nn.Module, torch.Tensor], object]) -> nn.Module:
    """A model of two linear layers with this forward pass."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

    Model.forward = forward
    return Model()


def refusal(model: nn.Module, at: object) -> str:
    with pytest.raises(CutError) as caught:
        cut(model, at=at)
    return str(caught.value)


@pytest.mark.parametrize("at", ["a", "b"])
def test_data_do_not_leave_the_client_as_they_are(at: str) -> None:
    message = refusal(TwoPaths(), at)
    assert f"the model's input x itself would cross a cut behind '{at}'" in message
    assert message.endswith("No cut of this model is valid.")


def test_nor_do_they_in_the_u_shape() -> None:
    message = refusal(TwoPaths(), ("a", "d"))
    assert "the model's input x itself would cross" in message


def test_a_size_that_is_asked_for_in_front_and_needed_behind() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        n = x.size(0)
        return self.second(self.first(x).view(n, -1))

    model = forward_is(forward)
    assert "the size size" in refusal(model, "first")
    client, server = cut(model, at="first", example=torch.zeros(2, 4))
    x = torch.randn(5, 4)
    assert torch.equal(server(client(x)), model(x))


def test_control_flow_by_value() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) if x.sum() > 0 else x

    message = refusal(forward_is(forward), "first")
    assert message.startswith("Model cannot be traced: ")
    assert "control flow, at `return self.second(self.first(x)) if x.sum() > 0 else x` (test_cut" in message
    assert "nn.Sequential" in message


def test_control_flow_by_value_that_an_example_shows() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.second(x) if bool(x.sum() > 0) else x

    with pytest.raises(
        CutError, match=r"needs the values of a tensor, at `return .*\(test_cut_errors\.py, line"
    ):
        cut(forward_is(forward), at="first", example=torch.zeros(2, 4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_model_that_can_be_cut() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert refusal(lambda x: x, "0") == "a function cannot be cut; give an nn.Module."  # type: ignore[arg-type]
    for made in (torch.compile(model, backend="eager"), torch.jit.trace(model, torch.ones(1, 2))):
        assert "Cut the model that it was made of, and compile its parts" in refusal(made, "0")


def test_control_flow_around_an_inner_cut_lists_the_outer_ones() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) if x.sum() > 0 else x

    model = nn.Sequential(nn.Linear(4, 4), forward_is(forward), nn.Linear(4, 2))
    message = refusal(model, "1.first")
    assert "cannot be traced (in Model)" in message
    assert message.endswith("Valid cuts are: 0, 1.")


def test_gradient_mode_inside_forward() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.first(x)
        return self.second(x)

    assert "switches gradients or autocast" in refusal(forward_is(forward), "first")


def test_autocast_inside_forward() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.second(self.first(x))

    assert "switches gradients or autocast" in refusal(forward_is(forward), "first")


@pytest.mark.parametrize("only_training", [True, False])
def test_random_tensor_made_in_forward(only_training: bool) -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.training or not only_training:
            x = x + torch.randn(4)
        return self.second(x)

    assert "not always the same" in refusal(forward_is(forward), "first")


@pytest.mark.parametrize("at", ["read", "middle"])
def test_tied_across_the_cut(at: str) -> None:
    message = refusal(Tied(), at)
    assert "parameters are shared across the cut: 'read.weight' and 'write.weight'" in message
    assert "or cut in a U-shape" in message
    assert "No cut of this model is valid" in message


def test_tied_between_head_and_tail_is_all_the_clients() -> None:
    model, x = Tied(), torch.randn(3, 4)
    head, body, tail = cut(model, at=("read", "write"))
    assert torch.equal(tail(body(head(x))), model(x))
    assert next(head.parameters()) is next(tail.parameters())


def test_parameter_read_on_both_sides() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) @ self.first.weight

    message = refusal(forward_is(forward), "first")
    assert "'first.weight' would be in two parts" in message


def test_unknown_name_suggests_the_nearest() -> None:
    model = nn.Sequential()
    for name in ("encoder", "bottleneck", "decoder"):
        model.add_module(name, nn.Linear(2, 2))
    message = refusal(model, "botleneck")
    assert message == (
        "Sequential has no module 'botleneck'. Did you mean 'bottleneck'? "
        "Valid cuts are: encoder, bottleneck."
    )
    message = refusal(model, ("encoder", "decodr"))
    assert "Did you mean 'decoder'?" in message
    assert message.endswith("A tail can begin with: bottleneck, decoder.")
    assert "Did you mean" not in refusal(model, "zzz")


def test_nothing_left_behind_the_cut() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert "nothing comes after '1'" in refusal(model, "1")
    assert "nothing comes before '0'" in refusal(model, ("0", "0"))
    assert "for the server" in refusal(model, ("0", "1"))


def test_tail_before_the_head_ends() -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model = nn.Sequential(nn.Linear(2, 2), inner, nn.Linear(2, 2))
    for at in (("1", "1.1"), ("1.0", "1"), ("1.1", "1.0"), ("1", "1")):
        assert "before the head ends" in refusal(model, at)


def test_module_that_is_not_called_once() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.first(self.first(x))

    model = forward_is(forward)
    assert "'first' is called 2 times" in refusal(model, "first")
    assert "'second' is never called" in refusal(model, "second")


def test_output_that_goes_nowhere() -> None:
    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        self.first(x)
        return self.second(x)

    assert "is not what the model goes on with" in refusal(forward_is(forward), "first")


def test_tuple_across_a_sequential_cut() -> None:
    class Last(nn.Module):
        def forward(self, pair: tuple[torch.Tensor, object]) -> torch.Tensor:
            return pair[0][:, -1]

    model = nn.Sequential(nn.LSTM(2, 3, batch_first=True), Last(), nn.Linear(3, 1))
    client, _ = cut(model, at="0")
    with pytest.raises(CutError, match="must be one tensor, but it is a tuple"):
        client(torch.zeros(1, 4, 2))


def test_divided_module_with_state_of_its_own_kind() -> None:
    class Extra(nn.Sequential):
        def get_extra_state(self) -> dict[str, int]:
            return {"steps": 1}

        def set_extra_state(self, state: dict[str, int]) -> None:
            pass

    model = Extra(nn.Linear(2, 2), nn.Linear(2, 2))
    assert "'_extra_state'" in refusal(model, "0")
    outer = nn.Sequential(model, nn.Linear(2, 2))
    client, _ = cut(outer, at="0")
    assert "0._extra_state" in client.state_dict()


def test_hooks_on_the_model_itself() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    handle = model.register_forward_hook(lambda module, inputs, output: output * 2)
    assert "forward hooks" in refusal(model, "0")
    handle.remove()
    cut(model, at="0")


@pytest.mark.parametrize("at", ["", (), ("0",) * 3, 0, None, ("0", 1)])
def test_at_is_no_name(at: object) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert "module" in refusal(model, at)


def test_a_single_sample_before_batch_norm_gets_an_answer() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    client, _ = cut(model, at="1")
    with pytest.raises(ModelError, match="drop_last"):
        client.train()(torch.randn(1, 4))
    client.eval()(torch.randn(1, 4))
