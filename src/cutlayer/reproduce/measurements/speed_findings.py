"""The paper's time complexities, checked by fitted exponents of time against d and k."""

from __future__ import annotations

import math

from cutlayer.analysis import Fit, Interval, power_law
from cutlayer.reproduce.experiment import Records
from cutlayer.reproduce.results import Axis, Claim, Findings, Holds, Plot, Series, Table

Points = dict[str, dict[int, float]]
Fits = dict[tuple[str, str, str], Fit | None]


def findings(records: Records, fixed_d: int, fixed_k: int, judged: bool) -> Findings:
    """Tables and plots; verdicts, too, where the sizes are large enough to tell."""
    rows = []
    over_d: dict[str, Points] = {"encode": {}, "decode": {}}
    over_k: dict[str, Points] = {"encode": {}, "decode": {}}
    for key, r in records.items():
        row, d, k = key.rsplit("/", 2)
        rows.append([row, int(d), int(k), r["encode"], r["decode"]])
        for what in ("encode", "decode"):
            if r[what] is None:
                continue
            if int(k) == fixed_k:
                over_d[what].setdefault(row, {})[int(d)] = r[what]
            if int(d) == fixed_d:
                over_k[what].setdefault(row, {})[int(k)] = r[what]
    # Of the sizes d the larger half: below, the cost of a call hides that of an element.
    fits = {(what, "d", row): _fit(p, larger=True) for what, of in over_d.items() for row, p in of.items()}
    fits |= {(what, "k", row): _fit(p) for what, of in over_k.items() for row, p in of.items()}
    fitted = [
        [row, what, against, f.exponent.mean, f.exponent.low, f.exponent.high, f.r_squared]
        for (what, against, row), f in fits.items()
        if f is not None
    ]
    tables = [
        Table(
            "exponents",
            f"Time as a power of d (k = {fixed_k}, larger half of the sizes) and of k (d = {fixed_d})",
            ["method", "stage", "against", "exponent", "low", "high", "R squared"],
            fitted,
        ),
        Table("times", "Shortest of several, in seconds", ["method", "d", "k", "encode", "decode"], rows),
    ]
    plots = [
        Plot(
            f"time-{what}-{against}",
            f"Time to {what} against {against}",
            "line",
            Axis(against, log=True),
            Axis("seconds", log=True),
            [Series(row, sorted(p), [p[x] for x in sorted(p)]) for row, p in of.items()],
        )
        for what, against, of in (
            ("encode", "d", over_d["encode"]),
            ("encode", "k", over_k["encode"]),
            ("decode", "d", over_d["decode"]),
        )
    ]
    claims = _claims(fits, over_d["encode"], over_k["encode"]) if judged else []
    return Findings("Encoding and decoding time", claims, tables, plots)


def _fit(points: dict[int, float], larger: bool = False) -> Fit | None:
    x = sorted(points)
    x = x[len(x) // 2 :] if larger and len(x) >= 6 else x
    return power_law(x, [points[a] for a in x]) if len(x) >= 3 else None


# An exponent counts as an order's if it differs by at most this much.
TOLERANCE = 0.1


def at_most(exponent: Interval, order: float) -> Holds:
    """Whether time grows no faster than an order: the upper end of the interval decides, so noise cannot."""
    if exponent.high <= order + TOLERANCE:
        return True
    return False if exponent.low > order + TOLERANCE else "undecided"


def equals(exponent: Interval, order: float) -> Holds:
    """Whether time grows as an order does: the whole interval must lie within the tolerance."""
    if order - TOLERANCE <= exponent.low and exponent.high <= order + TOLERANCE:
        return True
    outside = exponent.low > order + TOLERANCE or exponent.high < order - TOLERANCE
    return False if outside else "undecided"


def together(*parts: Holds) -> Holds:
    """Whether all of it holds: one part that does not decides, then one that is undecided."""
    return False if False in parts else "undecided" if "undecided" in parts else True


def _claims(fits: Fits, encode: Points, over_k: Points) -> list[Claim]:
    ks = sorted(over_k["SP"])
    # What log k would be as a power of k, over the same k.
    log_k = power_law(ks, [math.log2(k) for k in ks]).exponent.mean

    def exponent(row: str, against: str) -> Interval:
        fit = fits["encode", against, row]
        return fit.exponent if fit else Interval(math.nan, -math.inf, math.inf)

    def told(row: str) -> str:
        parts = [f"{a}^{_told(exponent(row, a))}" for a in ("d", "k") if fits.get(("encode", a, row))]
        return f"{row}: {', '.join(parts)}"

    largest, shared = max(encode["MS"]), max(encode["RT, k draws"])
    slower = encode["KM (k-means)"][largest] / encode["MS"][largest]
    # Size by size: what disturbs both methods alike is in neither ratio.
    ratios = [_ratio(encode["MS"], encode["SP"], larger=True), _ratio(over_k["MS"], over_k["SP"])]
    return [
        Claim(
            "Encoding with SP and MS costs O(d log k)",
            together(
                *(at_most(exponent(row, "d"), 1) for row in ("SP", "MS")),
                *(at_most(exponent(row, "k"), log_k) for row in ("SP", "MS")),
            ),
            f"{told('SP')}; {told('MS')}; {told('SP by torch.topk')}; over these k, log k is k^{log_k:.2f}. "
            f"An order holds if the upper end of the interval is at most {TOLERANCE} above it.",
        ),
        Claim(
            "MS does not raise the order of SP",
            together(*(at_most(ratio, 0) for ratio in ratios)),
            f"The time of MS over that of SP grows as d^{_told(ratios[0])} and k^{_told(ratios[1])}. At d = "
            f"{largest} MS takes {encode['MS'][largest] / encode['SP'][largest]:.2f} times as long.",
        ),
        Claim(
            "RT costs O(dk)",
            together(equals(exponent("RT", "d"), 1), equals(exponent("RT", "k"), 1)),
            "Here it draws two uniform sets, which have the same law and take one pass: "
            f"{told('RT')}. At d = {shared}, k draws take "
            f"{encode['RT, k draws'][shared] / encode['RT'][shared]:.0f} times as long.",
        ),
        Claim(
            "RT drawn one by one, k times in O(d), as the paper counts it, costs O(dk)",
            together(equals(exponent("RT, k draws", "d"), 1), equals(exponent("RT, k draws", "k"), 1)),
            f"{told('RT, k draws')}.",
        ),
        Claim(
            "Clustering quantization takes more time to encode than MS",
            slower > 1,
            f"{slower:.2f} times as long at d = {largest}, by Lloyd's algorithm on a histogram; "
            f"{told('KM (k-means)')}.",
        ),
    ]


def _ratio(ours: dict[int, float], theirs: dict[int, float], larger: bool = False) -> Interval:
    """The exponent of the ratio of two times, size by size."""
    fit = _fit({size: ours[size] / theirs[size] for size in ours if size in theirs}, larger)
    return fit.exponent if fit else Interval(math.nan, -math.inf, math.inf)


def _told(value: Interval) -> str:
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]"
