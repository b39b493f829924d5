import json
import threading

import pytest

from cutlayer.errors import CutlayerError
from cutlayer.wire.meter import Direction, Kind, Meter


def test_a_snapshot_has_all_keys_and_totals():
    meter = Meter()
    meter.add(Kind.SMASHED, Direction.UP, 10, client=1)
    meter.add(Kind.LABELS, Direction.UP, 3, client=0)
    meter.add(Kind.SYNC, Direction.DOWN, 7)
    snapshot = meter.snapshot()
    assert set(snapshot) == {"up", "down"} | {f"{d}/{k}" for d in Direction for k in Kind}
    assert (snapshot["up"], snapshot["down"], snapshot["up/smashed"]) == (13, 7, 10)


def test_since_is_the_difference():
    meter = Meter()
    meter.add(Kind.SMASHED, Direction.UP, 10)
    before = meter.snapshot()
    meter.add(Kind.SMASHED, Direction.UP, 5)
    assert meter.since(before)["up"] == 5
    assert meter.since({})["up"] == 15


def test_by_client_is_ordered_and_leaves_out_what_belongs_to_none():
    meter = Meter()
    for client in (10, 2, None):
        meter.add(Kind.GRADIENTS, Direction.DOWN, 4, client)
    assert list(meter.by_client()) == [2, 10]
    assert meter.by_client()[10]["down/gradients"] == 4


def test_state_goes_through_json_and_back():
    meter, other = Meter(), Meter()
    meter.add(Kind.SMASHED, Direction.UP, 10, client=3)
    meter.add(Kind.CONTROL, Direction.UP, 1)
    other.restore(json.loads(json.dumps(meter.state())))
    assert other.snapshot() == meter.snapshot()
    assert other.by_client() == meter.by_client()
    other.add(Kind.SMASHED, Direction.UP, 1, client=3)
    assert meter.snapshot()["up"] == 11


def test_threads_lose_no_bytes():
    meter = Meter()

    def work() -> None:
        for _ in range(2000):
            meter.add(Kind.SMASHED, Direction.UP, 1, client=0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.snapshot()["up"] == 8000


def test_negative_bytes_are_refused():
    with pytest.raises(CutlayerError, match="-1 bytes"):
        Meter().add(Kind.SMASHED, Direction.UP, -1)
