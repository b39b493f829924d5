"""Which transform of `ems` is best on a slow link: encode, send and decode, at the error of `ms`.

    python benchmarks/ems_link.py --root ~/data           print the table
    python benchmarks/ems_link.py --root ~/data --save    and write it to benchmarks/results/ems_link.json

Feature maps of trained models at the three cuts (benchmarks/maps.py): sixteen samples, which is what a client
sends, and all of them. Each is encoded with the relative squared error of `ms:ratio=0.99,bits=2,
rounding=nearest`. A transform's time is the CPU time of encoding and decoding with one thread, and the time
of its bytes on a link of --mbit megabits a second. Nothing passes or fails.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from maps import feature_maps  # type: ignore[import-not-found]
from torch import Tensor

import cutlayer
from cutlayer.split import relative_error
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "ems_link.json"
MS = "ms:ratio=0.99,bits=2,rounding=nearest"
TRANSFORMS = ("none", "dct", "auto")
ROUNDS = 5


def milliseconds(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least CPU time of each; all take turns, as a machine's speed changes within seconds."""
    found = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            started = time.process_time()
            work()
            found[name] = min(found[name], 1e3 * (time.process_time() - started))
    return found


def measure(x: Tensor, megabits: float) -> dict[str, Any]:
    """Bits, encoding, decoding and link time of each transform."""
    error = relative_error(x, cutlayer.decode(cutlayer.codec(MS).encode(x)))
    codecs = {t: cutlayer.codec(f"ems:error={error:.7f},transform={t}") for t in TRANSFORMS}
    frames, out = {t: codec.encode(x) for t, codec in codecs.items()}, torch.empty_like(x)
    encode = milliseconds({t: partial(codec.encode, x) for t, codec in codecs.items()})
    decode = milliseconds({t: partial(cutlayer.decode, frame, out=out) for t, frame in frames.items()})
    row: dict[str, Any] = {"error": error}
    for t, frame in frames.items():
        link = 8e-3 * len(frame) / megabits
        row[t] = {
            "bpe": 8 * len(frame) / x.numel(),
            "encode_ms": encode[t],
            "decode_ms": decode[t],
            "link_ms": link,
            "all_ms": encode[t] + decode[t] + link,
        }
    return row


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--maps", type=Path, default=Path("maps"), help="where maps are kept")
    parser.add_argument("--mbit", type=float, default=20.0, help="megabits a second of the link")
    parser.add_argument("--save", action="store_true", help=f"write benchmarks/results/{RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    print("| map, samples | bits: none, dct, auto | encode, ms | decode, ms | with the link, ms | best |")
    print("|---|---|---|---|---|---|")
    for (data, at), x in feature_maps(options.root, options.maps).items():
        for samples in (16, len(x)):
            row = rows[f"{data} {at} {samples}"] = measure(x[:samples].contiguous(), options.mbit)
            shown = [
                ", ".join(f"{row[t][figure]:.{digits}f}" for t in TRANSFORMS)
                for figure, digits in (("bpe", 3), ("encode_ms", 1), ("decode_ms", 1), ("all_ms", 1))
            ]
            best = min(TRANSFORMS, key=lambda t: row[t]["all_ms"])
            print(f"| {data} {at}, {samples} | {' | '.join(shown)} | {best} |", flush=True)
    if options.save:
        content = {"provenance": provenance(0), "mbit": options.mbit, "rows": rows}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
