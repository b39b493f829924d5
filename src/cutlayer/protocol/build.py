"""From a configuration to what both ends derive from it alike: data, models, plan, codecs, optimizers.

The training core takes these plain values; here, and in `training` and `client`, is where settings end.
"""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from cutlayer.config.schema import Config, TrainConfig
from cutlayer.data import Augment, Dataset, load_both, partition
from cutlayer.data.federated import FederatedData
from cutlayer.errors import ConfigError
from cutlayer.models import AllowedModels, build, cut_module
from cutlayer.protocol.device import resolve_device
from cutlayer.protocol.plan import LearningRate, Plan
from cutlayer.protocol.run_codecs import RunCodecs, codec_of
from cutlayer.split import Part, cut
from cutlayer.split.client import ClientHalf, ClientModel, MakeOptimizer
from cutlayer.split.server import ServerHalf
from cutlayer.split.update import UpdateRule
from cutlayer.tasks.base import Task
from cutlayer.tasks.classification import Classification


def prepare_data(config: Config) -> FederatedData:
    """Load both splits and share the training samples among the clients."""
    resolve_device(config.train.device)  # before anything is loaded
    settings = config.data
    train, test = load_both(
        settings.source,
        root=settings.root,
        size=settings.size,
        limit=settings.limit,
        cache_dir=settings.cache_dir,
    )
    parts = partition(settings.partition, train.labels, config.train.clients, config.seed)
    return FederatedData(train, test, Augment.of(train, settings.augment), parts)


def prepare_model(
    config: Config, train: Dataset, allowed: AllowedModels | None = None
) -> tuple[nn.Module, tuple[Part, ...]]:
    """Build the model for these data and cut it: the whole, and its parts, which share its weights.

    Only a caller whose settings are its own user's may allow any model: see `AllowedModels`.
    """
    shape = train.shape
    model = build(
        config.model.name,
        classes=train.classes,
        width=config.model.width,
        in_channels=shape[0],
        image_size=shape[-1],
        seed=config.seed,
        allowed=allowed,
    )
    model = model.to(resolve_device(config.train.device))
    if config.model.layout == "channels_last":
        # Convolutions follow the layout of their weights, whatever their input has.
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    at = config.model.cut
    if isinstance(at, str):
        return model, cut(model, cut_module(config.model.name, at))
    return model, cut(model, (cut_module(config.model.name, at[0]), cut_module(config.model.name, at[1])))


def make_task(train: Dataset) -> Task:
    """What the model is trained for."""
    return Classification(train.classes)


def make_plan(train: TrainConfig, samples: Sequence[int]) -> Plan:
    """All steps of a run whose clients have so many samples."""
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
    return train.clients > 1 and train.sync == "step" and train.mode != "relay"


def make_client(config: Config, parts: tuple[Part, ...], given: MakeOptimizer | None = None) -> ClientHalf:
    """The half of one client that has a model of its own."""
    make = optimizer_maker(config.train, given)
    return ClientHalf(ClientModel((parts[0], *parts[2:]), make, update_rule(config.train)))


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
) -> ServerHalf:
    """The server's half; `guarded` where clients are not trusted."""
    return ServerHalf(
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
    rule = update_rule(config.train)
    return [first, *(ClientHalf(ClientModel(copy.deepcopy(own), make, rule)) for _ in others)]
