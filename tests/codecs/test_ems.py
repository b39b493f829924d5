"""`ems` keeps the rates and errors asked for, decodes to the same as `ms`, and refuses malformed frames."""

import math

import pytest
import torch

import cutlayer
from cutlayer.codecs.entropy.context_model import default_model
from cutlayer.codecs.entropy.least_squares import fit_weights
from cutlayer.codecs.entropy.section_shape import ROW_LENGTH, section_shape
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import HeaderError, ParameterError, PayloadError
from cutlayer.split import relative_error


def smooth(*shape: int, seed: int = 0) -> torch.Tensor:
    """Correlated in the plane and across channels: like a feature map before its ReLU."""
    generator = torch.Generator().manual_seed(seed)
    n, c, h, w = shape
    base = torch.randn(n, 4, h + 2, w + 2, generator=generator)
    mixed = torch.einsum("cd,ndhw->nchw", torch.randn(c, 4, generator=generator), base)
    pooled = torch.nn.functional.avg_pool2d(mixed, 3, 1)
    return pooled + 0.2 * torch.randn(n, c, h, w, generator=generator)


MAP = smooth(48, 12, 16, 16).relu()
TENSORS = {
    "4-d": MAP,
    "signed": smooth(48, 12, 16, 16) - 0.1,
    "3-d": smooth(16, 3, 32, 48).relu().flatten(1, 2),
    "2-d": torch.randn(64, 768, generator=torch.Generator().manual_seed(1)),
    "1-d": torch.randn(70_001, generator=torch.Generator().manual_seed(2)) ** 3,
}


def taken(name: str, scope: str) -> torch.Tensor:
    """A test tensor, with few samples where each is a section."""
    return TENSORS[name] if scope == "tensor" or name == "1-d" else TENSORS[name][:3]


def bits(frame: bytes, x: torch.Tensor) -> float:
    return 8 * len(frame) / x.numel()


@pytest.mark.parametrize("scope", ["tensor", "sample"])
@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("bpe", [0.6, 1.0, 2.32])
def test_a_rate_is_kept_and_used(name: str, bpe: float, scope: str) -> None:
    x = taken(name, scope)
    frame = cutlayer.codec(f"ems:bpe={bpe},scope={scope}").encode(x)
    assert bits(frame, x) <= bpe
    if scope == "tensor":
        assert bits(frame, x) > 0.95 * bpe
    assert relative_error(x, cutlayer.decode(frame)) < 1


@pytest.mark.parametrize("scope", ["tensor", "sample"])
@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("error", [0.2, 0.05, 0.001, 1e-5])
def test_an_error_is_kept(name: str, error: float, scope: str) -> None:
    x = taken(name, scope)
    found = relative_error(x, cutlayer.decode(cutlayer.codec(f"ems:error={error},scope={scope}").encode(x)))
    assert found <= error
    if scope == "tensor" and error >= 0.001:
        assert found > 0.9 * error


