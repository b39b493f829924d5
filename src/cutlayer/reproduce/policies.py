"""The policies that experiments compare: the paper's codecs, ours, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

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
    """A policy: the codecs of a run, and its label in tables."""

    label: str
    spec: str
    """`none`, or what `cutlayer.codec` takes."""
    down: str = "none"
    """The codec of gradients on their way down, which the paper leaves as they are."""
    sync: str = "none"
    """The codec of what clients average, which the paper leaves as it is, too."""
    sync_every: Literal["step", "epoch"] | int = "step"
    """When clients average: gradients each step, or weights each so many steps or each epoch."""
    rate: str = "fixed"
    """Whether smashed data have other rates before that of `spec`."""
    stretch: float = 1.0
    """How many times the epochs of the others it has."""
    memory: str = "none"
    """What both ends remember of each sample: the setting `codec.memory`."""
    commitment: float = 0.0
    """How strongly clients pull smashed data towards what they decode to: the setting `codec.commitment`."""
    differences: bool = False
    """Whether weights are averaged as differences to their last mean."""
    name: str = ""
    """What it is called on the command line; empty for those that `grid.SHORT` names, or by their codec."""


_LONGER = ", longer"

# The rows of the paper that are worth half an hour each.
_TESTBED = ("none", "MS(0.99, 2) nearest", "QU(3)", "SP(0.95875)")

#: The entropy-coded mask at a bit an element, under the paper's rules: smashed data only.
OURS = Policy("EMS(1)", "ems:bpe=1.0")
#: Most bits late, where weights settle: half a bit an element, and 2.4 in the last fifth of the run.
RISING = Policy("EMS(0.5, then 2.4)", "ems:bpe=2.4", rate="until:80%=0.5")
#: The same with a fifth more epochs.
LONGER = replace(RISING, label=f"{RISING.label}{_LONGER}", stretch=1.2)
#: The controls of longer runs: the baseline and EMS(1) with as many epochs.
NONE_LONGER = Policy(f"none{_LONGER}", "none", stretch=LONGER.stretch)
OURS_LONGER = replace(OURS, label=f"{OURS.label}{_LONGER}", stretch=LONGER.stretch)
#: EMS(1) with everything compressed that travels, so that all traffic shrinks. Gradients need more bits:
#: at one bit down and in sync, five epochs on CIFAR-10 end four points lower.
ALL_WAYS = Policy("EMS(1), all ways", OURS.spec, down="ems:bpe=3.0", sync="ems:bpe=2.0")
#: Both, with a fifth more epochs.
ALL_LONGER = replace(
    LONGER, label=f"{RISING.label}, all ways{_LONGER}", down=ALL_WAYS.down, sync=ALL_WAYS.sync
)

#: A hundred times less smashed data than float32, headers included.
HUNDREDTH = Policy("EMS(0.32)", "ems:bpe=0.32")
#: Thirty times less of everything that travels.
ALL_THIRTIETH = Policy("EMS(0.32), all ways", HUNDREDTH.spec, down="ems:bpe=1.6", sync="ems:bpe=1.1")


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
    """The rows beyond the paper's: ours, codecs that were asked for, installed ones, each once."""
    asked = [str(codec(spec)) for spec in specs]
    found = {str(codec(OURS.spec)): OURS}
    for policy in [Policy(spec, spec) for spec in asked] + third_party():
        found.setdefault(policy.spec, policy)
    return list(found.values())


def policies(specs: Iterable[str] = ()) -> list[Policy]:
    """All rows: the paper's policies, ours, those that were asked for, those that are installed."""
    rows = [Policy(label, spec) for label, spec in PAPER.items()]
    known = {str(codec(row.spec)) for row in rows if row.spec != "none"}
    return rows + [row for row in added(specs) if row.spec not in known]


def training_policies(specs: Iterable[str] = ()) -> list[Policy]:
    """The rows of experiments that train: all of these, ours with a rising rate or all compressed, and longer
    runs with their controls."""
    return [*policies(specs), RISING, ALL_WAYS, NONE_LONGER, OURS_LONGER, LONGER, ALL_LONGER]


def long_run_policies(specs: Iterable[str] = ()) -> list[Policy]:
    """The rows of runs that are trained to the end, the most important first."""
    paper = {label: Policy(label, PAPER[label]) for label in _TESTBED}
    rows = [paper["none"], HUNDREDTH, ALL_THIRTIETH, OURS, *list(paper.values())[1:]]
    known = {row.spec for row in rows if (row.down, row.sync) == ("none", "none")}
    return rows + [row for row in added(specs) if row.spec not in known]


def labels(further: Iterable[Policy] = ()) -> dict[tuple[str, ...], str]:
    """The labels of the paper's policies, ours and `further` ones, by what is sent how (`sent`).

    The number of epochs is not part of the label: it depends on that of the other runs. Nor is how often
    clients average.
    """
    rows = [*(Policy(label, spec) for label, spec in PAPER.items()), OURS, RISING, ALL_WAYS, ALL_LONGER]
    rows += [HUNDREDTH, ALL_THIRTIETH]
    return {sent(row): row.label.removesuffix(_LONGER) for row in [*rows, *further]}


def sent(row: Policy) -> tuple[str, ...]:
    """What a policy sends how: codecs up, down and sync, rate, memory and commitment, in canonical form."""
    return (*canonical(row.spec, row.down, row.sync), row.rate, row.memory, f"{row.commitment:g}")


def canonical(*specs: str) -> tuple[str, ...]:
    """Codec specs in their canonical form, to compare them."""
    return tuple("none" if spec == "none" else str(codec(spec)) for spec in specs)
