"""The paper's time complexities, checked by fitted exponents of time against d and k."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cutlayer.analysis import Fit, Interval, power_law
from cutlayer.reproduce.experiment import Records
from cutlayer.reproduce.results import Axis, Claim, Findings, Plot, Series, Table

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
    claims = _claims(fits, over_d["encode"], sorted(over_k["encode"]["SP"])) if judged else []
    return Findings("Encoding and decoding time", claims, tables, plots)


def _fit(points: dict[int, float], larger: bool = False) -> Fit | None:
    x = sorted(points)
    x = x[len(x) // 2 :] if larger and len(x) >= 6 else x
    return power_law(x, [points[a] for a in x]) if len(x) >= 3 else None


# An exponent agrees with an order if its interval, this much wider, has the order's.
_TOLERANCE = 0.1


def _claims(fits: Fits, encode: Points, ks: Sequence[int]) -> list[Claim]:
    # What log k would be as a power of k, over the same k.
    log_k = power_law(ks, [math.log2(k) for k in ks]).exponent.mean

    def exponent(row: str, against: str) -> Interval:
        fit = fits["encode", against, row]
        return fit.exponent if fit else Interval(math.nan, math.nan, math.nan)

    def told(row: str) -> str:
        parts = [f"{a}^{exponent(row, a).mean:.2f}" for a in ("d", "k") if fits.get(("encode", a, row))]
        return f"{row}: {', '.join(parts)}"

    def at_most(row: str, d: float, k: float) -> bool:
        return exponent(row, "d").low - _TOLERANCE <= d and exponent(row, "k").low - _TOLERANCE <= k

    def about(row: str, d: float, k: float) -> bool:
        highs = exponent(row, "d").high + _TOLERANCE >= d and exponent(row, "k").high + _TOLERANCE >= k
        return highs and at_most(row, d, k)

    largest, shared = max(encode["MS"]), max(encode["RT, k draws"])
    slower = encode["KM (k-means)"][largest] / encode["MS"][largest]
    draws = about("RT, k draws", 1, 1)
    return [
        Claim(
            "Encoding with SP and MS costs O(d log k)",
            at_most("SP", 1, log_k) and at_most("MS", 1, log_k),
            f"{told('SP')}; {told('MS')}; {told('SP by torch.topk')}; over these k, log k is k^{log_k:.2f}. "
            "Intervals are in the table.",
        ),
        Claim(
            "MS does not raise the order of SP",
            at_most("MS", exponent("SP", "d").mean, exponent("SP", "k").mean),
            f"At d = {largest} it takes {encode['MS'][largest] / encode['SP'][largest]:.2f} times as long.",
        ),
        Claim(
            "RT costs O(dk), because it samples k times in O(d)",
            about("RT", 1, 1) or ("partly" if draws else False),
            f"True of k draws one by one ({told('RT, k draws')}), not of RT: two uniform sets have the "
            f"same law and take one pass ({told('RT')}). At d = {shared} the draws take "
            f"{encode['RT, k draws'][shared] / encode['RT'][shared]:.0f} times as long.",
        ),
        Claim(
            "Clustering quantization takes more time to encode than MS",
            slower > 1,
            f"{slower:.2f} times as long at d = {largest}, by Lloyd's algorithm on a histogram; "
            f"{told('KM (k-means)')}.",
        ),
    ]
