"""The verdicts on transformers: from pairs of seeds, at a margin that was stated before."""

from typing import Any

import pytest

from cutlayer.reproduce.experiment import Request
from cutlayer.reproduce.transformers.findings import conclude


def record(loss: float, bits: float) -> dict[str, Any]:
    return {
        "loss": loss,
        "bits": bits,
        "error": 0.01,
        "metrics": {"perplexity": 8.0, "bits_per_character": 3.0},
        "steps": 10,
        "bytes": {"up/smashed": 1e6, "up": 2e6, "down": 3e6},
    }


def records(cut: str = "block1", **losses: list[float]) -> dict[str, Any]:
    bits = {"none": 32.0, "EMS(2)": 1.9, "EMS(3)": 2.8, "EMS(1)": 0.9}
    return {
        f"gpt/{cut}/{label}/{seed}": record(loss, bits[label])
        for label, found in losses.items()
        for seed, loss in enumerate(found)
    }


@pytest.mark.parametrize(
    ("losses", "holds"),
    [
        ([2.001, 2.102, 2.203], True),
        ([2.03, 2.13, 2.231], False),
        ([1.98, 2.13, 2.2], "undecided"),
        ([2.0], "undecided"),  # one seed
    ],
)
def test_two_bits_are_enough_if_the_whole_interval_says_so(losses: list[float], holds: object) -> None:
    found = conclude(Request(), records(**{"none": [2.0, 2.1, 2.2], "EMS(2)": losses}))
    assert [claim.holds for claim in found.claims] == [holds]
    row = dict(zip(found.tables[0].columns, found.tables[0].rows[1], strict=True))
    mean = sum(loss - none for loss, none in zip(losses, [2.0, 2.1, 2.2], strict=False)) / len(losses)
    assert row["to none"] == pytest.approx(mean)
    assert row["low"] < row["to none"] < row["high"]


def test_a_row_of_one_seed_borrows_the_spread_of_the_others() -> None:
    found = conclude(
        Request(), records(**{"none": [2.0, 2.1, 2.2], "EMS(2)": [2.01, 2.11, 2.23], "EMS(3)": [2.0]})
    )
    columns, rows = found.tables[0].columns, found.tables[0].rows
    three = next(dict(zip(columns, row, strict=True)) for row in rows if row[2] == "EMS(3)")
    assert -0.1 < three["low"] < 0 < three["high"] < 0.1
    # Above two bits nothing is claimed, and the plot has one line a family.
    assert len(found.claims) == 1
    assert [series.name for series in found.plots[0].series] == ["none", "EMS"]


def test_pairs_of_both_cuts_make_one_verdict() -> None:
    first = records(**{"none": [2.0, 2.1, 2.2], "EMS(2)": [2.001, 2.103, 2.196], "EMS(1)": [2.1]})
    second = records("block2", **{"none": [2.0, 2.1], "EMS(2)": [2.004, 2.098], "EMS(1)": [2.1]})
    found = conclude(Request(), first | second)
    together = [claim for claim in found.claims if "both cuts" in claim.claim]
    # One bit has a pair at each cut, which is too few.
    assert [(claim.claim[:6], claim.holds) for claim in together] == [("EMS(2)", True)]
    assert "+0.0004 nats" in together[0].evidence
    assert "5 pairs" in together[0].evidence
