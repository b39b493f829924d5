"""Theorem 1, Lemma 1 and the condition of Theorem 2: gradients under compression, on real batches."""

from __future__ import annotations

from functools import lru_cache
from statistics import fmean
from typing import Any

import torch

from cutlayer.analysis import (
    BiasTest,
    Gradient,
    Interval,
    Probe,
    bias_test,
    compare_gradients,
    inner_product,
    mean_gradient,
    mean_interval,
    share_interval,
)
from cutlayer.codecs import Codec, codec, decode
from cutlayer.reproduce import trained_models
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Cell, Records, Request
from cutlayer.reproduce.measurements.bias_findings import findings
from cutlayer.reproduce.policies import Policy, policies
from cutlayer.reproduce.results import Findings
from cutlayer.reproduce.scales import IMAGE_SETS, ImageSet, Scale
from cutlayer.training.progress_bar import ProgressBar

name = "bias"

# How many batches, how large, and how often random codecs are drawn on the first of them.
SIZES: dict[Scale, tuple[int, int, int]] = {
    Scale.SMOKE: (6, 16, 12),
    Scale.LAPTOP: (24, 64, 40),
    Scale.PAPER: (32, 128, 40),
}
# Of what a cell holds. Cells of another version are not mixed with these.
VERSION = 2
# The gradient of these image sets; the errors of all of them are in `error`.
SETS = {Scale.SMOKE: 1, Scale.LAPTOP: 1, Scale.PAPER: 3}
UNBIASED = [
    Policy("QU(3) stochastic", "qu:bits=3,rounding=stochastic"),
    Policy("RK(0.95875)", "rk:ratio=0.95875"),
]
# The control looks at so many elements of the smashed data: enough to see a bias, few enough for memory.
_CONTROL = 1 << 17


def settings(request: Request) -> dict[str, Any]:
    """See `Experiment`."""
    batches, size, draws = SIZES[request.scale]
    names = [s.name for s in sets(request)]
    return {"batches": batches, "batch": size, "draws": draws, "sets": names, "version": VERSION}


def sets(request: Request) -> tuple[ImageSet, ...]:
    """The image sets whose labels are the model's."""
    return tuple(s for s in IMAGE_SETS[request.scale] if s.labelled)[: SETS[request.scale]]


def prepare(request: Request, bar: ProgressBar) -> None:
    """See `Experiment`."""
    trained_models.prepare(request, sets(request), bar)


def rows(request: Request) -> list[Policy]:
    """Unbiased codecs, the paper's policies, what was added."""
    found = [*UNBIASED, *(p for p in policies(request.codecs) if p.spec != "none")]
    return list({p.spec: p for p in reversed(found)}.values())[::-1]


def cells(request: Request) -> list[Cell]:
    """See `Experiment`."""
    return [
        Cell(f"{s.name}/{at}/{p.spec}", measure, {"images": s.name, "at": at, "spec": p.spec})
        for s in sets(request)
        for at in trained_models.CUTS
        for p in rows(request)
    ]


def probes(request: Request, images: ImageSet, at: str) -> Any:
    """A probe for each batch, one at a time; the model is in training mode, as when it is trained."""
    count, size, _ = SIZES[request.scale]
    client, server = trained_models.parts(request, images, at)
    client.train()
    server.train()
    for x, y in trained_models.batches(request, images, "train", count, size):
        yield Probe((client, server), x, y)


@lru_cache(maxsize=1)
def true_gradients(request: Request, images: ImageSet, at: str) -> tuple[Gradient, ...]:
    """The gradients of all batches without compression."""
    return tuple(probe.gradient() for probe in probes(request, images, at))


def measure(request: Request, images: str, at: str, spec: str) -> Record:
    """One codec at one cut: every batch once, and the first one many times if the codec is random."""
    which, chosen = codec(spec), trained_models.image_set(request, images)
    true = true_gradients(request, chosen, at)
    record: Record = {}
    compressed = []
    for number, probe in enumerate(probes(request, chosen, at)):
        if number == 0:
            record |= _expectation(request, probe, which, true[0])
        compressed.append(probe.gradient(which, seed=request.seed + 1000 + number))
    record["parts"] = {part: _over_batches(true, compressed, part) for part in ("all", "client", "server")}
    record["layers"] = _layers(true, compressed)
    record["error"] = fmean(g.error for g in compressed)
    record["relative_error"] = fmean(g.relative_error for g in compressed)
    return record


