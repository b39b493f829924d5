"""The configuration of a run: one TOML file, checked as a whole before anything starts."""

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from cutlayer.codecs import codec
from cutlayer.config.explain import explain
from cutlayer.config.toml import overridden, parse_overrides, read_toml, to_toml
from cutlayer.data.partition import PARTITIONS
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.rates.adaptive import RateBounds
from cutlayer.rates.ladder import FAMILIES, ladder
from cutlayer.rates.scheduled import RateSchedule, fixed_or_scheduled
from cutlayer.tasks.registry import AUTO, TASKS
from cutlayer.wire.link.model import parse_links

Count = Annotated[int, Field(ge=1, strict=True)]
Natural = Annotated[int, Field(ge=0, strict=True)]
Real = Annotated[float, Field(allow_inf_nan=False, strict=True)]


def _codec(spec: str) -> str:
    if spec in ("none", ""):
        return "none"
    try:
        return str(codec(spec))
    except CutlayerError as error:
        raise ValueError(str(error)) from None


def _link(spec: str) -> str:
    try:
        return "; ".join(map(str, parse_links(spec))) or "none"
    except CutlayerError as error:
        raise ValueError(str(error)) from None


_RATES: dict[str, type[RateBounds | RateSchedule]] = {"auto": RateBounds, "until": RateSchedule}


def _rate(spec: str) -> str:
    try:
        if spec in ("fixed", ""):
            return "fixed"
        kind = spec.partition(":")[0].strip()
        if kind not in _RATES:
            raise ValueError(
                f"the rate {spec!r} is not understood; use fixed, auto or auto:min=1,max=8,share=1 to "
                "follow the link, or until:80%=0.5 to begin with other bits"
            )
        return str(_RATES[kind].parse(spec))
    except CutlayerError as error:
        raise ValueError(str(error)) from None


def _partition(spec: str) -> str:
    if spec.partition(":")[0] not in PARTITIONS:
        raise ValueError(f"no partition {spec!r}; choose from {', '.join(PARTITIONS)}")
    return spec


def _task(name: str) -> str:
    # Installed packages may offer others; a name that is nearly that of a built-in task is a slip.
    near = difflib.get_close_matches(name, TASKS, 1)
    if name != AUTO and name not in TASKS and near:
        raise ValueError(f"no task {name!r}; did you mean {near[0]!r}? Your own is package.module:Task")
    return name


def _name(value: Any) -> Any:
    """Children of an nn.Sequential are named 0, 1, ...: on a command line these look like numbers."""
    return str(value) if type(value) is int else value


