"""The paper's error bounds beside measured errors, the measured alpha, and where Theorem 3 applies."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from torch import Tensor

from cutlayer.analysis import at_rate, bound_ms, bound_qu, bound_sp, compression_error
from cutlayer.analysis import conditions as theorem_3
from cutlayer.analysis.bounds import filtered, tight_qu
from cutlayer.codecs import codec
from cutlayer.codecs.base import kept
from cutlayer.reproduce import trained_models
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Cell, Records, Request
from cutlayer.reproduce.measurements.bounds_findings import findings
from cutlayer.reproduce.policies import added
from cutlayer.reproduce.results import Findings
from cutlayer.reproduce.scales import IMAGE_SETS, Scale
from cutlayer.training.progress_bar import ProgressBar

name = "bounds"

# Forms of MS: mask bits q2 and ratio, which fix k2 and the rate at which QU and SP are compared.
FORMS: dict[Scale, tuple[tuple[int, float], ...]] = {
    Scale.SMOKE: ((2, 0.96875), (2, 0.99)),
    Scale.LAPTOP: tuple((q2, ratio) for ratio in (0.96875, 0.99, 0.999) for q2 in (1, 2, 3, 4)),
    Scale.PAPER: tuple((q2, ratio) for ratio in (0.96875, 0.99, 0.999) for q2 in (1, 2, 3, 4, 6, 8)),
}
# What a tensor x of the paper is: a whole batch, or one sample. The bounds grow with its size.
SCOPES = ("batch", "sample")
# How many batches, and how many samples.
UNITS: dict[Scale, tuple[int, int]] = {Scale.SMOKE: (2, 2), Scale.LAPTOP: (2, 16), Scale.PAPER: (4, 32)}


def settings(request: Request) -> dict[str, Any]:
    """See `Experiment`."""
    return {"forms": FORMS[request.scale], "tensors": UNITS[request.scale]}


def prepare(request: Request, bar: ProgressBar) -> None:
    """See `Experiment`."""
    trained_models.prepare(request, IMAGE_SETS[request.scale], bar)


def cells(request: Request) -> list[Cell]:
    """See `Experiment`."""
    found = []
    for images in IMAGE_SETS[request.scale]:
        for at in trained_models.CUTS:
            for scope in SCOPES:
                where = {"images": images.name, "at": at, "scope": scope}
                prefix = "/".join(where.values())
                found += [
                    Cell(f"{prefix}/q2={q2},ratio={ratio}", measure, where | {"q2": q2, "ratio": ratio})
                    for q2, ratio in FORMS[request.scale]
                ]
                found += [
                    Cell(f"{prefix}/{policy.spec}", measure_added, where | {"spec": policy.spec})
                    for policy in added(request.codecs)
                ]
    return found


def tensors(request: Request, images: str, at: str, scope: str) -> list[Tensor]:
    """The tensors x: whole batches, or single samples."""
    maps = trained_models.features(request, trained_models.image_set(request, images), at)
    batches, samples = UNITS[request.scale]
    return list(maps[:batches]) if scope == "batch" else [s[None] for s in maps[0][:samples]]


def measure(request: Request, images: str, at: str, scope: str, q2: int, ratio: float) -> Record:
    """Bounds and errors of MS in one form, and of QU and SP at its rate."""
    found: dict[str, list[dict[str, float]]] = {}
    alphas, k2, d = [], 0, 0
    for x in tensors(request, images, at, scope):
        d = x.numel()
        k2 = kept(ratio, d)
        bits = q2 + 32 * k2 / d
        share, top_min = filtered(x, k2)
        alphas.append(share)
        sp, ms = at_rate("sp", bits), f"ms:ratio={ratio},bits={q2}"
        q1, bound = int(bits), bound_ms(d, k2, q2, share)
        sharp_qu = tight_qu(x, q1)
        limits = {
            "MS floor": (ms, bound, bound * top_min),
            "MS nearest": (f"{ms},rounding=nearest", bound, bound * top_min),
            "SP": (str(sp), bound_sp(d, kept(sp.ratio, d)), None),  # type: ignore[attr-defined]
            "QU": (f"qu:bits={q1}", bound_qu(d, q1), sharp_qu),
            "QU stochastic": (f"qu:bits={q1},rounding=stochastic", bound_qu(d, q1), sharp_qu),
        }
        for method, (spec, limit, tight) in limits.items():
            error = compression_error(x, codec(spec), seed=request.seed).relative
            row = {"error": error, "bound": limit, "over_bound": error / limit}
            if tight is not None:
                row |= {"tight": tight, "over_tight": error / tight if tight else 0.0}
            found.setdefault(method, []).append(row)
    told = theorem_3(fmean(alphas), d, k2, q2)
    return {
        "alpha": fmean(alphas),
        "alpha_low": min(alphas),
        "alpha_high": max(alphas),
        "d": d,
        "k2": k2,
        "tensors": len(alphas),
        "methods": {
            method: {
                "error": fmean(row["error"] for row in rows),
                "bound": fmean(row["bound"] for row in rows),
                "tight": fmean(row["tight"] for row in rows) if "tight" in rows[0] else None,
                # The worst tensor decides whether a bound holds.
                "over_bound": max(row["over_bound"] for row in rows),
                "over_tight": max(row["over_tight"] for row in rows) if "tight" in rows[0] else None,
            }
            for method, rows in found.items()
        },
        "alpha_below_half": told.alpha_below_half,
        "proof_covers": told.proof_covers,
        "ms_below_qu": told.ms_below_qu,
        "ms_below_sp": told.ms_below_sp,
        "q2_for_sp": told.q2_for_sp,
    }


def measure_added(request: Request, images: str, at: str, scope: str, spec: str) -> Record:
    """The error of a codec for which the paper has no bound."""
    found = [
        compression_error(x, codec(spec), seed=request.seed) for x in tensors(request, images, at, scope)
    ]
    return {"error": fmean(e.relative for e in found)}


def conclude(request: Request, records: Records) -> Findings:
    """See `Experiment`."""
    return findings(records)
