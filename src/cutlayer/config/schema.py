"""The configuration of a run: one TOML file, checked as a whole before anything starts."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from cutlayer.codecs import codec
from cutlayer.config.async_settings import async_problem
from cutlayer.config.default_codecs import all_compressed
from cutlayer.config.explain import explain
from cutlayer.config.memory_settings import memory_problem
from cutlayer.config.sections import (
    CodecConfig,
    DataConfig,
    LinkConfig,
    ModelConfig,
    OutputConfig,
    RobustConfig,
    Section,
    TaskConfig,
    TrainConfig,
)
from cutlayer.config.toml import overridden, parse_overrides, read_toml, to_toml
from cutlayer.errors import ConfigError, CutlayerError
from cutlayer.rates.adaptive import RateBounds
from cutlayer.rates.ladder import FAMILIES, ladder
from cutlayer.rates.scheduled import fixed_or_scheduled

# Settings that came later, with what they are for runs that do not have them: those runs go on, too.
_ADDED: dict[str, dict[str, Any]] = {
    "model": {"blocks": None, "heads": None, "patch": None},
    "data": {"target": None, "features": None, "tokens": "characters", "context": 128, "classes": None},
    "train": {
        "share_differences": False,
        "accumulate": 1,
        "clip_gradient": 0.0,
        "precision": "float32",
        "clients_per_step": 0,
        "buffer": None,
        "max_staleness": None,
    },
    "link": {"speeds": [], "jitter": 0.0},
    "codec": {"tensors": {}, "memory": "none", "commitment": 0.0},
}


class Config(Section):
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

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, settings: Any) -> Any:
        return all_compressed(settings) if isinstance(settings, Mapping) else settings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        train, u_shaped = self.train, self.train.mode == "u-shaped"
        if u_shaped == isinstance(self.model.cut, str):
            wanted = 'two names, as in ["layer1", "fc"]' if u_shaped else "one name"
            raise ValueError(f"model.cut: mode {train.mode} needs {wanted}, not {self.model.cut!r}")
        wrong = async_problem(train, self.codec, self.robust)
        if wrong is not None:
            raise ValueError(wrong)
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
        if train.clients_per_step:
            self._sample_fits()
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
        wrong = memory_problem(train, self.codec)
        if wrong is not None:
            raise ValueError(wrong)
        return self

    def _sample_fits(self) -> None:
        train, name = self.train, "train.clients_per_step"
        if train.clients_per_step > train.clients:
            raise ValueError(f"{name}: {train.clients_per_step} of {train.clients} clients cannot take part")
        if train.mode == "async":
            raise ValueError(f"{name}: in mode async clients take part as they arrive; see train.buffer")
        if train.mode == "relay":
            raise ValueError(f"{name}: in mode relay one client takes part at a time anyway; leave it out")
        if train.aggregation != "server":
            raise ValueError(
                f"{name}: the server keeps the clients' half for those who are asked next, so it has to "
                "average; use train.aggregation = server"
            )
        if self.codec.follows_link:
            raise ValueError(
                f"{name}: clients keep nothing between rounds, also no measurements of their links; use "
                "codec.rate = fixed or until:..."
            )

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
        if not self.codec.follows_link and self.train.mode != "async":
            # Otherwise the link decides what is sent, or in which order it arrives.
            del settings["link"]
        for name in ("root", "cache_dir", "lazy"):
            del settings["data"][name]
        if self.robust == RobustConfig():
            del settings["robust"]
        if self.task == TaskConfig():
            del settings["task"]
        for section, added in _ADDED.items():
            for name, default in added.items():
                if name in settings.get(section, {}) and settings[section][name] == default:
                    del settings[section][name]
        del settings["codec"]["memory_limit"]
        how = ("aggregation", "checkpoint_every", "device", "evaluate_batch", "shard_server", "track_bias")
        for name in how:
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