def test_more_bits_make_less_error() -> None:
    errors = [
        relative_error(MAP, cutlayer.decode(cutlayer.codec(f"ems:bpe={b}").encode(MAP)))
        for b in (0.3, 0.6, 1, 2, 4)
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("values", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rounding", ["floor", "nearest"])
@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("width", [1, 2, 5, 7])
def test_it_decodes_to_what_ms_decodes_to_in_fewer_bytes(
    name: str, rounding: str, values: str, width: int
) -> None:
    x = TENSORS[name]
    how = f"ratio=0.99,rounding={rounding},values={values}"
    ours = cutlayer.codec(f"ems:levels={2**width - 1},{how}").encode(x)
    theirs = cutlayer.codec(f"ms:bits={width},{how}").encode(x)
    assert torch.equal(cutlayer.decode(ours), cutlayer.decode(theirs))
    assert len(ours) < len(theirs)


@pytest.mark.parametrize("rounding", ["floor", "nearest", "mean"])
def test_it_exceeds_ms_by_section_headers_at_most(rounding: str) -> None:
    generator = torch.Generator().manual_seed(3)
    # Every level equally likely and independent: nothing to gain from coding.
    noise = torch.randint(0, 4, (30_000,), generator=generator).float() + 0.5
    for x in (noise, noise - 2, noise[:1], noise[:17].view(1, 17), noise.view(300, 100), torch.ones(5)):
        for scope in ("tensor", "sample"):
            ours = cutlayer.codec(f"ems:levels=3,ratio=0.75,rounding={rounding},scope={scope}").encode(x)
            theirs = cutlayer.codec(f"ms:bits=2,ratio=0.75,values=float16,scope={scope}").encode(x)
            headers = 32 * (len(x) if scope == "sample" and x.dim() > 1 else 1)
            assert len(ours) <= len(theirs) + headers + (48 if rounding == "mean" else 0)


def test_contexts_save_bytes() -> None:
    frame = cutlayer.codec("ems:levels=6").encode(MAP)
    mixed = MAP.flatten()[torch.randperm(MAP.numel(), generator=torch.Generator().manual_seed(4))]
    alone = cutlayer.codec("ems:levels=6").encode(mixed.view_as(MAP))
    assert len(frame) < 0.8 * len(alone)


def test_the_fit_finds_parent_channels() -> None:
    x = MAP.clone()
    x[:, 1::2] = x[:, ::2]  # every second channel repeats the one before
    levels = (x / x.max() * 5).to(torch.uint8).flatten()
    shape = section_shape(tuple(x.shape), 1)
    model = fit_weights(levels, shape, (0, shape.height), 6, True)
    assert (model.distance[1::2] == 1).any(axis=1).all()
    assert (model.distance <= torch.arange(12)[:, None].numpy()).all()


def test_a_tensor_too_small_for_a_fit_gets_the_default_model() -> None:
    shape = section_shape((3, 2), 1)
    assert (
        fit_weights(torch.zeros(6, dtype=torch.uint8), shape, (0, 1), 3, False).rows
        == default_model().rows
        == 1
    )


def test_rounding_mean_has_less_error_than_nearest() -> None:
    mean, nearest = (
        relative_error(MAP, cutlayer.decode(cutlayer.codec(f"ems:levels=3,{how}").encode(MAP)))
        for how in ("rounding=mean", "rounding=nearest")
    )
    assert mean < nearest


def test_top_values_are_exact_in_their_type() -> None:
    x = TENSORS["signed"]
    top = x.abs() >= x.abs().flatten().kthvalue(x.numel() - x.numel() // 200 + 1).values
    y = cutlayer.decode(cutlayer.codec("ems:levels=3").encode(x))
    assert torch.equal(y[top], x[top].half().float())


@pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")
@pytest.mark.parametrize(
    ("spec", "shape", "signed"),
    [
        ("ems:bpe=1.2", (300, 4, 8, 8), False),  # rows of weights for each channel
        ("ems:error=0.03,ratio=0.98", (80, 3, 9, 11), True),
        ("ems:levels=4", (36, 300), False),
        ("ems:levels=40", (9, 12, 30), True),
        ("ems:levels=7,rounding=nearest,values=float32", (20_001,), True),  # a short last row
    ],
)
def test_every_instruction_set_gives_the_bytes_of_the_reference(
    spec: str, shape: tuple[int, ...], signed: bool
) -> None:
    from cutlayer import _native

    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    x = x if signed else (x + 0.5 * x.roll(1, -1)).relu()
    with kernels.using("reference"):
        frame = cutlayer.codec(spec).encode(x)
        decoded = cutlayer.decode(frame)
    try:
        for isa in ("generic", "avx2", "avx512"):
            if _native.force_instruction_set(isa):
                assert cutlayer.codec(spec).encode(x) == frame, isa
                assert torch.equal(cutlayer.decode(frame), decoded), isa
    finally:
        _native.force_instruction_set(None)


@pytest.mark.parametrize("spec", ["ems:bpe=1.2", "ems:error=0.03", "ems:levels=7,rounding=nearest"])
def test_the_number_of_threads_does_not_show(spec: str) -> None:
    x = smooth(100, 8, 16, 16)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        frame = cutlayer.codec(spec).encode(x)
        decoded = cutlayer.decode(frame)
        torch.set_num_threads(3)
        assert cutlayer.codec(spec).encode(x) == frame
        assert torch.equal(cutlayer.decode(frame), decoded)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("spec", ["ems:bpe=1.0", "ems:error=0.001", "ems:levels=4"])
def test_a_sample_does_not_depend_on_its_batch_mates(spec: str) -> None:
    codec = cutlayer.codec(f"{spec},scope=sample")
    x = MAP[:4].clone()
    before = cutlayer.decode(codec.encode(x))[0]
    x[1:] *= torch.rand(3, 12, 16, 16, generator=torch.Generator().manual_seed(6)) * 1e3
    assert torch.equal(cutlayer.decode(codec.encode(x))[0], before)


@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e38, 3e38])
@pytest.mark.parametrize(
    "spec", ["ems:bpe=1.5", "ems:error=0.1", "ems:levels=5", "ems:levels=5,rounding=floor"]
)
def test_ends_of_the_number_line(spec: str, size: float) -> None:
    x = torch.rand(40, 50, generator=torch.Generator().manual_seed(7)) * size
    for y in (x, -x):
        decoded = cutlayer.decode(cutlayer.codec(f"{spec},values=float32").encode(y))
        assert torch.isfinite(decoded).all()


@pytest.mark.parametrize("x", [torch.zeros(4, 5), torch.ones(3), -torch.ones(2, 2, 2, 2), torch.tensor(3.0)])
@pytest.mark.parametrize("spec", ["ems", "ems:error=0.1", "ems:levels=2", "ems:levels=1,rounding=nearest"])
def test_edges(spec: str, x: torch.Tensor) -> None:
    for implementation in kernels.available():
        with kernels.using(implementation):
            y = cutlayer.decode(cutlayer.codec(spec).encode(x))
            assert y.shape == x.shape
            if x.numel() == 1 or not x.any():
                assert torch.equal(x, y)


def test_an_error_below_what_values_leave_is_refused() -> None:
    with pytest.raises(ParameterError, match="values=float32"):
        cutlayer.codec("ems:error=1e-9").encode(TENSORS["2-d"][:4])
    y = cutlayer.decode(cutlayer.codec("ems:error=1e-9,values=float32").encode(TENSORS["2-d"][:4]))
    assert torch.equal(y, TENSORS["2-d"][:4])


def test_a_vector_is_divided_into_rows() -> None:
    found = section_shape((3 * ROW_LENGTH + 5,), 1)
    assert (found.samples, found.lanes, found.blocks) == (4, 4, 1)
    assert math.prod((found.channels, found.height, found.width)) == ROW_LENGTH


def forged(frame: bytes, at: int, value: int) -> bytes:
    import zlib

    changed = bytearray(frame)
    changed[cutlayer.inspect(frame).header_bytes + at] = value
    changed[4:8] = zlib.crc32(changed[8:]).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize("implementation", kernels.available())
def test_every_byte_of_a_section_counts(implementation: str) -> None:
    """Whichever byte is changed, the frame is refused by name or decodes to finite values."""
    x = MAP[:4, :3]
    frame = cutlayer.codec("ems:levels=5").encode(x)
    refused = 0
    with kernels.using(implementation):
        for at in range(0, cutlayer.inspect(frame).payload_bytes, 5 if implementation == "native" else 160):
            try:
                assert torch.isfinite(cutlayer.decode(forged(frame, at, 0xA5))).all()
            except PayloadError:
                refused += 1
    assert refused > 3


def test_a_frame_without_levels_is_refused() -> None:
    frame = cutlayer.codec("ems:levels=5").encode(torch.ones(3, 4))
    with pytest.raises(HeaderError, match="levels"):
        cutlayer.decode(forged(frame, -4, 0))


def test_a_budget_beyond_the_most_levels_buys_top_values() -> None:
    # A few elements are so large that the most levels below the usual top values are still coarse.
    x = torch.exp(2 * torch.randn(16, 8, 16, 16, generator=torch.Generator().manual_seed(0)))
    frame = cutlayer.codec("ems:bpe=4").encode(x)
    assert 0.95 * 4 < 8 * len(frame) / x.numel() <= 4


def test_weights_of_each_channel_of_a_wide_map_fit_more_than_chance() -> None:
    """From 3000 elements a channel on, each has weights of its own, chosen among those of 255 others."""
    generator = torch.Generator().manual_seed(0)
    mixed = torch.einsum(
        "nk,ck->nc", torch.randn(350, 16, generator=generator), torch.randn(256, 16, generator=generator)
    )
    x = (mixed[:, :, None, None] / 4 + torch.randn(350, 256, 3, 3, generator=generator) - 1).relu()
    codec = cutlayer.codec("ems:step=3.0")
    below, above = (8 * len(codec.encode(some)) / some.numel() for some in (x[:330], x))
    assert above < 1.08 * below  # 1.15 with weights fitted to 256 positions
