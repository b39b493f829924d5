"""The final weights of runs under other codecs: every model of a cut with the codec of every run at that cut.

A finished run keeps its weights in `weights.safetensors`. They are evaluated on the test set with the run's
own codec, with none, and with those of the other usual runs at the same cut, and the scores are kept beside
them in `evaluations.json`. So the weights need not be at hand to draw the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from cutlayer.codecs import decode
from cutlayer.config.schema import Config
from cutlayer.data import Dataset, load
from cutlayer.errors import DataError, FileError, RecordError
from cutlayer.files import write_atomically
from cutlayer.models import ANY_MODEL
from cutlayer.protocol.build import make_task, prepare_model
from cutlayer.protocol.run_codecs import codec_of
from cutlayer.reproduce.further_policies import FURTHER
from cutlayer.reproduce.policies import canonical, long_run_policies, training_policies
from cutlayer.training import checkpoint
from cutlayer.training.load_run import describe, open_run, settings
from cutlayer.training.progress_bar import ProgressBar

WEIGHTS = "weights.safetensors"
EVALUATIONS = "evaluations.json"

Scores = dict[str, dict[str, Any]]
"""Codec to test accuracy, test loss, bytes of smashed data, and what these are as float32."""


def keep_weights(directory: Path) -> None:
    """Keep the whole model of the last checkpoint: the mean of the clients' halves, and the server's."""
    model = open_run(directory).model
    checkpoint.write(directory / WEIGHTS, model.state_dict(), {})


def read_scores(directory: Path) -> Scores:
    """The evaluations of a run so far."""
    path = directory / EVALUATIONS
    if not path.exists():
        return {}
    try:
        found: Scores = json.loads(path.read_text(encoding="utf-8"))
        return {spec: {**score, "accuracy": float(score["accuracy"])} for spec, score in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: is damaged ({error}); remove it, and it is made anew") from error


def evaluate_all(out: Path, *, root: str, bar: ProgressBar, threads: int = 1) -> int:
    """Evaluate all weights that runs have kept with all codecs of their cut; the number of new scores.

    What was evaluated before is not evaluated again.
    """
    torch.set_num_threads(threads)
    kept = sorted((out / "convergence" / "runs").glob(f"*/{WEIGHTS}"))
    configs = {path.parent: settings(path.parent) for path in kept}
    apart = _apart()
    usual: dict[tuple[str, ...], dict[str, None]] = {}
    for config in configs.values():
        of_place = usual.setdefault(_place(config), {"none": None})
        if _own(config) not in apart:
            of_place[_own(config)] = None
    wanted = {directory: {**usual[_place(c)], _own(c): None} for directory, c in configs.items()}
    missing = {
        directory: specs
        for directory, all_specs in wanted.items()
        if (specs := [spec for spec in all_specs if spec not in read_scores(directory)])
    }
    if missing:
        bar.begin(len(missing))
    try:
        for number, (directory, specs) in enumerate(missing.items()):
            bar.update(number, f"{directory.name}: test set with {len(specs)} codecs")
            found = read_scores(directory) | evaluate(directory, configs[directory], specs, root)
            write_atomically(directory / EVALUATIONS, json.dumps(found, indent=2) + "\n")
    finally:
        bar.close()
    return sum(map(len, missing.values()))


@torch.no_grad()
def evaluate(directory: Path, config: Config, specs: Sequence[str], root: str) -> Scores:
    """The kept weights of a run on its test set, with each of these codecs between the halves."""
    about = describe(directory, config)
    model, parts = prepare_model(config, about.placeholder_data().train, ANY_MODEL)
    model.load_state_dict(_weights(directory / WEIGHTS))
    client, server = (part.eval() for part in parts)
    test = _test_set(config.data.source, root, config.data.size, about.shape[0], config.data.limit)
    task, preprocess = make_task(config, test), about.preprocess().test
    codecs = {spec: codec_of(spec).deterministic() for spec in specs}
    totals = {spec: [0.0] * 4 for spec in specs}
    for first in range(0, len(test), config.train.evaluate_batch):
        span = slice(first, first + config.train.evaluate_batch)
        smashed, targets = client(preprocess(test.images[span])), test.labels[span]
        for spec, codec in codecs.items():
            frame = codec.encode(smashed)
            loss, right, _ = task.sums(server(decode(frame)), targets)
            for i, value in enumerate((right, loss, len(frame), 4 * smashed.numel())):
                totals[spec][i] += value
    return {
        spec: {
            "accuracy": t[0] / len(test),
            "loss": t[1] / len(test),
            "bytes": int(t[2]),
            "raw_bytes": int(t[3]),
        }
        for spec, t in totals.items()
    }


def _own(config: Config) -> str:
    """The codec that a run was trained with."""
    return canonical(config.codec.up)[0]


def _apart() -> set[str]:
    """The codecs of policies that are compared only when named: other models are not evaluated with them."""
    usual = [*training_policies(), *long_run_policies()]
    return {canonical(row.spec)[0] for row in FURTHER} - {canonical(row.spec)[0] for row in usual}


def _place(config: Config) -> tuple[str, ...]:
    return config.model.name, config.data.source, config.data.partition, str(config.model.cut)


def _weights(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise FileError(f"{path}: cannot be read ({error}); remove it, or train the run again") from error


@lru_cache(maxsize=1)
def _test_set(source: str, root: str, size: int | None, channels: int, limit: int | None) -> Dataset:
    test = load(source, "test", root=root, size=size, channels=channels, limit=limit)
    if not isinstance(test, Dataset):
        raise DataError(f"{source} has no images with classes in memory, which this evaluation needs")
    return test
