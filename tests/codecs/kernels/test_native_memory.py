"""Large results of the compiled kernels are allocated in huge pages."""

import re
from pathlib import Path

import pytest
import torch

import cutlayer

SMAPS = Path("/proc/self/smaps")
pytest.importorskip("cutlayer._native")


def flags(address: int) -> list[str]:
    """What the kernel has noted for the mapping that an address is in."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        span = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if span:
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no huge pages here")
@pytest.mark.parametrize("spec", ["ms", "ems", "dense"])
def test_large_results_get_huge_pages(spec: str) -> None:
    x = torch.relu(torch.randn(1 << 6, 1 << 15, generator=torch.Generator().manual_seed(0)))
    y = cutlayer.decode(cutlayer.codec(spec).encode(x))
    assert "hg" in flags(y.data_ptr() + y.nbytes // 2)


def test_any_address_range_may_be_advised() -> None:
    """Only whole pages within it are advised; there may be none."""
    from cutlayer import _native

    x = torch.arange(10_000)
    for start, nbytes in [(0, 0), (1, 1), (17, 4096), (3, 8190), (0, x.nbytes)]:
        _native.advise_huge_pages(x.data_ptr() + start, nbytes)
    assert torch.equal(x, torch.arange(10_000))