def _expectation(request: Request, probe: Probe, which: Codec, true: Gradient) -> Record:
    """Theorem 1, where the codec is random: is the mean of many compressed gradients the true one?"""
    if which.encode(probe.smashed.detach(), seed=1) == which.encode(probe.smashed.detach(), seed=2):
        return {"random": False}
    draws = SIZES[request.scale][2]
    seeds = range(request.seed + 5000, request.seed + 5000 + draws)
    found = [probe.gradient(which, seed=seed) for seed in seeds]
    smashed = probe.smashed.detach()
    received = [decode(which.encode(smashed, seed=seed)).reshape(-1)[:_CONTROL] for seed in seeds]
    return {
        "random": True,
        "expectation": {
            "smashed data": _test(bias_test(received, smashed.reshape(-1)[:_CONTROL])),
            **{
                part: _test(bias_test([g.vector(part) for g in found], true.vector(part)))
                for part in ("all", "client", "server")
            },
        },
    }


def _over_batches(true: tuple[Gradient, ...], compressed: list[Gradient], part: str) -> Record:
    count = len(true)
    vectors = torch.stack([g.vector(part) for g in true])
    errors = torch.stack([h.vector(part) for h in compressed]) - vectors
    # The full gradient, estimated from all other batches: this batch must not speak for itself.
    full = (vectors.sum(0) - vectors) / (count - 1)
    along = (full * errors).sum(1)
    aligned = (full * (vectors + errors)).sum(1)
    inner = inner_product(vectors, errors)
    found = [compare_gradients(g, h, part=part) for g, h in zip(true, compressed, strict=True)]
    mean_true, mean_compressed = (mean_gradient(gs) for gs in (true, compressed))
    of_mean = compare_gradients(mean_true, mean_compressed, part=part)
    return {
        "relative": _interval(mean_interval([e.relative for e in found])),
        "cosine": _interval(mean_interval([e.cosine for e in found])),
        "inner": _interval(inner.value),
        "inflation": inner.inflation,
        "inner_share": _interval(share_interval(int((along >= 0).sum()), count)),
        "descent_share": _interval(share_interval(int((aligned >= 0).sum()), count)),
        "per_error": _interval(mean_interval([e.per_error for e in found])),
        "per_error_most": max(e.per_error for e in found),
        "sensitivity": _interval(mean_interval([e.sensitivity for e in found])),
        "mean_relative": of_mean.relative,
        "mean_cosine": of_mean.cosine,
    }


def _layers(true: tuple[Gradient, ...], compressed: list[Gradient]) -> dict[str, Record]:
    """For each layer with a matrix of weights: gradient error over compression error, and relative."""
    found: dict[str, Record] = {}
    for name_, value in true[0].named.items():
        if value.dim() < 2:
            continue
        pairs = [(g.named[name_], h.named[name_], h.error) for g, h in zip(true, compressed, strict=True)]
        errors = [float((h - g).norm()) for g, h, _ in pairs]
        found[name_.removesuffix(".weight")] = {
            "side": "client" if name_ in true[0].client else "server",
            "per_error": fmean(e / p[2] if p[2] else 0.0 for e, p in zip(errors, pairs, strict=True)),
            "relative": fmean(e / (float(p[0].norm()) or 1.0) for e, p in zip(errors, pairs, strict=True)),
        }
    return found


def _interval(value: Interval) -> list[float]:
    return [value.mean, value.low, value.high]


def _test(value: BiasTest) -> Record:
    return {
        "along": _interval(value.along),
        "size": value.size,
        "noise": value.noise,
        "draws": value.draws,
    }


def conclude(request: Request, records: Records) -> Findings:
    """See `Experiment`."""
    labels = {policy.spec: policy.label for policy in rows(request)}
    return findings(records, labels, [policy.spec for policy in UNBIASED])
