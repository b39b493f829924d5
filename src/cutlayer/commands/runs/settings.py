"""The flags that set up a run, for `train`, `serve` and `aggregate` alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutlayer.commands.options import Flag
from cutlayer.commands.runs.model_check import check_model
from cutlayer.imports import need

if TYPE_CHECKING:
    from cutlayer.config.schema import Config


@dataclass(frozen=True)
class RunSettings:
    """A file or a recipe, flags for what is changed often, and --set for everything else."""

    config: Annotated[Path | None, typer.Argument(help="a configuration file in TOML", metavar="CONFIG")] = (
        None
    )
    recipe: Annotated[str | None, Flag(help="a named recipe; `cutlayer recipes` lists them")] = None
    model: Annotated[
        str | None, Flag(help="vgg19, resnet18, resnet34, tiny, mlp, gpt, vit or package.module:factory")
    ] = None
    cut: Annotated[
        str | None, Flag(help="shallow, medium, deep or a module's name; for u-shaped two, as a,b")
    ] = None
    clients: Annotated[int | None, Flag(help="number of clients")] = None
    clients_per_step: Annotated[
        int | None, Flag(help="how many of them take part at a time, drawn anew; all by default")
    ] = None
    epochs: Annotated[int | None, Flag(help="passes over the training data")] = None
    batch: Annotated[int | None, Flag(help="batch size of each client")] = None
    lr: Annotated[float | None, Flag(help="learning rate")] = None
    codec: Annotated[str | None, Flag(help="codec of the smashed data, as ms:ratio=0.99,bits=2")] = None
    down: Annotated[str | None, Flag(help="codec of the gradients sent to clients")] = None
    sync_codec: Annotated[str | None, Flag(help="codec of the weights or gradients to average")] = None
    rate: Annotated[
        str | None,
        Flag(help="rate control: auto follows each link; until:80%=0.5 starts with 0.5 bits an element"),
    ] = None
    memory: Annotated[
        str | None,
        Flag(help="send what has changed since a sample's last visit: aqsgd:change=qu:bits=4 or splitcom"),
    ] = None
    mode: Annotated[str | None, Flag(help="parallel, sequential, relay, u-shaped or async")] = None
    device: Annotated[str | None, Flag(help="where models compute: cpu, cuda, cuda:1 or mps")] = None
    seed: Annotated[int | None, Flag(help="seed of weights, data order, partition and random codecs")] = None
    overrides: Annotated[
        list[str] | None,
        Flag("--set", help="any other setting, as train.momentum=0.8; may be repeated", metavar="A.B=C"),
    ] = None

    def resolve(
        self, out: Path | None, resume: bool = False, more: Mapping[str, Any] | None = None
    ) -> Config:
        """The configuration of the run. Its model and cut exist; `more` are settings of further flags."""
        need("pydantic", "training")
        from cutlayer.config.resolve import resolve_config

        flags: dict[str, Any] = {
            "model.name": self.model,
            "model.cut": tuple(self.cut.split(",")) if self.cut and "," in self.cut else self.cut,
            "train.clients": self.clients,
            "train.clients_per_step": self.clients_per_step,
            "train.epochs": self.epochs,
            "train.batch_size": self.batch,
            "train.lr": self.lr,
            "codec.up": self.codec,
            "codec.down": self.down,
            "codec.sync": self.sync_codec,
            "codec.rate": self.rate,
            "codec.memory": self.memory,
            "train.mode": self.mode,
            "train.device": self.device,
            "seed": self.seed,
            "output.dir": None if out is None else str(out),
            **(more or {}),
        }
        given = {key: value for key, value in flags.items() if value is not None}
        config = resolve_config(self.config, self.recipe, given, self.overrides or [], resume)
        check_model(config)
        return config
