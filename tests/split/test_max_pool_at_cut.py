"""Which cuts hand smashed data to a max pool as they are."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutlayer.split import cut
from cutlayer.split.max_pool_at_cut import max_pool_at_cut


def chain(*behind: nn.Module) -> nn.Sequential:
    """A model that is cut behind its first ReLU."""
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), *behind)


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        ([nn.MaxPool2d(2)], "2"),
        ([nn.AdaptiveMaxPool2d(1), nn.Flatten()], "2"),
        ([nn.Identity(), nn.ReLU(), nn.MaxPool2d(2)], "4"),
        ([nn.Sequential(nn.ReLU(), nn.Sequential(nn.MaxPool2d(2))), nn.Flatten()], "2.1.0"),
        ([nn.Conv2d(4, 4, 1), nn.MaxPool2d(2)], None),
        ([nn.Sequential(nn.Conv2d(4, 4, 1), nn.MaxPool2d(2))], None),
        ([nn.AdaptiveAvgPool2d(1)], None),
        ([nn.Flatten()], None),
    ],
)
def test_the_first_layer_behind_the_cut_counts(behind: list[nn.Module], found: str | None) -> None:
    _, server = cut(chain(*behind), at="1")
    assert max_pool_at_cut(server) == found


class Functional(nn.Module):
    """One branch pools smashed data, the other convolves them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both branches."""
        smashed = self.first(x)
        return F.max_pool2d(F.relu(smashed), 2).mean((2, 3)) + self.second(smashed).mean((2, 3))


def test_functions_and_branches() -> None:
    assert max_pool_at_cut(cut(Functional(), at="first")[1]) == "max_pool2d"


def test_a_module_that_is_no_part_of_a_cut_model() -> None:
    assert max_pool_at_cut(nn.MaxPool2d(2)) is None
