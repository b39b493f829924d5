"""The compiled kernels of `ems`, for every instruction set, equal the reference, function by function."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from cutlayer.codecs import reference
from cutlayer.codecs.entropy.frequency_tables import SCALE, frequency_tables
from cutlayer.codecs.entropy.least_squares import fit_weights
from cutlayer.codecs.entropy.section_shape import SectionShape, section_shape
from cutlayer.codecs.entropy.trial_rows import TrialRows, all_rows, trial_rows
from cutlayer.codecs.kernels import dispatch as kernels

SHAPES: dict[str, tuple[int, ...]] = {
    "maps": (80, 6, 16, 16),
    "small-planes": (400, 12, 8, 8),
    "tiny-planes": (300, 70, 4, 4),
    "large-planes": (24, 5, 32, 32),
    "larger-planes": (6, 5, 64, 64),
    "wide-planes": (30, 5, 6, 128),
    "flat-planes": (90, 5, 2, 32),
    "odd-planes": (60, 5, 7, 9),
    "low-planes": (500, 33, 2, 6),
    "one-column": (300, 40, 9, 1),
    "vectors": (300, 768),
    "sequences": (40, 65, 96),
    "line": (200_001,),
}
SCALED = 160.0  # 64 / step, for a step of 0.4
MOST = 5


class InTorch:
    """The compiled kernels, which work on arrays, with tensors of PyTorch going in and coming out."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._compiled, name)

        def call(*given: Any) -> Any:
            found = kernel(*(a.numpy() if isinstance(a, torch.Tensor) else a for a in given))
            if isinstance(found, tuple):
                return tuple(map(in_torch, found))
            return in_torch(found)

        return call


def in_torch(x: Any) -> Any:
    return torch.from_numpy(x) if isinstance(x, np.ndarray) and x.dtype != np.int64 else x


@pytest.fixture(params=["generic", "avx2", "avx512"])
def native(request: pytest.FixtureRequest) -> Iterator[Any]:
    if "native" not in kernels.available():
        pytest.skip("no compiled kernels were built")
    from cutlayer import _native
    from cutlayer.codecs.kernels import native as compiled

    if not _native.force_instruction_set(request.param):
        pytest.skip(f"this processor has no {request.param}")
    yield InTorch(compiled)
    _native.force_instruction_set(None)


def data(
    name: str, most: int = MOST, scale: float = SCALED
) -> tuple[torch.Tensor, torch.Tensor, SectionShape]:
    x = torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(3))
    x = (x + 0.7 * x.roll(1, -1) + 0.5 * x.roll(1, 1 if x.dim() > 2 else 0)).reshape(-1)
    return x, reference.ems_quantize(x, scale, most, 3.0), section_shape(SHAPES[name], 1)


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in ("weights", "distance", "parent"))


@pytest.mark.parametrize(("most", "scale"), [(MOST, SCALED), (70, 20 * SCALED)], ids=["few", "many"])
@pytest.mark.parametrize("name", SHAPES)
def test_each_function_equals_the_reference(name: str, most: int, scale: float, native: Any) -> None:
    x, levels, shape = data(name, most, scale)
    assert torch.equal(native.ems_quantize(x, scale, most, 3.0), levels)
    for of in (all_rows(shape), trial_rows(shape)):
        some, values = levels, x
        if of.where is not None:
            how = (shape, of.where, of.shape.height)
            some, values = native.ems_gather_rows(levels, *how), native.ems_gather_rows(x, *how)
            assert torch.equal(some, reference.ems_gather_rows(levels, *how))
            assert torch.equal(values, reference.ems_gather_rows(x, *how))
        for own in (False, True) if shape.channels > 1 else (False,):
            model = native.ems_fit_weights(some, of.shape, of.rows, most, own)
            assert same(model, reference.ems_fit_weights(some, of.shape, of.rows, most, own))
        contexts, histogram = native.ems_contexts(some, of.shape, of.rows, model, most)
        expected = reference.ems_contexts(some, of.shape, of.rows, model, most)
        assert np.array_equal(histogram, expected[1])
        assert histogram.sum() == of.counted
        if of.where is None:
            assert torch.equal(contexts, expected[0])
        (found, cost), (truth, true_cost) = (
            native.ems_frequency_tables(histogram),
            frequency_tables(histogram),
        )
        assert (found.starts, cost) == (truth.starts, true_cost)
        assert np.array_equal(found.frequencies, truth.frequencies)
        for activities in (1, 16):
            sums = native.ems_level_sums(values, some, of.shape, of.rows, scale, most, activities)
            true_sums = reference.ems_level_sums(values, some, of.shape, of.rows, scale, most, activities)
            assert np.array_equal(sums[0], true_sums[0])
            assert sums[1] == true_sums[1]


