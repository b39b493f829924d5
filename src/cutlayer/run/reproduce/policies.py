"""The codecs that every experiment compares: the paper's policies, and all that others have installed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutlayer.codecs import codec, codec_class, names
from cutlayer.codecs.registry import BUILT_IN
from cutlayer.errors import CutlayerError

# Labels as the paper writes them, and specs; `none` is the baseline.
PAPER: dict[str, str] = {
    "none": "none",
    "QU(3)": "qu:bits=3",
    "SP(0.95875)": "sp:ratio=0.95875",
    "MS(0.99, 2)": "ms:ratio=0.99,bits=2",
    "MS(0.99, 2) nearest": "ms:ratio=0.99,bits=2,rounding=nearest",
    "RT(0.95875)": "rt:ratio=0.95875,alpha=0.1",
}


@dataclass(frozen=True)
class Policy:
    """One row of an experiment."""

    label: str
    spec: str
    """`none`, or what `cutlayer.codec` takes."""


def third_party() -> list[Policy]:
    """Every codec that came through an entry point, with its default parameters.

    One that cannot be loaded, or has parameters without defaults, is left out: it can be given as a spec.
    """
    found = []
    for name in names():
        if name in BUILT_IN:
            continue
        try:
            made = codec_class(name)()
        except (CutlayerError, TypeError):
            continue
        found.append(Policy(str(made), str(made)))
    return found


def added(specs: Iterable[str]) -> list[Policy]:
    """The rows beyond the paper's: codecs that were asked for, then installed ones, each once."""
    asked = [str(codec(spec)) for spec in specs]
    policies = [Policy(spec, spec) for spec in asked] + third_party()
    return list({policy.spec: policy for policy in policies}.values())


def policies(specs: Iterable[str] = ()) -> list[Policy]:
    """All rows: the paper's policies, those that were asked for, those that are installed."""
    rows = [Policy(label, spec) for label, spec in PAPER.items()]
    known = {str(codec(row.spec)) for row in rows if row.spec != "none"}
    return rows + [row for row in added(specs) if row.spec not in known]
