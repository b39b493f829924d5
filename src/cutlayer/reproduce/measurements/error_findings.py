"""The paper's claims on compression errors, checked for each image set and cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def claims(request: Request, records: Records, rates: Sequence[float]) -> list[Claim]:
    """The paper's sentences on Fig. 2, and each form of MS against each other method."""
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
    cases, told = [], ""
    for p in places:
        gaps = [norm(p, "sp", bits) / norm(p, "ms", bits) for bits in rates]
        cases.append((" ".join(p), all(b > a for a, b in pairwise(gaps))))
        told = told or f"first case: SP / MS is {', '.join(f'{gap:.2f}' for gap in gaps)}"
    text = "As the mask grows (lower compression), the gap between the errors of MS and SP grows, as a ratio"
    held = f"At {', '.join(f'{bits:g}' for bits in rates)} bits, {told}; {exceptions(cases)}."
    found.append(Claim(text, verdict(cases), held))
    return found
