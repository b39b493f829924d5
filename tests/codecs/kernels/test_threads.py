"""Concurrent writes to a tensor give an error at worst. The thread pool serves concurrent calls and forks."""

import os
import signal
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import cutlayer
from cutlayer.codecs.kernels import dispatch as kernels
from cutlayer.errors import ChangedError, CutlayerError

pytestmark = pytest.mark.skipif("native" not in kernels.available(), reason="no compiled kernels were built")


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("bits", [1, 2, 3, 9])
def test_ms_refuses_data_that_changed_between_its_two_reads(bits: int, kind: int) -> None:
    from cutlayer import _native

    x = torch.rand(1, 200_000)
    top = _native.select_top(x.data_ptr(), *x.shape, 100, 1)
    frame = _native.allocate(b"", 200_000 * bits // 8 + 1 + 100 * (4 if kind == 0 else 2))
    for changed in (x + 1, torch.zeros_like(x)):  # more top values than there is room for; fewer
        with pytest.raises(ChangedError, match="another thread"):
            _native.ms_encode(changed.data_ptr(), top, bits, False, False, kind, frame, 0, 1)


@pytest.mark.parametrize("values", [0, 1])
def test_ems_refuses_data_that_changed_between_its_two_reads(values: int) -> None:
    from cutlayer import _native
    from cutlayer.codecs.kernels import native

    x = torch.rand(1, 200_000)
    top = _native.select_top(x.data_ptr(), *x.shape, 100, 1)
    for changed in (x + 1, torch.zeros_like(x)):
        with pytest.raises(ChangedError, match="another thread"):
            native.ems_top_values(changed.numpy(), top, 0, values)


@pytest.mark.parametrize(
    "spec", ["ms", "ms:bits=5", "sp", "sp:ratio=0.99", "rt", "rk", "qu", "km", "ems", "ems:error=0.05"]
)
def test_a_tensor_that_changes_meanwhile_gives_a_frame_or_an_error(spec: str) -> None:
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


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_concurrent_calls_share_the_thread_pool(two_threads: None) -> None:
    codec, x = cutlayer.codec("ems:bpe=1.0"), torch.rand(8, 8, 64, 64)
    expected = codec.encode(x)

    def work(_: int) -> bool:
        torch.set_num_threads(2)  # a setting of each thread
        return codec.encode(x) == expected and torch.equal(cutlayer.decode(expected), again)

    again = cutlayer.decode(expected)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_thread_pool_of_its_own(two_threads: None) -> None:
    codec, x = cutlayer.codec("ems:bpe=1.0"), torch.rand(8, 8, 64, 64)
    expected = codec.encode(x)  # the pool has workers now
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for workers it does not have
        same = False
        try:
            same = codec.encode(x) == expected
        finally:
            os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert codec.encode(x) == expected
