"""Each rival does what its paper says, and refuses bytes that no encoder wrote."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest
import torch

import cutlayer
from cutlayer.codecs.rivals.base import as_channels
from cutlayer.errors import FrameError, NonFiniteError, PayloadError, RangeError
from cutlayer.split import relative_error

SPECS = ["splitfc:drop=0.5,bpe=4.0", "fedlite", "slacc", "c3sl", "uq", "uq:step=0.5,scope=sample"]


def maps(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    return (x + x.roll(1, -1)).relu()


def through(spec: str, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return cutlayer.decode(cutlayer.codec(spec).encode(x, seed=seed))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_shape_and_dtype_goes_through(spec: str, dtype: torch.dtype) -> None:
    for shape in ((), (1,), (37,), (3, 50), (1, 5), (2, 5, 4), (5, 3, 4, 4)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        y = through(spec, x)
        assert (y.shape, y.dtype) == (x.shape, dtype)
        assert torch.isfinite(y).all()
        assert not through(spec, torch.zeros(shape, dtype=dtype)).any()


@pytest.mark.parametrize("spec", SPECS)
def test_a_seed_decides_and_bad_input_is_refused(spec: str) -> None:
    codec, x = cutlayer.codec(spec), maps(8, 4, 6, 6)
    assert codec.encode(x, seed=3) == codec.encode(x, seed=3)
    calm = codec.deterministic()
    assert calm.encode(x, seed=3) == calm.encode(x, seed=3)
    assert len(codec.encode(x)) <= codec.payload_bytes(tuple(x.shape)) + 64
    with pytest.raises(NonFiniteError):
        codec.encode(torch.tensor([[1.0, float("nan")]]))


@pytest.mark.parametrize("spec", ["splitfc:drop=0.9,bpe=4.0", "c3sl"])
def test_values_that_grow_beyond_their_type_are_refused(spec: str) -> None:
    x = torch.randn(8, 300, generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    x = (x / 3 * torch.finfo(torch.float16).max).half()
    with pytest.raises(RangeError):
        cutlayer.codec(spec).encode(x)


def test_splitfc_drops_columns_without_bias_and_keeps_its_rate() -> None:
    x, seeds = maps(16, 4, 5, 5), 120
    codec = cutlayer.codec("splitfc:drop=0.75,bpe=2.5")
    frames = [codec.encode(x, seed=s) for s in range(seeds)]
    y = torch.stack([cutlayer.decode(frame) for frame in frames])
    kept = (y != 0).any(1).flatten(1).float()
    assert abs(float(kept.mean()) - 0.25) < 0.02
    assert 2.0 < 8 * np.mean([len(f) for f in frames]) / x.numel() < 2.8
    # Columns of larger spread are kept more often, and what is kept is enlarged in proportion.
    spread = x.std(0).flatten()
    assert np.corrcoef(spread.numpy(), kept.mean(0).numpy())[0, 1] > 0.7
    along = (y * x).flatten(1).sum(1) / x.square().sum()
    assert abs(float(along.mean()) - 1) < 4 * float(along.std()) / seeds**0.5 + 0.01
    assert relative_error(x, through("splitfc:drop=0,bpe=8", x)) < 1e-3
    calm = codec.deterministic()
    assert calm.encode(x, seed=1) == calm.encode(x, seed=2)
    # Dropout enlarges what it keeps, so that the sum over features is right on average. Evaluation has all.
    decoded = cutlayer.decode(calm.encode(x))
    assert (decoded != 0).any(0).all()
    assert relative_error(x, decoded) < min(relative_error(x, drawn) for drawn in y)


def test_fedlite_finds_the_subvectors_that_there_are() -> None:
    generator = torch.Generator().manual_seed(0)
    words = torch.randn(6, 4, generator=generator)
    x = words[torch.randint(6, (50, 12), generator=generator)].reshape(50, 3, 16)
    errors = [
        relative_error(x, through("fedlite:size=4,clusters=16,iterations=20", x, seed=s)) for s in range(3)
    ]
    assert min(errors) < 1e-12
    finer = [
        relative_error(maps(16, 4, 8, 8), through(f"fedlite:clusters={k}", maps(16, 4, 8, 8)))
        for k in (2, 8, 64)
    ]
    assert finer == sorted(finer, reverse=True)
    codec = cutlayer.codec("fedlite:size=5,clusters=6,groups=3")
    assert cutlayer.inspect(codec.encode(x)).payload_bytes == codec.payload_bytes(tuple(x.shape))


def test_slacc_gives_more_bits_to_channels_of_more_entropy() -> None:
    x = torch.rand(32, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    x[:, :2] = (x[:, :2] > 0.5).float()  # one bit of entropy
    y = through("slacc:low=1,high=8,groups=2", x)
    assert torch.equal(y[:, :2], x[:, :2])
    assert (y[:, 2:] - x[:, 2:]).abs().max() <= 0.5 / 255 * 1.01
    frame = cutlayer.codec("slacc:low=1,high=8,groups=2").encode(x)
    assert 8 * len(frame) / x.numel() == pytest.approx((1 + 8) / 2, abs=0.05)


def test_c3sl_is_its_own_adjoint_and_recovers_samples_in_the_mean() -> None:
    a, b = maps(8, 4, 6, 6), maps(8, 4, 6, 6, seed=1)
    assert torch.sum(a * through("c3sl", b)) == pytest.approx(
        float(torch.sum(b * through("c3sl", a))), rel=1e-4
    )
    mean = torch.stack([through(f"c3sl:merge=2,keys={k}", a) for k in range(100)]).mean(0)
    assert relative_error(a, mean) < 0.06
    assert len(cutlayer.codec("c3sl:merge=8").encode(a)) < a.numel() * 4 / 8 + 64


def test_uq_rounds_to_the_nearest_multiple_of_its_step() -> None:
    x = maps(8, 4, 9, 9) - 0.3
    step = float(np.float32(0.5 * x.double().square().mean().sqrt()))
    y = through("uq:step=0.5", x)
    torch.testing.assert_close(y, (x / step).round() * step, rtol=1e-5, atol=1e-6)
    frame = cutlayer.codec("uq:bpe=1.2").encode(x)
    assert 1.0 < 8 * len(frame) / x.numel() <= 1.21


def test_ems_with_one_level_is_sp_with_entropy_coded_positions() -> None:
    x = maps(48, 8, 16, 16) - 0.2
    frame = cutlayer.codec("ems:ratio=0.97,levels=1,rounding=floor").encode(x)
    plain = cutlayer.codec("sp:ratio=0.97,values=float16").encode(x)
    assert torch.equal(cutlayer.decode(frame), cutlayer.decode(plain))
    assert len(frame) < 0.75 * len(plain)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (2, 3, 4, 5)])
def test_channels_are_the_second_dimension(shape: tuple[int, ...]) -> None:
    n, c, s = as_channels(shape)
    assert n * c * s == int(np.prod(shape))
    assert (n, c) == (shape[:2] if len(shape) > 1 else (1, 1))


def forged(spec: str, change: Callable[[bytearray, int], None]) -> bytes:
    frame = bytearray(cutlayer.codec(spec).encode(maps(4, 3, 5, 5)))
    change(frame, cutlayer.inspect(bytes(frame)).header_bytes)
    frame[4:8] = zlib.crc32(frame[8:]).to_bytes(4, "little")
    return bytes(frame)


def put(at: int, value: bytes) -> Callable[[bytearray, int], None]:
    def change(frame: bytearray, start: int) -> None:
        frame[start + at : start + at + len(value)] = value

    return change


NAN, HUGE = np.float32(np.nan).tobytes(), np.float32(3e38).tobytes()


@pytest.mark.parametrize(
    ("spec", "change", "words"),
    [
        ("splitfc:drop=0.5,bpe=4.0", put(0, NAN), "NaN or infinite"),
        ("splitfc:drop=0.5,bpe=4.0", put(0, HUGE), "lie between"),
        ("splitfc:drop=0.5,bpe=4.0", put(8, bytes(10)), "no column"),
        ("splitfc:drop=0.5,bpe=4.0", put(8, b"\xff" * 10), "unused bits"),
        ("splitfc:drop=0.5,bpe=4.0", put(18, b"\xff" * 4), "bits an element"),
        ("fedlite:size=5,clusters=9", put(0, NAN), "NaN or infinite"),
        ("fedlite:size=5,clusters=9", put(9 * 5 * 4, b"\xff" * 8), "beyond the codebook"),
        ("slacc:groups=2", put(0, b"\xff\x01"), "does not exist"),
        ("slacc:groups=2", put(2, b"\x09"), "9 bits"),
        ("slacc:groups=2", put(3, NAN), "bits from nan"),
        ("slacc:groups=2", put(3, HUGE), "bits from 3"),
        ("c3sl", put(0, NAN), "NaN or infinite"),
        ("uq:step=0.5", put(2, b"\x02"), "DCT|malformed|transformed"),
    ],
)
def test_forged_payloads_are_refused_by_name(
    spec: str, change: Callable[[bytearray, int], None], words: str
) -> None:
    with pytest.raises(PayloadError, match=words):
        cutlayer.decode(forged(spec, change))


@pytest.mark.parametrize("spec", SPECS)
def test_every_byte_counts(spec: str) -> None:
    """Whichever byte is changed or cut off, a frame is refused by name or decodes to finite values."""
    x = maps(4, 3, 5, 5)
    frame = cutlayer.codec(spec).encode(x)
    start = cutlayer.inspect(frame).header_bytes
    for at in range(start, len(frame), 3):
        changed = bytearray(frame)
        changed[at] ^= 0xA5
        cut = bytearray(frame[:at])
        cut[14:22] = (at - start).to_bytes(8, "little")
        for damaged in (changed, cut):
            damaged[4:8] = zlib.crc32(damaged[8:]).to_bytes(4, "little")
            try:
                found = cutlayer.decode(bytes(damaged))
            except FrameError as error:
                named = type(error) is not FrameError
            else:
                named = bool(torch.isfinite(found).all())
            assert named
