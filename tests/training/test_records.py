import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.errors import FileError, RecordError
from cutlayer.training.records import RecordWriter, read


def write(path, steps):
    with RecordWriter(path) as records:
        for step in steps:
            records.step({"global_step": step, "loss": 1 / step})


def test_records_come_back_in_order_with_their_kind(tmp_path):
    path = tmp_path / "run" / "records.jsonl"
    with RecordWriter(path) as records:
        records.step({"global_step": 1, "loss": 0.5})
        records.epoch({"global_step": 1, "accuracy": torch.tensor(0.25)})
        assert len(list(read(path))) == 2  # readable while it is being written
    assert list(read(path)) == [
        {"kind": "step", "global_step": 1, "loss": 0.5},
        {"kind": "epoch", "global_step": 1, "accuracy": 0.25},
    ]


def test_what_is_not_finite_is_written_as_null(tmp_path):
    with RecordWriter(tmp_path / "r") as records:
        records.step({"global_step": 1, "loss": math.nan, "by": {"a": [math.inf, 1.0]}})

    def no_constants(name):
        raise AssertionError(name)

    line = (tmp_path / "r").read_text()
    assert json.loads(line, parse_constant=no_constants)["by"] == {"a": [None, 1.0]}


@given(
    lines=st.integers(0, 12),
    cut=st.integers(0, 60),
    last=st.integers(0, 14),
)
def test_truncation_keeps_exactly_the_whole_records_up_to_a_step(tmp_path_factory, lines, cut, last):
    path = tmp_path_factory.mktemp("records") / "r"
    write(path, range(1, lines + 1))
    path.write_bytes(path.read_bytes()[: -cut or None])
    whole = path.read_bytes().count(b"\n")
    with RecordWriter(path) as records:
        records.truncate_after(last)
        assert [r["global_step"] for r in read(path)] == list(range(1, min(whole, last) + 1))
        records.step({"global_step": 99})
    assert [r["global_step"] for r in read(path)] == [*range(1, min(whole, last) + 1), 99]
    assert sorted(p.name for p in path.parent.iterdir()) == ["r", "r.lock"]


def test_a_resumed_file_is_the_same_byte_for_byte(tmp_path):
    write(tmp_path / "whole", range(1, 8))
    write(tmp_path / "resumed", range(1, 6))
    with RecordWriter(tmp_path / "resumed") as records:
        records.truncate_after(3)
        for step in range(4, 8):
            records.step({"global_step": step, "loss": 1 / step})
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()


def test_only_one_writer_at_a_time(tmp_path):
    with RecordWriter(tmp_path / "r") as first:
        first.step({"global_step": 1})
        with pytest.raises(FileError, match="another process is training"):
            RecordWriter(tmp_path / "r")
    with RecordWriter(tmp_path / "r") as second:
        second.step({"global_step": 2})
    assert [r["global_step"] for r in read(tmp_path / "r")] == [1, 2]


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(b'{"kind": "step", "global_step": 1}\n{"kind": "st')
    assert [r["global_step"] for r in read(path)] == [1]


def test_damage_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(b'{"global_step": 1}\n\0\0\0\n{"global_step": 2}\n')
    with pytest.raises(RecordError, match=r"line 2.*--resume"):
        list(read(path))


def test_a_writer_sets_damage_aside_and_keeps_what_is_whole(tmp_path):
    path, warned = tmp_path / "r", []
    before = b'{"global_step": 1}\n\0\0\0\n{"global_step": 2}\n{"no": 1}\n{"global_step": 3}\n{"glo'
    path.write_bytes(before)
    with RecordWriter(path, warned.append) as records:
        records.truncate_after(2)
        records.step({"global_step": 3})
    assert [r["global_step"] for r in read(path)] == [1, 2, 3]
    assert (tmp_path / "r.damaged").read_bytes() == before
    assert len(warned) == 1
    assert "2 damaged lines are left out (line 2, 4)" in warned[0]
    assert "kept as r.damaged" in warned[0]
    with RecordWriter(path, warned.append):
        assert len(warned) == 1


def test_mistakes_are_named(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        list(read(tmp_path / "absent"))
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"):
        RecordWriter(tmp_path / "file" / "r")
    with RecordWriter(tmp_path / "r") as records, pytest.raises(RecordError, match="global_step"):
        records.step({"loss": 1.0})


def test_a_full_disk_is_named(tmp_path):
    with RecordWriter(tmp_path / "r") as records:
        records._file.close()
        with Path("/dev/full").open("ab", buffering=0) as full:
            records._file = full
            with pytest.raises(FileError, match=r"the disk is full.*free some space"):
                records.step({"global_step": 1})
