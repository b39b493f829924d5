"""Exponents of time against d and k, and what they say about the paper's orders."""

from __future__ import annotations

from cutlayer.analysis import Fit, power_law
from cutlayer.run.reproduce.experiment import Records
from cutlayer.run.reproduce.results import Axis, Claim, Findings, Plot, Series, Table

Points = dict[str, dict[int, float]]


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
    claims = _claims(fits, over_d["encode"]) if judged else []
    return Findings("Encoding and decoding time", claims, tables, plots)


def _fit(points: dict[int, float], larger: bool = False) -> Fit | None:
    x = sorted(points)
    x = x[len(x) // 2 :] if larger and len(x) >= 6 else x
    return power_law(x, [points[a] for a in x]) if len(x) >= 3 else None


def _claims(fits: dict[tuple[str, str, str], Fit | None], encode: Points) -> list[Claim]:
    def exponent(row: str, against: str) -> float | None:
        fit = fits.get(("encode", against, row))
        return None if fit is None else fit.exponent.mean

    def told(row: str) -> str:
        parts = [(a, exponent(row, a)) for a in ("d", "k")]
        return f"{row}: " + ", ".join(f"{a}^{e:.2f}" for a, e in parts if e is not None)

    def near(row: str, d: float, k: float) -> bool:
        found = exponent(row, "d"), exponent(row, "k")
        return all(f is not None and abs(f - e) <= 0.3 for f, e in zip(found, (d, k), strict=True))

    largest = max(encode["MS"])
    claims = [
        Claim(
            "Encoding with SP and MS costs O(d log k): linear in d, nearly free in k",
            near("SP", 1, 0) and near("MS", 1, 0),
            f"{told('SP')}; {told('MS')}; {told('SP by torch.topk')}.",
        ),
        Claim(
            "MS does not raise the order of SP",
            near("MS", 1, 0),
            f"At d = {largest} it takes {encode['MS'][largest] / encode['SP'][largest]:.2f} times as long.",
        ),
    ]
    if "RT, k draws" in encode:
        shared = max(encode["RT, k draws"])
        claims.append(
            Claim(
                "RT costs O(dk), because it samples k times in O(d)",
                "partly" if near("RT, k draws", 1, 1) and not near("RT", 1, 1) else near("RT", 1, 1),
                f"True of k draws one by one ({told('RT, k draws')}), not of RT: two uniform sets have the "
                f"same law and take one pass ({told('RT')}). At d = {shared} the draws take "
                f"{encode['RT, k draws'][shared] / encode['RT'][shared]:.0f} times as long.",
            )
        )
    slower = encode["KM (k-means)"][largest] / encode["MS"][largest]
    claims.append(
        Claim(
            "Clustering quantization takes more time to encode than MS",
            slower > 1,
            f"{slower:.2f} times as long at d = {largest}, by Lloyd's algorithm on a histogram; "
            f"{told('KM (k-means)')}.",
        )
    )
    return claims
