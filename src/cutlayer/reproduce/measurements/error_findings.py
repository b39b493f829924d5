"""The paper's claims on compression errors, checked for each image set and cut."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from cutlayer.analysis import at_rate
from cutlayer.reproduce.experiment import Records, Request
from cutlayer.reproduce.policies import PAPER
from cutlayer.reproduce.results import Claim, Holds
from cutlayer.reproduce.scales import IMAGE_SETS
from cutlayer.reproduce.trained_models import CUTS

Case = tuple[str, bool]


def verdict(cases: Sequence[Case]) -> Holds:
    """True or False if all cases agree, else partly."""
    held = [ok for _, ok in cases]
    return all(held) if all(held) or not any(held) else "partly"


def exceptions(cases: Iterable[Case], least: int = 12) -> str:
    """The cases in which something does not hold, the first of them at least."""
    bad = [case for case, ok in cases if not ok]
    if not bad:
        return "no exception"
    more = f" and {len(bad) - least} more" if len(bad) > least else ""
    return f"not in: {', '.join(bad[:least])}{more}"


def claims(
    request: Request, records: Records, rates: Sequence[float], ems: Mapping[float, str]
) -> list[Claim]:
    """The paper's sentences on Fig. 2, each form of MS against each other method, and EMS against itself."""
    places = [(images.name, at) for images in IMAGE_SETS[request.scale] for at in CUTS]

    def norm(place: tuple[str, str], family: str, bits: float) -> float:
        value: float = records[f"{place[0]}/{place[1]}/{at_rate(family, bits)}"]["norm"]
        return value

    def against(mine: str, other: str, at: Sequence[float]) -> list[Case]:
        return [
            (f"{p[0]} {p[1]} {bits:g} bits", norm(p, mine, bits) < norm(p, other, bits))
            for p in places
            for bits in at
        ]

    found = []
    whole = [bits for bits in rates if bits == int(bits)]
    for mine, word in (("ms", "as printed, rounding down"), ("ms-nearest", "rounding to the nearest")):
        for other, title, at in (("qu", "QU", whole), ("sp", "SP", rates), ("rt", "RT", rates)):
            cases = against(mine, other, at)
            told = f"{sum(ok for _, ok in cases)} of {len(cases)} cases; {exceptions(cases)}."
            text = f"The error of MS ({word}) is always lower than that of {title} at the same rate"
            found.append(Claim(text, verdict(cases), told))
    for label, spec in (("as printed", "ms:ratio=0.99,bits=2"), ("nearest", PAPER["MS(0.99, 2) nearest"])):
        for bits in (2, 3):
            cases = []
            for p in places:
                mine, other = (records[f"{p[0]}/{p[1]}/{s}"]["norm"] for s in (spec, f"qu:bits={bits}"))
                cases.append((" ".join(p), mine < other))
            text = f"MS(0.99, 2) ({label}), at 2.32 bits, has a lower error than QU with {bits} bits"
            told = f"{sum(ok for _, ok in cases)} of {len(cases)} cases; {exceptions(cases)}."
            found.append(Claim(text, verdict(cases), told))
    cases = against("sp", "rt", rates)
    found.append(
        Claim(
            "The error of RT is consistently higher than that of SP at the same rate",
            verdict(cases),
            f"{sum(ok for _, ok in cases)} of {len(cases)} cases; {exceptions(cases)}.",
        )
    )
    errors = {
        " ".join(p): {bits: records[f"{p[0]}/{p[1]}/{spec}"]["norm"] for bits, spec in ems.items()}
        for p in places
    }
    return [*found, *_gap_to_sp(places, norm, whole), _monotone(errors)]


def _monotone(errors: Mapping[str, Mapping[float, float]]) -> Claim:
    """Whether a larger budget ever makes the error of EMS larger, by more than one per cent."""
    cases = [
        (f"{place} {b:g} bits ({of[b]:.3g}, {of[a]:.3g} at {a:g})", of[b] <= 1.01 * of[a])
        for place, of in errors.items()
        for a, b in pairwise(sorted(of))
    ]
    told = (
        f"{sum(ok for _, ok in cases)} of {len(cases)} steps from one rate to the next; {exceptions(cases)}."
    )
    return Claim("Beyond the paper: the error of EMS never rises with its rate", verdict(cases), told)


def _gap_to_sp(
    places: Sequence[tuple[str, str]],
    norm: Callable[[tuple[str, str], str, float], float],
    rates: Sequence[float],
) -> list[Claim]:
    """As the mask grows and the ratio stays, so at whole rates: the gap as a difference, and as a ratio."""
    found = []
    for kind, gap, sign in (
        ("difference", operator.sub, "-"),
        ("ratio", operator.truediv, "/"),
    ):
        cases, peaks, told = [], [], ""
        for p in places:
            gaps = [gap(norm(p, "sp", bits), norm(p, "ms", bits)) for bits in rates]
            cases.append((" ".join(p), all(b > a for a, b in pairwise(gaps))))
            peaks.append(rates[gaps.index(max(gaps))])
            told = told or f"SP {sign} MS is {', '.join(f'{value:.4g}' for value in gaps)}"
        at = " or ".join(f"{bits:g}" for bits in sorted(set(peaks)))
        found.append(
            Claim(
                "As the mask grows (lower compression), the gap between the errors of MS and SP grows, as a "
                + kind,
                verdict(cases),
                f"{sum(ok for _, ok in cases)} of {len(cases)} cases; the gap is largest at {at} bits. First "
                f"case, at {', '.join(f'{bits:g}' for bits in rates)} bits: {told}.",
            )
        )
    return found
