"""From a configuration to what both ends derive from it alike: data, models, plan, codecs, optimizers.

The training core takes these plain values; here, and in `training` and `client`, is where settings end.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.config.schema import Config
from cutlayer.config.sections import TrainConfig
from cutlayer.data import Augment, DataForm, DataSource, load_both, partition_data
from cutlayer.data.federated import FederatedData
from cutlayer.errors import ConfigError, ModelError
from cutlayer.models import MODELS, AllowedModels, build, cut_module
from cutlayer.protocol.device import resolve_device
from cutlayer.protocol.plan import LearningRate, Plan
from cutlayer.protocol.run_codecs import RunCodecs, codec_of
from cutlayer.split import Part, cut
from cutlayer.split.client import ClientHalf, ClientModel, MakeOptimizer
from cutlayer.split.server import ServerHalf
from cutlayer.split.tensors import apply_to_inputs
from cutlayer.split.weights import UpdateRule
from cutlayer.tasks import AllowedTasks, Target, Task
from cutlayer.tasks import build as build_task

# What the target columns of a table are to each task.
_TARGET_KINDS = {"classification": "classes", "multilabel": "bits", "regression": "floats"}


# What built-in models take: in words, and as dtypes and dimensions.
_TAKES = {
    "images": ("images [C, H, W]", ("uint8", "float32"), 3),
    "tokens": ("sequences of tokens [T]", ("int64",), 1),
    "features": ("rows of float features [F]", ("float32",), 1),
}


def load_settings(config: Config) -> dict[str, Any]:
    """The settings of `load` that follow from those of a run, wherever the data are."""
    settings = config.data
    target = settings.target
    ignore = config.task.options.get("ignore")
    return {
        "size": settings.size,
        "target": () if target is None else (target,) if isinstance(target, str) else target,
        "features": settings.features or (),
        "target_kind": _TARGET_KINDS.get(config.task.name, "auto"),
        "tokens": settings.tokens,
        "context": settings.context,
        "classes": settings.classes,
        "ignore": ignore if isinstance(ignore, int) else None,
    }


def prepare_data(config: Config) -> FederatedData:
    """Load both splits and share the training samples among the clients."""
    resolve_device(config.train.device)  # before anything is loaded
    settings = config.data
    train, test = load_both(
        settings.source,
        root=settings.root,
        limit=settings.limit,
        cache_dir=settings.cache_dir,
        lazy=settings.lazy,
        **load_settings(config),
    )
    return federate(config, train, test)


def federate(config: Config, train: DataSource, test: DataSource) -> FederatedData:
    """Share the training samples among the clients of a run."""
    parts = partition_data(config.data.partition, train, config.train.clients, config.seed)
    return FederatedData(train, test, Augment.of(train, config.data.augment), parts)


def prepare_model(
    config: Config, train: DataSource, allowed: AllowedModels | None = None
) -> tuple[nn.Module, tuple[Part, ...]]:
    """Build the model for these data and cut it: the whole, and its parts, which share its weights.

    Only a caller whose settings are its own user's may allow any model: see `AllowedModels`.
    """
    shape, form = train.shape, train.form
    _check_takes(config.model.name, form)
    model = build(
        config.model.name,
        classes=form.outputs,
        width=config.model.width,
        in_channels=shape[0],
        image_size=shape[-1],
        context=shape[0],
        vocabulary=max(tensor.values for tensor in form.inputs),
        options=config.model.options,
        seed=config.seed,
        allowed=allowed,
    )
    model = model.to(resolve_device(config.train.device))
    if config.model.layout == "channels_last":
        # Convolutions follow the layout of their weights, whatever their input has.
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    at, example = config.model.cut, apply_to_inputs(_as_input, form.zeros(2)[0])
    if isinstance(at, str):
        parts: tuple[Part, ...] = cut(model, cut_module(config.model.name, at), example=example)
    else:
        ends = (cut_module(config.model.name, at[0]), cut_module(config.model.name, at[1]))
        parts = cut(model, ends, example=example)
    _check_tensors(config, parts)
    return model, parts


def _as_input(stored: Tensor) -> Tensor:
    """Two samples of the form that the model takes; pixels come to it as floats."""
    dtype = torch.float32 if stored.dtype == torch.uint8 else stored.dtype
    return torch.zeros(2, *stored.shape[1:], dtype=dtype)


def _check_tensors(config: Config, parts: tuple[Part, ...]) -> None:
    """Codecs of single tensors are for tensors that there are."""
    names = {name for part in parts[1:] for name in part.inputs if len(part.inputs) > 1}
    unknown = [name for name in config.codec.tensors if name not in names]
    if unknown:
        there = f"there are: {', '.join(sorted(names))}" if names else "one tensor crosses, under codec.up"
        raise ConfigError(f"codec.tensors: no tensor {unknown[0]!r} crosses the cut; {there}")


def _check_takes(name: str, form: DataForm) -> None:
    """Raise ModelError if a built-in model takes other samples than these."""
    if name not in MODELS:
        return
    words, dtypes, dimensions = _TAKES[MODELS[name].takes]
    first = form.inputs[0]
    if len(form.inputs) > 1 or first.dtype not in dtypes or len(first.shape) != dimensions:
        given = ", ".join(tensor.describe() for tensor in form.inputs)
        raise ModelError(
            f"{name} takes {words}, but samples are {given}. Choose another model, or give your own as "
            "package.module:factory"
        )


def make_task(config: Config, train: DataSource, allowed: AllowedTasks | None = None) -> Task:
    """What the model is trained for: as the settings say, or what the data suggest.

    Only a caller whose settings are its own user's may allow any task: see `AllowedTasks`.
    """
    return build_task(config.task.name, target_of(train.form), config.task.options, allowed)


def target_of(form: DataForm) -> Target:
    """The form of targets, as tasks see it."""
    target = form.target
    if target.dtype == "float32":
        return Target("floats", target.shape)
    bits = target.dtype == "bool"
    first = form.inputs[0]
    sequence = first.dtype == "int64" and first.shape == target.shape
    return Target("integers", target.shape, 2 if bits else target.values, bits, sequence)


def make_plan(train: TrainConfig, samples: Sequence[int], seed: int = 0) -> Plan:
    """All steps of a run whose clients have so many samples. `seed` draws those who take part."""
    lr = LearningRate(
        train.lr,
        train.epochs,
        train.schedule,
        train.milestones,
        train.gamma,
        train.period,
        train.warmup_epochs,
    )
    return Plan(
        samples,
        batch_size=train.batch_size,
        epochs=train.epochs,
        lr=lr,
        mode=train.mode,
        sync=train.sync,
        drop_last=train.drop_last,
        differences=train.share_differences,
        clients_per_step=train.clients_per_step,
        seed=seed,
        arrivals=train.arrivals,
    )


def make_codecs(
    config: Config,
    vector_sizes: tuple[int, int] | None = None,
    max_elements: int | None = None,
    *,
    of_others: bool = False,
) -> RunCodecs:
    """The codecs of a run. The sizes are known to whoever has the model: see `RunCodecs`.

    `of_others`: frames come from other parties, whose numbers are bounded.
    """
    up, down, sync = (codec_of(spec) for spec in (config.codec.up, config.codec.down, config.codec.sync))
    return RunCodecs(
        up,
        down,
        sync,
        config.seed,
        error_feedback=config.codec.feedback,
        measure_error=config.codec.measure,
        max_elements=max_elements,
        vector_sizes=vector_sizes,
        max_value=config.robust.max_value if of_others else None,
        tensors={name: codec_of(spec) for name, spec in config.codec.tensors.items()},
        remembers=config.codec.memory != "none",
        commitment=config.codec.commitment,
        device=resolve_device(config.train.device),
    )


def optimizer_maker(train: TrainConfig, given: MakeOptimizer | None = None) -> MakeOptimizer:
    """What makes the optimizer of a half. The learning rate is set anew at each step."""
    if given is not None:
        return given
    if train.optimizer == "object":
        raise ConfigError(
            "train.optimizer: the optimizer of this run was given as a Python object; give it again, with "
            "optimizer=..."
        )

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        if train.optimizer == "adamw":
            return torch.optim.AdamW(parameters, lr=train.lr, weight_decay=train.weight_decay)
        return torch.optim.SGD(
            parameters,
            lr=train.lr,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
            nesterov=train.nesterov,
        )

    return make


def update_rule(train: TrainConfig) -> UpdateRule:
    """What both halves do to gradients."""
    return UpdateRule(train.clip_gradient, train.accumulate, getattr(torch, train.precision))


def shares_model(train: TrainConfig) -> bool:
    """Whether all clients hold the same weights at every step, so that one process needs them once."""
    return train.clients > 1 and train.sync == "step" and train.mode not in ("relay", "async")


def make_client(config: Config, parts: tuple[Part, ...], given: MakeOptimizer | None = None) -> ClientHalf:
    """The half of one client that has a model of its own."""
    model = ClientModel(
        (parts[0], *parts[2:]), optimizer_maker(config.train, given), update_rule(config.train)
    )
    return ClientHalf(model, differences=config.train.share_differences)


def vector_sizes(half: ClientHalf) -> tuple[int, int]:
    """How many elements a client's vector of gradients or weights has, and that of its buffers."""
    return sum(p.numel() for p in half.model.parameters), half.buffer_vector().numel()


def make_server(
    config: Config,
    parts: tuple[Part, ...],
    task: Task,
    *,
    guarded: bool = False,
    given: MakeOptimizer | None = None,
    kind: Callable[..., ServerHalf] = ServerHalf,
) -> ServerHalf:
    """The server's half; `guarded` where clients are not trusted. `kind` is another class of it."""
    return kind(
        parts[1],
        optimizer_maker(config.train, given),
        task,
        clip_gradient=config.robust.clip_gradient,
        guarded=guarded,
        rule=update_rule(config.train),
    )


def make_clients(
    config: Config, parts: tuple[Part, ...], given: MakeOptimizer | None = None
) -> list[ClientHalf]:
    """The halves of all clients in one process."""
    first = make_client(config, parts, given)
    if shares_model(config.train):
        return [ClientHalf(first.model, shared=True) for _ in range(config.train.clients)]
    own, make = first.model.parts, optimizer_maker(config.train, given)
    others = range(1, config.train.clients)
    rule, differences = update_rule(config.train), config.train.share_differences
    copies = (ClientModel(copy.deepcopy(own), make, rule) for _ in others)
    return [first, *(ClientHalf(model, differences=differences) for model in copies)]
