"""Builders of tiny data in every official layout."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

CIFAR10_NAMES = [
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
]
CIFAR100_NAMES = ["apple", *(f"class{i}" for i in range(1, 99)), "worm"]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real images, or a skip that says how to get it."""
    repository = Path(__file__).parents[2]
    given = os.environ.get("CUTLAYER_DATA")
    folder = Path(given) if given else repository.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set CUTLAYER_DATA to a folder that has them")
    return folder


def python2_pickle(value: object) -> bytes:
    """Write what Python 2's cPickle wrote into the official files: byte strings throughout."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: object) -> bytes:
    if isinstance(value, str):
        data = value.encode("latin-1")
        return b"U" + bytes([len(data)]) + data + b"q\x01"
    if isinstance(value, int):
        return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)
    if isinstance(value, list):
        return b"]q\x02(" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        items = b"".join(_python2(key) + _python2(item) for key, item in value.items())
        return b"}q\x03(" + items + b"u"
    assert isinstance(value, np.ndarray)
    rows, columns = value.shape
    raw = value.tobytes()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87R"
        b"(K\x01" + _python2(rows) + _python2(columns) + b"\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"
    )


def python3_pickle(value: object) -> bytes:
    """Write the same content as Python 3 does in the same protocol."""
    return pickle.dumps(value, 2)


class CifarMaker:
    """Random CIFAR data of a few records, written in any of the four layouts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        self.records = 4
        self.pixels = {number: rng.integers(0, 256, (self.records, 3072), np.uint8) for number in range(6)}

    def files(
        self, name: str, kind: str, dump: Callable[[object], bytes] = python2_pickle
    ) -> dict[str, bytes]:
        classes = 10 if name == "cifar10" else 100
        batches = 5 if name == "cifar10" else 1
        parts = {
            **{(f"data_batch_{i}" if classes == 10 else "train"): i for i in range(1, batches + 1)},
            ("test_batch" if classes == 10 else "test"): 0,
        }
        files = {}
        for file, number in parts.items():
            pixels, labels = self.pixels[number], self.labels(number, classes)
            if kind == "binary":
                before = [labels] if classes == 10 else [[7] * self.records, labels]
                head = np.array(before, np.uint8).T
                files[f"{file}.bin"] = np.concatenate([head, pixels], 1).tobytes()
            else:
                table: dict[str, object] = {"batch_label": "a batch", "data": pixels}
                if classes == 10:
                    table["labels"] = labels
                else:
                    table["coarse_labels"] = [7] * self.records
                    table["fine_labels"] = labels
                table["filenames"] = [f"{i}.png" for i in range(self.records)]
                files[file] = dump(table)
        if kind == "binary":
            meta = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
            names = CIFAR10_NAMES if classes == 10 else CIFAR100_NAMES
            files[meta] = ("\n".join(names) + "\n\n").encode()
        elif classes == 10:
            files["batches.meta"] = dump({"num_cases_per_batch": 4, "label_names": CIFAR10_NAMES})
        else:
            files["meta"] = dump({"fine_label_names": CIFAR100_NAMES, "coarse_label_names": []})
        return files

    def labels(self, number: int, classes: int) -> list[int]:
        return [(number * 31 + i * 17) % classes for i in range(self.records)]

    def extracted(self, files: dict[str, bytes], name: str = "extracted") -> Path:
        folder = self.folder / name
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        return folder

    def archive(self, files: dict[str, bytes], name: str = "cifar.tar.gz") -> Path:
        path = self.folder / name
        with tarfile.open(path, "w:gz") as archive:
            for file, data in files.items():
                item = tarfile.TarInfo(f"some-folder/{file}")
                item.size = len(data)
                archive.addfile(item, io.BytesIO(data))
        return path


@pytest.fixture
def cifar(tmp_path: Path) -> CifarMaker:
    return CifarMaker(tmp_path)


def encoded(colour: int | tuple[int, int, int], size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
    """Encode an image of one colour; a number gives a grey one."""
    from PIL import Image

    stream = io.BytesIO()
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(stream, kind)
    return stream.getvalue()


def write_parquet(
    file: Path,
    images: list[bytes | None],
    labels: list[int | None],
    *,
    image: str = "img",
    label: str = "label",
    names: list[str] | None = None,
    group: int = 3,
) -> Path:
    """Write a file as the Hugging Face hub has them, in small row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = pa.array(
        [{"bytes": data, "path": None} for data in images],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    table = pa.table({image: cells, label: pa.array(labels, pa.int64())})
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        table = table.replace_schema_metadata(metadata)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, row_group_size=group)
    return file


class Builders:
    """The functions above, for tests that cannot import a conftest."""

    encoded = staticmethod(encoded)
    write_parquet = staticmethod(write_parquet)
    python2_pickle = staticmethod(python2_pickle)
    python3_pickle = staticmethod(python3_pickle)
    cifar10_names = CIFAR10_NAMES


@pytest.fixture
def make() -> type[Builders]:
    return Builders
