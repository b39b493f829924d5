"""For all tests."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Timing never decides a test: an example that a busy machine holds up is no failure.
settings.register_profile("calm", deadline=None)
settings.load_profile("calm")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums over several threads need not be the same twice."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