@pytest.mark.parametrize("name", ["maps", "small-planes", "odd-planes", "larger-planes", "vectors"])
@pytest.mark.parametrize("activities", [1, 16])
@pytest.mark.parametrize("most", [2, 5, 60])
def test_the_error_by_look_up_is_that_of_sums(name: str, activities: int, most: int, native: Any) -> None:
    x, levels, shape = data(name, most)
    (count, total), squares = reference.ems_level_sums(
        x, levels, shape, (0, shape.height), SCALED, most, activities
    )
    table = np.arange(most) * 64 + np.random.default_rng(0).integers(0, 60, (activities, most))
    expected = squares + int((count * table * table - 2 * total * table).sum())
    assert native.ems_squared_error(x, levels, shape, SCALED, table) == expected
    assert reference.ems_squared_error(x, levels, shape, SCALED, table) == expected


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("activities", [1, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_dequantized_elements_are_equal(name: str, activities: int, signed: bool, native: Any) -> None:
    x, levels, shape = data(name)
    random = torch.Generator().manual_seed(5)
    table = np.random.default_rng(2).random((activities, MOST), np.float32)
    tops = torch.rand(int((levels == MOST).sum()), generator=random)
    plain = int(((levels > 0) & (levels < MOST)).sum())
    signs = torch.randint(2, (plain,), generator=random) if signed else None
    out, expected = torch.empty_like(x), torch.empty_like(x)
    starts = native.ems_sample_offsets(levels, shape, MOST, signed)
    assert np.array_equal(starts, reference.ems_sample_offsets(levels, shape, MOST, signed))
    assert starts[:, -1].tolist() == [len(tops), plain * signed]
    native.ems_dequantize(levels, shape, table, starts, tops, signs, out)
    reference.ems_dequantize(levels, shape, table, starts, tops, signs, expected)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", SHAPES)
def test_trial_rows_are_spread_over_the_section(name: str) -> None:
    shape = section_shape(SHAPES[name], 1)
    of: TrialRows = trial_rows(shape)
    if of.where is None:
        assert of.counted == shape.d
        return
    samples, rows = of.where[:, 0], of.where[:, 1] + of.rows[0]
    assert of.shape.d < shape.d / 2 + of.shape.sample
    assert samples.min() >= 0
    assert samples.max() < shape.d // shape.sample
    # Upper and lower halves of planes, and early and late samples, are equally frequent.
    if shape.height > 3:
        assert set(rows) == set(range(shape.height))
        assert abs((rows < shape.height / 2).mean() - 0.5) < 0.1
    assert abs((samples < shape.d // shape.sample / 2).mean() - 0.5) < 0.1


def test_trial_rows_estimate_the_rate_of_samples_that_differ() -> None:
    # Every sixteenth sample is ten times as large: an estimate from whole samples would be far off.
    x = torch.randn(512, 6, 16, 16, generator=torch.Generator().manual_seed(1))
    x[::16] *= 10
    shape, x = section_shape(tuple(x.shape), 1), x.reshape(-1)
    levels = reference.ems_quantize(x, 64.0, MOST, float("inf"))
    model, of = fit_weights(levels, shape, (0, shape.height), MOST, False), trial_rows(shape)
    assert of.where is not None
    some = reference.ems_gather_rows(levels, shape, of.where, of.shape.height)
    bits = [
        frequency_tables(reference.ems_contexts(a, p.shape, p.rows, model, MOST)[1])[1] / p.counted
        for a, p in ((levels, all_rows(shape)), (some, of))
    ]
    assert bits[1] == pytest.approx(bits[0], rel=0.02)


def test_frequencies_of_a_class_add_up() -> None:
    histogram = np.zeros((128, 4), np.int64)
    histogram[3] = (10_000, 1, 0, 1)
    histogram[90] = (7, 8, 9, 5000)
    found, _ = frequency_tables(histogram)
    assert (found.frequencies.sum(1) == SCALE).all()
    assert found.starts[0] == 0
    assert ((found.frequencies > 0) == (np.add.reduceat(histogram, found.starts, axis=0) > 0)).all()
