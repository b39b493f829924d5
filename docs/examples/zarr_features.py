"""Smashed data on disk: a Zarr array whose chunks are frames of a codec, read back chunk by chunk.

python docs/examples/zarr_features.py
"""

import tempfile
from pathlib import Path

import numpy as np
import zarr

from cutlayer.integrations.zarr_codec import FrameCodec, FrameSerializer, register

register()
draw = np.random.default_rng(0)
maps = np.maximum(draw.standard_normal((64, 16, 8, 8), dtype=np.float32), 0)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "maps.zarr")
    serializer = FrameSerializer("ems:bpe=4.0")
    zarr.create_array(path, data=maps, chunks=(16, 16, 8, 8), serializer=serializer, compressors=None)
    size = sum(file.stat().st_size for file in path.rglob("c/**/*") if file.is_file())
    print(f"Zarr 3: {maps.nbytes / size:.1f} times smaller")
    found = zarr.open_array(path)[16:32]
    print(f"relative squared error {((found - maps[16:32]) ** 2).sum() / (maps[16:32] ** 2).sum():.3f}")

    old = Path(folder, "old.zarr")
    written = zarr.create_array(
        old,
        shape=maps.shape,
        chunks=(16, 16, 8, 8),
        dtype="f4",
        zarr_format=2,
        compressors=FrameCodec("qu:bits=8"),
    )
    written[:] = maps
    print("Zarr 2: largest error", round(float(np.abs(zarr.open_array(old)[:] - maps).max()), 3))
