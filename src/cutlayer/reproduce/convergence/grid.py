"""The grid of the convergence experiment: one training run for each task, cut, policy and seed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutlayer.config import recipes
from cutlayer.config.recipes import CUTS
from cutlayer.config.schema import Config, from_mapping
from cutlayer.errors import ConfigError
from cutlayer.reproduce.policies import (
    ALL_LONGER,
    ALL_THIRTIETH,
    ALL_WAYS,
    HUNDREDTH,
    LONGER,
    NONE_LONGER,
    OURS,
    OURS_LONGER,
    RISING,
    Policy,
)

#: The paper's clients are connected by a wireless network of this rate.
LINK = "100mbit"

#: How many points of its loss curve a finished run keeps.
CURVE_POINTS = 100


#: What a policy is called on the command line and in the names of directories; others by their codec.
SHORT = {
    "none": "none",
    "QU(3)": "qu",
    "SP(0.95875)": "sp",
    "MS(0.99, 2)": "ms",
    "MS(0.99, 2) nearest": "ms-nearest",
    "RT(0.95875)": "rt",
    OURS.label: "ems",
    RISING.label: "ems-rising",
    ALL_WAYS.label: "ems-all",
    NONE_LONGER.label: "none-longer",
    OURS_LONGER.label: "ems-1-longer",
    LONGER.label: "ems-longer",
    ALL_LONGER.label: "ems-all-longer",
    HUNDREDTH.label: "ems-100x",
    ALL_THIRTIETH.label: "all-30x",
}


Overrides = Mapping[str, Mapping[str, Any]]
"""Settings that a task changes in its recipe, by section."""


@dataclass(frozen=True)
class Task:
    """A model and its data, as a recipe without cut and policy."""

    name: str
    recipe: str
    """The recipe's name up to the cut."""
    overrides: Overrides
    checkpoint_every: int
    """Steps: what a kill may cost."""
    default: bool = True
    """Whether it is trained where no tasks are named."""


def _airbench(overrides: Overrides, checkpoint_every: int, tiny: Overrides | None = None) -> tuple[Task, ...]:
    """All images of CIFAR-10, and the data sets that are trained only when they are named.

    `tiny`: what Tiny-ImageNet-50 has instead of `overrides`.
    """
    recipe = "testbed/airbench-cifar10"
    # Clients with few images of most classes.
    dirichlet = {"data": {"partition": "dirichlet:alpha=0.3"}}
    # Half as many images, of fifty classes.
    images = {"data": {"source": "parquet:tiny-imagenet-50", "size": 32}}
    return (
        Task("airbench-cifar10", recipe, overrides, checkpoint_every),
        Task("airbench-cifar10-dirichlet", recipe, {**overrides, **dirichlet}, checkpoint_every, False),
        Task("airbench-tiny-imagenet-50", recipe, {**(tiny or overrides), **images}, checkpoint_every, False),
    )


TASKS: dict[str, tuple[Task, ...]] = {
    "smoke": (
        Task(
            "tiny-digits",
            "demo/digits",
            {"model": {"width": 4}, "data": {"limit": 200}, "train": {"epochs": 2, "clients": 2}},
            4,
        ),
    ),
    "laptop": (
        # The test split has 10,000 images, so the limit leaves it whole.
        Task(
            "resnet18-cifar10",
            "laptop/resnet18-cifar10",
            {"model": {"layout": "channels_last"}, "data": {"limit": 25_000}},
            50,
        ),
    ),
    # All images, two minutes a run: what a policy costs shows with many seeds, not with one.
    "proxy": _airbench(
        {"model": {"width": 16}, "train": {"epochs": 3, "warmup_epochs": 0.6}},
        100,
        # Three epochs of so few images would be 150 steps.
        tiny={"model": {"width": 16}, "train": {"epochs": 10, "warmup_epochs": 2}},
    ),
    # Trained to the end: a model and a schedule that are made for it.
    "testbed": _airbench({}, 50),
    "paper": tuple(
        Task(name, f"paper/{name}", {}, 500)
        for name in ("vgg19-cifar10", "resnet18-cifar100", "resnet34-imagenet")
    ),
}


@dataclass(frozen=True)
class Run:
    """One run of the experiment."""

    task: str
    cut: str
    policy: Policy
    seed: int
    config: Config

    @property
    def directory(self) -> Path:
        """Where the run is."""
        return Path(self.config.output.dir)


def grid(
    scale: str,
    out: Path,
    policies: Sequence[Policy],
    *,
    root: str = ".",
    cuts: Sequence[str] = CUTS,
    seeds: Sequence[int] = (0,),
    tasks: Sequence[str] = (),
) -> list[Run]:
    """The chosen runs in order of execution: all policies of a cut before the next cut."""
    _all_known("task", tasks, [task.name for task in TASKS[scale]])
    _all_known("cut", cuts, CUTS)
    usual = [task for task in TASKS[scale] if task.default]
    chosen = [task for task in TASKS[scale] if task.name in tasks] if tasks else usual
    return [
        _run(task, cut, policy, seed, root, out / "convergence" / "runs", [task] != usual)
        for task in chosen
        for seed in dict.fromkeys(seeds)
        for cut in CUTS
        if cut in cuts
        for policy in policies
    ]


def choose(policies: Sequence[Policy], names: Sequence[str]) -> list[Policy]:
    """The policies with these short names; without names, all."""
    by_name = {short(policy): policy for policy in policies}
    _all_known("policy", names, by_name)
    return [policy for name, policy in by_name.items() if not names or name in names]


def short(policy: Policy) -> str:
    """The policy's name for use in a file name."""
    return policy.name or SHORT.get(policy.label) or re.sub(r"[^A-Za-z0-9.]+", "-", policy.spec).strip("-.")


def _run(task: Task, cut: str, policy: Policy, seed: int, root: str, runs: Path, named: bool) -> Run:
    """The run; `named`: its directory tells the task, too."""
    name = f"{cut}-{short(policy)}-s{seed}"
    directory = runs / (f"{task.name}-{name}" if named else name)
    demo = task.recipe.startswith("demo/")
    settings = recipes.recipe(f"{task.recipe}-dense" if demo else f"{task.recipe}-{cut}-none")
    for section, values in task.overrides.items():
        settings[section] |= values
    settings["seed"] = seed
    settings["model"]["cut"] = cut
    settings["data"]["root"] = root
    # A checkpoint with a memory of all samples has gigabytes.
    settings["train"]["checkpoint_every"] = task.checkpoint_every * (1 if policy.memory == "none" else 8)
    # At least one more, however short the run.
    settings["train"]["epochs"] = math.ceil(round(policy.stretch * settings["train"]["epochs"], 6))
    settings["train"] |= {"sync": policy.sync_every, "share_differences": policy.differences}
    settings["codec"] |= {"up": policy.spec, "down": policy.down, "sync": policy.sync, "rate": policy.rate}
    settings["codec"] |= {"memory": policy.memory, "commitment": policy.commitment}
    settings["link"] = {"spec": LINK}
    settings["output"] = {"dir": str(directory), "keep": 1, "tensorboard": False}
    return Run(task.name, cut, policy, seed, from_mapping(settings, directory.name))


def _all_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"there is no {what} {name!r} at this scale; choose from {', '.join(known)}")
