"""What the settings alone say about a model: whether it and its cut exist, and how large it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutlayer.commands.threads import needs_choice, use_threads
from cutlayer.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cutlayer.config.schema import Config
    from cutlayer.models import AllowedModels
    from cutlayer.split import Part

# What the paper feeds the built-in models; others get CIFAR's shape.
_INPUTS: dict[str, tuple[int, ...]] = {
    "resnet34": (3, 224, 224),
    "tiny": (1, 8, 8),
    "gpt": (128,),
    "mlp": (16,),
}


@dataclass(frozen=True)
class ForwardPass:
    """Multiply-adds of a forward pass of one sample, on each side of the cut."""

    client: float = 0.0
    server: float = 0.0


def usual_input(model: str) -> tuple[int, ...]:
    """The shape of one sample that a model usually gets."""
    return _INPUTS.get(model, (3, 32, 32))


def example(model: str, sample: tuple[int, ...], count: int = 1, device: str = "cpu") -> Tensor:
    """Samples of that shape to try a model on: random numbers, or tokens for a model that takes these."""
    import torch

    from cutlayer import models

    if model in models.MODELS and models.MODELS[model].takes == "tokens":
        return torch.zeros(count, *sample, dtype=torch.int64, device=device)
    if device == "meta":
        return torch.zeros(count, *sample, device=device)
    return torch.randn(count, *sample, generator=torch.Generator().manual_seed(0))


def build_for(
    model: str,
    sample: tuple[int, ...],
    width: int,
    classes: int,
    allowed: AllowedModels | None = None,
    options: Mapping[str, int] | None = None,
) -> nn.Module:
    """A model for samples of that shape. Without `allowed`, its name is this process's own user's."""
    from cutlayer import models

    allowed = allowed or models.ANY_MODEL
    if len(sample) != 3:
        row = {"context": sample[0], "in_channels": sample[0]} if len(sample) == 1 else {}
        return models.build(model, classes=classes, width=width, options=options, allowed=allowed, **row)
    return models.build(
        model,
        classes=classes,
        width=width,
        in_channels=sample[0],
        image_size=min(sample[1:]),
        options=options,
        allowed=allowed,
    )


def check_model(config: Config) -> None:
    """Raise if there is no such model or cut. Data need not be loaded for that.

    A user's own model is imported but not built, because only the data tell its number of classes.
    """
    from cutlayer.imports import import_by_name
    from cutlayer.models import cut_module

    name = config.model.name
    if ":" not in name:
        _parts(config, usual_input(name))
        return
    import_by_name(name, ModelError)
    for at in _cuts(config):
        cut_module(name, at)


def forward_pass(
    config: Config, sample: tuple[int, ...] | None = None, allowed: AllowedModels | None = None
) -> ForwardPass:
    """Count the work of a run's model; without the shape of a sample, for the one that it usually gets."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    try:
        sample = sample or usual_input(config.model.name)
        x = example(config.model.name, sample, device="meta")
        for part in _parts(config, sample, allowed):
            with torch.no_grad(), FlopCounterMode(display=False) as counter:
                x = part.eval()(x)
            counts.append(counter.get_total_flops() / 2)
    except Exception:  # a user's own model may refuse these samples, or tensors without values
        return ForwardPass()
    return ForwardPass(counts[0] + sum(counts[2:]), counts[1])


def threads_for_training(asked: int | None, config: Config, sample: tuple[int, ...] | None = None) -> None:
    """Set PyTorch's threads for the larger half of a run; over the network, for the server's half."""
    if not needs_choice(asked):
        use_threads(asked)
        return
    work = forward_pass(config, sample)
    server = work.server * config.train.batch_size
    if config.train.server_batching == "fused":
        server *= config.train.clients
    use_threads(asked, server if sample is None else max(server, work.client * config.train.batch_size))


def threads_for_inference(
    asked: int | None,
    config: Config,
    sample: tuple[int, ...],
    batch: int,
    allowed: AllowedModels | None = None,
) -> None:
    """Set PyTorch's threads for forward passes of a whole model."""
    if not needs_choice(asked):
        use_threads(asked)
        return
    work = forward_pass(config, sample, allowed)
    use_threads(asked, (work.client + work.server) * batch)


def _cuts(config: Config) -> tuple[str, ...]:
    return (config.model.cut,) if isinstance(config.model.cut, str) else config.model.cut


def _parts(config: Config, sample: tuple[int, ...], allowed: AllowedModels | None = None) -> tuple[Part, ...]:
    """The parts of a run's model without values: shapes and counts need none."""
    from cutlayer.models import cut_module
    from cutlayer.split import cut

    name = config.model.name
    model = build_for(name, sample, config.model.width, 10, allowed, config.model.options).to("meta")
    modules = [cut_module(name, at) for at in _cuts(config)]
    return cut(model, modules[0]) if len(modules) == 1 else cut(model, (modules[0], modules[1]))
