"""A trained model, or one side of it, as a plain state dict that any PyTorch program loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from torch import Tensor

from cutlayer.errors import FileError
from cutlayer.inference.client_half import about_half
from cutlayer.training import checkpoint
from cutlayer.training.load_run import Trained

Side = Literal["whole", "client", "server"]


def state_dict(trained: Trained, part: Side = "whole") -> dict[str, Tensor]:
    """The tensors of the whole model or one side, under the whole model's names.

    In a U-shape the client's side is head and tail.
    """
    if part == "whole":
        return dict(trained.model.state_dict())
    head, body, *tail = trained.parts
    chosen = [body] if part == "server" else [head, *tail]
    return {name: tensor for half in chosen for name, tensor in half.state_dict().items()}


def export(trained: Trained, path: str | Path, part: Side = "whole") -> dict[str, Tensor]:
    """Write the tensors to a safetensors file, whose metadata say what they are."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise FileError(f"{path}: an exported model is a .safetensors file; give it that name")
    tensors = state_dict(trained, part)
    config = trained.config
    about = {
        "part": part,
        "model": config.model.model_dump(),
        "codec": config.codec.up,
        "step": trained.step,
        "classes": trained.data_spec.classes,
        "class_names": trained.data_spec.class_names,
        "shape": trained.data_spec.shape,
        "mean": trained.data_spec.mean,
        "std": trained.data_spec.std,
        **about_half(trained),
    }
    checkpoint.write(path, tensors, {"cutlayer": json.dumps(about)})
    return tensors
