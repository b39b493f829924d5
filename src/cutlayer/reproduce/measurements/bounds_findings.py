"""The paper's error bounds and Theorem 3, checked on the measured errors."""

from __future__ import annotations

from cutlayer.analysis.bounds import FLOAT_BITS, proof_q2
from cutlayer.reproduce.experiment import Records
from cutlayer.reproduce.measurements.error_findings import exceptions, verdict
from cutlayer.reproduce.results import Axis, Claim, Findings, Plot, Series, Table

_METHODS = {
    "QU": "sqrt(d) / (2^q1 - 1), rounding to the nearest",
    "QU stochastic": "sqrt(d) / (2^q1 - 1), one draw of stochastic rounding",
    "SP": "(d - k1) / d",
    "MS floor": "alpha sqrt(d - k2) / (2^q2 - 1), rounding down",
    "MS nearest": "alpha sqrt(d - k2) / (2^q2 - 1), rounding to the nearest",
}


def findings(records: Records) -> Findings:
    """Tables, plots and verdicts."""
    swept = {key: r for key, r in records.items() if "methods" in r}
    rows = []
    for key, r in records.items():
        images, at, scope, form = key.split("/", 3)
        if "methods" not in r:
            rows.append([images, at, scope, form, form, None, r["error"], None, None, None, None])
            continue
        for method, m in r["methods"].items():
            rows.append(
                [images, at, scope, form, method, r["alpha"]]
                + [m[k] for k in ("error", "bound", "over_bound", "tight", "over_tight")]
            )
    where = ["images", "cut", "tensor", "MS form"]
    errors = Table(
        "bounds",
        "Relative squared errors and their bounds, at equal rates",
        [
            *where,
            "method",
            "alpha",
            "error",
            "bound",
            "worst error / bound",
            "sharper bound",
            "worst / sharper",
        ],
        rows,
    )
    keys = ["alpha", "alpha_low", "alpha_high", "alpha_below_half", "proof_covers"]
    keys += ["ms_below_qu", "ms_below_sp", "q2_for_sp"]
    conditions = Table(
        "conditions",
        "Theorem 3: its conditions, and whether the bounds order as it says",
        [
            *(*where, "d", "k2", "alpha", "least alpha", "greatest alpha", "0 < alpha < 1/2"),
            *("proof covers it", "MS bound <= QU's", "MS bound <= SP's", "least q2 for SP"),
            "q2 that the proof for SP needs",
        ],
        [
            [*key.split("/", 3), r["d"], r["k2"], *(r[k] for k in keys), proof_q2(r["alpha"], r["d"])]
            for key, r in swept.items()
        ],
    )
    return Findings("Error bounds and Theorem 3", _claims(swept), [conditions, errors], _plots(swept))


def _claims(swept: Records) -> list[Claim]:
    found = []
    for method, formula in _METHODS.items():
        of = {key: r["methods"][method] for key, r in swept.items()}
        cases = [(key, m["over_bound"] <= 1) for key, m in of.items()]
        useful = sum(m["bound"] < 1 for m in of.values())
        most = max(m["over_bound"] for m in of.values())
        told = (
            f"{exceptions(cases, 3)}; the error is at most {most:.3g} of it. "
            f"It is below 1, so that it says something, in {useful} of {len(of)} cases."
        )
        if next(iter(of.values()))["tight"] is not None:
            sharp = [(key, m["over_tight"] <= 1) for key, m in of.items()]
            useful = sum(m["tight"] < 1 for m in of.values())
            told += f" The sharper bound: {exceptions(sharp, 3)}, below 1 in {useful} cases."
        found.append(Claim(f"The squared error of {method} is at most {formula}", verdict(cases), told))

    cases = [(key, r["alpha_below_half"]) for key, r in swept.items()]
    values = [r["alpha"] for r in swept.values()]
    held = sum(ok for _, ok in cases)
    told = f"alpha is {min(values):.3f} to {max(values):.3f}; it holds in {held} of {len(cases)} cases."
    found.append(Claim("The condition of Theorem 3, 0 < alpha < 1/2, is mild", verdict(cases), told))

    for text, of in (
        ("The bound of MS is below that of QU at the same rate", dict(swept)),
        (
            "The same where 0 < alpha < 1/2, as Theorem 3 says",
            {k: r for k, r in swept.items() if r["alpha_below_half"]},
        ),
    ):
        cases = [(key, r["ms_below_qu"]) for key, r in of.items()]
        if cases:
            told = f"{sum(ok for _, ok in cases)} of {len(cases)} cases."
            found.append(Claim(text, verdict(cases), told))
    cases = [(key, r["q2_for_sp"] is not None) for key, r in swept.items()]
    needed = sorted({r["q2_for_sp"] or 0 for r in swept.values()})
    held = sum(r["ms_below_sp"] for r in swept.values())
    told = (
        f"With the masks as they are, in {held} of {len(cases)} cases; with k2 kept it takes a q2 of "
        f"{' or '.join(str(q) for q in needed if q)} bits. {exceptions(cases, 6).capitalize()}."
    )
    found.append(Claim("With growing q2 the bound of MS falls below that of SP", verdict(cases), told))
    bits = {key: proof_q2(r["alpha"], r["d"]) for key, r in swept.items()}
    # At the rate of so many mask bits SP keeps every value and has no error.
    most = {key: 1 + FLOAT_BITS * (1 - r["k2"] / r["d"]) for key, r in swept.items()}
    cases = [(key, bits[key] < most[key]) for key in swept]
    told = (
        f"It needs masks of {min(bits.values()):.0f} to {max(bits.values()):.0f} bits, and at "
        f"{max(most.values()):.0f} bits SP keeps every value. It grows as d / (32 ln 2), and d is "
        f"{min(r['d'] for r in swept.values())} or more here. The proof therefore says nothing about real "
        "tensors, although its conclusion holds between the two."
    )
    text = "What the proof of Theorem 3 needs for SP, alpha exp(d / 32) <= (2^q2 - 1) / d, can be met"
    found.append(Claim(text, verdict(cases), told))
    cases = []
    for key, r in swept.items():
        m = r["methods"]
        cases.append((key, m["MS floor"]["error"] < min(m["SP"]["error"], m["QU"]["error"])))
    told = f"{sum(ok for _, ok in cases)} of {len(cases)} cases (QU with whole bits at or below the rate)."
    found.append(Claim("The measured error of MS floor is below those of QU and SP", verdict(cases), told))
    return found


def _plots(swept: Records) -> list[Plot]:
    series = []
    for method in _METHODS:
        of = [r["methods"][method] for r in swept.values()]
        series.append(Series(method, [m["bound"] for m in of], [m["error"] for m in of]))
    scatter = Plot(
        "bounds-errors",
        "Measured error against the paper's bound",
        "scatter",
        Axis("bound", log=True),
        Axis("relative squared error", log=True),
        series,
    )
    ratios: dict[str, dict[str, float]] = {}
    for key, r in swept.items():
        images, at, scope, form = key.split("/", 3)
        if scope == "batch":
            ratios.setdefault(form.split("ratio=")[1], {})[f"{images}, {at}"] = r["alpha"]
    bars = Plot(
        "bounds-alpha",
        "alpha: the share of the 2-norm that MS's top-k filters out",
        "bar",
        Axis("images and cut"),
        Axis("alpha"),
        [Series(f"ratio {ratio}", list(of), list(of.values())) for ratio, of in ratios.items()],
    )
    return [scatter, bars]
