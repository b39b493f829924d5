"""The reader of CIFAR's pickles: reads the official files, runs nothing."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.data.formats.cifar_pickle import read_cifar_pickle
from cutlayer.errors import DataError

ARRAY = np.arange(600, dtype=np.uint8).reshape(2, 300)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_reads_what_python_writes_in_every_older_protocol(protocol: int) -> None:
    value = {"data": ARRAY, "labels": [1, 255, 70000, -3], "text": "ä", "none": None, "t": (1, 2)}
    read = read_cifar_pickle(pickle.dumps(value, protocol), "file")
    assert np.array_equal(read.pop("data"), ARRAY)
    del value["data"]
    assert read == value


def test_reads_what_python_2_wrote(make) -> None:
    read = read_cifar_pickle(make.python2_pickle({"data": ARRAY, "labels": [6, 9]}), "file")
    assert np.array_equal(read["data"], ARRAY)
    assert read["labels"] == [6, 9]


def test_reads_fortran_order_and_bytes_as_keys() -> None:
    value = {b"data": np.asfortranarray(ARRAY), b"labels": [1]}
    read = read_cifar_pickle(pickle.dumps(value, 2), "file")
    assert np.array_equal(read["data"], ARRAY)
    assert read["labels"] == [1]


class Malicious:
    """Creates a file if unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", range(6))
def test_malicious_pickle_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "ran"
    data = pickle.dumps({"data": Malicious(target)}, protocol)
    with pytest.raises(DataError, match=r"data_batch_1.*Nothing in it was run"):
        read_cifar_pickle(data, "data_batch_1")
    assert not target.exists()
    # The attack is real: what is refused above does run under pickle.
    pickle.loads(data)  # noqa: S301
    assert target.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02c__builtin__\neval\nU\x011\x85R.",
        b"(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x02cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"\x80\x02}U\x01a\x85b.",  # BUILD of a dict
        b"\x80\x02cnumpy\nndarray\n)R.",  # a call of what may only be named
        b"\x80\x02U\x09os systemU\x04true\x85R.",  # a string is not a name
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02\x82\x01.",  # EXT1
        b"Pid\n.",  # PERSID
        b"\x80\x02cnumpy\ndtype\n}U\x01aK\x01sb.",  # BUILD of a name
        b"\x80\x02c_codecs\nencode\nN}U\x01aK\x01s\x86b.",  # BUILD of its attributes
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",  # an attribute of a name
    ],
)
def test_every_way_to_run_code_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="file: not a plain CIFAR file"):
        read_cifar_pickle(data, "file")


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(DataError, match="another type than uint8"):
        read_cifar_pickle(pickle.dumps({"data": np.array([1.5])}, 2), "file")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged"),
        (b"\x80\x02}", "damaged"),
        (b"\x80\x02.", "damaged"),
        (b"\x80\x02h\x05.", "damaged"),
        (b"\x80\x02u.", "damaged"),
        (b"\x80\x02\x87.", "damaged"),
        (b"\x80\x02]U\x01a(U\x01bu.", "damaged"),
        (b"\x80\x02}(U\x01au.", "damaged"),
        (b"\x80\x02}(K\x01K\x01u.", "key that is not text"),
        (b"\x80\x02}(" + b")" + b"\x85" * 99999 + b"K\x01u.", "99999 tuples"),
        (b"\x80\x02K\x05.", "expected a dict"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "more values than it has"),
        (b"\x80\x02T" + struct.pack("<I", 2**31 - 1) + b"abc.", "damaged"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"file: .*{message}"):
        read_cifar_pickle(data, "file")


@given(st.data())
def test_changed_bytes_give_a_value_or_a_data_error(data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps({"data": ARRAY[:, :9], "labels": [1, 2, 300]}, 2))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(whole)))
    with contextlib.suppress(DataError):
        assert isinstance(read_cifar_pickle(bytes(whole[:end]), "file"), dict)
