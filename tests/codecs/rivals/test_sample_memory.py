"""Policies with a memory of samples: both ends stay equal, and wrong messages change nothing."""

from collections.abc import Callable

import pytest
import torch

import cutlayer
from cutlayer.codecs.rivals.aqsgd import ActivationDifferences
from cutlayer.codecs.rivals.sample_memory import SampleMemory
from cutlayer.codecs.rivals.splitcom import BangBang, SkipUnchanged
from cutlayer.errors import FrameError, InputError, ParameterError

SHAPE, SAMPLES = (2, 4, 4), 20
DENSE, FOUR_BITS = cutlayer.codec("dense"), cutlayer.codec("qu:bits=4,scope=sample")


def differences() -> ActivationDifferences:
    return ActivationDifferences(SampleMemory(SAMPLES, SHAPE), DENSE, FOUR_BITS)


def skipping() -> SkipUnchanged:
    return SkipUnchanged(SampleMemory(SAMPLES, SHAPE), DENSE, 0.98)


POLICIES: dict[str, Callable[[], ActivationDifferences | SkipUnchanged]] = {
    "aqsgd": differences,
    "splitcom": skipping,
}


def visits(n: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of samples that change slowly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, *SHAPE, generator=generator)
    found = []
    for _ in range(n):
        chosen = torch.randperm(SAMPLES, generator=generator)[:12]
        found.append((x[chosen], chosen))
        x = x + 0.1 * torch.randn(x.shape, generator=generator)
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_both_ends_remember_the_same(name: str) -> None:
    client, server = POLICIES[name](), POLICIES[name]()
    sizes = []
    for i, (x, chosen) in enumerate(visits(8)):
        message = client.encode(x, chosen, seed=i)
        sizes.append(len(message))
        y = server.decode(message, chosen)
        assert torch.equal(y, client.memory.recall(chosen))
        assert (y - x).square().sum() < 0.06 * x.square().sum()
    assert torch.equal(client.memory.state()["last"], server.memory.state()["last"])
    assert sizes[-1] < 0.6 * sizes[0]


@pytest.mark.parametrize("name", POLICIES)
def test_a_state_continues_exactly(name: str) -> None:
    client, batches = POLICIES[name](), visits(6)
    for x, chosen in batches[:3]:
        client.encode(x, chosen)
    again = POLICIES[name]()
    again.memory.restore(client.memory.state())
    for x, chosen in batches[3:]:
        assert again.encode(x, chosen) == client.encode(x, chosen)
    with pytest.raises(InputError, match="this run needs"):
        SampleMemory(SAMPLES, (3, 3)).restore(client.memory.state())


def test_differences_do_not_let_errors_pile_up() -> None:
    client = differences()
    x, chosen = torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(0)), torch.arange(5)
    client.encode(torch.zeros(5, *SHAPE), chosen)
    errors = []
    for _ in range(6):
        client.encode(x, chosen)
        errors.append(float((client.memory.recall(chosen) - x).abs().max()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4 * errors[0]


def test_what_hardly_changed_is_not_sent() -> None:
    client, chosen = skipping(), torch.arange(9)
    x = torch.randn(9, *SHAPE, generator=torch.Generator().manual_seed(0))
    client.encode(x, chosen)
    changed = x.clone()
    changed[3] = -x[3]
    message = client.encode(changed, chosen)
    assert message[:2] == b"\x08\x00"
    assert cutlayer.inspect(message[2:]).shape == (1, *SHAPE)
    assert client.encode(changed * 1.01, chosen) == b"\x00\x00"
    assert torch.equal(client.memory.recall(chosen)[3], -x[3])


@pytest.mark.parametrize("name", POLICIES)
def test_wrong_messages_are_refused_and_change_nothing(name: str) -> None:
    client, server = POLICIES[name](), POLICIES[name]()
    (x, chosen), (later, others) = visits(2)
    message = client.encode(x, chosen)
    other_shape = POLICIES[name]()
    other_shape.memory = SampleMemory(SAMPLES, (2, 8, 8))
    wrong = [message[:-1], message + b"\x00", b"", b"\xff\xff", message[:5], bytes(2)]
    wrong.append(other_shape.encode(torch.zeros(12, 2, 8, 8), chosen))
    for bad in wrong:
        with pytest.raises(FrameError):
            server.decode(bad, chosen)
    assert not server.memory.known(chosen).any()
    with pytest.raises(FrameError):
        server.decode(client.encode(later, others), others)  # it was made for a client that knows more


def test_what_is_not_finite_is_not_remembered() -> None:
    memory, some = SampleMemory(SAMPLES, SHAPE), torch.tensor([3, 4])
    for bad in (float("nan"), float("inf")):
        activations = torch.zeros(2, *SHAPE)
        activations[1, 0, 0, 0] = bad
        with pytest.raises(FrameError, match="NaN or infinite"):
            memory.store(some, activations)
    assert not memory.known(some).any()


def test_samples_are_named_once_and_exist() -> None:
    memory = SampleMemory(5, (2,))
    for wrong in ([1, 1], [5], [-1], [[0]]):
        with pytest.raises(InputError):
            memory.recall(torch.tensor(wrong))
    with pytest.raises(ParameterError, match="between -1 and 1"):
        SkipUnchanged(memory, DENSE, 1.5)


def test_bang_bang_control_is_strict_while_the_loss_gets_worse() -> None:
    control = BangBang(0.9, 0.99)
    assert [control.update(loss) for loss in (2.0, 1.5, 1.6, 1.4)] == [0.9, 0.9, 0.99, 0.9]
