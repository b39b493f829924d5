"""Test accuracy of finished runs when each image is tested as it is and mirrored, as airbench does.

    python benchmarks/mirrored.py --root DATA RUN [RUN ...]           print a table
    python benchmarks/mirrored.py --root DATA RUN [RUN ...] --save    and write results/mirrored.json
    python benchmarks/mirrored.py --root DATA RUN [RUN ...] --save mirrored-2.json       or this file there

A RUN is a folder of `cutlayer reproduce convergence` with its `weights.safetensors`. Smashed data of both
images go through the run's own codec. The probabilities of the two are averaged, so a prediction costs twice
the traffic. The other tables test each image once.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from cutlayer.codecs import decode
from cutlayer.data import Dataset, load
from cutlayer.models import ANY_MODEL
from cutlayer.protocol.build import prepare_model
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.training.load_run import describe, settings
from cutlayer.training.provenance import provenance

RESULTS = Path(__file__).parent / "results"


@torch.no_grad()
def accuracies(directory: Path, root: str) -> dict[str, Any]:
    """Per cent of right answers: of images as they are, and with their mirror images."""
    config = settings(directory)
    about = describe(directory, config)
    model, parts = prepare_model(config, about.placeholder_data().train, ANY_MODEL)
    model.load_state_dict(safetensors.torch.load_file(directory / "weights.safetensors"))
    client, server = (part.eval() for part in parts)
    codec, preprocess = codec_of(config.codec.up).deterministic(), about.preprocess().test
    test = load(config.data.source, "test", root=root, size=config.data.size)
    if not isinstance(test, Dataset):
        raise SystemExit(f"{directory}: images that are read as needed are not supported")
    once = twice = 0
    for first in range(0, len(test), config.train.evaluate_batch):
        span = slice(first, first + config.train.evaluate_batch)
        images, labels = preprocess(test.images[span]), test.labels[span]
        plain, mirrored = (
            server(decode(codec.encode(client(form)))).softmax(1) for form in (images, images.flip(3))
        )
        once += int((plain.argmax(1) == labels).sum())
        twice += int(((plain + mirrored).argmax(1) == labels).sum())
    return {
        "run": directory.name,
        "width": config.model.width,
        "epochs": config.train.epochs,
        "once": 100 * once / len(test),
        "mirrored": 100 * twice / len(test),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--root", default=".", help="where the images lie")
    parser.add_argument("--save", nargs="?", const="mirrored.json", metavar="NAME", help="write results/NAME")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = [accuracies(run, arguments.root) for run in arguments.runs]
    print(f"{'run':32}{'width':>6}{'epochs':>8}{'once, %':>10}{'mirrored, %':>13}")
    for row in found:
        print("{run:32}{width:>6}{epochs:>8}{once:>10.2f}{mirrored:>13.2f}".format(**row))
    if arguments.save:
        text = json.dumps({"provenance": provenance(0), "runs": found}, indent=2)
        (RESULTS / arguments.save).write_text(text + "\n")


if __name__ == "__main__":
    main()
