"""Tensors that another thread writes to while they are encoded: an error at worst, never a crash."""

import threading
import zlib

import pytest
import torch

import cutlayer
from cutlayer.codecs import kernels
from cutlayer.errors import ChangedError, CutlayerError

pytestmark = pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 3, 9])
def test_ms_refuses_data_that_changed_between_its_two_reads(bits: int, kind: int) -> None:
    from cutlayer import _native

    x = torch.rand(1, 200_000)
    top = _native.select_top(x.data_ptr(), *x.shape, 100, 1)
    frame = _native.allocate(b"", 200_000 * bits // 8 + 1 + 100 * (4 if kind == 0 else 2))
    for change in (x.add_(1), x.zero_()):  # more top values than there is room for; fewer
        with pytest.raises(ChangedError, match="another thread"):
            _native.ms_encode(change.data_ptr(), top, bits, False, False, kind, frame, 0, 1)


@pytest.mark.parametrize("spec", ["ms", "ms:bits=5", "sp", "sp:ratio=0.99", "rt", "rk", "qu", "km"])
def test_a_tensor_in_flux_gives_a_frame_or_an_error(spec: str) -> None:
    codec = cutlayer.codec(spec)
    x = torch.rand(4, 40_000)
    states = [torch.rand(4, 40_000), torch.zeros(4, 40_000), torch.full((4, 40_000), 9.0)]
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            for state in states:
                x.copy_(state)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(60):
            try:
                frame = codec.encode(x)
            except CutlayerError:
                continue
            assert len(frame) > 4
    finally:
        stop.set()
        thread.join()


def test_a_frame_in_a_buffer_that_can_be_written_to_is_copied_first() -> None:
    x = torch.rand(1000)
    frame = bytearray(cutlayer.codec("ms").encode(x))
    assert torch.equal(cutlayer.decode(frame), cutlayer.decode(bytes(frame)))
    assert torch.equal(cutlayer.decode(memoryview(frame)), cutlayer.decode(bytes(frame)))


@pytest.mark.parametrize("size", [9, 1 << 20, (2 << 20) + 9, (3 << 20) + 8, (5 << 20) + 12345])
def test_threads_agree_on_the_checksum(size: int) -> None:
    from cutlayer import _native

    data = torch.randint(0, 256, (size,), dtype=torch.uint8).numpy().tobytes()
    assert {_native.checksum(data, 8, threads) for threads in (1, 2, 3)} == {zlib.crc32(data[8:])}