Name = Annotated[str, BeforeValidator(_name)]
CodecSpec = Annotated[str, AfterValidator(_codec)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(_Section):
    """Which model, and where it is cut."""

    name: str = "tiny"
    cut: Name | tuple[Name, Name] = "medium"
    """shallow, medium, deep or a module's name; two names (head's end, tail's begin) for u-shaped."""
    width: Count = 16
    layout: Literal["channels_first", "channels_last"] = "channels_first"
    """How convolutions keep images in memory; channels_last trains a third faster on many processors."""
    blocks: Count | None = None
    """gpt and vit: how many transformer blocks; mlp: how many layers before the last."""
    heads: Count | None = None
    """gpt and vit: how many heads share the width."""
    patch: Count | None = None
    """vit: the side of a patch."""

    @property
    def options(self) -> dict[str, int]:
        """The options of the model that were given."""
        given = {"blocks": self.blocks, "heads": self.heads, "patch": self.patch}
        return {name: value for name, value in given.items() if value is not None}


class DataConfig(_Section):
    """Which data, and who has them."""

    source: str = "digits"
    root: str = "."
    size: Count | None = None
    cache_dir: str | None = None
    limit: Count | None = None
    partition: Annotated[str, AfterValidator(_partition)] = "even"
    augment: str = "auto"
    lazy: bool = False
    """Read samples from their files each time they are needed, not all of them before training."""
    target: str | tuple[str, ...] | None = None
    """Tables: the column that is to be predicted, or several."""
    features: tuple[str, ...] | None = None
    """Tables: the columns that it is predicted from; by default all others."""
    tokens: Literal["characters", "bytes"] = "characters"
    """Text: what a token is. Bytes need no vocabulary, and the file is read as needed."""
    context: Count = 128
    """Text: tokens a sample."""
    classes: Count | None = None
    """How many classes there are, where the data do not tell."""


class TaskConfig(BaseModel):
    """What the model is trained for. Further settings are options of the task, as label_smoothing."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, AfterValidator(_task)] = "auto"
    """auto: what the data suggest; classification, multilabel, regression, segmentation, language, or one's
    own as package.module:Task."""

    @model_validator(mode="after")
    def _plain_options(self) -> Self:
        for name, value in self.options.items():
            if not isinstance(value, str | int | float | bool):
                raise ValueError(f"task.{name}: expected a number, a word or a truth value")
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options of the task."""
        return dict(self.model_extra or {})


class TrainConfig(_Section):
    """How training goes. Batches are per client."""

    clients: Count = 10
    mode: Literal["parallel", "sequential", "relay", "u-shaped"] = "parallel"
    epochs: Count = 10
    batch_size: Count = 32
    sync: Literal["step", "epoch"] | Count = "step"
    """Average gradients each step, or weights each K steps or each epoch. Relay: when to hand over."""
    share_differences: bool = False
    """Weights are shared as differences to their last mean, which a lossy codec.sync suits far better."""
    aggregation: Literal["server", "allreduce", "allgather"] = "server"
    """Who averages: the server (or its aggregator), or the clients among themselves: by all-reduce, or by an
    all-gather that gives the server's means to the bit and costs more bytes."""
    server_batching: Literal["per_client", "fused"] = "per_client"
    weighting: Literal["clients", "samples"] = "clients"
    optimizer: Literal["sgd", "adamw", "object"] = "sgd"
    """object: given in Python."""
    lr: Annotated[Real, Field(gt=0)] = 0.1
    momentum: Annotated[Real, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[Real, Field(ge=0)] = 5e-4
    nesterov: bool = False
    schedule: Literal["constant", "cosine", "steps", "every", "linear"] = "cosine"
    """linear falls at each step, to nearly nothing at the last; with a warm-up it is a one-cycle schedule."""
    milestones: tuple[Count, ...] = ()
    """schedule = steps: the epochs at which the learning rate is multiplied by gamma."""
    gamma: Annotated[Real, Field(gt=0, le=1)] = 0.1
    period: Count = 30
    """schedule = every: multiply by gamma each so many epochs."""
    warmup_epochs: Natural = 0
    drop_last: bool = False
    evaluate_every: Natural = 1
    """Epochs between evaluations; the last epoch is always evaluated. 0: only the last."""
    evaluate_batch: Count = 500
    checkpoint_every: Natural = 0
    """Steps between checkpoints, beside the one at the end of each epoch. 0: none beside it."""
    device: str = "cpu"
    """Where models compute: cpu, cuda, cuda:1, mps. Over the network, the server; clients have their own."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: models compute under autocast. Weights and what crosses a cut stay float32."""
    clip_gradient: Annotated[Real, Field(ge=0)] = 0.0
    """Scale gradients down to this norm before each update, those of each half alone. 0: as they are."""
    accumulate: Count = 1
    """How many steps' gradients are averaged for one update."""
    track_bias: Natural = 0
    """Steps between measurements of gradient bias, from the first step on. 0: none."""


class CodecConfig(_Section):
    """How tensors travel: up to the server, down to the clients, and to and from the aggregator."""

    up: CodecSpec = "ems:bpe=1.0"
    down: CodecSpec = "none"
    sync: CodecSpec = "none"
    tensors: dict[str, CodecSpec] = {}
    """Where several tensors cross a cut: codecs of single ones by name, instead of `up` (and, at the second
    cut of a U-shape, `down`). `cutlayer cuts` shows the names."""
    feedback: bool = True
    """What `sync` drops is added to what is shared next (error feedback): nothing is lost for good."""
    rate: Annotated[str, AfterValidator(_rate)] = "fixed"
    """`auto:min=1,max=8`: each client chooses its bits an element for `up` from its link and speed.
    `until:80%=0.5`: so many until this share of the run, and then `up` as it is."""
    measure: bool = True
    """Record the compression error of each step; costs the client one decode."""

    @property
    def follows_link(self) -> bool:
        """Whether each client chooses its rate by what it measures."""
        return self.rate.startswith("auto")


class RobustConfig(_Section):
    """What one client can do to a run at most, by mistake or on purpose."""

    max_value: Annotated[Real, Field(gt=0)] = 1e6
    """The largest magnitude of a value from a client over the network. Beyond it the client is at fault."""
    clip_smashed: Annotated[Real, Field(ge=0)] = 0.0
    """Clip smashed data to this magnitude. 0: as they come."""
    clip_gradient: Annotated[Real, Field(ge=0)] = 0.0
    """Scale down what a client's batch adds to the server's gradient, to this norm. 0: as it is."""
    clip_shared: Annotated[Real, Field(ge=0)] = 0.0
    """Scale down the gradients that a client shares, to this norm. 0: as they are."""
    mean: Literal["mean", "median", "trimmed"] = "mean"
    """How shares are averaged: weighted mean, coordinate-wise median, or mean without the extremes."""
    trim: Annotated[Real, Field(gt=0, lt=0.5)] = 0.2
    """mean = trimmed: which share of the clients is left out at each end of every coordinate."""


class LinkConfig(_Section):
    """The link between each client and the server."""

    spec: Annotated[str, AfterValidator(_link)] = "none"
    """One for all, or several that clients get in turn: `20mbit,10ms; 2mbit,30ms`."""
    device: Annotated[Real, Field(gt=0)] = 1e9
    """Multiply-adds a second of a simulated client. Only an automatic rate asks for it."""


class OutputConfig(_Section):
    """Where records and checkpoints go."""

    dir: str = "runs/latest"
    keep: Count = 3
    """How many checkpoints to keep, beside the best."""
    tensorboard: bool = True


# Settings that came later, with what they are for runs that do not have them.
_ADDED: dict[str, dict[str, Any]] = {
    "model": {"blocks": None, "heads": None, "patch": None},
    "data": {"target": None, "features": None, "tokens": "characters", "context": 128, "classes": None},
}


class Config(_Section):
    """All settings of a run. The defaults train digits on a small model in seconds."""

    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    task: TaskConfig = TaskConfig()
    train: TrainConfig = TrainConfig()
    codec: CodecConfig = CodecConfig()
    robust: RobustConfig = RobustConfig()
    link: LinkConfig = LinkConfig()
    output: OutputConfig = OutputConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        train, u_shaped = self.train, self.train.mode == "u-shaped"
        if u_shaped == isinstance(self.model.cut, str):
            wanted = 'two names, as in ["layer1", "fc"]' if u_shaped else "one name"
            raise ValueError(f"model.cut: mode {train.mode} needs {wanted}, not {self.model.cut!r}")
        if train.server_batching == "fused" and train.mode in ("sequential", "relay"):
            raise ValueError(
                f"train.server_batching: mode {train.mode} updates the server after every client, so there "
                "is nothing to fuse; use per_client"
            )
        if train.aggregation != "server" and train.mode == "relay":
            raise ValueError(
                "train.aggregation: in mode relay one client hands its weights to the next, and nothing is "
                "averaged; use server"
            )
        if train.share_differences and (train.sync == "step" or train.mode == "relay"):
            raise ValueError(
                "train.share_differences: needs weights that are averaged, each K steps or each epoch; use "
                "sync = K or epoch, and another mode than relay"
            )
        if train.share_differences and train.aggregation != "server":
            raise ValueError("train.share_differences: needs aggregation = server")
        lossy = self.codec.sync not in ("none", "dense")
        if train.aggregation == "allreduce" and lossy:
            raise ValueError(
                "codec.sync: an all-reduce adds numbers up, not frames of a codec; use sync = none, or "
                "aggregation = allgather or server"
            )
        if train.aggregation == "allgather" and lossy and self.codec.feedback:
            raise ValueError(
                "codec.feedback: with train.aggregation = allgather nobody keeps what a lossy codec.sync "
                "drops of the mean; use feedback = false, or aggregation = server"
            )
        if self.robust.clip_gradient and train.server_batching == "fused":
            raise ValueError(
                "robust.clip_gradient: one pass for all clients has one gradient; use server_batching = "
                "per_client"
            )
        if train.aggregation == "allreduce" and (self.robust.mean != "mean" or self.robust.clip_shared):
            raise ValueError(
                "robust: an all-reduce only adds up, and cannot tell clients apart; use mean = mean and "
                "clip_shared = 0, or aggregation = allgather or server"
            )
        if train.accumulate > 1 and (train.mode not in ("parallel", "u-shaped") or train.sync != "step"):
            raise ValueError(
                "train.accumulate: gradients are accumulated where all clients share them each step; use "
                "mode parallel or u-shaped, and sync = step"
            )
        if (train.schedule == "steps") != bool(train.milestones):
            raise ValueError("train.milestones: give them with schedule = steps, and only then")
        if list(train.milestones) != sorted(set(train.milestones)):
            raise ValueError("train.milestones: epochs must increase")
        if train.warmup_epochs > train.epochs:
            raise ValueError(f"train.warmup_epochs: {train.warmup_epochs} of {train.epochs} epochs")
        if train.nesterov and (train.optimizer != "sgd" or train.momentum == 0):
            raise ValueError("train.nesterov: needs optimizer = sgd with momentum")
        if self.codec.rate != "fixed":
            self._rate_fits()
        return self

    def _rate_fits(self) -> None:
        if self.codec.up == "none":
            raise ValueError(
                f"codec.rate: there is no codec.up whose rate could be chosen; use {', '.join(FAMILIES)}"
            )
        try:
            up = codec(self.codec.up)
            if self.codec.follows_link:
                bounds = RateBounds.parse(self.codec.rate)
                ladder(up, bounds.min, bounds.max)
            else:
                fixed_or_scheduled(self.codec.rate, up, self.train.epochs)
        except CutlayerError as error:
            raise ValueError(f"codec.rate: {error}") from None

    def identity(self) -> dict[str, Any]:
        """The settings that a checkpoint must share to be continued: all that shape the results."""
        settings: dict[str, Any] = json.loads(self.model_dump_json())
        del settings["output"]
        if not self.codec.follows_link:
            # Otherwise the link decides what is sent.
            del settings["link"]
        for name in ("root", "cache_dir", "lazy"):
            del settings["data"][name]
        # Runs of releases without these settings go on, too.
        if not self.codec.tensors:
            del settings["codec"]["tensors"]
        if self.robust == RobustConfig():
            del settings["robust"]
        if self.task == TaskConfig():
            del settings["task"]
        for section, added in _ADDED.items():
            for name, default in added.items():
                if settings[section][name] == default:
                    del settings[section][name]
        if not self.train.share_differences:
            del settings["train"]["share_differences"]
        for name in ("aggregation", "checkpoint_every", "device", "evaluate_batch", "track_bias"):
            del settings["train"][name]
        for name in ("accumulate", "clip_gradient", "precision"):
            if getattr(self.train, name) == TrainConfig.model_fields[name].default:
                del settings["train"][name]
        return settings

    def to_json(self) -> str:
        """The resolved configuration as JSON."""
        return self.model_dump_json(indent=2)

    def to_toml(self) -> str:
        """The resolved configuration as TOML, which `load` reads back to an equal one."""
        return to_toml(json.loads(self.model_dump_json()))


def from_mapping(settings: Mapping[str, Any], where: str = "configuration") -> Config:
    """Check plain settings, as from TOML or JSON."""
    try:
        return Config.model_validate(dict(settings))
    except ValidationError as error:
        raise ConfigError(explain(error, Config, where)) from None


def load(path: str | Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, or take the defaults, and apply overrides such as `train.epochs=5`."""
    settings = {} if path is None else read_toml(path)
    return from_mapping(overridden(settings, parse_overrides(overrides)), str(path or "configuration"))
