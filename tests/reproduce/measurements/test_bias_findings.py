"""Verdicts on gradient bias, from records made up so that a wrong statistic gives another verdict."""

from typing import Any

from cutlayer.reproduce.measurements.bias_findings import findings
from cutlayer.reproduce.results import Claim

LABELS = {"sp": "SP", "ms": "MS"}


def cell(inner: list[Any], sensitivity: float, relative: float = 0.5) -> dict[str, Any]:
    around = [sensitivity, sensitivity - 0.05, sensitivity + 0.05]
    part = {
        "relative": [relative, relative - 0.01, relative + 0.01],
        "cosine": [0.9, 0.8, 1.0],
        "inner": inner,
        "inflation": 1.5,
        "inner_share": [0.5, 0.3, 0.7],
        "descent_share": [1.0, 0.9, 1.0],
        "per_error": [0.1, 0.09, 0.11],
        "per_error_most": 0.12,
        "sensitivity": around,
        "mean_relative": 0.1,
        "mean_cosine": 0.99,
    }
    return {"random": False, "error": 10.0, "relative_error": 0.1, "parts": {"all": part}, "layers": {}}


def claims(inner: list[Any], sensitivities: tuple[float, float, float], relative: float = 0.5) -> list[Claim]:
    records = {
        f"digits/{cut}/{spec}": cell(inner, sensitivity, relative)
        for spec in LABELS
        for cut, sensitivity in zip(("shallow", "medium", "deep"), sensitivities, strict=True)
    }
    return list(findings(records, LABELS, []).claims)


def condition(inner: list[Any]) -> Any:
    return next(c.holds for c in claims(inner, (1, 1, 1)) if c.claim.startswith("Theorem 2's"))


def test_a_mean_above_zero_does_not_meet_the_condition_of_theorem_2_if_its_interval_goes_below() -> None:
    assert condition([0.1, 0.05, 0.15]) is True
    assert condition([0.1, -0.2, 0.4]) == "undecided"
    assert condition([-0.1, -0.15, -0.05]) is False
    assert condition([None, None, None]) == "undecided", "noise hides the full gradient"


def test_sensitivity_is_judged_without_units() -> None:
    """The relative gradient error is the same at all cuts; what it takes to make it is not."""

    def shallow(sensitivities: tuple[float, float, float]) -> Claim:
        return next(c for c in claims([0, -1, 1], sensitivities) if c.claim.startswith("Shallow"))

    found = shallow((1.4, 1.0, 0.9))
    assert found.holds is True
    assert "SP 1.40, 1.00, 0.90" in found.evidence
    assert shallow((1.0, 1.0, 0.95)).holds == "undecided"
    assert shallow((0.9, 1.0, 1.4)).holds is False
