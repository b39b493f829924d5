"""The plainest rival of split learning: send each image once, as a JPEG, and train at the server.

    python benchmarks/jpeg.py --root DATA            print the tables
    python benchmarks/jpeg.py --root DATA --save     and write them to benchmarks/results/jpeg.json

The first table has the mean size of a training image of CIFAR-10: as it is in the Parquet file, encoded
again at two qualities, and as PNG. The second has the bytes of a whole training: smashed data of the testbed
at each cut and rate, epoch after epoch, and after how many epochs they exceed the images sent once. Nothing
is trained: an element costs the bits that the policy is named for.
"""

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image

from cutlayer.config import recipes
from cutlayer.config.schema import from_mapping
from cutlayer.data.spec import DataSpec
from cutlayer.protocol.build import prepare_data, prepare_model
from cutlayer.protocol.tensor_forms import elements_of, forms_at_cuts
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "jpeg.json"
#: Bits an element of smashed data, up, and of their gradients, down.
POLICIES = {
    "none": (32.0, 32.0),
    "MS(0.99, 2)": (2.32, 32.0),
    "EMS(1)": (1.0, 32.0),
    "EMS(0.32)": (0.32, 32.0),
    "EMS(0.32), all ways": (0.32, 1.6),
    "EMS(0.1)": (0.1, 32.0),
}


def image_sizes(folder: Path, every: int) -> dict[str, float]:
    """The mean bytes of an image, in each form; encoded again, of each so many."""
    totals: dict[str, list[int]] = {
        "as stored": [],
        "JPEG, quality 75": [],
        "JPEG, quality 90": [],
        "PNG": [],
    }
    for path in sorted(folder.glob("train-*.parquet")):
        for number, row in enumerate(pq.read_table(path, columns=["img"])["img"].to_pylist()):
            stored = row["bytes"]
            totals["as stored"].append(len(stored))
            if number % every:
                continue
            image = Image.open(io.BytesIO(stored)).convert("RGB")
            for name, how in (
                ("JPEG, quality 75", {"format": "JPEG", "quality": 75}),
                ("JPEG, quality 90", {"format": "JPEG", "quality": 90}),
                ("PNG", {"format": "PNG", "optimize": True}),
            ):
                totals[name].append(encoded_size(image, how))
    return {name: sum(sizes) / len(sizes) for name, sizes in totals.items()}


def encoded_size(image: Image.Image, how: dict[str, Any]) -> int:
    """Bytes of an image in a file."""
    file = io.BytesIO()
    image.save(file, **how)
    return file.tell()


def elements(root: str, cut: str) -> tuple[int, int]:
    """Elements of one image's smashed data in the testbed, and its epochs."""
    settings = recipes.recipe(f"testbed/airbench-cifar10-{cut}-none")
    settings["data"] |= {"root": root, "limit": 100}
    config = from_mapping(settings)
    data = prepare_data(config)
    parts = prepare_model(config, data.train)[1]
    return elements_of(forms_at_cuts(DataSpec.of(data), parts)[0]), config.train.epochs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(), help="where CIFAR-10 lies")
    parser.add_argument("--every", type=int, default=10, help="encode each so many images again")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    sizes = image_sizes(arguments.root / "cifar10", arguments.every)
    for name, mean in sizes.items():
        print(f"{name:20} {mean:8.0f} bytes an image, {mean * arguments.images / 1e6:8.1f} MB for all, once")
    jpeg, rows = sizes["as stored"], []
    print(f"\n{'cut':8} {'policy':22}{'bytes up':>10}{'GB up':>9}{'GB up, down':>13}{'epochs for JPEG':>17}")
    for cut in recipes.CUTS:
        count, epochs = elements(str(arguments.root), cut)
        for policy, (up, down) in POLICIES.items():
            each = count * up / 8
            row = {
                "cut": cut,
                "policy": policy,
                "elements": count,
                "epochs": epochs,
                "bytes_up_a_visit": each,
                "gigabytes_up": each * epochs * arguments.images / 1e9,
                "gigabytes_up_and_down": (each + count * down / 8) * epochs * arguments.images / 1e9,
                "epochs_until_jpeg": jpeg / each,
            }
            rows.append(row)
            print(
                f"{cut:8} {policy:22}{each:10.0f}{row['gigabytes_up']:9.3f}"
                f"{row['gigabytes_up_and_down']:13.3f}{row['epochs_until_jpeg']:17.2f}"
            )
    if arguments.save:
        content = {"image_bytes": sizes, "images": arguments.images, "every": arguments.every, "rows": rows}
        RESULTS.write_text(json.dumps(content | {"provenance": provenance(0)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
