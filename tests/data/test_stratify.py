"""Choosing samples with each class at its share."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.data.stratify import hold_out, stratified
from cutlayer.errors import DataError


@given(st.lists(st.integers(0, 5), min_size=1, max_size=150), st.integers(0, 99), st.data())
def test_each_class_at_its_share(values: list[int], seed: int, data: st.DataObject) -> None:
    labels = torch.tensor(values)
    count = data.draw(st.integers(1, len(values)))
    chosen = stratified(labels, count, seed)
    assert len(chosen) == count
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    share = count / len(values)
    for label in range(6):
        whole = values.count(label)
        # The cut falls between two places, so a class may be one off on either side of rounding.
        assert abs(int((labels[chosen] == label).sum()) - share * whole) <= 2


@given(st.lists(st.integers(0, 5), min_size=2, max_size=150), st.integers(0, 99))
def test_train_and_test_share_nothing_and_lack_nothing(values: list[int], seed: int) -> None:
    labels = torch.tensor(values)
    train = hold_out(labels, "train", 0.3, seed, "here")
    test = hold_out(labels, "test", 0.3, seed, "here")
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(values)))
    assert len(test) == max(1, round(0.3 * len(values)))


def test_one_sample_cannot_be_split() -> None:
    with pytest.raises(DataError, match=r"here: 1 sample\(s\) cannot be split"):
        hold_out(torch.tensor([0]), "train", 0.1, 0, "here")
