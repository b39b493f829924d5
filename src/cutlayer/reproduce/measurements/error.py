"""Fig. 2 of the paper: compression errors at equal rates, on feature maps of trained models."""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import Any

from cutlayer.analysis import at_rate, compression_error
from cutlayer.codecs import codec
from cutlayer.reproduce import trained_models
from cutlayer.reproduce.cell_records import Record
from cutlayer.reproduce.experiment import Cell, Records, Request
from cutlayer.reproduce.measurements.error_findings import claims
from cutlayer.reproduce.policies import OURS, PAPER, added
from cutlayer.reproduce.results import Axis, Findings, Plot, Series, Table
from cutlayer.reproduce.scales import IMAGE_SETS, Scale
from cutlayer.training.progress_bar import ProgressBar

name = "error"

# Bits an element. At whole numbers all four methods have exactly this rate; at the others, those of MS at
# the paper's ratio of 0.99, QU has the whole bits below.
RATES: dict[Scale, tuple[float, ...]] = {
    Scale.SMOKE: (2.32, 3, 4),
    Scale.LAPTOP: (1.32, 2, 2.32, 3, 3.32, 4, 4.32, 5, 6, 8),
    Scale.PAPER: (1.32, 2, 2.32, 3, 3.32, 4, 4.32, 5, 6, 8),
}
# Bits an element that only an entropy code has.
LOW_RATES: dict[Scale, tuple[float, ...]] = {
    Scale.SMOKE: (1.0,),
    Scale.LAPTOP: (0.25, 0.5, 1.0),
    Scale.PAPER: (0.25, 0.5, 1.0),
}
FAMILIES = {"QU": "qu", "SP": "sp", "MS floor": "ms", "MS nearest": "ms-nearest", "RT": "rt"}


def settings(request: Request) -> dict[str, Any]:
    """See `Experiment`."""
    return {"rates": RATES[request.scale], "sets": [s.name for s in IMAGE_SETS[request.scale]]}


def prepare(request: Request, bar: ProgressBar) -> None:
    """See `Experiment`."""
    trained_models.prepare(request, IMAGE_SETS[request.scale], bar)


def rows(request: Request) -> list[tuple[str, str]]:
    """Families of codecs and specs: all rates of each family, then what was added, at its own rate."""
    swept = [
        (family, str(at_rate(short, bits)))
        for bits in RATES[request.scale]
        for family, short in FAMILIES.items()
    ]
    paper = [spec for spec in PAPER.values() if spec != "none"]
    swept += [(family_of(spec), spec) for spec in paper]
    swept += [("EMS", spec) for spec in ems_rates(request).values()]
    swept += [(policy.label, policy.spec) for policy in added(request.codecs)]
    unique: dict[str, str] = {}
    for family, spec in swept:
        unique.setdefault(spec, family)
    return [(family, spec) for spec, family in unique.items()]


def ems_rates(request: Request) -> dict[float, str]:
    """The rates of EMS, and its specs."""
    return {bits: f"ems:bpe={bits}" for bits in (*LOW_RATES[request.scale], *RATES[request.scale])}


def family_of(spec: str) -> str:
    """The family of one of the paper's policies."""
    short = codec(spec).name
    nearest = getattr(codec(spec), "rounding", "") == "nearest" and short == "ms"
    return next(f for f, s in FAMILIES.items() if s == (f"{short}-nearest" if nearest else short))


def cells(request: Request) -> list[Cell]:
    """See `Experiment`. Those that share feature maps follow each other."""
    return [
        Cell(f"{images.name}/{at}/{spec}", measure, {"images": images.name, "at": at, "spec": spec})
        for images in IMAGE_SETS[request.scale]
        for at in trained_models.CUTS
        for _, spec in rows(request)
    ]


def measure(request: Request, images: str, at: str, spec: str) -> Record:
    """One codec on the feature maps of one cut."""
    which = codec(spec)
    maps = trained_models.features(request, trained_models.image_set(request, images), at)
    found = [compression_error(x, which, seed=request.seed + i) for i, x in enumerate(maps)]
    signed = any(bool((x < 0).any()) for x in maps)
    return {
        "bits": which.bits_per_element(tuple(maps[0].shape), signed)
        if which.fixed_size
        else fmean(8 * len(which.encode(x, seed=request.seed + i)) / x.numel() for i, x in enumerate(maps)),
        "norm": fmean(e.sample_norm for e in found),
        "norm_spread": pstdev(e.sample_norm for e in found),
        "relative": fmean(e.relative for e in found),
        "relative_spread": pstdev(e.relative for e in found),
        "batches": len(found),
        "shape": list(maps[0].shape),
    }


def conclude(request: Request, records: Records) -> Findings:
    """See `Experiment`."""
    table_rows, plots = [], []
    for images in IMAGE_SETS[request.scale]:
        for at in trained_models.CUTS:
            lines: dict[str, list[tuple[float, float, float]]] = {}
            for family, spec in rows(request):
                r = records[f"{images.name}/{at}/{spec}"]
                table_rows.append(
                    [images.name, at, family, spec, r["bits"], 1 - r["bits"] / 32]
                    + [r[key] for key in ("norm", "norm_spread", "relative", "relative_spread")]
                )
                lines.setdefault(family, []).append((r["bits"], r["norm"], r["norm_spread"]))
            series = []
            for family, points in lines.items():
                points.sort()
                x, y, spread = ([p[i] for p in points] for i in range(3))
                low = [a - b for a, b in zip(y, spread, strict=True)]
                high = [a + b for a, b in zip(y, spread, strict=True)]
                series.append(Series(family, x, y, low, high))
            plots.append(
                Plot(
                    f"error-{images.source}-{at}",
                    f"Average 2-norm error, {images.name}, {at} cut",
                    "line",
                    Axis("bits an element"),
                    Axis("mean ||x - y|| of a sample", log=True),
                    series,
                )
            )
    columns = ["images", "cut", "method", "codec", "bits", "compression rate", "2-norm error"]
    columns += ["its spread", "relative squared error", "spread of that"]
    table = Table("errors", "Compression errors at equal rates", columns, table_rows)
    headline = [r for r in table_rows if r[3] in (*PAPER.values(), OURS.spec) or r[2] == r[3]]
    return Findings(
        "Compression error of feature maps (Fig. 2)",
        claims(request, records, RATES[request.scale], ems_rates(request)),
        [Table("policies", "The paper's policies", columns, headline), table],
        plots,
    )
