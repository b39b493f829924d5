"""The sections of a configuration: what each setting is, and which values it takes alone."""

import difflib
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cutlayer.codecs import codec
from cutlayer.codecs.rivals.memory_spec import MemorySpec
from cutlayer.data.partition import PARTITIONS
from cutlayer.errors import CutlayerError
from cutlayer.rates.adaptive import RateBounds
from cutlayer.rates.scheduled import RateSchedule
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


def _memory(spec: str) -> str:
    try:
        return "none" if spec in ("none", "") else str(MemorySpec.parse(spec))
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


class Section(BaseModel):
    """Settings of one kind. An unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(Section):
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


class DataConfig(Section):
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


class TrainConfig(Section):
    """How training goes. Batches are per client."""

    clients: Count = 10
    """How many clients train."""
    clients_per_step: Natural = 0
    """How many clients take part at a time, drawn anew for each step or round (`sync`). 0: all."""
    mode: Literal["parallel", "sequential", "relay", "u-shaped", "async"] = "parallel"
    """SplitFed V1, SplitFed V2, one client after the other, labels that stay with the client, or updates as
    clients arrive."""
    epochs: Count = 10
    batch_size: Count = 32
    sync: Literal["step", "epoch"] | Count = "step"
    """Average gradients each step, or weights each K steps or each epoch. Relay: when to hand over."""
    share_differences: bool = False
    """Weights are shared as differences to their last mean, which a lossy codec.sync suits far better."""
    aggregation: Literal["server", "allreduce", "allgather"] = "server"
    """Who averages: the server (or its aggregator), or the clients among themselves: by all-reduce, or by an
    all-gather that gives the server's means to the bit and costs more bytes."""
    buffer: Count | None = None
    """mode = async: the server updates after so many arrivals; by default half of the clients."""
    max_staleness: Natural | None = None
    """mode = async: gradients that are more updates old are discarded; by default 50."""
    server_batching: Literal["per_client", "fused"] = "per_client"
    """fused: one pass for the batches of all clients. Differs only through batch norm."""
    shard_server: bool = False
    """Under torchrun: each rank keeps a shard of the server's half (FSDP2), not all of it."""
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
    warmup_epochs: Natural | Annotated[Real, Field(ge=0)] = 0
    """The learning rate rises linearly for so long; 0.1 is a tenth of an epoch."""
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

    @property
    def arrivals(self) -> int:
        """mode = async: how many arrivals make an update."""
        return (self.clients + 1) // 2 if self.buffer is None else self.buffer

    @property
    def staleness(self) -> int:
        """mode = async: the most updates that a gradient may be old."""
        return 50 if self.max_staleness is None else self.max_staleness


class CodecConfig(Section):
    """How tensors travel: up to the server, down to the clients, and to and from the aggregator.

    Where none of the three is named, all are compressed (`all_compressed`). Where one is, the
    others are compressed only if they are named, too.
    """

    up: CodecSpec = "ems:bpe=2.0"
    """Codec of the smashed data; none is plain float32."""
    down: CodecSpec = "none"
    """Codec of the gradients that go back to clients; ems:bpe=3.0 where no codec is named."""
    sync: CodecSpec = "none"
    """Codec of the weights or gradients that clients average; ems:bpe=4.0 where no codec is named."""
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
    memory: Annotated[str, AfterValidator(_memory)] = "none"
    """What both ends remember of each sample. `aqsgd:change=qu:bits=4`: first visits travel under `up`, later
    ones as differences under another codec. `splitcom:threshold=0.98`: only samples that changed travel."""
    memory_limit: Annotated[Real, Field(gt=0)] = 4.0
    """GiB that the server may take for `memory`, of all clients together. A client takes its own share."""
    commitment: Annotated[Real, Field(ge=0, le=10)] = 0.0
    """Clients also pull smashed data z towards what they decode to: they add
    `commitment * |gradient| / |z| * (z - decoded z)` to the gradient that they get."""

    @property
    def follows_link(self) -> bool:
        """Whether each client chooses its rate by what it measures."""
        return self.rate.startswith("auto")


class RobustConfig(Section):
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


class LinkConfig(Section):
    """The link between each client and the server."""

    spec: Annotated[str, AfterValidator(_link)] = "none"
    """One for all, or several that clients get in turn: `20mbit,10ms; 2mbit,30ms`."""
    device: Annotated[Real, Field(gt=0)] = 1e9
    """Multiply-adds a second of a simulated client. An automatic rate, mode async and `speeds` ask for it."""
    speeds: tuple[Annotated[Real, Field(gt=0, le=1e6, ge=1e-6)], ...] = ()
    """How fast simulated clients are, as multiples of `device`, which clients get in turn: [1, 1, 1, 1, 0.1]
    makes each fifth one ten times slower. Simulated time is then computed and not measured."""
    jitter: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    """How much the time of a simulated client's batch varies, seeded: 0.2 is up to 20 % more or less."""


class OutputConfig(Section):
    """Where records and checkpoints go."""

    dir: str = "runs/latest"
    keep: Count = 3
    """How many checkpoints to keep, beside the best."""
    tensorboard: bool = True
