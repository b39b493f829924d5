"""Theorem 1, Lemma 1 and the condition of Theorem 2, checked on the measured gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.reproduce.experiment import Records
from cutlayer.reproduce.measurements.error_findings import exceptions, verdict
from cutlayer.reproduce.results import Axis, Claim, Findings, Holds, Plot, Series, Table
from cutlayer.reproduce.trained_models import CUTS


def findings(records: Records, labels: Mapping[str, str], unbiased: Sequence[str]) -> Findings:
    """Tables, plots and verdicts."""
    tests, over, layers = [], [], []
    for key, r in records.items():
        images, at, spec = key.split("/", 2)
        start = [images, at, labels[spec]]
        for what, t in r.get("expectation", {}).items():
            tests.append([*start, what, *t["along"], _biased(t), t["size"], t["noise"], t["draws"]])
        for part, p in r["parts"].items():
            over.append(
                [
                    *(*start, part, r["error"], r["relative_error"], *p["relative"], *p["cosine"]),
                    *(*p["inner"], p["inflation"], *p["inner_share"], p["descent_share"][0]),
                    *(*p["per_error"], p["per_error_most"], *p["sensitivity"]),
                    *(p["mean_relative"], p["mean_cosine"]),
                ]
            )
        layers += [
            [*start, name, layer["side"], layer["per_error"], layer["relative"]]
            for name, layer in r["layers"].items()
        ]
    where = ["images", "cut", "codec"]
    ends = ["low", "high"]
    tables = [
        Table(
            "expectation",
            "Theorem 1: the expectation of compressed gradients on one batch, over the norm of the true one",
            [*where, "of", "error along a direction", *ends, "biased", "size of bias", "noise", "draws"],
            tests,
        ),
        Table(
            "gradients",
            "Compressed gradients over batches, with 95 % intervals",
            [
                *(*where, "part", "E", "relative squared error of the smashed data"),
                *("relative gradient error", *ends, "cosine", *ends),
                *("<full, error> / ||full||^2", *ends, "||mean of batches||^2 / ||full||^2"),
                *("share with <full, error> >= 0", *ends, "share with <full, compressed> >= 0"),
                *("gradient error / E", *ends, "most of that"),
                *("relative gradient error / relative error of the smashed data", *ends),
                *("relative gradient error of the mean", "cosine of the mean"),
            ],
            over,
        ),
        Table(
            "layers",
            "Gradient error over compression error, layer by layer",
            [*where, "layer", "side", "gradient error / E", "relative error"],
            layers,
        ),
    ]
    claims = [
        _theorem_1(records, labels, unbiased),
        _lemma_1(records),
        *_theorem_2(records, labels),
        _shallow(records, labels),
    ]
    return Findings("Gradient bias", claims, tables, _plots(records, labels))


def _theorem_1(records: Records, labels: Mapping[str, str], unbiased: Sequence[str]) -> Claim:
    cases, told, control = [], [], []
    for key, r in records.items():
        _, at, spec = key.split("/", 2)
        if spec not in unbiased:
            continue
        t = r["expectation"]
        cases.append((f"{labels[spec]} {at}", _biased(t["all"])))
        told.append(f"{labels[spec]} {at} {t['all']['size']:.3f} (one draw's noise {t['all']['noise']:.3f})")
        control.append(_biased(t["smashed data"]))
    return Claim(
        "Theorem 1: unbiased compression of feature maps gives biased gradients",
        verdict(cases),
        f"Bias over the norm of the gradient: {'; '.join(told)}. {exceptions(cases).capitalize()}. Control: "
        f"the same test finds bias in the smashed data themselves in {sum(control)} of {len(control)} cases.",
    )


def _biased(test: Mapping[str, Any]) -> bool:
    """As in `BiasTest.biased`: the interval lies above 0."""
    low: float = test["along"][1]
    return low > 0


def _lemma_1(records: Records) -> Claim:
    """The larger E, the larger the gradient error: by rank over codecs, at each cut."""
    by_place: dict[str, list[tuple[float, float]]] = {}
    for key, r in records.items():
        place = "/".join(key.split("/", 2)[:2])
        by_place.setdefault(place, []).append((r["error"], r["parts"]["all"]["relative"][0]))
    ranks = {place: _rank_correlation(points) for place, points in by_place.items()}
    most = {
        place: max(r["parts"]["all"]["per_error_most"] for key, r in records.items() if key.startswith(place))
        for place in by_place
    }
    told = "; ".join(f"{p}: rank correlation {ranks[p]:.2f}, error / E at most {most[p]:.3g}" for p in ranks)
    cases = [(place, rank >= 0.7) for place, rank in ranks.items()]
    text = "Lemma 1: the gradient error is at most a multiple of the compression error E, so it grows with E"
    return Claim(text, verdict(cases), f"Over codecs, {told}.")


def _theorem_2(records: Records, labels: Mapping[str, str]) -> list[Claim]:
    always, negative, positive = [], [], []
    for key, r in records.items():
        _, at, spec = key.split("/", 2)
        p = r["parts"]["all"]
        mean, low, high = p["inner"]
        always.append((f"{labels[spec]} {at}", p["descent_share"][0] == 1))
        if mean is None:  # noise hides the full gradient
            continue
        told = f"{labels[spec]} {at} {mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        told += f" (>= 0 in {p['inner_share'][0]:.0%} of the batches)"
        negative += [told] if high < 0 else []
        positive += [told] if low > 0 else []
    count = len(always)
    holds: Holds
    if not negative:
        holds = True if len(positive) == count else "undecided"
    else:
        holds = "partly" if positive else False
    return [
        Claim(
            "Theorem 2's condition for the fast rate: <full gradient, gradient error> is not negative",
            holds,
            f"The interval is wholly below 0 in {len(negative)} of {count} cases: "
            f"{'; '.join(negative) or 'none'}. Wholly above in {len(positive)}: "
            f"{'; '.join(positive) or 'none'}. It has 0 inside in {count - len(negative) - len(positive)}. "
            "Values are over an unbiased estimate of ||full||^2.",
        ),
        Claim(
            "A step along the compressed gradient descends: <full gradient, compressed gradient> >= 0 always",
            verdict(always),
            f"{sum(ok for _, ok in always)} of {len(always)} cases on all batches; {exceptions(always)}.",
        ),
    ]


def _shallow(records: Records, labels: Mapping[str, str]) -> Claim:
    """By a ratio without units: E and the norm of the gradient have other scales at other cuts."""
    more, less, told = [], [], []
    for key in records:
        images, at, spec = key.split("/", 2)
        if at != CUTS[0]:
            continue
        cuts = [records[f"{images}/{cut}/{spec}"]["parts"]["all"]["sensitivity"] for cut in CUTS]
        (_, low, high), (_, deep_low, deep_high) = cuts[0], cuts[-1]
        more += [labels[spec]] if low > deep_high else []
        less += [labels[spec]] if high < deep_low else []
        told.append(f"{labels[spec]} {', '.join(f'{mean:.2f}' for mean, _, _ in cuts)}")
    holds: Holds
    if len(more) == len(told):
        holds = True
    elif less:
        holds = "partly" if more else False
    else:
        holds = "partly" if more else "undecided"
    return Claim(
        "Shallow layers are more sensitive: the same relative error of the smashed data disturbs the "
        "gradient more at the shallow cut than at the deep one",
        holds,
        "Relative gradient error over the root of the relative squared error, "
        f"{', '.join(CUTS)}: {'; '.join(told)}. The interval at the shallow cut lies above that at the deep "
        f"one for {len(more)} of {len(told)} codecs, below it for {len(less)}.",
    )


def _plots(records: Records, labels: Mapping[str, str]) -> list[Plot]:
    series: dict[str, dict[str, list[float]]] = {}
    cosines: dict[str, dict[str, list[float]]] = {}
    for key, r in records.items():
        images, at, spec = key.split("/", 2)
        where = f"{images}, {at}"
        series.setdefault(labels[spec], {})[where] = r["parts"]["all"]["inner"]
        cosines.setdefault(labels[spec], {})[where] = r["parts"]["all"]["cosine"]
    plots = []
    for id_, title, label, data in (
        ("bias-inner", "The condition of Theorem 2", "<full, error> / ||full||^2", series),
        ("bias-cosine", "Compressed and true gradient", "cosine", cosines),
    ):
        drawn = [
            Series(
                codec, list(of), [v[0] for v in of.values()], *([v[i] for v in of.values()] for i in (1, 2))
            )
            for codec, of in data.items()
        ]
        plots.append(Plot(id_, title, "bar", Axis("images and cut"), Axis(label), drawn))
    lemma = [
        Series(
            at,
            [r["error"] for key, r in records.items() if key.split("/")[1] == at],
            [r["parts"]["all"]["relative"][0] for key, r in records.items() if key.split("/")[1] == at],
        )
        for at in CUTS
    ]
    title = "Lemma 1: gradient error against compression error, one point a codec"
    axes = (Axis("E, the norm of the compression error", True), Axis("relative gradient error", True))
    return [*plots, Plot("bias-lemma", title, "scatter", *axes, lemma)]


def _rank_correlation(points: Sequence[tuple[float, float]]) -> float:
    """Spearman's, for values that do not tie."""
    n = len(points)
    if n < 3:
        return 1.0
    first, second = ([sorted(p[j] for p in points).index(p[j]) for p in points] for j in (0, 1))
    squares = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    return 1 - 6 * squares / (n * (n * n - 1))
