import math

import pytest
import torch

from cutlayer import codec
from cutlayer.analysis import alpha, bound_ms, bound_qu, bound_sp, compression_error, conditions
from cutlayer.analysis.bounds import proof_q2, tight_ms, tight_qu
from cutlayer.errors import InputError


def test_alpha_by_hand() -> None:
    x = torch.tensor([[4.0, -3.0], [0.0, 12.0]])
    assert alpha(x, 1) == pytest.approx(5 / 13)
    assert alpha(x, 2) == pytest.approx(3 / 13)
    assert alpha(x, 4) == 0
    assert alpha(torch.zeros(3), 1) == 0
    with pytest.raises(InputError, match="k=5"):
        alpha(x, 5)


def test_bounds_by_hand() -> None:
    assert bound_qu(100, 3) == pytest.approx(10 / 7)
    assert bound_sp(100, 25) == pytest.approx(0.75)
    assert bound_ms(104, 4, 2, 0.6) == pytest.approx(0.6 * 10 / 3)


@pytest.mark.parametrize("rounding", ["floor", "nearest"])
@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("ratio", [0.5, 0.9, 0.99])
def test_no_tensor_breaks_a_bound(rounding: str, bits: int, ratio: float) -> None:
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        # From even to wild: powers of the same noise.
        x = torch.rand(1, 300, generator=g) ** (1 + seed)
        k = max(1, round((1 - ratio) * 300))
        error = compression_error(x, codec(f"ms:ratio={ratio},bits={bits},rounding={rounding}")).relative
        assert error <= tight_ms(x, k, bits) <= bound_ms(300, k, bits, alpha(x, k))
        assert compression_error(x, codec(f"sp:ratio={ratio}")).relative <= bound_sp(300, k)
        for how in ("nearest", "stochastic"):
            error = compression_error(x, codec(f"qu:bits={bits},rounding={how}"), seed=seed).relative
            # The bound of stochastic rounding is one of the mean; a single draw stays below twice that.
            assert error <= tight_qu(x, bits) * (2 if how == "stochastic" else 1)
        assert tight_qu(x, bits) <= bound_qu(300, bits)


def test_theorem_3_by_hand() -> None:
    # k2/d = 1/32: q1 = 3, and the proof needs alpha sqrt(31/32) <= 1/4.
    found = conditions(alpha=0.4, d=3200, k2=100, q2=2)
    assert found.alpha_below_half
    assert not found.proof_covers
    # 0.4 sqrt(3100) / 3 <= sqrt(3200) / 7 is 7.42 <= 8.08.
    assert found.ms_below_qu
    # k1 = 100 + 3200 / 32 = 200; 7.42 <= 3000 / 3200 is not true.
    assert not found.ms_below_sp
    # 0.4 sqrt(3100) / (2^q - 1) <= 1 - k1 / d: 0.71 against 0.84 at 5 bits, 1.48 against 0.875 at 4.
    assert found.q2_for_sp == 5
    assert conditions(alpha=0.2, d=3200, k2=100, q2=2).proof_covers
    assert not conditions(alpha=0.9, d=3200, k2=100, q2=2).alpha_below_half


def test_impossible_conditions_are_refused() -> None:
    for wrong in ({"alpha": math.nan}, {"k2": 0}, {"q2": 0}):
        with pytest.raises(InputError, match="expected"):
            conditions(**{"alpha": 0.3, "d": 100, "k2": 5, "q2": 2} | wrong)


def test_the_proof_of_theorem_3_cannot_cover_sp_for_tensors_of_real_size() -> None:
    assert proof_q2(0.5, 32) == pytest.approx(math.log2(1 + 0.5 * 32 * math.e))
    assert proof_q2(0.7, 400) < 33, "a few hundred elements"
    assert proof_q2(0.7, 4096) > 33, "one sample of a deep cut already needs more than SP's float32"
    assert proof_q2(0.9, 1 << 23) == pytest.approx((1 << 23) / 32 / math.log(2), rel=1e-3), "no overflow"
    # The conclusion holds between: MS's bound is below SP's with far fewer mask bits.
    told = conditions(0.9, 4096, 40, 2)
    assert told.q2_for_sp is not None
    assert told.q2_for_sp < 33
