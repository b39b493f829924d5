"""The paper's section on time: encoding and decoding against d and k, and fitted exponents.

Two rows are here for comparison only. `RT, k draws` samples as the paper counts it, k times O(d); `SP by
torch.topk` selects with PyTorch. All others are the codecs as they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cutlayer.codecs import codec, decode
from cutlayer.errors import ConfigError
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Cell, Records, Request
from cutlayer.reproduce.measurements.speed_findings import findings
from cutlayer.reproduce.policies import added
from cutlayer.reproduce.results import Findings
from cutlayer.reproduce.scales import Scale
from cutlayer.tools.bench import best
from cutlayer.training.progress_bar import ProgressBar

name = "time"

# Powers of two: d at a fixed k, k at a fixed d.
GRIDS: dict[Scale, dict[str, Any]] = {
    Scale.SMOKE: {"d": [12, 13, 14], "k": [3, 4, 5], "fixed_k": 5, "fixed_d": 12},
    Scale.LAPTOP: {
        "d": [14, 15, 16, 17, 18, 19, 20, 21, 22],
        "k": [4, 6, 8, 10, 12, 14],
        "fixed_k": 9,
        "fixed_d": 18,
    },
    Scale.PAPER: {
        "d": [14, 16, 18, 20, 22, 24, 26],
        "k": [4, 6, 8, 10, 12, 14],
        "fixed_k": 10,
        "fixed_d": 20,
    },
}
SECONDS = {Scale.SMOKE: 0.002, Scale.LAPTOP: 0.08, Scale.PAPER: 1.0}
# k draws of O(d) take minutes beyond this many operations.
MOST_OPERATIONS = 1 << 30

# Specs with {ratio}; those without do not depend on k.
CODECS = {
    "SP": "sp:ratio={ratio},store=mask",
    "MS": "ms:ratio={ratio},bits=2",
    "RT": "rt:ratio={ratio},alpha=0.1,scope=tensor",
    "QU": "qu:bits=3",
    "KM (k-means)": "km:bits=3",
}
DRAWS, TOPK = "RT, k draws", "SP by torch.topk"


def settings(request: Request) -> dict[str, Any]:
    """See `Experiment`."""
    if request.jobs > 1:
        raise ConfigError(f"times are measured one after another, not --jobs {request.jobs}; leave it at 1")
    return {"grid": GRIDS[request.scale], "threads": request.threads}


def prepare(request: Request, bar: ProgressBar) -> None:
    """See `Experiment`. Nothing: the tensors are made on the spot."""


def cells(request: Request) -> list[Cell]:
    """See `Experiment`."""
    grid = GRIDS[request.scale]
    points = [(1 << d, 1 << grid["fixed_k"]) for d in grid["d"]]
    points += [(1 << grid["fixed_d"], 1 << k) for k in grid["k"]]
    specs = CODECS | {policy.label: policy.spec for policy in added(request.codecs)}
    found: dict[str, Cell] = {}
    for d, k in points:
        for row, spec in specs.items():
            if "{ratio}" not in spec and k != 1 << grid["fixed_k"]:
                continue
            filled = spec.format(ratio=1 - k / d)
            found[f"{row}/{d}/{k}"] = Cell(f"{row}/{d}/{k}", measure, {"spec": filled, "d": d})
        found[f"{TOPK}/{d}/{k}"] = Cell(f"{TOPK}/{d}/{k}", measure_plain, {"row": TOPK, "d": d, "k": k})
        if d * k <= MOST_OPERATIONS:
            key = f"{DRAWS}/{d}/{k}"
            found[key] = Cell(key, measure_plain, {"row": DRAWS, "d": d, "k": k})
    return list(found.values())


def values(request: Request, d: int) -> Tensor:
    """Half zeros and half of a normal distribution, as behind a ReLU."""
    return torch.relu(torch.randn(1, d, generator=torch.Generator().manual_seed(request.seed)))


def measure(request: Request, spec: str, d: int) -> Record:
    """The shortest of several times of one codec."""
    which, x = codec(spec), values(request, d)
    seconds = SECONDS[request.scale]
    frame = which.encode(x)
    out = torch.empty_like(x)
    return {
        "encode": best(lambda: which.encode(x), seconds=seconds),
        "decode": best(lambda: decode(frame, out=out), seconds=seconds),
    }


def measure_plain(request: Request, row: str, d: int, k: int) -> Record:
    """The shortest of several times of a row that is no codec: the selection alone."""
    x = values(request, d).view(-1)
    work: Callable[[], object]
    if row == TOPK:
        work = lambda: torch.topk(x, k, sorted=False)  # noqa: E731
    else:
        generator = torch.Generator().manual_seed(request.seed)
        work = lambda: draw_one_by_one(x, k, 0.1, generator)  # noqa: E731
    least = 1 if d * k > MOST_OPERATIONS >> 4 else 3
    return {"encode": best(work, least=least, seconds=SECONDS[request.scale]), "decode": None}


def draw_one_by_one(x: Tensor, k: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Randomized top-k as the paper counts it: k draws without replacement, each over all d elements."""
    d = len(x)
    weights = torch.full((d,), alpha / max(1, d - k), dtype=torch.float64)
    weights[torch.topk(x.abs(), k, sorted=False).indices] = (1 - alpha) / k
    chosen = torch.empty(k, dtype=torch.long)
    where = torch.empty_like(weights)
    for i, u in enumerate(torch.rand(k, dtype=torch.float64, generator=generator).tolist()):
        torch.cumsum(weights, 0, out=where)
        place = torch.searchsorted(where, u * where[-1], right=True).clamp_(max=d - 1)
        chosen[i] = place
        weights[place] = 0
    return chosen


def conclude(request: Request, records: Records) -> Findings:
    """See `Experiment`."""
    grid = GRIDS[request.scale]
    return findings(records, 1 << grid["fixed_d"], 1 << grid["fixed_k"], request.scale != Scale.SMOKE)
