"""Models that are cut in several threads at a time: traces change what all threads share."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from cutlayer.split import cut


class Slow(nn.Module):
    """Asks for a shape, which torch.fx cannot answer, and notes how many threads are inside of it."""

    inside, most = 0, 0
    counting = threading.Lock()

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        with Slow.counting:
            Slow.inside += 1
            Slow.most = max(Slow.most, Slow.inside)
        try:
            time.sleep(0.01)
            y = self.first(x)
            if len(y.shape) != 2 or y.shape[1] != 4:
                raise ValueError("another shape")
            return self.second(y)
        finally:
            with Slow.counting:
                Slow.inside -= 1


def test_one_model_is_traced_at_a_time() -> None:
    call, x = nn.Module.__call__, torch.randn(3, 4)

    def one(_: int) -> None:
        model = Slow()
        head, body = cut(model, "first", example=torch.zeros(2, 4))
        assert torch.equal(body(head(x)), model.second(model.first(x)))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, range(4)))
    assert Slow.most == 1
    assert nn.Module.__call__ is call


class Meanwhile(nn.Module):
    """While it is traced, another thread runs it and another model."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.other = [other]  # no submodule
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if threading.current_thread() is threading.main_thread():
            with ThreadPoolExecutor(1) as threads:
                given = torch.ones(1, 4)
                self.seen += threads.map(lambda run: run(given), [self.other[0], self.first])
        return self.second(self.first(x))


def test_a_model_runs_while_another_thread_traces() -> None:
    other = nn.Linear(4, 3)
    model = Meanwhile(other)
    cut(model, "first")
    expected = other(torch.ones(1, 4)), model.first(torch.ones(1, 4))
    assert len(model.seen) >= 2
    assert all(torch.equal(seen, expected[i % 2]) for i, seen in enumerate(model.seen))
