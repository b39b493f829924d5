"""The compiled kernels and the PyTorch reference give the same bytes and the same tensors, bit for bit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels

pytestmark = pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")

EVERY = [
    "ms:bits=1",
    "ms:bits=2",
    "ms:bits=3,rounding=nearest",
    "ms:bits=5",
    "sp",
    "qu:bits=3",
    "qu:bits=4",
    "qu:bits=7,rounding=stochastic",
    "rt",
    "rk",
    "km:bits=4",
]
ratios = st.sampled_from([0.0, 0.1, 0.5, 0.7, 0.9, 0.95875, 0.99, 0.9999]) | st.floats(0, 0.999)
values = st.sampled_from(["float32", "float16", "bfloat16"])
scopes = st.sampled_from(["tensor", "sample"])
stores = st.sampled_from(["auto", "mask", "keys"])
seeds = st.integers(0, 2**64 - 1)


def spec(name: str, **parameters: st.SearchStrategy[object]) -> st.SearchStrategy[str]:
    built = st.fixed_dictionaries(parameters)
    return built.map(lambda p: f"{name}:" + ",".join(f"{k}={v}" for k, v in p.items()))


# Codecs whose reference is fast.
quick = st.one_of(
    spec("dense", dtype=values),
    spec(
        "qu",
        bits=st.integers(1, 16),
        rounding=st.sampled_from(["nearest", "stochastic"]),
        scope=scopes,
        seed=seeds,
    ),
    spec("sp", ratio=ratios, store=stores, values=values, scope=scopes),
    spec(
        "ms",
        ratio=ratios,
        bits=st.integers(1, 16),
        rounding=st.sampled_from(["floor", "nearest"]),
        values=values,
        scope=scopes,
    ),
    spec(
        "rt",
        ratio=ratios,
        alpha=st.floats(0, 0.999),
        draw=st.sampled_from(["weights", "coin"]),
        store=stores,
        scope=scopes,
        seed=seeds,
    ),
    spec("rk", ratio=ratios, store=stores, scope=scopes, seed=seeds),
    spec("km", bits=st.integers(1, 8), iterations=st.integers(0, 12), scope=scopes),
)
entropy = st.one_of(
    spec("ems", levels=st.integers(1, 127), ratio=ratios, values=values, scope=scopes),
    spec("ems", levels=st.integers(1, 127), rounding=st.sampled_from(["floor", "nearest"]), ratio=ratios),
    spec("ems", bpe=st.floats(0.05, 8), values=values, scope=scopes),
    spec("ems", error=st.floats(0.001, 0.9), values=values, scope=scopes),
)

# Values that tie, straddle level boundaries, or sit at the ends of the number line.
nasty = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1 / 3, 2 / 3, 1e-45, -1e-45, 1.1754944e-38, 60000.0, -60000.0]
)
ordinary = st.floats(-100, 100, width=32)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=9)


def arrays(shapes: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[np.ndarray]:
    kinds = (nasty, ordinary, st.floats(0, 4, width=16))
    return st.one_of(hnp.arrays(np.float32, shapes, elements=elements) for elements in kinds)


def both(codec: cutlayer.Codec, x: torch.Tensor) -> bytes:
    """Encode and decode with both, and give the frame that they agree on."""
    frame = codec.encode(x)
    decoded = cutlayer.decode(frame)
    with kernels.using("reference"):
        assert codec.encode(x) == frame
        assert cutlayer.decode(frame).numpy().tobytes() == decoded.numpy().tobytes()
    return frame


def fits(codec: cutlayer.Codec, x: torch.Tensor) -> bool:
    return codec.name != "rk" or float(x.abs().max()) * x.numel() < 3e38


@settings(max_examples=300)
@given(quick, arrays(shapes))
def test_small_tensors(text: str, array: np.ndarray) -> None:
    alike(text, array)


@settings(max_examples=50)
@given(entropy, arrays(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=6)))
def test_small_tensors_with_an_entropy_code(text: str, array: np.ndarray) -> None:
    alike(text, array)


def alike(text: str, array: np.ndarray) -> None:
    codec, x = cutlayer.codec(text), torch.from_numpy(array.copy())
    frame = both(codec, x)
    formula = codec.payload_bytes(tuple(x.shape), bool((x < 0).any()))
    payload = cutlayer.inspect(frame).payload_bytes
    assert payload == formula if codec.fixed_size else payload <= formula or "bpe" in text
    if x.dim() <= 4:
        assert len(frame) - payload <= 64
    assert str(cutlayer.codec(str(codec))) == str(codec)


@settings(max_examples=25)
@given(quick, st.integers(60_000, 150_000), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_tensors_of_several_chunks(text: str, n: int, kind: int, seed: int) -> None:
    x = torch.randn(1, n, generator=torch.Generator().manual_seed(seed))
    x = [x, x.relu(), (x * 3).round(), torch.ones(1, n), torch.zeros(1, n), x.abs().sort().values][kind]
    both(cutlayer.codec(text), x)


@pytest.mark.parametrize("text", ["sp:ratio=0.95,scope=sample", "rt:ratio=0.95,seed=3", "ms:scope=sample"])
def test_thresholds_that_a_sample_misses(text: str) -> None:
    """Of so many sections, some have their threshold outside the narrow bracket, and some far from it."""
    x = torch.randn(200, 4096, generator=torch.Generator().manual_seed(5))
    x[100:150, 7:11] += 50  # fewer elements than a sample finds
    x[150:, 1000:1300] *= 100
    both(cutlayer.codec(text), x)


@pytest.mark.parametrize("isa", ["generic", "neon", "avx2", "avx512"])
@pytest.mark.parametrize("text", EVERY)
@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_every_instruction_set(isa: str, text: str, kind: str) -> None:
    from cutlayer import _native

    x = torch.randn(2, 70_001, generator=torch.Generator().manual_seed(1))
    x = x.relu() if kind == "unsigned" else x
    if not _native.force_instruction_set(isa):
        pytest.skip(f"this processor does not have {isa}")
    try:
        both(cutlayer.codec(text), x)
    finally:
        _native.force_instruction_set(None)


@pytest.fixture(params=["generic", "neon", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest):
    from cutlayer import _native

    if not _native.force_instruction_set(request.param):
        pytest.skip(f"this processor does not have {request.param}")
    yield request.param
    _native.force_instruction_set(None)


RANGES = [(-1, 1), (0, 1), (-3e38, 3e38), (1e-42, 3e-42), (1e-30, 2e-30), (0.1, 0.1000001), (5, 5), (-7, 0)]


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_elements_at_the_borders_of_levels(isa: str, bits: int) -> None:
    for ends in RANGES:
        lo, hi = (float(np.float32(end)) for end in ends)
        borders = lo + (np.arange(2**bits - 1) + 0.5) / (2**bits - 1) * (hi - lo)
        near = [borders.astype(np.float32)]
        for _ in range(3):
            near += [np.nextafter(near[-1], np.float32(lo)), np.nextafter(near[0], np.float32(hi))]
        x = np.concatenate([np.float32([lo, hi, 0 if lo <= 0 <= hi else lo]), *near]).clip(lo, hi)
        both(cutlayer.codec(f"qu:bits={bits}"), torch.from_numpy(np.tile(x, 5)[None]))


@pytest.mark.parametrize("alpha", [0, 1e-7, 0.01, 0.5, 0.99999])
@pytest.mark.parametrize("draw", ["weights", "coin"])
def test_many_random_draws(isa: str, alpha: float, draw: str) -> None:
    x = torch.randn(1, 20_011, generator=torch.Generator().manual_seed(2))
    both(cutlayer.codec(f"rt:ratio=0.7,alpha={alpha},draw={draw},scope=tensor"), x)


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.97])
def test_few_and_many_values_of_each_type(isa: str, ratio: float, values: str) -> None:
    x = torch.randn(1, 3_001, generator=torch.Generator().manual_seed(3))
    for text in ("sp:store=mask", "ms:bits=1", "ms:bits=2", "ms:bits=3"):
        for y in (x, x.relu(), (x * 2).round()):
            both(cutlayer.codec(f"{text},ratio={ratio},values={values}"), y)


@pytest.mark.parametrize("text", [*EVERY, "rt:scope=tensor"])
def test_the_number_of_threads_does_not_show(text: str) -> None:
    x = torch.randn(4, 300_001, generator=torch.Generator().manual_seed(2))
    codec, before = cutlayer.codec(text), torch.get_num_threads()
    frames, tensors = [], []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            frames.append(codec.encode(x))
            tensors.append(cutlayer.decode(frames[0]))
    finally:
        torch.set_num_threads(before)
    assert frames[0] == frames[1] == frames[2]
    assert all(torch.equal(t, tensors[0]) for t in tensors)


def test_data_that_defeats_the_sampled_bracket() -> None:
    # The large values are missing from the random sample, so the estimated bracket of the threshold is far
    # off.
    x = torch.full((1, 400_000), 0.25)
    x[0, ::1000] = torch.arange(1, 401).float()
    for text in ("sp:ratio=0.999", "sp:ratio=0.9995", "ms:ratio=0.999,bits=2", "sp:ratio=0.9"):
        both(cutlayer.codec(text), x)
    heavy = torch.cat([torch.zeros(1, 390_000), torch.rand(1, 10_000)], dim=1)
    for text in ("sp:ratio=0.9", "sp:ratio=0.97", "ms:ratio=0.5,bits=2"):
        both(cutlayer.codec(text), heavy)


def test_streaming_stores_of_large_results() -> None:
    x = torch.randn(7_000_003, generator=torch.Generator().manual_seed(3))
    for text in ("ms:ratio=0.99,bits=2", "sp:ratio=0.9", "qu:bits=3"):
        frame = cutlayer.codec(text).encode(x)
        whole = cutlayer.decode(frame)
        shifted = torch.empty(7_000_004)[1:]  # not aligned: without streaming stores
        assert torch.equal(cutlayer.decode(frame, out=shifted), whole)
        assert math.isclose(float(whole[-1]), float(cutlayer.decode(frame)[-1]))
