"""`ems:rounding=stochastic` decodes to its input on average, and is a function of its seed."""

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs import reference
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import PayloadError, RangeError

SHAPE = (6, 5, 8, 9)


def gradient(*shape: int, seed: int = 0) -> torch.Tensor:
    """Heavy tails and neighbours alike in size, like a gradient of feature maps."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.rand(*shape[:-1], 1, generator=generator) ** 2
    return 1e-4 * size * torch.randn(shape, generator=generator) ** 3


def decoded(spec: str, x: torch.Tensor, seeds: int) -> torch.Tensor:
    codec = cutlayer.codec(spec)
    return torch.stack([cutlayer.decode(codec.encode(x, seed=s)) for s in range(seeds)]).double()


@pytest.mark.parametrize("spec", ["step=1.0", "step=4.0", "levels=2", "step=2.0,scope=sample"])
def test_it_is_unbiased_with_the_variance_of_its_step(spec: str) -> None:
    x, seeds = gradient(*SHAPE), 200
    y = decoded(f"ems:{spec},rounding=stochastic", x, seeds)
    # All values are multiples of the section's step: the smallest difference between two of them.
    rows = x.shape[0] if "sample" in spec else 1
    levels = y.view(seeds, rows, -1)
    step = torch.stack([row[row > 0].min() for row in levels.unbind(1)]).view(1, rows, 1)
    quotient = levels / step
    assert (quotient - quotient.round()).abs().max() < 1e-3
    steps = x.double().view(1, rows, -1) / step
    fraction = steps - steps.floor()
    deviation = (levels.mean(0) - x.double().view(rows, -1)) / step[0]
    scale = (fraction * (1 - fraction) / seeds).sqrt()[0]
    z = (deviation / scale.clamp(min=1e-9))[scale > 0.01]  # enough draws for a normal distribution
    assert len(z) > 200
    assert z.abs().max() < 5
    assert abs(float(z.mean())) < 4 / len(z) ** 0.5
    assert abs(float(z.square().mean()) - 1) < 0.3
    # No dead zone: the sum of all elements, and that of all magnitudes, arrive.
    total = scale.square().sum().sqrt()
    assert abs(float(deviation.sum())) < 4 * total
    assert abs(float((deviation * x.sign().view(rows, -1)).sum())) < 4 * total


def test_a_rate_is_met_about_and_leaves_no_bias() -> None:
    x, seeds = gradient(24, 6, 12, 12), 60
    codec = cutlayer.codec("ems:bpe=1.5,rounding=stochastic")
    sizes = [8 * len(codec.encode(x, seed=s)) / x.numel() for s in range(5)]
    assert all(1.35 < size < 1.55 for size in sizes)
    y = decoded("ems:bpe=1.5,rounding=stochastic", x, seeds)
    along = (y * x.double()).flatten(1).sum(1) / x.double().square().sum()
    assert abs(float(along.mean()) - 1) < 4 * float(along.std()) / seeds**0.5
    assert float(along.std()) < 0.1


def test_plain_ems_is_biased_where_this_is_not() -> None:
    x = torch.full((1, 4, 8, 8), 0.2)
    x[0, 0, 0, 0] = 5.0
    plain = cutlayer.decode(cutlayer.codec("ems:levels=2,ratio=0.996,rounding=nearest").encode(x))
    assert not plain[x < 1].any()
    mean = decoded("ems:step=2.0,rounding=stochastic", x, 100).mean(0)
    assert abs(float(mean[x < 1].mean()) - 0.2) < 0.01


def test_more_steps_mean_less_error() -> None:
    x = gradient(8, 4, 16, 16)
    errors = [
        float((decoded(f"ems:step={step},rounding=stochastic", x, 3) - x).square().mean())
        for step in (4, 2, 1, 0.5, 0.1)
    ]
    assert errors == sorted(errors, reverse=True)


def test_a_seed_decides_and_the_deterministic_form_has_none() -> None:
    x = gradient(*SHAPE)
    codec = cutlayer.codec("ems:rounding=stochastic")
    assert codec.encode(x, seed=4) == codec.encode(x, seed=4) != codec.encode(x, seed=5)
    assert codec.encode(x, seed=4) == cutlayer.codec("ems:rounding=stochastic,seed=4").encode(x)
    calm = codec.deterministic()
    assert str(calm) == "ems:step=2.0"
    assert calm.encode(x, seed=1) == calm.encode(x, seed=2)


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_kernels_give_the_bytes_of_the_reference(isa: str, threads: int) -> None:
    from cutlayer import _native
    from cutlayer.codecs.kernels import native

    x = gradient(40, 7, 16, 17)
    spec = cutlayer.codec("ems:bpe=1.3,rounding=stochastic,ratio=0.98")
    with kernels.using("reference"):
        frame = spec.encode(x, seed=2**63 + 5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        if not _native.force_instruction_set(isa):
            pytest.skip(f"this processor has no {isa}")
        assert spec.encode(x, seed=2**63 + 5) == frame
        flat = torch.cat([x.flatten() * 1e4, torch.tensor([0.0, -0.0, 1e-38, 3e38, -3e38, 1.0, 126.5])])
        how = (7.3, 127, 12345, 4, 2)
        levels = native.ems_quantize_stochastically(flat.numpy(), *how)
        expected = reference.ems_quantize_stochastically(flat, *how)
        assert torch.equal(torch.from_numpy(levels), expected)
        tops = native.ems_stochastic_tops(flat.numpy(), levels, *how)
        assert (tops == reference.ems_stochastic_tops(flat, expected, *how)).all()
        assert len(tops) > 10
    finally:
        torch.set_num_threads(before)
        _native.force_instruction_set(None)


@pytest.mark.parametrize("implementation", kernels.available())
def test_edges(implementation: str) -> None:
    with kernels.using(implementation):
        codec = cutlayer.codec("ems:rounding=stochastic")
        assert not cutlayer.decode(codec.encode(torch.zeros(3, 50))).any()
        for size in (1e-45, 1e37):
            y = cutlayer.decode(codec.encode(size * gradient(3, 40) * 1e4))
            assert torch.isfinite(y).all()
        one = cutlayer.decode(cutlayer.codec("ems:step=1.0,rounding=stochastic").encode(torch.tensor([-2.5])))
        assert one.tolist() == [-2.5]
        sparse = torch.zeros(1000)
        sparse[::300] = torch.tensor([1.0, -2.0, 3.0, -4.0])
        y = cutlayer.decode(cutlayer.codec("ems:step=0.01,rounding=stochastic").encode(sparse))
        torch.testing.assert_close(y, sparse, atol=0.01 * float(sparse.square().mean().sqrt()), rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_what_may_be_rounded_up_beyond_its_type_is_refused(dtype: torch.dtype) -> None:
    x = torch.full((50,), torch.finfo(dtype).max, dtype=dtype)
    with pytest.raises(RangeError, match="scale the tensor"):
        cutlayer.codec("ems:rounding=stochastic").encode(x)


def test_forged_sections_are_refused() -> None:
    kernel = kernels.kernels_for(torch.device("cpu"))

    def forged(frame: bytes, at: int, value: bytes) -> bytes:
        changed = bytearray(frame)
        changed[at : at + len(value)] = value
        return kernel.seal(kernel.allocate(bytes(changed), 0), 8)

    def encoded(step: float) -> tuple[bytes, int]:
        """A frame with top values, and where their number stands: behind size, coding and levels."""
        spec = f"ems:step={step},ratio=0.9,rounding=stochastic"
        frame = cutlayer.codec(spec).encode(gradient(3, 40) * 1e4)
        start = cutlayer.inspect(frame).header_bytes
        found = start + (3 if frame[start] < 0x80 else 4)
        assert 0 < frame[found] < 0x80
        return frame, found

    # The number of top values, the smallest of them, width, step.
    frame, tops_at = encoded(0.5)
    for step in (0.0, -1.0, np.inf, np.nan, 2.0**121):
        with pytest.raises(PayloadError, match="step"):
            cutlayer.decode(forged(frame, tops_at + 3, np.float32(step).tobytes()))
    with pytest.raises(PayloadError, match="needs no mark"):
        cutlayer.decode(forged(frame, tops_at + 1, b"\x01"))
    with pytest.raises(PayloadError):
        cutlayer.decode(forged(frame, tops_at, b"\x00"))
    frame, tops_at = encoded(0.01)
    assert frame[tops_at + 1] >= 0x80  # more than 127 steps
    with pytest.raises(PayloadError, match="infinite"):
        cutlayer.decode(forged(frame, tops_at + 4, np.float32(2.0**119.9).tobytes()))
