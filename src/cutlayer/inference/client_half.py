"""The client's side of a trained model: all that a device needs for split inference."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from cutlayer.codecs import Codec
from cutlayer.config.schema import Config, from_mapping
from cutlayer.data.spec import DataSpec
from cutlayer.errors import FileError
from cutlayer.models import AllowedModels
from cutlayer.plain_json import from_json
from cutlayer.protocol.admission import problem
from cutlayer.protocol.build import make_codecs, prepare_model
from cutlayer.protocol.run_codecs import RunCodecs
from cutlayer.seeding import undisturbed
from cutlayer.split import Part
from cutlayer.split.tensors import Inputs, Tensors, call, main_output, raw_bytes, samples_of, split_inputs
from cutlayer.training.load_run import Trained, open_run
from cutlayer.wire.text import plain_text


@dataclass(frozen=True)
class ClientSide:
    """Head (and tail, in a U-shape) of a trained model, what samples look like, and the codecs."""

    config: Config
    data_spec: DataSpec
    parts: tuple[Part, ...]

    @staticmethod
    def of(trained: Trained) -> ClientSide:
        """The client's side of a run."""
        head, _, *tail = trained.parts
        return ClientSide(trained.config, trained.data_spec, (head, *tail))

    @staticmethod
    def load(source: str | Path, at: str = "last", allowed: AllowedModels | None = None) -> ClientSide:
        """From a run's directory, or from what `cutlayer export --part client` wrote.

        A run's directory is taken for this user's own, and its model is imported whatever its name is. A file
        may come from anywhere: its model has to be built in, installed or `allowed`.
        """
        path = Path(source)
        if path.is_dir():
            return ClientSide.of(open_run(path, at))
        try:
            data = path.read_bytes()
            tensors = safetensors.torch.load(data)
            metadata = from_json(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            about = from_json(metadata["cutlayer"])
            part = about["part"]
            settled, data_spec = from_mapping(about["settings"], str(path)), DataSpec.parse(about["card"])
            wrong = problem(data_spec)
            if wrong is not None:
                raise ValueError(wrong)
        except OSError as error:
            raise FileError(
                f"{path}: cannot be read ({error.strerror}); give a run or an exported half"
            ) from error
        except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise FileError(
                f"{path}: is not the client's half of a run ({error}); make it with: "
                "cutlayer export RUN --part client"
            ) from error
        if part != "client":
            raise FileError(
                f"{path}: is the {plain_text(str(part), 40)} part; export the client's: --part client"
            )
        _, parts = prepare_model(settled, data_spec.placeholder_data().train, allowed)
        head, _, *tail = parts
        for part in (head, *tail):
            own = {name: tensors[name] for name in part.state_dict() if name in tensors}
            try:
                part.load_state_dict(own)
            except RuntimeError as error:
                raise FileError(f"{path}: does not fit the model that it names ({error})") from error
            part.eval()
        return ClientSide(settled, data_spec, (head, *tail))

    @property
    def head(self) -> Part:
        """From samples to smashed data."""
        return self.parts[0]

    @property
    def tail(self) -> Part | None:
        """U-shape: from the server's activations to logits."""
        return self.parts[1] if len(self.parts) > 1 else None

    @cached_property
    def codecs(self) -> RunCodecs:
        """The codecs of the run: `up` for smashed data, in a U-shape `down` for the server's activations."""
        return make_codecs(self.config)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the half: by it the server knows whether the two halves belong together."""
        state = {
            k: t.detach().cpu().contiguous().clone() for p in self.parts for k, t in p.state_dict().items()
        }
        return hashlib.sha256(safetensors.torch.save(dict(sorted(state.items())))).hexdigest()

    @torch.no_grad()
    def smash(self, images: Inputs) -> Tensors:
        """The smashed data of samples as they are stored: uint8 images, features, or several tensors."""
        self.data_spec.form.check_inputs(images)
        with undisturbed():
            found: Tensors = call(self.head, self.data_spec.preprocess().test(images))
        return found

    @property
    def u_shaped(self) -> bool:
        """Whether the server's answer goes through a tail."""
        return self.tail is not None

    @property
    def classed(self) -> bool:
        """Whether the model says which class a sample has."""
        return self.data_spec.form.classed

    def encode(self, smashed: Tensors, codec: Codec | None = None) -> bytes:
        """Smashed data as they travel: under the run's codecs, or under another."""
        codecs = self.codecs if codec is None else replace(self.codecs, up=codec, tensors={})
        return codecs.encode_evaluation(codecs.up, smashed)

    def decode(self, frame: bytes, max_elements: int | None = None) -> Tensors:
        """The server's answer, of at most so many elements."""
        return self.codecs.decode_cut(frame, max_elements)

    @staticmethod
    def raw_bytes(crossed: Tensors) -> int:
        """How many bytes what crossed the cut takes without a codec."""
        return raw_bytes(crossed)

    @torch.no_grad()
    def finish(self, answer: Tensors) -> Tensor:
        """The model's output from the server's answer; in a U-shape, through the tail."""
        return main_output(answer if self.tail is None else self.tail(answer))

    @staticmethod
    def count(images: Inputs) -> int:
        """How many samples there are."""
        return samples_of(images)

    def split(self, images: Inputs, size: int) -> Sequence[Inputs]:
        """Samples in pieces of at most so many, once all of them have the right form."""
        self.data_spec.form.check_inputs(images)
        return split_inputs(images, size)

    @staticmethod
    def join(pieces: Sequence[Tensor]) -> Tensor:
        """Pieces put together."""
        return torch.cat(list(pieces))


def about_half(trained: Trained) -> dict[str, Any]:
    """What an exported half says about itself, so that `ClientSide.load` needs nothing else. No paths."""
    settled = trained.config
    return {
        "settings": {
            "seed": settled.seed,
            "model": settled.model.model_dump(),
            "codec": settled.codec.model_dump(),
            "train": {"mode": settled.train.mode},
        },
        "card": asdict(trained.data_spec),
    }
