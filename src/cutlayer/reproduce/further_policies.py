"""Policies that experiments compare only when asked for by name: a finer frontier, rivals, ways to average.

`cutlayer reproduce convergence --policies none,ems-0.5,splitfc` adds them to a grid. Each is compared with
`none` of the same recipe and seed, like every other row.
"""

from __future__ import annotations

from dataclasses import replace

from cutlayer.reproduce.policies import ALL_THIRTIETH, HUNDREDTH, OURS, Policy

#: Smashed data at other rates than those of the usual rows.
FRONTIER = tuple(
    Policy(f"EMS({bits})", f"ems:bpe={bits}", name=f"ems-{bits}") for bits in (0.1, 0.2, 0.5, 2.0)
)

_COMMITTING = (
    (HUNDREDTH, "ems-100x"),
    (ALL_THIRTIETH, "all-30x"),
    (OURS, "ems"),
    *((row, row.name) for row in FRONTIER),
)

#: The rows of least traffic and the rates above, with clients that commit to what their codec can say.
COMMITTED = tuple(
    replace(row, label=f"{row.label}, committed", commitment=0.03, name=f"{name}-committed")
    for row, name in _COMMITTING
)

#: Labels of earlier records, whose pull had a constant norm, a hundredth of the gradient's. The package has
#: no such pull any more, so these rows are shown and cannot be trained.
CONSTANT_PULL = (
    *(replace(row, label=f"{row.label}, constant pull", commitment=0.01) for row, _ in _COMMITTING),
    Policy("FedLite, corrected, constant pull", "fedlite:size=16,clusters=32", commitment=0.02),
)

#: The same rows with rounding that is right on average: of gradients down, which the backward pass keeps
#: unbiased, and of smashed data, where Theorem 1 promises nothing.
UNBIASED = (
    replace(
        COMMITTED[1],
        label=f"{COMMITTED[1].label}, unbiased down",
        down=f"{COMMITTED[1].down},rounding=stochastic",
        name="all-30x-committed-unbiased",
    ),
    Policy("EMS(0.32), unbiased", f"{HUNDREDTH.spec},rounding=stochastic", name="ems-100x-unbiased"),
)

#: Other published methods and controls: docs/codecs/rivals.md. Those whose rate can be chosen are at about a
#: third of a bit, and once more at a higher rate, which may suit them better; SL-ACC, C3-SL, AQ-SGD and
#: SplitCom are as their authors use them.
RIVALS = (
    Policy("SplitFC", "splitfc:drop=0.9375,bpe=0.32", name="splitfc"),
    Policy("SplitFC, half of the features", "splitfc:drop=0.5,bpe=1.0", name="splitfc-half"),
    Policy("FedLite", "fedlite:size=16,clusters=32", name="fedlite"),
    Policy("FedLite, shorter subvectors", "fedlite:size=8,clusters=32", name="fedlite-8"),
    Policy("FedLite, corrected", "fedlite:size=16,clusters=32", commitment=0.03, name="fedlite-corrected"),
    Policy("SL-ACC", "slacc:low=2,high=6", name="slacc"),
    # The correlation that decodes is the adjoint of the convolution: gradients go the same way.
    Policy("C3-SL", "c3sl:merge=4", down="c3sl:merge=4", name="c3sl"),
    Policy("C3-SL, two samples", "c3sl:merge=2", down="c3sl:merge=2", name="c3sl-2"),
    Policy("UQ(0.32)", "uq:bpe=0.32", name="uq"),
    Policy("UQ(1)", "uq:bpe=1.0", name="uq-1"),
    Policy("SP, entropy-coded", "ems:ratio=0.9815,levels=1,rounding=floor", name="sp-coded"),
    Policy("AQ-SGD, QU(3)", "none", memory="aqsgd:change=qu:bits=3", name="aqsgd"),
    Policy("AQ-SGD, EMS(0.32)", "ems:bpe=0.32", memory="aqsgd:change=ems:bpe=0.32", name="aqsgd-ems"),
    Policy("SplitCom", "none", memory="splitcom:threshold=0.8", name="splitcom"),
)

#: Smashed data as they are: what averaging and gradients down cost alone.
AVERAGING = (
    Policy("none", "none", sync_every=20, name="sync-20"),
    Policy("none", "none", sync_every="epoch", name="sync-epoch"),
    Policy("top 1 % averaged", "none", sync="sp:ratio=0.99", name="sync-top1"),
    Policy("weights EMS(2)", "none", sync="ems:bpe=2.0", sync_every=20, differences=True, name="diff-20"),
    Policy(
        "weights EMS(2)", "none", sync="ems:bpe=2.0", sync_every="epoch", differences=True, name="diff-epoch"
    ),
    Policy("averages EMS(1)", "none", sync="ems:bpe=1.0", name="sync-1"),
    Policy("down EMS(1)", "none", down="ems:bpe=1.0", name="down-1"),
    Policy("down and averages EMS(1)", "none", down="ems:bpe=1.0", sync="ems:bpe=1.0", name="down-sync-1"),
    Policy("down EMS(1), unbiased", "none", down="ems:bpe=1.0,rounding=stochastic", name="down-1-unbiased"),
    # About one bit, too.
    Policy("down step 3, unbiased", "none", down="ems:step=3.0,rounding=stochastic", name="down-step"),
)

FURTHER = (*FRONTIER, *COMMITTED, *UNBIASED, *RIVALS, *AVERAGING)
